"""Memory in which threads leave what they computed of an attention row, one segment each."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from glassgear.backends.cpu.cache import CacheShape
from glassgear.backends.cpu.fields import QUERY_ROWS, SEGMENT, SPARE_ROWS

__all__ = ["Parts"]

LINE = 64  # bytes of a cache line


class Parts:
    """Room for the parts of a pass, kept for the next one.

    Args:
        layers: query heads, and what is kept of a token, of each attention gear. They take turns
            in the same memory.
    """

    def __init__(self, layers: Sequence[tuple[int, CacheShape]]) -> None:
        self._group = max((heads // shape.kv_heads for heads, shape in layers), default=1)
        self._heads = max((shape.kv_heads for _, shape in layers), default=1)
        widest = max((-(-shape.value_dim // 16) * 16 for _, shape in layers), default=16)
        self._row = 4 * widest + 128
        self._memory = np.zeros(LINE, np.uint8)

    def place(self, rows: Sequence[int], stops: Sequence[int]) -> tuple[int, int]:
        """Memory for sequences with so many new rows and tokens, its counters at 0.

        Returns:
            Its address, and bytes from part to part: see `Frame.PARTS`.
        """
        tiles = sum(
            -(-n * self._group // QUERY_ROWS) * -(-stop // SEGMENT)
            for n, stop in zip(rows, stops, strict=True)
        )
        tallest = min(QUERY_ROWS, max(rows) * self._group) + SPARE_ROWS
        count, apart = tiles * self._heads, LINE + tallest * self._row
        if self._memory.size < count * apart + LINE:
            self._memory = np.zeros(2 * count * apart + LINE, np.uint8)
        start = -int(self._memory.ctypes.data) % LINE
        counters: NDArray[np.uint8] = self._memory[start : start + count * apart].reshape(count, apart)
        counters[:, :8] = 0  # a pass that was called off may have left some
        return int(self._memory.ctypes.data) + start, apart
