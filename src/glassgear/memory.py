"""Memory for large arrays of floats that come and go: kept from one to the next.

Memory is dear when it is first written: on a virtual machine whose host takes back what isn't used, 500
tokens' values of a small model (1.2 GB) take more than a second to be handed out, and a quarter of one to be
written. So a large piece that nobody looks at any more is kept for the next array. The system is told that it
may have it (MADV_FREE), and takes it where it needs memory. What `np.empty` gives isn't aligned to huge
pages either.
"""

from __future__ import annotations

import mmap
import weakref
from contextlib import suppress

import numpy as np
from numpy.typing import NDArray

__all__ = ["floats"]

SMALL = 8 << 20  # bytes of pieces that the C library keeps by itself
HUGE = 2 << 20  # bytes of a huge page
MOST = 2 << 30  # bytes that are kept
ABLE = all(hasattr(mmap, name) for name in ("MADV_HUGEPAGE", "MADV_FREE", "MAP_PRIVATE"))

# Without a lock: an array may end at any moment, also while its own thread is here, or another one forks.
_given_back: list[mmap.mmap] = []


def floats(count: int) -> NDArray[np.float32]:
    """An array of so many float32; what is in it isn't defined."""
    size = -(-count * 4 // HUGE) * HUGE
    if size <= SMALL or not ABLE:
        return np.empty(count, np.float32)
    pages = _taken_over(size) or _mapped(size)
    if pages is None:
        return np.empty(count, np.float32)  # or MemoryError
    piece = np.frombuffer(pages, np.float32)
    weakref.finalize(piece, _give_back, pages).atexit = False  # once no part of it is in use
    return piece[:count]


def _taken_over(size: int) -> mmap.mmap | None:
    """A piece that was given back, of this size or a little more."""
    for pages in tuple(_given_back):
        if size <= len(pages) <= size + size // 8:
            with suppress(ValueError):  # another thread has taken it
                _given_back.remove(pages)
                return pages
    return None


def _mapped(size: int) -> mmap.mmap | None:
    """A new piece, or None where the system gives none this way."""
    try:
        pages = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except OSError:
        return None
    with suppress(OSError):  # a system without huge pages
        pages.madvise(mmap.MADV_HUGEPAGE)
    return pages


def _give_back(pages: mmap.mmap) -> None:
    """Keep a piece; the oldest go where that is too much."""
    with suppress(OSError):
        pages.madvise(mmap.MADV_FREE)
    _given_back.append(pages)
    while sum(map(len, tuple(_given_back))) > MOST:
        with suppress(IndexError):
            _given_back.pop(0)
