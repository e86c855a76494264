"""The table of how far families stray from transformers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from glassgear.model.families import FAMILIES
from tests.conftest import REPOSITORY

pytest.importorskip("transformers")


def test_every_family_has_cases() -> None:
    from parity import cases_of

    cases = cases_of(REPOSITORY / "tests/families")
    assert {family.name for family in FAMILIES} == {case.family for case in cases}
    for family in FAMILIES:
        containers = {case.container for case in cases if case.family == family.name}
        assert "folder" in containers or not family.hf_types
        assert "gguf" in containers or not family.gguf_types


def test_a_run_prints_a_row_with_the_largest_difference(capsys: pytest.CaptureFixture[str]) -> None:
    from parity import main

    assert main(["--family", "qwen3", "--backend", "reference"]) == 0
    head, _, row = capsys.readouterr().out.splitlines()
    assert head == "|  | folder, reference | folder, cpu | GGUF, reference | GGUF, cpu |"
    name, folder, cpu, gguf, _ = (cell.strip() for cell in row.strip("|").split("|"))
    assert name == "qwen3" and cpu == ""
    assert 0 < float(folder) < 1e-4 and 0 < float(gguf) < 1e-4


def test_a_case_that_strays_or_fails_is_seen(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    import parity

    from tests.families.test_qwen import CASES

    good = next(case for case in CASES if case.family == "qwen3" and case.container == "folder")

    def broken(folder: Path) -> tuple[Path, object]:
        raise ValueError("no such thing")

    strays = replace(good, theirs=lambda model, ids: good.theirs(model, ids) + 1)
    for case, told in ((strays, "1.0e+00"), (replace(good, write=broken), "fails: no such thing")):
        monkeypatch.setattr(parity, "cases_of", lambda folder, case=case: [case])
        assert parity.main(["--backend", "reference"]) == 1
        assert told in capsys.readouterr().out
