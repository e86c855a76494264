"""Read the small files that tokenizers come in, whole, and never more than they may be.

In: a path. Out: bytes, or a JSON object. What can't be read, and what is something else under
that name, becomes a `FileError` that says so.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from glassgear.errors import FormatError
from glassgear.reading import json_value, read_whole

__all__ = ["parse_json", "read_bytes", "read_json"]

MOST_BYTES = 256 << 20  # the largest published `tokenizer.json` are about 40 MB
_PRETENDERS = {
    b"<!doctype": "a web page (HTML): download again, from the address of the file itself",
    b"<html": "a web page (HTML): download again, from the address of the file itself",
    b"version https://git-lfs": "a Git LFS pointer, not the file itself: fetch it with `git lfs pull`",
}


def read_bytes(path: Path) -> bytes:
    """The bytes of a file.

    Raises:
        NotFoundError: nothing is there.
        FormatError: a folder, empty, too large, a web page or a Git LFS pointer.
        FileError: the system refuses.
    """
    data = read_whole(path, MOST_BYTES, ", too large for a tokenizer")
    if pretends := _pretends(data):
        raise FormatError(path, f"is {pretends}")
    return data


def _pretends(data: bytes) -> str | None:
    """What a file is that servers send in the place of another, or None."""
    start = data[:64].lstrip().lower()
    return next((what for head, what in _PRETENDERS.items() if start.startswith(head)), None)


def read_json(path: Path) -> dict[str, Any]:
    """The JSON object in a file; errors as in `read_bytes` and `parse_json`."""
    return parse_json(path, read_bytes(path))


def parse_json(path: Path, data: bytes) -> dict[str, Any]:
    """JSON text as an object.

    Raises:
        FormatError: it is anything else.
    """
    value = json_value(path, data)
    if not isinstance(value, dict):
        raise FormatError(path, f"should be a JSON object, but is a {type(value).__name__}")
    return value
