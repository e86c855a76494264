"""Read JSON that a stranger wrote: one object, and nothing that a file's reader would trip over.

In: bytes or a path. Out: a dict whose numbers are finite and whose strings are Unicode. Python's
own reader takes NaN, infinity, duplicate keys and half surrogate pairs, and fails on deep nesting
with an exception of its own kind; here each of them is a `FormatError` that names the file.
"""

from __future__ import annotations

import math
from os import PathLike
from typing import Any

from glassgear.errors import FormatError
from glassgear.reading import EMPTY, Refused, json_value, read_whole
from glassgear.weights.mapped import foreign

__all__ = ["parse_object", "quoted", "read_array", "read_object"]

MOST_BYTES = 8 << 20  # configs are some kilobytes; long lists of labels make some of them megabytes
MOST_LEVELS = 32
_HEAD_BYTES = 1024


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
    data = read_whole(path, most_bytes, f"; a file of this kind has at most {most_bytes:,}")
    if not data.strip():
        raise FormatError(path, EMPTY)
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
    return json_value(
        path, data, what=what, most_levels=MOST_LEVELS,
        object_pairs_hook=_unique, parse_constant=_refuse_constant, parse_float=_finite,
    )  # fmt: skip


def quoted(text: str) -> str:
    """A name from a file as a message may show it: in backticks, on one line, of bounded length."""
    shown = text if len(text) <= 120 else f"{text[:80]}…{text[-30:]}"
    safe = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in shown)
    return f"`{safe}`"


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise Refused(f"has the key {quoted(key)} twice: which of the two counts is anyone's guess")
            seen.add(key)
    return result


def _refuse_constant(name: str) -> Any:
    raise Refused(f"holds {name}, which isn't JSON")


def _finite(digits: str) -> float:
    value = float(digits)
    if not math.isfinite(value):
        raise Refused(f"holds the number {digits[:40]}, which is too large")
    return value
