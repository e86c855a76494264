"""Comparing: turns, medians, ratios, and one whole run on a tiny model."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import pytest

from tests.models import llama2c_file


class Fake:
    """A worker that takes a fixed time and writes down who was asked when."""

    def __init__(self, name: str, seconds: dict[str, float], log: list[str]) -> None:
        self.name, self.seconds, self.log = name, seconds, log

    def ask(self, kind: str, **request: Any) -> dict[str, Any]:
        if kind == "read":
            return {"bandwidth": 2e9 if request["nbytes"] else 1e9}
        self.log.append(f"{self.name}/{request['variant']}/{request['seed']}")
        if request["variant"] not in self.seconds:
            return {"error": "no such variant"}
        return {"seconds": self.seconds[request["variant"]], "tokens": 10}


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    import compare

    monkeypatch.setattr(compare, "PAUSE", 0)


def test_names_of_workloads() -> None:
    from compare import Workload

    def parts(name: str) -> tuple[Any, ...]:
        work = Workload.parse(name)
        return work.kind, work.length, work.batch, work.tokens

    assert parts("pp512") == ("prompt", 512, 1, 0)
    assert parts("pp64x4") == ("prompt", 64, 4, 0)
    assert parts("tg32") == ("decode", 8, 1, 32)
    assert parts("tg32x8@256") == ("decode", 256, 8, 32)
    for wrong in ("pp", "tg12@", "pp512@8", "decode", "pp512 "):
        with pytest.raises(argparse.ArgumentTypeError):
            Workload.parse(wrong)


def test_programs_take_turns_and_the_first_turn_is_not_counted() -> None:
    from compare import Memory, Workload, run_workload

    log: list[str] = []
    workers: list[Any] = [Fake("a", {"default": 1.0}, log), Fake("b", {"x": 2.0, "y": 4.0}, log)]
    memory = Memory(Fake("memory", {}, log), 5)  # type: ignore[arg-type]
    variants = {"a": ["default"], "b": ["x", "y"]}
    cells = run_workload(Workload.parse("pp10"), workers, variants, memory, 2)
    one_turn = ["a/default/{}", "b/x/{}", "b/y/{}"]
    assert log == [text.format(seed) for seed in (0, 1, 2) for text in one_turn]
    assert cells["b"]["y"].seconds == [4.0, 4.0]
    assert memory.samples == {"pp10": {"memory": [1e9, 1e9], "as_many_bytes": [2e9, 2e9]}}


def test_the_better_variant_counts_and_ratios_are_ours_to_theirs() -> None:
    from compare import Memory, Workload, run_workload, summary

    log: list[str] = []
    workers: list[Any] = [Fake("a", {"default": 1.0}, log), Fake("b", {"x": 4.0, "y": 2.0}, log)]
    variants = {"a": ["default"], "b": ["x", "y"]}
    cells = run_workload(Workload.parse("pp10"), workers, variants, Memory(workers[0], 5), 3)
    found = summary(cells, "a")
    assert found["b"]["variant"] == "y"
    assert found["b"]["ratio"] == found["b"]["ratio_of_pairs"] == 2.0
    assert "ratio" not in found["a"]
    assert found["a"]["tokens_per_s"] == 10.0


def test_a_program_that_fails_is_not_asked_again_and_keeps_its_error() -> None:
    from compare import Memory, Workload, run_workload, summary

    log: list[str] = []
    workers: list[Any] = [Fake("a", {"default": 1.0}, log), Fake("b", {}, log)]
    variants = {"a": ["default"], "b": ["default"]}
    cells = run_workload(Workload.parse("pp10"), workers, variants, Memory(workers[0], 5), 3)
    found = summary(cells, "a")
    assert log.count("b/default/0") == 1 and not any(entry.startswith("b/default/1") for entry in log)
    assert found["b"]["error"] == "no such variant"


def test_a_whole_run_prints_a_table_and_ends_with_json(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import compare

    llama2c_file(tmp_path / "small.bin")
    given = [str(tmp_path / "small.bin"), "--backend", "reference", "--threads", "1", "--repeats", "2"]
    compare.main([*given, "--workloads", "pp8,tg4@2,tg2x3"])
    out = capsys.readouterr().out.strip().splitlines()
    report = json.loads(out[-1])
    assert set(report["results"]) == {"pp8", "tg4@2", "tg2x3"}
    assert len(report["results"]["pp8"]["glassgear reference"]["seconds"]) == 2
    assert min(report["read_bandwidth"]["pp8"]["memory"]) > 1e8
    assert any("GB/s" in line for line in out)
    assert any("tg4@2" in line for line in out)
