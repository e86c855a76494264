"""Give the pages of a mapped file back once its weights have been packed.

A packed model needs its file no more; what was read of it would stay in the process's memory
beside the packed copy. The file stays mapped, and is read again should anyone ask.
"""

from __future__ import annotations

import mmap
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["release"]


def release(data: NDArray[np.uint8]) -> None:
    """Drop the resident pages that lie wholly inside `data`, if it is a view of a mapped file."""
    mapped = _mapping(data)
    if mapped is None or not hasattr(mmap, "MADV_DONTNEED"):  # Windows takes pages back by itself
        return
    start = int(data.ctypes.data) - int(np.frombuffer(mapped, np.uint8).ctypes.data)
    first = -(-start // mmap.PAGESIZE) * mmap.PAGESIZE
    last = (start + data.nbytes) // mmap.PAGESIZE * mmap.PAGESIZE
    if last > first:
        mapped.madvise(mmap.MADV_DONTNEED, first, last - first)


def _mapping(data: Any) -> mmap.mmap | None:
    """The mapping under a chain of views; None where writing to it could be lost, or none is there."""
    while data is not None and not isinstance(data, mmap.mmap):
        data = data.obj if isinstance(data, memoryview) else getattr(data, "base", None)
    if data is None:
        return None
    with memoryview(data) as view:
        return data if view.readonly else None
