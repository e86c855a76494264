"""Files that appear whole or not at all."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from glassgear.weights.atomic import replacing


def test_the_name_shows_the_old_file_until_the_new_one_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"old")
    with replacing(path) as file:
        file.write(b"new")
        file.flush()
        assert path.read_bytes() == b"old"
    assert path.read_bytes() == b"new"
    assert os.listdir(tmp_path) == ["f"]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_an_interruption_leaves_what_was_there(tmp_path: Path, error: type[BaseException]) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"old")
    with pytest.raises(error), replacing(path) as file:
        file.write(b"half")
        raise error
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["f"]


def test_two_writers_at_once_dont_mix(tmp_path: Path) -> None:
    path = tmp_path / "f"
    with replacing(path) as one, replacing(path) as two:
        one.write(b"one")
        two.write(b"two, longer")
    assert path.read_bytes() == b"one"  # the one that ends last


@pytest.mark.skipif(os.name != "posix", reason="permission bits are POSIX's")
def test_permissions_are_those_of_any_new_file(tmp_path: Path) -> None:
    (tmp_path / "plain").write_bytes(b"")
    with replacing(tmp_path / "f") as file:
        file.write(b"x")
    assert stat.S_IMODE((tmp_path / "f").stat().st_mode) == stat.S_IMODE((tmp_path / "plain").stat().st_mode)
