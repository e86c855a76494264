"""The language of answers: `lang=zh` for sentences; names, numbers and addresses stay."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.serve.conftest import Client

HAN = re.compile("[一-龥]")


def texts(found: Any) -> list[str]:
    """Every text in an answer, also the names of fields."""
    if isinstance(found, dict):
        return [text for name, value in found.items() for text in (name, *texts(value))]
    if isinstance(found, list):
        return [text for value in found for text in texts(value)]
    return [found] if isinstance(found, str) else []


def test_english_is_what_comes_unasked(client: Client) -> None:
    run = client.start("tiny", "1 2 3")
    made = client.get(f"runs/{run}/explain", path="embed", token=1, index=3)
    for found in (made, client.get("tree", model="tiny"), client.get(f"runs/{run}/lens")):
        assert not any(HAN.search(text) for text in texts(found))


def test_an_explanation_is_the_same_but_for_its_words(client: Client) -> None:
    run = client.start("tiny", "1 2 3")
    query = {"path": "blocks.0.attention.scores", "token": 2, "index": "1,1"}
    english, chinese = (client.get(f"runs/{run}/explain", **query, lang=lang) for lang in ("en", "zh"))
    assert list(english) == list(chinese)
    assert HAN.search(chinese["formula"]) and HAN.search(chinese["verdict"]) and HAN.search(chinese["sum_of"])
    assert all(HAN.search(one["name"]) for one in chinese["inputs"])
    for part in ("inputs", "terms"):
        for one, other in zip(english[part], chinese[part], strict=True):
            same = set(one) - {"name", "factors"}
            assert {name: one[name] for name in same} == {name: other[name] for name in same}


def test_the_tree_says_its_formulas(client: Client) -> None:
    english, chinese = (client.get("tree", model="tiny", lang=lang) for lang in ("en", "zh"))
    for one, other in zip(english["nodes"], chinese["nodes"], strict=True):
        assert HAN.search(other["formula"]) and other["formula"] != one["formula"]
        assert {**other, "formula": ""} == {**one, "formula": ""}
    loaded = client.http.post("/api/models?lang=zh", json={"model": "tiny"}).json()
    assert loaded["nodes"] == chinese["nodes"]


def test_warnings_about_a_prompt_are_said_again(client: Client) -> None:
    asked = {"model": "speaker", "prompt": "a <|im_end|> b"}
    begun = client.http.post("/api/runs?lang=zh", json=asked).json()
    assert begun["warnings"] and all(HAN.search(text) for text in begun["warnings"])
    run = begun["run"]
    assert client.get(f"runs/{run}", lang="zh")["warnings"] == begun["warnings"]
    english = client.get(f"runs/{run}")["warnings"]
    assert len(english) == len(begun["warnings"]) and "control tokens" in english[0]


def test_stages_keep_their_names_and_say_their_settings(client: Client) -> None:
    run = client.start("tiny", "1 2 3")
    query = {"repetition_penalty": 1.3, "lang": "zh"}
    stages = client.get(f"runs/{run}/candidates", **query)["stages"]
    found = {stage["name"]: stage["setting"] for stage in stages}
    assert found["penalties"] == "重复 1.3，出现 0，频率 0，作用于最近 64 个编号" and "top-k" in found
    assert HAN.search(client.get(f"runs/{run}/lens", lang="zh")["computed_by"])


@pytest.mark.parametrize(
    ("at", "status", "told"),
    [("runs/none", 404, "这次运行已经不在了：请重新开始"),
     ("runs/{run}/value?path=embed&token=9", 400, "没有 token 9：这次运行有 token 0 到 2"),
     ("runs/{run}/summary?path=embd", 404, "没有名为 'embd' 的数值：是不是 embed 或 head？"),
     ("runs/{run}/explain?path=embed&token=1&index=99", 400, "embed 在 99 处没有数：它有通道 0 到 47"),
     ("runs/{run}/heads?top=99", 400, "top：不应大于 20"),
     ("tree?model=tni", 404, "没有加载名为 'tni' 的模型"),
     ("nothing", 404, "这个地址没有内容")],
)  # fmt: skip
def test_errors_are_said_in_the_language(client: Client, at: str, status: int, told: str) -> None:
    run = client.start("tiny", "1 2 3")
    address = at.format(run=run)
    answer = client.http.get(f"/api/{address}{'&' if '?' in address else '?'}lang=zh")
    assert answer.status_code == status and answer.json()["error"].startswith(told), answer.text


def test_the_guard_speaks_it_too(client: Client) -> None:
    answer = client.http.post("/api/runs?lang=zh", content=b"x" * (2 << 20))
    assert answer.status_code == 413 and answer.json()["error"] == "一次请求最多 1,048,576 字节"


def test_another_language_is_refused(client: Client) -> None:
    assert "lang" in client.error("about", 400, lang="fr")
