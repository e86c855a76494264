"""Mapping a file, and telling what it is when it's the wrong one."""

from __future__ import annotations

import os
import struct
from pathlib import Path

import pytest

from glassgear.errors import FileError, FormatError, NotFoundError
from glassgear.weights.mapped import foreign, map_file


def test_the_bytes_are_those_of_the_file(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"some bytes")
    assert map_file(tmp_path / "a")[:] == b"some bytes"


def test_files_that_cannot_be_mapped(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    with pytest.raises(FormatError, match="is empty"):
        map_file(tmp_path / "empty")
    with pytest.raises(FormatError, match="is a folder"):
        map_file(tmp_path)
    with pytest.raises(NotFoundError, match="no such file"):
        map_file(tmp_path / "none")
    with pytest.raises(NotFoundError, match="is not a path"):
        map_file("a\0b")


def test_a_refusal_of_the_system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Simulated: the superuser, as whom tests may run, is never refused.
    (tmp_path / "a").write_bytes(b"bytes")

    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("builtins.open", refuse)
    with pytest.raises(FileError, match="can't be read: Permission denied"):
        map_file(tmp_path / "a")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(FormatError, match="isn't a regular file"):
        map_file(tmp_path / "pipe")


@pytest.mark.parametrize(
    ("head", "name"),
    [
        (b"GGUF\x03\0\0\0", "a GGUF file"),
        (b"FUGG\0\0\0\x03", "big-endian"),
        (b"lmgg" + bytes(28), "from before GGUF"),
        (b"version https://git-lfs.github.com/spec/v1\n", "Git LFS pointer"),
        (b"<!DOCTYPE html>", "web page"),
        (b"\xef\xbb\xbf\r\n  <HTML lang='en'>", "web page"),
        (b'<?xml version="1.0"?><Error>AccessDenied</Error>', "XML"),
        (b'{"error": "Repository not found"}', "JSON"),
        (b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19.", "pickle"),
        (b"\x80\x04\x95", "pickle"),
        (b"PK\x03\x04" + bytes(26) + b"model/data.pkl", "PyTorch"),
        (b"PK\x03\x04" + bytes(26) + b"readme.txt", "archive"),
        (b"\x1f\x8b\x08\0", "compressed"),
        (struct.pack("<Q", 100) + b'{"w":', "safetensors"),
        (bytes(1024), "zero bytes"),
    ],
)
def test_what_other_files_are(head: bytes, name: str) -> None:
    assert name in (foreign(head) or "")


@pytest.mark.parametrize(
    "head", [b"", b"\x80", b"\x80\x09", b"once upon", struct.pack("<7i", 64, 172, 5, 8, 4, 512, 512)]
)
def test_bytes_that_say_nothing(head: bytes) -> None:
    assert foreign(head) is None
