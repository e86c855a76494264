"""`glassgear bench` and `glassgear warm-up`."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

import pytest

from glassgear.backends.cpu import features
from glassgear.backends.cpu.machine_code import Kernel, MachineCode
from glassgear.backends.cpu.warm_up import all_kernels
from glassgear.measure import MemoryReader, report
from tests.cli.conftest import Call

QUICK = ("--backend", "reference", "--lengths", "3,5", "--batches", "1,2", "-n", "2", "--repeats", "1")


@pytest.fixture(autouse=True)
def small_array(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report, "MemoryReader", lambda threads, _=0: MemoryReader(threads, 8 << 20))


def test_a_table_for_people(call: Call, speaker: str) -> None:
    result = call("bench", speaker, *QUICK)
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert any(line.startswith("model") and speaker in line for line in lines)
    assert any("reference, kernels numpy" in line for line in lines)
    assert any("of the read bandwidth" in line for line in lines)
    assert [line.split()[:4] for line in lines if line.startswith("decode after")] == [
        ["decode", "after", "3", "1"], ["decode", "after", "5", "1"],
        ["decode", "after", "3", "2"], ["decode", "after", "5", "2"],
    ]  # fmt: skip
    assert result.stderr == "", "no progress line where nobody looks on"


def test_one_json_object_for_programs(call: Call, speaker: str) -> None:
    result = call("bench", speaker, *QUICK, "--json")
    found = json.loads(result.stdout)
    assert found["backend"] == "reference"
    assert len(found["cells"]) == 8
    assert all(len(cell["seconds"]) == 1 and cell["tokens_per_s"] > 0 for cell in found["cells"])
    assert found["start"]["total"] > found["start"]["load"] > 0
    assert found["bandwidth"]["read"] > 0 and found["peak_memory"] > 0


@pytest.mark.parametrize("lengths", ["", "12,", "0", "a", "1;2", "-3", "99999999"])
def test_lengths_that_are_none_are_refused(call: Call, speaker: str, lengths: str) -> None:
    result = call("bench", speaker, "--lengths", lengths)
    assert result.exit_code == 2
    assert "--lengths" in result.stderr


def test_a_length_given_twice_is_measured_once(call: Call, speaker: str) -> None:
    result = call("bench", speaker, *QUICK, "--lengths", "4, 4", "--batches", "1", "--json")
    assert [cell["length"] for cell in json.loads(result.stdout)["cells"]] == [4, 4]  # prompt and decode


def test_what_does_not_fit_is_said(call: Call, speaker: str) -> None:
    result = call("bench", speaker, *QUICK, "--lengths", "4,9", "--ctx", "6")
    assert "prompts of 9 are left out: the context is 6" in result.stdout


def test_a_missing_model_is_an_error(call: Call) -> None:
    result = call("bench", "no-such-model")
    assert result.exit_code == 1
    assert "no-such-model" in result.stderr


def test_warming_up_says_on_what_and_takes_several_models(call: Call, speaker: str) -> None:
    result = call("warm-up", speaker, speaker, "--backend", "reference")
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert len(lines) == 2 and all(line.startswith(f"{speaker}: ready on reference") for line in lines)


def test_warming_up_without_a_model_compiles_every_kernel(
    call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Kernel] = []

    def compile(
        self: MachineCode, kernels: Sequence[Kernel], progress: Callable[[str], None]
    ) -> dict[Kernel, int]:
        progress("compiling kernels for this processor, once: 1 of 40")
        asked.extend(kernels)
        return dict.fromkeys(kernels, 0)

    monkeypatch.setattr(MachineCode, "addresses", compile)
    result = call("warm-up")
    assert result.exit_code == 0
    family = features.target().kernels
    assert asked == all_kernels(family)
    assert result.stdout.startswith(f"{len(asked)} kernels for {family}: ready, ")


def test_warming_up_the_reference_without_a_model_is_a_usage_error(call: Call) -> None:
    result = call("warm-up", "--backend", "reference")
    assert result.exit_code == 2
    assert "no kernels" in result.stderr
