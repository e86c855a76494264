"""Compiled kernels on disk: kept, shared, and made anew when they aren't whole."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from glassgear.backends.base import Chunk
from glassgear.backends.cpu import CPU, features
from glassgear.backends.cpu.machine_code import Kernel, MachineCode, kernel_folder, machine_code
from glassgear.backends.cpu.warm_up import all_kernels
from glassgear.errors import SettingError

from .support import model

SMALL = Kernel(("rows", "multiply"))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("GLASSGEAR_KERNEL_CACHE", str(tmp_path))
    found = kernel_folder(features.target())
    assert found is not None
    assert found.is_relative_to(tmp_path)
    return found


def test_a_kernel_is_compiled_once(folder: Path) -> None:
    said: list[str] = []
    assert MachineCode(features.target()).addresses([SMALL], said.append)[SMALL]
    assert len(said) == 1
    assert [p.name for p in folder.iterdir()] == [SMALL.file_name]
    assert MachineCode(features.target()).addresses([SMALL], said.append)[SMALL]
    assert len(said) == 1


@pytest.mark.parametrize("damage", ["empty", "cut", "changed", "foreign"])
def test_a_damaged_file_is_made_anew(folder: Path, damage: str) -> None:
    MachineCode(features.target()).addresses([SMALL])
    path = folder / SMALL.file_name
    whole = path.read_bytes()
    changed = bytearray(whole)
    changed[len(whole) // 2] ^= 1
    path.write_bytes(
        {"empty": b"", "cut": whole[:-9], "changed": bytes(changed), "foreign": b"x" * 99}[damage]
    )
    said: list[str] = []
    assert MachineCode(features.target()).addresses([SMALL], said.append)[SMALL]
    assert said
    assert path.read_bytes()[:19] == whole[:19]


def test_without_a_folder_kernels_are_compiled_each_time(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    monkeypatch.setenv("GLASSGEAR_KERNEL_CACHE", str(blocked))
    monkeypatch.setenv("GLASSGEAR_CACHE", str(blocked))
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(blocked))
    assert kernel_folder(features.target()) is None
    assert MachineCode(features.target()).addresses([SMALL])[SMALL]


def test_each_family_and_version_has_a_folder_of_its_own(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = kernel_folder(features.target({"GLASSGEAR_KERNELS": "plain"}))
    assert (other == folder) == (features.target().kernels == "plain")
    monkeypatch.setattr("glassgear.backends.cpu.machine_code.__version__", "0.0.0.other")
    assert kernel_folder(features.target()) != folder


PROGRAM = """
import sys
from glassgear.backends.cpu import features
from glassgear.backends.cpu.machine_code import Kernel, MachineCode
kernel = Kernel(("rows", "multiply"))
print(MachineCode(features.target()).addresses([kernel])[kernel] > 0, "numba" in sys.modules)
"""


def test_processes_that_start_at_once_share_a_folder(folder: Path) -> None:
    environment = dict(os.environ, PYTHONPATH=os.pathsep.join(p for p in sys.path if p))

    def start() -> subprocess.Popen[str]:
        return subprocess.Popen([sys.executable, "-c", PROGRAM], env=environment, stdout=-1, text=True)

    both = [start(), start()]
    assert [p.communicate(timeout=120)[0].split()[0] for p in both] == ["True", "True"]
    # The next one finds what they made, and has no need of Numba.
    assert start().communicate(timeout=120)[0].split() == ["True", "False"]
    assert [p.name for p in folder.iterdir()] == [SMALL.file_name]


def test_warming_up_covers_what_models_need() -> None:
    for type_name, hidden in (("F32", 64), ("Q4_1", 96), ("Q8_0", 96)):
        machine = CPU(*model(type_name=type_name, hidden=hidden))
        machine.step([Chunk(machine.open(), [1, 2])], lambda path, value: None)
    used = set(machine_code(features.target())._addresses)
    assert used - set(all_kernels(features.target().kernels)) <= {
        k for k in used if len(k) > 2 and "w" in k[2]
    }


def test_an_unknown_family_is_refused() -> None:
    with pytest.raises(SettingError, match="avx512vnni"):
        features.target({"GLASSGEAR_KERNELS": "fast"})


def test_a_family_that_this_processor_lacks_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(features, "host_features", lambda: {})
    assert features.target({}).kernels == "plain"
    with pytest.raises(SettingError, match="lacks avx2"):
        features.target({"GLASSGEAR_KERNELS": "avx2"})
