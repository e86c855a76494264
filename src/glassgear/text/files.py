"""Read the small files that tokenizers come in, whole, and never more than they may be.

In: a path. Out: bytes, or a JSON object. What can't be read, and what is something else under
that name, becomes a `FileError` that says so.
"""

from __future__ import annotations

import json
import os
import re
import stat
from pathlib import Path
from typing import Any

from glassgear.errors import FileError, FormatError, NotFoundError

__all__ = ["parse_json", "read_bytes", "read_json"]

MOST_BYTES = 256 << 20  # the largest published `tokenizer.json` are about 40 MB
_HALF = re.compile(rb"\\u[dD][89a-fA-F]")
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
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):  # reading from a pipe or a device could wait for ever
            raise FormatError(path, "isn't a regular file")
        if status.st_size > MOST_BYTES:
            raise FormatError(path, f"is {status.st_size:,} bytes, too large for a tokenizer")
        data = path.read_bytes()
    except FileNotFoundError:
        raise NotFoundError(path, "there is no such file") from None
    except OSError as error:
        raise FileError(path, f"can't be read: {error.strerror or error}") from error
    except ValueError as error:  # a zero byte in the path
        raise NotFoundError(os.fspath(path).replace("\0", "\\0"), f"is not a path: {error}") from None
    if not data:
        raise FormatError(path, "is empty: the download failed, so fetch it again")
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
    try:
        value = json.loads(data.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise FormatError(path, f"isn't UTF-8 text: byte {error.start} doesn't belong") from None
    except json.JSONDecodeError as error:
        raise FormatError(
            path, f"isn't JSON: {error.msg} at line {error.lineno}, column {error.colno}"
        ) from None
    except RecursionError:
        raise FormatError(path, "is nested too deep") from None
    except ValueError:  # Python's limit on the digits of an integer
        raise FormatError(path, "holds a number of thousands of digits") from None
    if not isinstance(value, dict):
        raise FormatError(path, f"should be a JSON object, but is a {type(value).__name__}")
    if _HALF.search(data) and not _is_unicode(value):
        raise FormatError(path, "holds half of a surrogate pair, which is no character")
    return value


def _is_unicode(value: Any) -> bool:
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return False
    return True
