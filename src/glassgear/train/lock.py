"""One trainer to a folder."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from glassgear.errors import SettingError

__all__ = ["only_one"]


@contextmanager
def only_one(folder: Path) -> Iterator[None]:
    """Hold a folder for this process; what a dead process left is taken over.

    Raises:
        SettingError: another process trains there.
    """
    path = folder / "running.pid"
    try:
        handle = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY)
    except FileExistsError:
        owner = _owner(path)
        if owner is not None:
            raise SettingError(
                f"process {owner} is training in {folder}: wait for it, or give this run another folder (out)"
            ) from None
        path.unlink(missing_ok=True)
        handle = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY)
    with os.fdopen(handle, "w") as file:
        file.write(str(os.getpid()))
    try:
        yield
    finally:
        path.unlink(missing_ok=True)


def _owner(path: Path) -> int | None:
    """The living process that holds a folder."""
    try:
        owner = int(path.read_text())
        return owner if _is_alive(owner) else None
    except (OSError, ValueError, OverflowError):
        return None


def _is_alive(process: int) -> bool:
    if sys.platform == "win32":  # where os.kill(.., 0) would press Ctrl-C
        import ctypes

        handle = ctypes.windll.kernel32.OpenProcess(0x1000, False, process)  # ..QUERY_LIMITED_INFORMATION
        return bool(handle and ctypes.windll.kernel32.CloseHandle(handle))
    try:
        os.kill(process, 0)
    except PermissionError:  # of another user
        return True
    except ProcessLookupError:
        return False
    return True
