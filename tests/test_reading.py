"""Reading files of others: whatever is wrong becomes one sentence that names the file."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from glassgear.errors import FileError, FormatError, NotFoundError
from glassgear.reading import Refused, json_value, read_whole, system_errors, utf8_text


def test_the_bytes_are_those_of_the_file(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"12345678")
    assert read_whole(tmp_path / "a", 8, "") == b"12345678"


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(bytes(1234))
    with pytest.raises(FormatError, match=r"a: is 1,234 bytes, too much$"):
        read_whole(tmp_path / "a", 1233, ", too much")
    (tmp_path / "empty").touch()
    with pytest.raises(FormatError, match="empty: is empty"):
        read_whole(tmp_path / "empty", 8, "")
    with pytest.raises(FormatError, match="isn't a regular file"):
        read_whole(tmp_path, 8, "")
    with pytest.raises(NotFoundError, match="none: there is no such file"):
        read_whole(tmp_path / "none", 8, "")
    with pytest.raises(NotFoundError, match=r"a\\0b: is not a path"):
        read_whole("a\0b", 8, "")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(FormatError, match="isn't a regular file"):
        read_whole(tmp_path / "pipe", 8, "")


def test_a_refusal_of_the_system_keeps_its_cause() -> None:
    with pytest.raises(FileError, match="a: can't be read: Permission denied") as caught, system_errors("a"):
        raise PermissionError(13, "Permission denied")
    assert isinstance(caught.value.__cause__, PermissionError)


def test_text_is_utf8() -> None:
    assert utf8_text("a", b"\xef\xbb\xbfword") == "word"
    assert utf8_text("a", b"\xef\xbb\xbfword", encoding="utf-8") == "\ufeffword"
    with pytest.raises(FormatError, match=r"a: its header isn't UTF-8 text: byte 2 doesn't belong"):
        utf8_text("a", b"ab\xff", "its header ")


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"\xff", "isn't UTF-8 text: byte 0 doesn't belong"),
        (b'{\n"a": }', r"isn't JSON: .* at line 2, column 6"),
        (b"[" * 1_000_000, "is nested more than 3 levels deep"),
        (b"[[[[]]]]", "is nested more than 3 levels deep"),
        (b"1" * 10_000, "holds a number of thousands of digits"),
        (b'["\\ud800"]', "holds half of a surrogate pair"),
        (b"NaN", "holds NaN"),
    ],
)
def test_other_json_is_refused(data: bytes, says: str) -> None:
    def refuse(name: str) -> None:
        raise Refused(f"holds {name}")

    with pytest.raises(FormatError, match=f"^a: {says}"):
        json_value("a", data, most_levels=3, parse_constant=refuse)
    with pytest.raises(FormatError, match=f"^a: its header {says}"):
        json_value("a", data, what="its header", most_levels=3, parse_constant=refuse)


def test_json_of_any_kind_is_read() -> None:
    assert json_value("a", b'\xef\xbb\xbf[[["\\ud83d\\udc36"]]]', most_levels=3) == [[["🐶"]]]
    assert json_value("a", b"[[[[]]]]") == [[[[]]]]
    assert json_value("a", b"5", most_levels=3) == 5


def test_without_a_limit_json_is_as_deep_as_python_reads_it() -> None:
    with pytest.raises(FormatError, match="a: is nested too deep"):
        json_value("a", b"[" * 1_000_000)
