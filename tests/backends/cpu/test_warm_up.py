"""Compiling ahead of time: in several processes, and without them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from glassgear.backends.cpu import features, warm_up
from glassgear.backends.cpu.machine_code import Kernel, MachineCode, kernel_folder

FEW = [Kernel(("rows", "multiply")), Kernel(("team", "gather"))]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, few kernels, two cores, and no code from other tests."""
    monkeypatch.setenv("GLASSGEAR_KERNEL_CACHE", str(tmp_path))
    monkeypatch.setattr(warm_up, "all_kernels", lambda family: FEW)
    monkeypatch.setattr(features, "physical_cores", lambda: 2)
    monkeypatch.setattr(warm_up, "machine_code", MachineCode)
    found = kernel_folder(features.target())
    assert found is not None
    return found


def test_processes_share_the_work(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setattr(MachineCode, "_compiled", None)  # not here
    assert warm_up.warm_up(said.append) == len(FEW)
    assert {path.name for path in folder.iterdir()} == {kernel.file_name for kernel in FEW}
    assert said
    assert all(line.endswith(f" of {len(FEW)}") for line in said)


def test_what_others_leave_is_compiled_here(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "false")  # a program that does nothing
    assert warm_up.warm_up() == len(FEW)
    assert {path.name for path in folder.iterdir()} == {kernel.file_name for kernel in FEW}
