"""One trainer to a folder: a lock of the system's, which goes with the process that holds it."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from glassgear.errors import FileError, SettingError

__all__ = ["only_one"]

NAME = "running.pid"
HELD = (errno.EWOULDBLOCK, errno.EACCES, errno.EDEADLK)  # that another process holds a lock, by system
FAR = 1 << 30  # Windows locks bytes, and hides them from others: one behind the process's number


@contextmanager
def only_one(folder: Path) -> Iterator[None]:
    """Hold a folder for this process, whatever a process that is gone left there.

    Raises:
        SettingError: another process trains there.
        FileError: the folder's file system has no locks.
    """
    path = folder / NAME
    handle = _opened(path)
    try:
        os.ftruncate(handle, 0)
        os.write(handle, str(os.getpid()).encode())
        yield
    finally:
        if sys.platform == "win32":  # which deletes no open file
            os.close(handle)
            path.unlink(missing_ok=True)
        else:
            path.unlink(missing_ok=True)
            os.close(handle)


def _opened(path: Path) -> int:
    """The file, open and locked."""
    while True:
        handle = os.open(path, os.O_CREAT | os.O_RDWR)
        try:
            _lock(handle)
            if _is_there(handle, path):
                return handle
        except OSError as trouble:
            if trouble.errno not in HELD:
                os.close(handle)
                raise FileError(path, f"can't be locked: {trouble.strerror or trouble}") from trouble
            who = f"process {owner}" if (owner := _owner(path)) else "another process"
            os.close(handle)
            raise SettingError(
                f"{who} is training in {path.parent}: wait for it, or give this run another folder (out)"
            ) from None
        os.close(handle)  # whoever held it has deleted it meanwhile


def _lock(handle: int) -> None:
    if sys.platform == "win32":
        import msvcrt

        os.lseek(handle, FAR, os.SEEK_SET)
        msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)
        os.lseek(handle, 0, os.SEEK_SET)
    else:
        import fcntl

        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _is_there(handle: int, path: Path) -> bool:
    """Whether the path still names the file that was opened."""
    with suppress(FileNotFoundError):
        return os.path.samestat(os.fstat(handle), path.stat())
    return False


def _owner(path: Path) -> int | None:
    with suppress(OSError, ValueError):
        return int(path.read_text())
    return None
