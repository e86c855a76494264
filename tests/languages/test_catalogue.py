"""The catalogue itself, and what the page's server and the commands say."""

from __future__ import annotations

import ast
import inspect
import re
from itertools import product
from pathlib import Path

import pytest

import glassgear
from glassgear.languages import LANGUAGES, catalogue, words_in, zh_explain, zh_serve, zh_terminal
from glassgear.languages.catalogue import KINDS, Catalogue
from glassgear.model import gears
from glassgear.model.gears import Gear
from glassgear.sampling import Sampler, Sampling
from glassgear.serve.models import Models

SOURCE = Path(glassgear.__file__).parent
chinese = words_in("zh")
# Whose refusals the page or the commands with --lang show.
SPOKEN = [
    *(SOURCE / "serve").glob("*.py"), *(SOURCE / "trace").rglob("*.py"), SOURCE / "sampling_settings.py",
]  # fmt: skip
APART = {
    "server.py",  # speaks to the terminal that starts it
    "trace.py",  # a damaged file
    "record.py",  # a pattern that fits nothing
}


def test_languages_are_english_and_chinese() -> None:
    assert LANGUAGES == ("en", "zh")
    assert words_in("en")("channel 3") == words_in("fr")("channel 3") == "channel 3"
    assert chinese("channel 3") == "通道 3"


def test_both_forms_take_the_same_values_of_known_kinds() -> None:
    for template in catalogue().templates:
        named = set(re.findall(r"\{(\w+)\}", template.other))
        repeated = {"same", "name"}  # a name that the English sentence says twice
        assert named <= set(template.kinds), template
        assert set(template.kinds) - named <= repeated, template
        assert set(template.kinds.values()) <= set(KINDS), template


def test_no_sentence_has_two_forms() -> None:
    groups = [
        part
        for file in (zh_explain, zh_serve, zh_terminal)
        for name, part in vars(file).items()
        if name.isupper() and name != "SENTENCES" and isinstance(part, dict)
    ]
    found: dict[str, str] = {}
    for part in groups:
        for english, other in part.items():
            assert found.setdefault(english, other) == other, english


def test_values_pass_through_and_sentences_inside_are_said() -> None:
    own = Catalogue(
        [
            {
                "{n:int} apples of {who:words}": "{who}的 {n} 个苹果",
                "the king": "国王",
                "{p:name} is {x:float}": "{p} 为 {x}",
            }
        ]
    )
    assert own.say("1,234 apples of the king") == "国王的 1,234 个苹果"
    assert own.say("3 apples of the queen") == "3 apples of the queen", "no half of a sentence"
    assert own.say("blocks.0.ffn is -1.5e-07") == "blocks.0.ffn 为 -1.5e-07"
    assert own.has("12, 5") and own.has("blocks.3.ffn.down") and own.has("RMSNorm") and not own.has("a queen")


def test_what_isn_t_in_the_catalogue_stays_english() -> None:
    text = "a sentence that nobody wrote"
    assert chinese(text) == text and not catalogue().has(text)


@pytest.mark.parametrize("text", ["{n}", "{n:int}", "{", "a {0} b", "x" * 5000, "\n", "token 3 '\n'", "西安"])
def test_any_text_may_be_asked_for(text: str) -> None:
    assert chinese(text)


def kinds_of_gears() -> list[type[Gear]]:
    return [k for k in vars(gears).values() if isinstance(k, type) and issubclass(k, Gear) and k is not Gear]


def test_every_gear_s_formula_has_a_chinese_form() -> None:
    first = {inspect.cleandoc(k.__doc__ or "").split("\n\n")[0].replace("\n", " ") for k in kinds_of_gears()}
    assert len(first) > 20
    assert [text for text in first if not catalogue().has(text)] == []
    assert set(zh_serve.GEARS) == first, "none is left over"


def test_every_stage_of_sampling_has_a_chinese_form() -> None:
    import numpy as np

    full = {"temperature": 0.7, "top_k": 9, "top_p": 0.9, "min_p": 0.1, "repetition_penalty": 1.3}
    for settings in (full | {"logit_bias": {3: 1.0}}, full | {"penalty_window": -1}, {"temperature": 0.0}):
        sampler = Sampler(Sampling(**settings), hook=lambda logits, ids: None)
        for stage in sampler.stages(np.linspace(-3, 3, 50).astype(np.float32), [1, 2]):
            assert catalogue().has(stage.name), stage.name
            assert catalogue().has(stage.setting) or stage.name == "hook", stage.setting


