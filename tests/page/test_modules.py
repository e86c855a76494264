"""The page's pure modules, run in the browser that they are written for."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from graphlib import TopologicalSorter
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import glassgear.serve as page_folder

FOLDER = Path(page_folder.__file__).parent / "page"


@pytest.fixture
def run(visit: Callable[..., Any]) -> Callable[[str], Any]:
    """Evaluates an expression with the modules at hand as `link`, `format`, `scale`, `pieces`, ..."""
    page = visit(ready=False)
    names = ("link", "format", "scale", "pieces", "patterns", "texts", "tour_texts", "reading", "views")
    loads = ", ".join(f"import('/js/{name}.js')" for name in names)

    def evaluate(expression: str) -> Any:
        return page.evaluate(
            f"async () => {{ const [{', '.join(names)}] = await Promise.all([{loads}]); "
            f"return {expression}; }}"
        )

    return evaluate


def test_link_carries_every_part_of_the_state(run: Callable[[str], Any]) -> None:
    state = run(
        """link.decode(link.encode({
        model: 'a/b c.gguf', prompt: 'x & y = 50 %\\n西安 #1 + 1', gear: 'blocks.2.ffn',
        value: 'blocks.2.ffn.down', view: 'value', language: 'zh', tour: 'rope',
        habit: 'previous', token: 3, head: 2, made: 7, open: 2,
        index: [4, 17], chat: true, sampling: {...link.defaultSampling(), temperature: 0, seed: 9},
        changes: [{op: 'zero', path: 'blocks.1.attention', head: 0}]}))"""
    )
    assert state == {
        "model": "a/b c.gguf", "prompt": "x & y = 50 %\n西安 #1 + 1", "gear": "blocks.2.ffn",
        "value": "blocks.2.ffn.down", "view": "value", "language": "zh", "tour": "rope",
        "habit": "previous", "token": 3,
        "head": 2,
        "made": 7, "open": 2, "index": [4, 17], "chat": True,
        "sampling": {"temperature": 0, "top_k": 40, "top_p": 0.95, "min_p": 0.05, "repetition_penalty": 1,
        "seed": 9},
        "changes": [{"op": "zero", "path": "blocks.1.attention", "head": 0}],
    }  # fmt: skip


@pytest.mark.parametrize(
    "hash_", ["", "#", "#=&&", "#t=-1&i=a&x={&h=1e9", "#p=%E0%A4%A&x=[1]", "#x=%5B%7B%7D%5D"]
)
def test_malformed_link_is_an_empty_one(run: Callable[[str], Any], hash_: str) -> None:
    assert run(f"link.decode('{hash_}')") == {}


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("0", "0"), ("-0.5", "−0.5000"), ("1.23456", "1.235"), ("123456.7", "123,457"), ("0.00012345",
        "0.0001234"),
        ("1.5e-7", "1.5e−7"), ("-2.5e9", "−2.5e9"), ("Infinity", "∞"), ("-Infinity", "−∞"), ("NaN", "NaN"),
    ],
)  # fmt: skip
def test_numbers_are_written_for_people(run: Callable[[str], Any], value: str, shown: str) -> None:
    assert run(f"format.number({value})") == shown


def test_nine_digits_tell_every_float32_apart(run: Callable[[str], Any]) -> None:
    assert run(
        """[0.1, 1/3, 16777217, 3.4e38, 1e-45].every((v) => {
        const one = Math.fround(v); return Math.fround(Number(format.exact(one).replace('−',
        '-'))) === one; })"""
    )


def test_large_numbers_are_shortened(run: Callable[[str], Any]) -> None:
    assert run("[134515008, 8030261248, 999, 1000].map(format.short)") == ["135M", "8.03B", "999", "1k"]
    assert run("[0, 0.00001, 0.0031, 0.259].map(format.percent)") == ["0 %", "< 0.01 %", "0.31 %", "25.9 %"]


LUMINANCE = """((rgb) => { const [r, g, b] = rgb.map((c) => { c /= 255; return c <= 0.03928 ? c / 12.92 :
    ((c + 0.055) / 1.055) ** 2.4; }); return 0.2126 * r + 0.7152 * g + 0.0722 * b; })"""


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_scale_moves_away_from_the_paper_on_both_sides_equally(run: Callable[[str], Any], theme: str) -> None:
    sides = run(
        f"""[1, -1].map((sign) => Array.from({{length: 41}}, (_, i) =>
        {LUMINANCE}(scale.diverging(sign * i / 40, 1,
        '{theme}'))))"""
    )
    for side in sides:
        steps = [later - before for before, later in pairwise(side)]
        assert all(step < 0 if theme == "light" else step > 0 for step in steps)
    assert abs(sides[0][-1] - sides[1][-1]) < 0.06, "both ends are about as far from the paper"
    assert sides[0][0] == sides[1][0]


def test_signs_differ_for_eyes_without_red_or_green(run: Callable[[str], Any]) -> None:
    # Without red or green receptors, blue against yellow is what is left: compare blue with the rest.
    for theme in ("light", "dark"):
        for share in (0.3, 0.6, 0.9):
            minus, plus = run(f"[-{share}, {share}].map((v) => scale.diverging(v, 1, '{theme}'))")
            assert (minus[2] - (minus[0] + minus[1]) / 2) - (plus[2] - (plus[0] + plus[1]) / 2) > 40


def test_limit_is_round_and_not_moved_by_an_outlier(run: Callable[[str], Any]) -> None:
    assert run("scale.limitOf(Float32Array.from({length: 1000}, (_, i) => i ? (i % 7) / 10 : 900))") == 1
    assert run("[0.34, 0.2, 12, 5.1, 0].map(scale.rounded)") == [0.5, 0.2, 20, 10, 1]
    assert run("scale.limitOf(Float32Array.from([NaN, Infinity, -Infinity]))") == 1


def test_not_a_number_is_seen_at_once(run: Callable[[str], Any]) -> None:
    assert run("scale.diverging(NaN, 1, 'dark')") == [214, 38, 160]


def test_characters_in_pieces_are_joined(run: Callable[[str], Any]) -> None:
    for texts, hexes in (
        ("['a', ' <E8>', '<A5>', '<BF>', '<E5><AE>', '<89>']", "undefined"),
        ("['a', '?', '?', '?', '?', '?']", "['61', '20e8', 'a5', 'bf', 'e5ae', '89']"),
    ):
        made = run(f"pieces.chips({texts}, {hexes}, [])")
        assert [chip["text"] for chip in made] == ["a", " <E8>", "<A5>", "<BF>", "<E5 AE>", "<89>"]
        assert [chip["part"] and chip["part"]["glyph"] for chip in made] == [
            None,
            None,
            None,
            " 西",
            None,
            "安",
        ]


def test_spelling_of_vocabularies_is_undone(run: Callable[[str], Any]) -> None:
    assert run("['Ġthe', '▁the', '<0x0A>', 'Ċ'].map(pieces.spelled)") == [" the", " the", "\n", "\n"]
    assert run("pieces.quoted({text: ' the\\n'})") == "·the↵"
    assert run("pieces.quoted({text: '\\u200b'})") == "U+200B"
    assert run("pieces.quoted({text: ''})") == "∅"


def test_control_token_is_no_bytes(run: Callable[[str], Any]) -> None:
    assert run("pieces.chips(['<0A>'], undefined, [true])") == [
        {"text": "<0A>", "special": True, "part": None}
    ]


def test_habits_of_heads(run: Callable[[str], Any]) -> None:
    assert run("patterns.habit({previous: 0.7, first: 0.2, self: 0.1})") == {"name": "previous", "share": 0.7}
    assert run("patterns.habit({previous: 0.2, first: 0.3, self: 0.25})")["name"] == "wide"
    layers = [
        {"path": "blocks.0.attention", "heads": [{"previous": 0.1}, {"previous": 0.9}]},
        {"path": "blocks.2.attention", "heads": [{"previous": 0.95}]},
    ]
    order = run(f"patterns.ranked({json.dumps(layers)}, 'previous')")
    assert [(one["layer"], one["head"], one["share"]) for one in order] == [
        (2, 0, 0.95),
        (0, 1, 0.9),
        (0, 0, 0.1),
    ]


def test_what_a_token_reads_is_one_head_or_the_mean_of_all(run: Callable[[str], Any]) -> None:
    row = "{array: Float32Array.from([1, 0, 0, 0.5, 0.5, 0]), heads: 2, seen: 3}"
    assert run(f"[...reading.weights({row}, 1)]") == [0.5, 0.5, 0]
    assert run(f"[...reading.weights({row}, -1)]") == [0.75, 0.25, 0]
    assert run(f"[...reading.weights({row}, 7)]") == [0.75, 0.25, 0], "a head that isn't there: all of them"


def test_the_first_layer_that_prefers_the_answer_for_good_is_said(run: Callable[[str], Any]) -> None:
    layers = [{"top": [{"id": one}]} for one in (3, 7, 3, 7, 7)]
    said = {"final": {"id": 7, "text": "x"}, "layers": layers, "decided": 3}
    told = run(f"views.lensWords({json.dumps(said)})")
    assert "layer 3 on" in told and "Layer 1 had it" in told
    said["layers"][1]["top"][0]["id"] = 3  # type: ignore[index]
    assert run(f"views.lensWords({json.dumps(said)})").count("ayer") == 1


def test_every_text_is_there_in_both_languages(run: Callable[[str], Any]) -> None:
    gaps = run(
        """Object.entries(texts.table).filter(([, both]) => both.length !== 2 ||
        both.some((one) => one === '')).map(([key]) => key)"""
    )
    assert gaps == []
    for place in ("names", "short_names"):
        english, chinese = run(f"texts.table.{place}.map((names) => Object.keys(names).sort())")
        assert english == chinese
    assert run("texts.table.keys[0].length === texts.table.keys[1].length")
    wrong = run(
        """Object.entries({...texts.table}).filter(([, [en, zh]]) => typeof en === 'string' &&
        (en.match(/\\{\\w+\\}/g) ?? []).sort().join() !==
        (zh.match(/\\{\\w+\\}/g) ?? []).sort().join()).map(([key]) => key)"""
    )
    assert wrong == [], "both languages take the same values"
    assert run(
        """Object.values(tour_texts.TOUR).every((step) => [step.title, step.text, step.right ?? ['a', 'b']]
        .every((both) => both.length === 2 && both.every(Boolean)))"""
    )


def test_every_text_that_is_asked_for_is_in_the_table(run: Callable[[str], Any]) -> None:
    source = "".join(path.read_text("utf-8") for path in FOLDER.rglob("*.js"))
    source += (FOLDER / "index.html").read_text("utf-8")
    asked = set(re.findall(r"""\bt\("(\w+)\"""", source))
    asked |= set(re.findall(r"""data-(?:text|label|tip|hint)="(\w+)\"""", source))
    assert len(asked) > 80
    assert asked - set(run("Object.keys(texts.table)")) == set()


def test_modules_import_one_way_and_main_reaches_each() -> None:
    sources = {path.name: path.read_text("utf-8") for path in (FOLDER / "js").glob("*.js")}
    imports = {name: set(re.findall(r'from "\./([\w.]+)"', text)) for name, text in sources.items()}
    order = [*TopologicalSorter(imports).static_order()]  # raises where they go in a circle
    assert set(order) == set(sources), "what is imported is there"
    reached, ahead = set[str](), ["main.js"]
    while ahead:
        name = ahead.pop()
        ahead.extend(imports[name] - reached - {name})
        reached.add(name)
    assert reached == set(sources), "no module lies there unused"
    assert {name for name, text in sources.items() if len(text.splitlines()) > 400} == set()
