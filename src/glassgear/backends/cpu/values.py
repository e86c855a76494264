"""What steps work on, and where it lies: buffers, packed matrices, vectors of norms.

All of them are addresses with what must be known to read them; `memory.py` gives them out.
"""

from __future__ import annotations

from dataclasses import dataclass

from glassgear.backends.cpu.fields import NormKind
from glassgear.backends.cpu.layouts import PANEL, FloatLayout, Layout

__all__ = ["Codes", "Matrix", "NormVectors", "Source", "Units", "Value", "is_float"]


@dataclass(frozen=True)
class Value:
    """Rows of floats: `width` of them at `address`, next row `stride` bytes on.

    `private`: bytes between the copies of it that threads have for a few rows; 0 if they share it.
    """

    address: int
    stride: int
    width: int
    private: int = 0

    def columns(self, first: int, width: int) -> Value:
        """Some of its columns."""
        return Value(self.address + 4 * first, self.stride, width, self.private)


@dataclass(frozen=True)
class Codes:
    """Activation blocks of rows, and the bytes between threads' copies."""

    address: int
    private: int = 0


@dataclass(frozen=True)
class Source:
    """What matrices read: floats, codes, or both."""

    floats: Value | None
    codes: Codes | None


@dataclass(frozen=True)
class Matrix:
    """A packed matrix."""

    address: int
    layout: Layout
    rows: int
    columns: int
    nbytes: int

    @property
    def panels(self) -> int:
        """Panels of 16 rows."""
        return -(-self.rows // PANEL)


@dataclass(frozen=True)
class NormVectors:
    """What a norm multiplies by and adds: addresses of `width` floats each; 0 for no bias."""

    kind: NormKind
    width: int
    eps: float
    weight: int
    bias: int


@dataclass(frozen=True)
class Units:
    """How steps are shared out: `size` panels (or heads) together; number `first` of `total`."""

    size: int
    first: int
    total: int


def is_float(matrix: Matrix) -> bool:
    """Whether a matrix reads floats rather than codes."""
    return isinstance(matrix.layout, FloatLayout)
