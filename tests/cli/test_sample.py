"""`glassgear sample`: the stages, the draw, and the ids of `run`."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import glassgear
from tests.cli.conftest import Call
from tests.cli.test_ids import DECODER


@pytest.fixture
def decoder(tmp_path: Path) -> str:
    path = tmp_path / "decoder.toml"
    path.write_text(DECODER, encoding="utf-8")
    return str(path)


def choices(call: Call, *arguments: object) -> list[dict[str, Any]]:
    result = call("sample", *arguments, "--json")
    assert result.exit_code == 0, result.stderr
    return [json.loads(line) for line in result.stdout.splitlines()]


SETTINGS = [
    (),
    ("-t", 0),
    ("-t", 1.7, "-k", 0, "-p", 1, "--min-p", 0),
    ("-t", 1, "-k", 30, "-p", 0.8),
    ("-t", 2, "-k", 0, "-p", 0.9, "--min-p", 0.1, "--repeat-penalty", 1.5, "--presence-penalty", 0.4,
     "--frequency-penalty", 0.3),
    ("-k", 1),
]  # fmt: skip


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
@pytest.mark.parametrize("seed", [0, 7, 1234])
def test_the_ids_are_those_of_run(call: Call, decoder: str, settings: tuple[object, ...], seed: int) -> None:
    given = (decoder, "1 2 3", "--random", "--seed", seed, *settings)
    run = [int(word) for word in call("run", *given, "-n", 6).stdout.split()]
    assert [choice["chosen"]["id"] for choice in choices(call, *given, "--steps", 6)] == run


def test_texts_are_continued_as_run_does_it(call: Call, speaker: str) -> None:
    made = choices(call, speaker, "a", "-n", 4, "--seed", 3)
    logged = [
        json.loads(line) for line in call("run", speaker, "a", "-n", 4, "-s", 3, "--json").stdout.splitlines()
    ]
    assert [c["chosen"]["id"] for c in made] == [i for line in logged for i in line["ids"]]


def test_the_text_ends_where_the_model_ends_it(call: Call, speaker: str) -> None:
    made = choices(call, speaker, "y", "-t", 0, "-n", 9)
    assert [c["chosen"]["end"] for c in made] == [False, False, True]  # "z", ".", the end
    assert "It ends the text." in call("sample", speaker, "y.", "-t", 0).stdout


def test_each_stage_says_what_it_kept_and_removed(call: Call, decoder: str) -> None:
    given = ("-k", 20, "-p", 0.7, "--min-p", 0.3, "-t", 1.5, "--repeat-penalty", 1.2)
    (made,) = choices(call, decoder, "1 2 3", "--random", "--seed", 5, *given)
    names = [stage["name"] for stage in made["stages"]]
    assert names == ["logits", "penalties", "top-k", "top-p", "min-p", "temperature"]
    for before, stage in zip(made["stages"], made["stages"][1:], strict=False):
        assert stage["kept"] + stage["removed_count"] == before["kept"]
        assert len(stage["removed"]) == min(3, stage["removed_count"])
        p = [one["probability"] for one in stage["removed"]]
        assert p == sorted(p, reverse=True)
    assert made["stages"][2]["kept"] == 20 and made["stages"][2]["setting"] == "20"


def test_candidates_before_and_after(call: Call, decoder: str) -> None:
    given = ("--random", "--seed", 5, "-k", 4, "-p", 1, "--min-p", 0, "-t", 0.5)
    (made,) = choices(call, decoder, "1 2 3", *given, "--top", 8)
    logits = glassgear.load(decoder, random=True, seed=5).logits([1, 2, 3])[-1].astype(float)
    order = np.argsort(-logits, kind="stable")
    p = np.exp(logits - logits.max()) / np.exp(logits - logits.max()).sum()
    hot = np.exp((logits[order[:4]] - logits.max()) / 0.5)
    rows = made["candidates"][:8]
    assert [row["id"] for row in rows] == order[:8].tolist()
    assert [row["probability"] for row in rows] == pytest.approx(p[order[:8]].tolist(), rel=1e-4)
    assert [row["final"] for row in rows] == pytest.approx([*(hot / hot.sum()), 0, 0, 0, 0], rel=1e-3)
    assert [row["removed_by"] for row in rows] == [None] * 4 + ["top-k"] * 4


def test_the_random_number_falls_into_the_interval_of_the_chosen_id(call: Call, decoder: str) -> None:
    made = choices(call, decoder, "1", "--random", "--seed", 9, "-t", 1.5, "-k", 0, "-p", 1, "-n", 12)
    for choice in made:
        low, high = choice["draw"]["interval"]
        assert low <= choice["draw"]["number"] < high
        row = next(r for r in choice["candidates"] if r["id"] == choice["chosen"]["id"])
        assert high - low == pytest.approx(row["final"], rel=1e-6)  # as long as it is probable
    numbers = [choice["draw"]["number"] for choice in made]
    bits = np.random.PCG64(9)
    assert numbers == [(int(n) >> 11) * 2.0**-53 for n in bits.random_raw(12)]


def test_greedy_draws_nothing(call: Call, speaker: str) -> None:
    (made,) = choices(call, speaker, "a", "-t", 0)
    assert made["draw"] is None and made["stages"][-1]["name"] == "greedy"
    told = call("sample", speaker, "a", "-t", 0).stdout
    assert 'Greedy: "b" (id 98) has the largest logit' in told


def test_the_tables(call: Call, speaker: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    result = call("sample", speaker, "a", "-t", 30, "-k", 9, "-p", 1, "--min-p", 0, "--seed", 1, "-n", 2)
    assert result.exit_code == 0
    told = result.stdout
    assert "Token 1 after the prompt" in told and "Token 2 after the prompt" in told
    assert "removed, the likeliest" in told and "removed by top-k" in told and "seed 1" in told
    assert max(map(len, told.splitlines())) <= 80 and "\u25c6" in told


def test_messages(call: Call, speaker: str) -> None:
    (made,) = choices(call, speaker, "a", "--chat", "-t", 0)
    assert made["chosen"]["text"] == '"H"'


def test_mistakes(call: Call, speaker: str, tmp_path: Path) -> None:
    assert call("sample", speaker, "a", "-t", -1).exit_code == 2
    assert call("sample", speaker, "a", "--steps", 0).exit_code == 2
    path = tmp_path / "encoder.toml"
    path.write_text(DECODER.replace("heads = 4", "heads = 4\nattention.causal = false"), encoding="utf-8")
    result = call("sample", path, "1", "--random")
    assert result.exit_code == 1 and "both directions" in result.stderr


def test_help_has_examples(call: Call) -> None:
    assert "--repeat-penalty 1.3" in call("sample", "--help").stdout


def test_a_slim_terminal_keeps_words_whole(call: Call, speaker: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    out = call("sample", speaker, "Hi", "--seed", 3).stdout
    assert {"stage", "temperature"} <= set(out.split()) and max(map(len, out.splitlines())) <= 40
    assert "--stats" not in call("sample", "--help").stdout


def test_columns_without_room_are_named(call: Call, speaker: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for columns, missing in (
        (40, ["removed, the likeliest", "logit"]),
        (60, ["removed, the likeliest"]),
        (80, []),
    ):
        monkeypatch.setenv("COLUMNS", str(columns))
        out = call("sample", speaker, "Hi", "--seed", 3).stdout
        assert re.findall("no room for: (.*)", out) == missing, columns
    monkeypatch.setenv("COLUMNS", "40")
    assert "放不下：剔除者中最可能的" in call("sample", speaker, "Hi", "--lang", "zh").stdout


def test_twenty_columns_break_no_word_into_letters(
    call: Call, speaker: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    out = call("sample", speaker, "Hi", "--seed", 3).stdout
    assert {"stage", "kept", "removed", "likeliest", "temperature", "candidate"} <= set(out.split())
    assert max(map(len, out.splitlines())) <= 40