def test_notes_on_models_have_a_chinese_form() -> None:
    for model in Models().listed():
        assert not model["note"] or catalogue().has(model["note"]), model["note"]


# --- refusals ---------------------------------------------------------------------------------

SAMPLES = ("5", "'x'", "blocks.0.ffn", "head", "", "token 5", "channel 0 to 5", "5, 6", "has inputs 0 to 5",
           "no next token: 0", "the run has tokens 0 to 5", "the model's logits", "from 0 to 5", "0.5",
           "5 at id 3", "there is no value called", ": did you mean x?", "no token")  # fmt: skip


def sentences(node: ast.AST) -> list[list[str | None]]:
    """The texts of a literal, in parts; None stands for a value."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return [[node.value]]
    if isinstance(node, ast.JoinedStr):
        return [[v.value if isinstance(v, ast.Constant) else None for v in node.values]]  # type: ignore[misc]
    if isinstance(node, ast.IfExp):
        return sentences(node.body) + sentences(node.orelse)
    return []


def refusals(path: Path) -> list[list[str | None]]:
    """What a file's errors say."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    made = [n.exc for n in ast.walk(tree) if isinstance(n, ast.Raise) and isinstance(n.exc, ast.Call)]
    said = [parts for call in made for text in call.args[:1] for parts in sentences(text)]
    named = [call for call in made if ast.unparse(call.func).endswith("unknown_path")]
    return said + [[*parts, " ", None] for call in named for parts in sentences(call.args[2])]


def is_known(parts: list[str | None]) -> bool:
    """Whether a sentence has a form with some values in its places."""
    places = [i for i, part in enumerate(parts) if part is None]
    few = SAMPLES if len(places) < 4 else SAMPLES[:3]
    for values in product(few, repeat=len(places)):
        filled = dict(zip(places, values, strict=True))
        if catalogue().has("".join(filled.get(i, part) or "" for i, part in enumerate(parts))):
            return True
    return False


@pytest.mark.parametrize(
    "path", [p for p in SPOKEN if p.name not in APART], ids=lambda p: p.relative_to(SOURCE).as_posix()
)
def test_every_refusal_has_a_chinese_form(path: Path) -> None:
    unknown = [parts for parts in refusals(path) if not is_known(parts)]
    assert unknown == []


@pytest.mark.parametrize(
    ("english", "expected"),
    [
        (
            "there is no value called 'blocks.0.fn': did you mean blocks.0.ffn or blocks.1.ffn?",
            "没有名为 'blocks.0.fn' 的数值：是不是 blocks.0.ffn 或 blocks.1.ffn？",
        ),
        ("there is no token 9: the run has tokens 0 to 3", "没有 token 9：这次运行有 token 0 到 3"),
        (
            "temperature must be 0 or more, and finite, found -1.0",
            "temperature 必须不小于 0 且有限，给出的是 -1.0",
        ),
        ("my model: is no file, no folder and no model's name; did you mean `a` or `b`?",
         "my model：不是文件、文件夹，也不是模型名称；是不是 `a` 或 `b`？"),
        ("the prompt is 5,000 tokens, the context holds 2,048: shorten it",
         "提示词有 5,000 个 token，上下文只有 2,048：请缩短"),
        ("truncated: 1 token left out, 8 tokens kept", "已截断：去掉 1 个 token，保留 8 个 token"),
        ("the text begins with <s> (BOS) 2 times: models are trained to see it once",
         "文本以 <s>（BOS）开头 2 次：模型训练时只见过一次"),
        ("key channel 3 of token 5 ' of token 7'", "token 5 ' of token 7' 的键的通道 3"),
    ],
)  # fmt: skip
def test_sentences_read_like_chinese(english: str, expected: str) -> None:
    assert chinese(english) == expected


COUNTED_FROM_1 = ("message {n", "at line {n", "by score", "by size", "after the prompt", ", section {s",
                  "at character {n")  # fmt: skip


def test_what_is_counted_from_0_is_no_ordinal() -> None:
    """`第 1 个 token` would be the first one, and token 1 is the second."""
    ordinal = re.compile(r"第 ?\{")
    found = [t.english for t in catalogue().templates if ordinal.search(t.other)]
    assert [text for text in found if not any(words in text for words in COUNTED_FROM_1)] == []
    assert chinese("embed of token 1 'i'") == "token 1 'i' 的 embed"
    page = (SOURCE / "serve" / "page" / "js" / "texts.js").read_text(encoding="utf-8")
    assert ordinal.search(page) is None
