"""A tensor that is made while it is written, so that it needn't fit into memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glassgear.model.gears import Shape
from glassgear.weights.quant import TYPES

__all__ = ["StreamedTensor"]


@dataclass(frozen=True, eq=False)
class StreamedTensor:
    """What a writer needs to know of a tensor before it sees its values.

    Attributes:
        name: its name in the file.
        type: a key of `quant.TYPES`.
        shape: row-major.
        pieces: makes its bytes, in order, in pieces of any size; called once, when it is its turn.
    """

    name: str
    type: str
    shape: Shape
    pieces: Callable[[], Iterator[NDArray[Any]]]

    @property
    def nbytes(self) -> int:
        """Bytes in the file."""
        kind = TYPES[self.type]
        return prod(self.shape) // kind.values * kind.nbytes

    def chunks(self) -> Iterator[memoryview]:
        """The bytes, and the certainty that they are as many as were promised."""
        left = self.nbytes
        for piece in self.pieces():
            left -= piece.nbytes
            yield np.ascontiguousarray(piece).data.cast("B")
        assert left == 0, f"{self.name}: {left} bytes are missing"
