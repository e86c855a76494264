"""Tables of cos and sin for every position, as far as sequences have come."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from glassgear.backends.reference.rope import rotation
from glassgear.model.gears import Rope

__all__ = ["Rotations"]

FIRST = 256  # positions of a new table


class Rotations:
    """For each distinct rotation a table [positions, dim/2 cosines then dim/2 sines], float32."""

    def __init__(self, ropes: Sequence[Rope]) -> None:
        self._ropes = ropes
        self._tables: list[NDArray[np.float32]] = []
        self._addresses = np.zeros(max(1, len(ropes)), np.int64)
        self._at = int(self._addresses.ctypes.data)
        self._length = 0

    def upto(self, length: int) -> int:
        """Address of the tables' addresses; the tables hold at least `length` positions."""
        if length > self._length or len(self._tables) < len(self._ropes):
            self._length = max(FIRST, length, 2 * self._length)
            positions = np.arange(self._length, dtype=np.int64)
            self._tables = [
                np.ascontiguousarray(np.concatenate(rotation(rope, positions), axis=1), np.float32)
                for rope in self._ropes
            ]
            self._addresses = np.array([t.ctypes.data for t in self._tables] or [0], np.int64)
            self._at = int(self._addresses.ctypes.data)
        return self._at
