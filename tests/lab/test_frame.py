"""The frame: options, refusals, JSON, files, and what is said without matplotlib or PyTorch."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from glassgear.errors import FileError, SettingError
from glassgear.lab import NAMES, experiment
from glassgear.lab.frame import Column, NotHereError, Result, Table
from glassgear.lab.models import require_torch
from glassgear.lab.saving import save


@pytest.mark.parametrize("name", NAMES)
def test_every_experiment_says_what_it_asks_and_whose_claim_it_is(name: str) -> None:
    one = experiment(name)
    assert one.name == name and one.question.endswith("?") and len(one.question) <= 80
    assert one.claim.text and one.claim.source
    assert all(option.help.endswith((".", "]")) for option in one.options)


@pytest.mark.parametrize("name", NAMES)
def test_the_docs_have_a_chapter_in_two_languages_for_each(name: str) -> None:
    text = (Path(__file__).resolve().parents[2] / "docs" / "lab.md").read_text(encoding="utf-8")
    (chapter,) = [part for part in text.split("\n## ") if part.startswith(f"{name}\n")]
    assert f"`glassgear lab {name}" in chapter
    words = (("**Confirmed", "**证实"), ("**Refuted", "**证伪"), ("**Depends", "**视情况而定"))
    assert sum(english in chapter and chinese in chapter for english, chinese in words) == 1


def test_an_unknown_experiment_brings_up_near_ones() -> None:
    with pytest.raises(SettingError, match="did you mean xor"):
        experiment("xors")
    with pytest.raises(SettingError, match="--list"):
        experiment("perpetual motion")


def test_small_settings_give_way_to_given_ones() -> None:
    one = experiment("linear-collapse")
    plain, small, given = (
        one.with_options(),
        one.with_options(small=True),
        one.with_options(small=True, dim=5),
    )
    assert (plain.dim, small.dim, given.dim) == (32, 8, 5)  # type: ignore[attr-defined]
    assert small.small and given.layers == small.layers  # type: ignore[attr-defined]


def test_settings_are_checked() -> None:
    one = experiment("linear-collapse")
    with pytest.raises(SettingError, match="has no option 'depth'; its own: dim, layers"):
        one.with_options(depth=3)
    with pytest.raises(SettingError, match="dim of linear-collapse should be at least 2, found 1"):
        one.with_options(dim=1)


def test_cells_as_people_read_them() -> None:
    table = Table("t", (Column("a"), Column("b", ".2f"), Column("c", "+.1f")), (("x", -0.001, None),))
    assert [table.text(0, i) for i in range(3)] == ["x", "0.00", "-"]
    assert table.to_json() == {"title": "t", "rows": [{"a": "x", "b": -0.001, "c": None}]}
    assert Table("t", (Column("c", "+.1f"),), ((2.0,),)).text(0, 0) == "+2.0"


def run(name: str) -> tuple[object, Result]:
    settings = experiment(name).with_options(small=True)
    return settings, experiment(name).run(settings)


def test_results_become_files(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    settings, result = run("linear-collapse")
    one = experiment("linear-collapse")
    written = save(one, settings, result, tmp_path / "new" / "folder")  # type: ignore[arg-type]
    assert [path.name for path in written] == ["linear-collapse.json", "linear-collapse.png"]
    assert written[1].read_bytes().startswith(b"\x89PNG\r\n")
    read = json.loads(written[0].read_text(encoding="utf-8"))
    assert read["verdict"]["outcome"] == result.verdict.outcome
    assert read["facts"] == dict(result.facts) and read["settings"]["small"] is True
    assert len(read["tables"][0]["rows"]) == len(result.tables[0].rows)


def test_a_folder_that_cant_be_made_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    settings, result = run("linear-collapse")
    with pytest.raises(FileError, match="can't be made"):
        save(experiment("linear-collapse"), settings, result, tmp_path / "file" / "in")  # type: ignore[arg-type]


def test_without_pytorch_an_experiment_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(NotHereError, match=r"pip install \"glassgear\[torch\]\""):
        require_torch()
