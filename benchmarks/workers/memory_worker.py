"""The memory as a worker: reads a large array with THREADS threads, as `glassgear bench` does."""

from __future__ import annotations

import sys

from protocol import serve

from glassgear.measure import MemoryReader

if __name__ == "__main__":
    reader = MemoryReader(int(sys.argv[1]))
    serve(read=lambda: {"bandwidth": reader.bandwidth()})
