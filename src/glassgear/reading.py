"""Read files that somebody else wrote, and say in a sentence what is wrong with one.

In: a path, or the bytes of a file. Out: bytes, text or a JSON value; anything else is a `FileError` that
names the file. What a file should hold is for the caller to know.
"""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from os import PathLike
from typing import Any

from glassgear.errors import FileError, FormatError, NotFoundError

__all__ = ["EMPTY", "Refused", "json_value", "read_whole", "regular", "system_errors", "utf8_text"]

EMPTY = "is empty: the download failed, so fetch it again"
_HALF = re.compile(rb"\\u[dD][89a-fA-F]")


@contextmanager
def system_errors(path: str | PathLike[str]) -> Iterator[None]:
    """What the system says of a file while it is opened and read, in the words of this package.

    Raises:
        NotFoundError: nothing lies there, or the path is none.
        FileError: the system refuses.
    """
    try:
        yield
    except FileNotFoundError:
        raise NotFoundError(path, "there is no such file") from None
    except OSError as error:
        raise FileError(path, f"can't be read: {error.strerror or error}") from error
    except ValueError as error:  # a zero byte in the path
        raise NotFoundError(os.fspath(path).replace("\0", "\\0"), f"is not a path: {error}") from None


def regular(path: str | PathLike[str]) -> os.stat_result:
    """The status of a regular file: reading from a pipe or a device could wait for ever.

    Raises:
        FormatError: it is something else.
        OSError: the system refuses; `system_errors` is for that.
    """
    status = os.stat(path)
    if not stat.S_ISREG(status.st_mode):
        raise FormatError(path, "isn't a regular file")
    return status


def read_whole(path: str | PathLike[str], most_bytes: int, too_large: str) -> bytes:
    """All bytes of a small file.

    Args:
        path: the file.
        most_bytes: a larger one is refused unread.
        too_large: the message then, after "is 123 bytes".

    Raises:
        NotFoundError: nothing lies there.
        FormatError: a folder, a pipe or device, empty, too large.
        FileError: the system refuses.
    """
    with system_errors(path):
        size = regular(path).st_size
        if size > most_bytes:
            raise FormatError(path, f"is {size:,} bytes{too_large}")
        with open(path, "rb") as file:
            data = file.read(most_bytes)
    if not data:
        raise FormatError(path, EMPTY)
    return data


def utf8_text(path: str | PathLike[str], data: bytes, subject: str = "", encoding: str = "utf-8-sig") -> str:
    """Bytes as text, by default without the byte-order mark that Windows programs put in front.

    Args:
        path: the file, for the message.
        data: the bytes.
        subject: which part of the file they are, as `its header `; empty for the whole file.
        encoding: `utf-8` keeps the mark.

    Raises:
        FormatError: they aren't UTF-8; it says where.
    """
    try:
        return data.decode(encoding)
    except UnicodeDecodeError as error:
        raise FormatError(path, f"{subject}isn't UTF-8 text: byte {error.start} doesn't belong") from None


class Refused(ValueError):
    """What a hook of `json_value` raises; its text goes on after the file's name."""


def json_value(
    path: str | PathLike[str],
    data: bytes,
    *,
    what: str = "",
    most_levels: int | None = None,
    **hooks: Any,
) -> Any:
    """The value that UTF-8 JSON text stands for, all of its strings Unicode.

    Args:
        path: the file, for messages.
        data: the text.
        what: which part of the file it is, as `its header`; empty for the whole file.
        most_levels: how deep arrays and objects may lie in one another; None: as deep as Python reads them.
        hooks: of `json.loads`; they may raise `Refused`.

    Raises:
        FormatError: it is no such text; the message says what and, where known, at which place.
    """
    subject = f"{what} " if what else ""
    deep = f"more than {most_levels} levels deep" if most_levels else "too deep"
    text = utf8_text(path, data, subject)
    try:
        value = json.loads(text, **hooks)
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        raise FormatError(path, f"{subject}isn't JSON: {error.msg} at {where}") from None
    except Refused as error:
        raise FormatError(path, f"{subject}{error}") from None
    except RecursionError:
        raise FormatError(path, f"{subject}is nested {deep}") from None
    except ValueError:  # Python's limit on the digits of an integer
        raise FormatError(path, f"{subject}holds a number of thousands of digits") from None
    if most_levels and _is_deeper(value, most_levels):
        raise FormatError(path, f"{subject}is nested {deep}")
    if _HALF.search(data) and not _is_unicode(value):
        raise FormatError(path, f"{subject}holds half of a surrogate pair, which is no character")
    return value


def _is_deeper(value: Any, levels: int) -> bool:
    """Look level by level: later code may compare or print a value, which Python does by recursion."""
    level = [value] if isinstance(value, dict | list) else []
    for _ in range(levels):
        level = [
            child
            for item in level
            for child in (item.values() if isinstance(item, dict) else item)
            if isinstance(child, dict | list)
        ]
        if not level:
            return False
    return True


def _is_unicode(value: Any) -> bool:
    """Whether all its text is Unicode. Else the first message that shows it would fail to print."""
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return False
    return True
