"""`--lang zh`: explanations, sampling and traces in Chinese; English otherwise, whatever the locale is."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import pytest

from tests.cli.conftest import Call

WORDS = re.compile(r"\b(the|of|is|are|with|and|more|token's|largest|value|input|terms|kept|removed)\b")


def test_an_explanation_in_chinese_has_the_same_numbers(call: Call, speaker: str) -> None:
    given = ("explain", speaker, "Hi there", "blocks.1.ffn.down", "--token", 3, "--index", 17, "--top", 5)
    english, chinese = call(*given), call(*given, "--lang", "zh")
    assert (chinese.exit_code, chinese.stderr) == (0, "")
    assert "与运行记录逐位相同" in chinese.stdout and "共 " in chinese.stdout
    assert not WORDS.search(re.sub(r"'.*'|\S+\.weight", "", chinese.stdout)), chinese.stdout
    decimals = re.compile(r"-?\d+\.\d+")
    assert decimals.findall(english.stdout) == decimals.findall(chinese.stdout)
    followed = call(*given, "--lang", "zh", "--follow", 4).stdout
    assert followed.splitlines()[0].endswith("，输入 4：通道 4")


def test_json_has_chinese_sentences_and_english_fields(call: Call, speaker: str) -> None:
    given = ("explain", speaker, "Hi", "blocks.0.ffn.down", "--index", 3, "--json")
    english, chinese = (json.loads(call(*given, *more).stdout) for more in ((), ("--lang", "zh")))
    assert list(english) == list(chinese) and english["result"] == chinese["result"]
    assert chinese["formula"] == "y = Σ 输入 * 权重的一行" and chinese["verdict"] == "与运行记录逐位相同"
    assert chinese["terms"][2]["name"] == "通道 2" and list(chinese["terms"][2]["factors"]) == [
        "权重",
        "输入",
    ]


@pytest.fixture
def chinese_locale(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in ("LANG", "LC_ALL", "LANGUAGE"):
        monkeypatch.setenv(name, "zh_CN.UTF-8")
    yield


@pytest.mark.usefixtures("chinese_locale")
def test_without_the_option_it_is_english_whatever_the_locale_is(call: Call, speaker: str) -> None:
    out = call("explain", speaker, "Hi", "embed", "--index", 3).stdout
    assert "bit for bit" in out and not re.search("[一-龥]", out)


def test_stages_and_the_draw_are_chinese(call: Call, speaker: str) -> None:
    drawn = call("sample", speaker, "Hi", "-t", 1.5, "-k", 7, "-p", 0.9, "--seed", 3,
                 "--repeat-penalty", 1.2, "--lang", "zh")  # fmt: skip
    assert drawn.exit_code == 0, drawn.stderr
    for text in ("提示词之后的第 1 个 token", "阶段", "惩罚", "top-p（核采样）", "温度", "随机数是", "候选"):
        assert text in drawn.stdout
    assert not WORDS.search(re.sub("'.*?'", "", drawn.stdout)), drawn.stdout
    assert "贪心：" in call("sample", speaker, "Hi", "-t", 0, "--lang", "zh").stdout


@pytest.mark.parametrize(
    ("option", "told"),
    [((), "个块中："), (("--growth",), "残差流向量的长度（所有 token 的平均）"), (("--heads",), "看向哪里"),
     (("--lens",), "每一层会说什么"),
     (("--zero", "blocks.1.attention:0"), "置零后的下一个 token")],
)  # fmt: skip
def test_views_of_a_trace_are_chinese(call: Call, speaker: str, option: tuple[str, ...], told: str) -> None:
    result = call("trace", speaker, "Hi", *option, "--lang", "zh")
    assert result.exit_code == 0, result.stderr
    assert told in result.stdout, result.stdout
    assert not WORDS.search(re.sub(r"'.*?'|\w+\.\w+", "", result.stdout)), result.stdout


@pytest.mark.parametrize(
    ("given", "told"),
    [(("explain", "{}", "Hi", "blocks.0.fnn", "--index", 3), "这个模型没有名为 'blocks.0.fnn' 的数值"),
     (("explain", "{}", "Hi", "embed", "--token", 90), "没有 token 90：记录中有 token 0 到 1"),
     (("trace", "{}", "Hi", "--heads", "--token", 90), "没有 token 90：运行过的是 token 0 到 1"),
     (("sample", "no such model", "Hi"), "no such model：不是文件、文件夹，也不是模型名称"),
     (("trace", "{}", "Hi", "--select", "blocks.0.fnn"), "'blocks.0.fnn' 的数值：是不是 blocks.0.ffn"),
     (("trace", "{}", "Hi", "--select", "zzzz"), "没有名为 'zzzz' 的数值：最前面的是 embed, "),
     (("trace", "{}", "Hi", "-n", 9999), "这份记录有 10,000 个 token，上下文只有 512：请缩短"),
     (("trace", "--open", "nothing.safetensors"), "nothing.safetensors：没有这个文件"),
     (("trace", "--open", "."), ".：不是运行记录（由"),
     (("trace", "{}", "Hi", "--save", "nowhere/x"), "nowhere/x：无法写入：文件夹 nowhere 不存在"),
     (("sample", "{}", "Hi", "--backend", "cpu", "--dtype", "float16"), "只用于 torch 后端，不用于 cpu"),
     (("trace", "deepseek-v3", "1"), "deepseek-v3：是 deepseek-ai/DeepSeek-V3 公布的配置，没有权重"),
     (("trace", "deepseek-v3", "1", "--random"), "deepseek-v3 的随机权重以 float32 需要")],
)  # fmt: skip
def test_what_goes_wrong_is_chinese(call: Call, speaker: str, given: tuple[object, ...], told: str) -> None:
    result = call(*(speaker if word == "{}" else word for word in given), "--lang", "zh")
    assert result.exit_code == 1 and told in result.stderr, result.stderr


@pytest.mark.parametrize(
    ("given", "told"),
    [(("explain", "{}", "Hi"), "哪个数值？请给出 MODEL、PROMPT 和 PATH"),
     (("explain", "{}", "Hi", "head", "--head", 1), "--head 只说明了位置的一半"),
     (("explain", "{}", "Hi", "head", "--open", "x"), "使用 --open 时只给出 MODEL 和 PATH"),
     (("explain", "{}", "head", "--open", "x", "-n", 3), "--max-tokens 不能与 --open 同用"),
     (("explain", "{}", "Hi", "head", "--zero", "blocks.0.attention:x"), "头是一个编号"),
     (("trace", "--open", "x", "y", "Hi"), "--open 显示已存的记录"),
     (("trace",), "缺少参数 'MODEL'"),
     (("trace", "{}", "Hi", "--system", "x"), "请同时给出 --chat")],
)  # fmt: skip
def test_wrong_usage_is_chinese(call: Call, speaker: str, given: tuple[object, ...], told: str) -> None:
    result = call(*(speaker if word == "{}" else word for word in given), "--lang", "zh")
    assert result.exit_code == 2 and told in " ".join(result.stderr.split()), result.stderr


def test_another_language_is_refused(call: Call, speaker: str) -> None:
    result = call("trace", speaker, "Hi", "--lang", "fr")
    assert result.exit_code == 2 and "'en', 'zh'" in result.stderr


def test_labels_of_notes_and_errors_are_chinese(call: Call, speaker: str) -> None:
    assert call("trace", speaker, "--lang", "zh").stderr == "注意：没有提示词：只追踪模型的起始 token\n"
    assert call("trace", speaker).stderr.startswith("note: ")
    failed = call("explain", speaker, "Hi", "blocks.0.fnn", "--lang", "zh").stderr
    assert failed.startswith("错误：这个模型没有名为") and "error" not in failed
    assert call("explain", speaker, "Hi", "blocks.0.fnn").stderr.startswith("error: ")
    wrong = call("trace", "--lang", "zh").stderr
    assert wrong.startswith("用法：") and "--help' 查看帮助。" in wrong
    assert wrong.splitlines()[-1] == "错误：缺少参数 'MODEL'（或 --open FILE）。"
    value = call("explain", speaker, "Hi", "head", "--zero", "blocks.0.attention:x", "--lang", "zh")
    assert value.exit_code == 2 and "错误：--zero 的值无效：" in value.stderr
    assert "Error: Missing argument" in call("trace").stderr, "the next command is English again"


def test_a_place_is_a_number_from_0_and_no_ordinal(call: Call, speaker: str) -> None:
    out = call(
        "explain", speaker, "Hi", "blocks.0.attention.scores", "--head", 0, "--index", 1, "--lang", "zh"
    ).stdout
    assert "token 1" in out and not re.search("第 ?[0-9]+ ?(个|行|列|对)", out), out
    assert 'token 1 "i" 看向哪里' in call("trace", speaker, "Hi", "--heads", "--lang", "zh").stdout
