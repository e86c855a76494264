"""Read JSON that a stranger wrote: one object, and nothing that a file's reader would trip over.

In: bytes or a path. Out: a dict whose numbers are finite and whose strings are Unicode. Python's
own reader takes NaN, infinity, duplicate keys and half surrogate pairs, and fails on deep nesting
with an exception of its own kind; here each of them is a `FormatError` that names the file.
"""

from __future__ import annotations

import json
import math
import os
import re
import stat
from os import PathLike
from typing import Any

from glassgear.errors import FileError, FormatError, NotFoundError
from glassgear.weights.mapped import foreign

__all__ = ["parse_object", "quoted", "read_array", "read_object"]

MOST_BYTES = 8 << 20  # configs are some kilobytes; long lists of labels make some of them megabytes
MOST_LEVELS = 32
_HEAD_BYTES = 1024
_HALF = re.compile(r"\\u[dD][89a-fA-F]")


def read_object(path: str | PathLike[str], most_bytes: int = MOST_BYTES) -> dict[str, Any]:
    """Read a JSON file that holds one object.

    Args:
        path: the file.
        most_bytes: a larger file is refused unread.

    Raises:
        NotFoundError: there is no such file.
        FormatError: it is no JSON object, is too large, or is something else under that name.
        FileError: the system refuses.
    """
    return parse_object(path, _read(path, most_bytes))


def read_array(path: str | PathLike[str], most_bytes: int = MOST_BYTES) -> list[Any]:
    """Read a JSON file that holds one array; errors as in `read_object`."""
    value = _parsed(path, _read(path, most_bytes), "")
    if not isinstance(value, list):
        raise FormatError(path, f"should be a JSON array, `[...]`, but is a {type(value).__name__}")
    return value


def _read(path: str | PathLike[str], most_bytes: int) -> bytes:
    try:
        status = os.stat(path)
        if not stat.S_ISREG(status.st_mode):  # reading from a pipe or a device could wait for ever
            raise FormatError(path, "isn't a regular file")
        if status.st_size > most_bytes:
            raise FormatError(
                path, f"is {status.st_size:,} bytes; a file of this kind has at most {most_bytes:,}"
            )
        with open(path, "rb") as file:
            data = file.read(most_bytes + 1)
    except FileNotFoundError:
        raise NotFoundError(path, "there is no such file") from None
    except OSError as error:
        raise FileError(path, f"can't be read: {error.strerror or error}") from error
    except ValueError as error:  # a zero byte in the path
        raise NotFoundError(os.fspath(path).replace("\0", "\\0"), f"is not a path: {error}") from None
    if not data.strip():
        raise FormatError(path, "is empty: the download failed, so fetch it again")
    opening = data[:_HEAD_BYTES].removeprefix(b"\xef\xbb\xbf").lstrip()[:1]
    if opening not in (b"{", b"[") and (other := foreign(data[:_HEAD_BYTES])):
        raise FormatError(path, f"should be JSON, but is {other}")
    return data


def parse_object(path: str | PathLike[str], data: bytes, what: str = "") -> dict[str, Any]:
    """Parse UTF-8 JSON text as one object.

    Args:
        path: the file, for messages.
        data: the text.
        what: which part of the file it is, as `its header`; empty for the whole file.

    Raises:
        FormatError: it is anything else; the message says what and, where known, at which place.
    """
    value = _parsed(path, data, what)
    if not isinstance(value, dict):
        subject = f"{what} " if what else ""
        raise FormatError(
            path, f"{subject}should be a JSON object, `{{...}}`, but is a {type(value).__name__}"
        )
    return value


def _parsed(path: str | PathLike[str], data: bytes, what: str) -> Any:
    """Any JSON value without what a reader would trip over."""
    subject = f"{what} " if what else ""
    try:
        text = data.decode("utf-8-sig")
        value = json.loads(
            text, object_pairs_hook=_unique, parse_constant=_refuse_constant, parse_float=_finite
        )
    except UnicodeDecodeError as error:
        raise FormatError(path, f"{subject}isn't UTF-8 text: byte {error.start} doesn't belong") from None
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        raise FormatError(path, f"{subject}isn't JSON: {error.msg} at {where}") from None
    except _Refused as error:
        raise FormatError(path, f"{subject}{error}") from None
    except RecursionError:
        raise FormatError(path, f"{subject}is nested more than {MOST_LEVELS} levels deep") from None
    except ValueError:  # Python's limit on the digits of an integer
        raise FormatError(path, f"{subject}holds a number of thousands of digits") from None
    if isinstance(value, dict | list) and _too_deep(value):
        raise FormatError(path, f"{subject}is nested more than {MOST_LEVELS} levels deep")
    if _HALF.search(text) and not _encodable(value):
        raise FormatError(path, f"{subject}holds half of a surrogate pair, which is no character")
    return value


def quoted(text: str) -> str:
    """A name from a file as a message may show it: in backticks, on one line, of bounded length."""
    shown = text if len(text) <= 120 else f"{text[:80]}…{text[-30:]}"
    safe = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in shown)
    return f"`{safe}`"


class _Refused(ValueError):
    """Valid for Python's reader, not for ours; the text goes on after the file's name."""


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise _Refused(f"has the key {quoted(key)} twice: which of the two counts is anyone's guess")
            seen.add(key)
    return result


def _refuse_constant(name: str) -> Any:
    raise _Refused(f"holds {name}, which isn't JSON")


def _finite(digits: str) -> float:
    value = float(digits)
    if not math.isfinite(value):
        raise _Refused(f"holds the number {digits[:40]}, which is too large")
    return value


def _too_deep(value: Any) -> bool:
    """Look level by level: later code may compare or print a value, which Python does by recursion."""
    level = [value]
    for _ in range(MOST_LEVELS):
        level = [
            child
            for item in level
            for child in (item.values() if isinstance(item, dict) else item)
            if isinstance(child, dict | list)
        ]
        if not level:
            return False
    return True


def _encodable(value: Any) -> bool:
    """Whether all its text is Unicode. Else the first message that shows it would fail to print."""
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return False
    return True
