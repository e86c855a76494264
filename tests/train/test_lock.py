"""One trainer to a folder."""

from __future__ import annotations

import errno
import os
import sys
from pathlib import Path

import pytest

from glassgear.errors import FileError, SettingError

pytest.importorskip("torch")

from glassgear.train import Trainer
from glassgear.train.lock import only_one
from tests.train.support import settings


def test_two_trainers_in_one_folder_are_one_too_many(tmp_path: Path) -> None:
    made = settings(tmp_path, steps=2)
    Path(made.out).mkdir()
    with only_one(Path(made.out)):
        with pytest.raises(SettingError, match=f"process {os.getpid()} is training"):
            Trainer(made).run()
        assert (Path(made.out) / "running.pid").read_text() == str(os.getpid())
    assert not (Path(made.out) / "running.pid").exists()


@pytest.mark.skipif(sys.platform == "win32", reason="locks of Unix")
def test_a_drive_without_locks_is_said_not_mistaken_for_another_trainer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(handle: int, kind: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr("fcntl.flock", refused)
    with pytest.raises(FileError, match="can't be locked: No locks available"), only_one(tmp_path):
        pass


@pytest.mark.parametrize("left", ["own", "1", "999999999", "", "no number"])
def test_what_a_process_left_that_is_gone_holds_nobody_up(tmp_path: Path, left: str) -> None:
    made = settings(tmp_path, steps=2)
    Path(made.out).mkdir()
    (Path(made.out) / "running.pid").write_text(str(os.getpid()) if left == "own" else left)
    assert Trainer(made).run().reason == "done"
    assert not (Path(made.out) / "running.pid").exists()
