"""Write a file so that its name never shows half of it."""

from __future__ import annotations

import errno
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

__all__ = ["PART_SUFFIX", "replacing"]

PART_SUFFIX = ".part"
_OF_THE_DISK = {getattr(errno, name, None) for name in ("ENOSPC", "EDQUOT", "EFBIG", "EIO", "EROFS")}


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """Open a new file that takes the name `path` once the block has ended well.

    It is written beside `path`, on the same file system, under a hidden name that ends in
    `.part`. If the block raises (Ctrl-C too), it is removed, and what was at `path` stays.

    Raises:
        OSError: the system refuses; a full disk, which names no file by itself, names `path`.
    """
    part = path.with_name(f".{path.name}.{secrets.token_hex(4)}{PART_SUFFIX}")
    try:
        # `open`, not `tempfile`: the file gets the permissions that the user's umask gives.
        with part.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)
        _sync_folder(path.parent)
    except OSError as trouble:
        if trouble.filename is None and trouble.errno in _OF_THE_DISK:
            trouble.filename = str(path)
        raise
    finally:
        with suppress(OSError):
            part.unlink(missing_ok=True)


def _sync_folder(folder: Path) -> None:
    """Make the new name itself survive a power cut, where the system can: Windows can't open folders."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
