"""`glassgear lab`: what is listed, printed and refused."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from glassgear.cli import console
from glassgear.lab import NAMES
from tests.cli.conftest import Call


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_list_has_a_question_for_each(call: Call) -> None:
    lines = call("lab", "--list").stdout.splitlines()
    assert [line.split()[0] for line in lines] == list(NAMES)
    assert all(line.endswith("?") for line in lines) and call("lab").stdout.splitlines() == lines
    found = json.loads(call("lab", "--list", "--json").stdout)["experiments"]
    assert [one["name"] for one in found] == list(NAMES) and all(one["claim"] for one in found)


@pytest.mark.parametrize("name", NAMES)
def test_each_has_help_with_its_claim(call: Call, name: str) -> None:
    out = call("lab", name, "--help").stdout
    assert "The claim:" in out and "--small" in out and f"glassgear lab {name}" in out


def test_an_experiment_ends_in_a_verdict_and_files(call: Call, elsewhere: Path) -> None:
    pytest.importorskip("matplotlib")
    result = call("lab", "linear-collapse", "--small")
    assert result.exit_code == 0
    assert "\nconfirmed: without a bend" in result.stdout and "\n证实：没有激活函数时" in result.stdout
    assert max(map(len, result.stdout.splitlines())) <= 80
    folder = elsewhere / "glassgear-lab"
    assert sorted(path.name for path in folder.iterdir()) == ["linear-collapse.json", "linear-collapse.png"]
    assert "glassgear-lab/linear-collapse.png" in result.stderr.replace("\\", "/")


def test_at_forty_columns_words_stay_whole(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    given = ("lab", "linear-collapse", "--small", "--no-plot")
    wide = set(call(*given).stdout.split())
    monkeypatch.setenv("COLUMNS", "40")
    out, listed = call(*given).stdout, call("lab", "--list").stdout
    assert all(console.cells(line) <= 40 for line in [*out.splitlines(), *listed.splitlines()])
    assert {word for word in out.split() if word.isascii()} <= wide


def test_a_table_that_is_too_wide_for_its_words_is_shown_in_parts() -> None:
    from rich.console import Console

    from glassgear.cli.lab import _tables
    from glassgear.lab.frame import Column, Table

    names = ("kind", "operations", "nanoseconds", "neighbours", "parameters")
    table = Table("title", tuple(Column(name) for name in names), (("layernorm", "8", "80", "2", "4"),))
    parts = _tables(table, range(5), Console(width=38))
    assert [[column.header for column in part.columns] for part in parts] == [
        ["kind", "operations", "nanoseconds"],
        ["kind", "neighbours", "parameters"],
    ]


def test_json_alone_writes_no_files(call: Call, elsewhere: Path) -> None:
    result = call("lab", "linear-collapse", "--small", "--json", "--dim", 6)
    found = json.loads(result.stdout)
    assert found["name"] == "linear-collapse" and found["settings"]["dim"] == 6
    assert found["verdict"]["outcome"] == "confirmed" and found["seconds"] > 0
    assert not list(elsewhere.iterdir())


def test_a_seed_gives_the_same_numbers(call: Call) -> None:
    one, same, other = (
        json.loads(call("lab", "xor", "--small", "--json", "--seed", seed, "--steps", 20).stdout)["facts"]
        for seed in (3, 3, 4)
    )
    assert one == same != other


def test_without_matplotlib_a_note_says_so(
    call: Call, elsewhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "matplotlib"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    result = call("lab", "linear-collapse", "--small", "--out", "here")
    assert result.exit_code == 0 and 'pip install "glassgear[plot]"' in result.stderr
    assert [path.name for path in (elsewhere / "here").iterdir()] == ["linear-collapse.json"]
    quiet = call("lab", "linear-collapse", "--small", "--out", "here", "--no-plot")
    assert "matplotlib" not in quiet.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["xors"], 2, "did you mean xor"),
        (["nothing"], 2, "`glassgear lab --list` shows all"),
        (["xor", "--hidden", "0"], 2, "hidden of xor should be at least 2, found 0"),
        (["xor", "--points", "3"], 2, "points of xor should be at least 50, found 3"),
        (["xor", "--points", "many"], 2, "'many' is not a valid integer"),
        (["xor", "--model", "x"], 2, "No such option"),
        (["xor", "--all"], 2, "--all runs every experiment, so it takes no name: glassgear lab --all"),
        (["xor", "--small", "--list"], 2, "--list lists every experiment, so it takes no name"),
        (["--small", "xor"], 2, "put it behind: glassgear lab xor --small"),
        (["--json"], 2, "which experiment?"),
        (["--small"], 2, "Name one, or give --all for all"),
        (["--no-plot", "--seed", "3"], 2, "which experiment?"),
        (["--out", "there"], 2, "which experiment?"),
        (["sampling", "--model", "no-such-model", "--small"], 1, "no-such-model"),
        (["quantisation", "--types", "Q3_9"], 2, "isn't one that can be written"),
    ],
)
def test_mistakes_are_one_message(call: Call, arguments: list[str], code: int, words: str) -> None:
    result = call("lab", *arguments)
    assert result.exit_code == code and words in " ".join(result.stderr.split())
    assert code == 1 or not result.stdout


def test_all_of_them_at_their_smallest(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    result = call("lab", "--all", "--small", "--json")
    found = [json.loads(line) for line in result.stdout.splitlines()]
    assert result.exit_code == 0 and [one["name"] for one in found] == list(NAMES)
    # What norm-kinds says rests on timings alone, which tests/lab repeats.
    outcomes = {one["verdict"]["outcome"] for one in found if one["name"] != "norm-kinds"}
    assert outcomes <= {"confirmed", "depends"}


def test_what_needs_pytorch_is_skipped_without_it(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    import glassgear.cli.lab

    monkeypatch.setattr(glassgear.cli.lab, "NAMES", ("linear-collapse", "gradient-highway"))
    monkeypatch.setitem(sys.modules, "torch", None)
    result = call("lab", "--all", "--small", "--json")
    assert result.exit_code == 0 and len(result.stdout.splitlines()) == 1
    assert "gradient-highway is skipped: this experiment needs PyTorch" in result.stderr
    assert call("lab", "gradient-highway", "--small", "--json").exit_code == 1


def test_all_takes_no_name_and_a_folder_is_made_first(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = call("lab", "--all", "xor")
    assert result.exit_code == 2 and "takes no name" in result.stderr
    (tmp_path / "file").write_text("")
    started: list[Any] = []
    monkeypatch.setattr("glassgear.cli.lab.console.status", lambda *a: started.append(a))
    result = call("lab", "xor", "--out", tmp_path / "file" / "x")
    assert result.exit_code == 1 and "can't be made" in result.stderr and not started
