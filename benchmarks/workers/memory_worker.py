"""The memory as a worker: reads an array with THREADS threads, as `glassgear bench` does."""

from __future__ import annotations

import sys
from functools import cache

from protocol import Answer, serve

from glassgear.measure import MemoryReader

THREADS = int(sys.argv[1])


@cache
def reader(nbytes: int) -> MemoryReader:
    """A reader of that many bytes; 0: of more than caches hold."""
    return MemoryReader(THREADS, max(nbytes, 32 * THREADS)) if nbytes else MemoryReader(THREADS)


def read(nbytes: int = 0) -> Answer:
    """Bytes a second, measured now."""
    return {"bandwidth": reader(nbytes).bandwidth()}


if __name__ == "__main__":
    serve(read=read)
