"""How the codes and scales of a block come into registers: as they are packed, or spread to bytes.

A block is 16 rows x 32 inputs (`layouts.py`). Both sources give the same numbers, up to where
the code of 0 lies: with the products of bytes it can be moved to 128, and then what is due for it
is a number that activations carry.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from glassgear.backends.cpu.fields import SUM_SCALE
from glassgear.backends.cpu.kernels.vectors import (
    I8,
    I16,
    I32,
    V_F16,
    V_F32,
    V_I32,
    call,
    emit_load,
)
from glassgear.backends.cpu.layouts import BLOCK, IQ4_VALUES, PANEL, QuantLayout

__all__ = ["Packed", "Spread"]

V_I8 = ir.VectorType(I8, 64)
V_I16 = ir.VectorType(I16, 32)


class Packed:
    """A block as it lies in memory.

    Attributes:
        block_bytes: from block to block.
        middle: the code of 0.
        bits: that codes may have, for `dots.py`.
    """

    def __init__(self, b: Any, layout: QuantLayout, dot: str, tokens: int) -> None:
        self._b, self.layout, self.dot = b, layout, dot
        self.block_bytes = layout.block_bytes
        # For few tokens moving every code costs more than a shift for each token.
        self.middle = _middle(layout, dot) if tokens > 4 else layout.offset
        self.bits = _bits(layout, self.middle)

    def groups(self, block: Any) -> list[Any]:
        """The codes, unsigned bytes: 8 groups of [16 rows, 4 inputs] as int32 lanes."""
        groups = _codes(self._b, block, self.layout, self.dot)
        if self.middle > self.layout.offset:
            by = ir.Constant(V_I8, [self.middle - self.layout.offset] * 64)
            groups = [self._b.add(v, by) for v in groups]
        return [self._b.bitcast(v, V_I32) for v in groups]

    def scale(self, block: Any, number: int) -> Any:
        """16 scales of a sub-block; behind them come minima, with their sign changed."""
        layout, b = self.layout, self._b
        offset = layout.code_bytes + number * layout.scale_bytes
        values = emit_load(b, block, V_F32 if layout.wide else V_F16, offset)
        values = values if layout.wide else b.fpext(values, V_F32)
        # What activations carry is minus their sum.
        return values if number < BLOCK // layout.sub else b.fneg(values)


class Spread:
    """The same block in bytes and float32, as it is spread for many tokens; see `Packed`."""

    def __init__(self, b: Any, layout: QuantLayout, dot: str) -> None:
        self._b, self.layout, self.dot = b, layout, dot
        self.block_bytes = layout.spread_bytes
        self.middle = _middle(layout, dot)
        self.bits = _bits(layout, self.middle)

    def groups(self, block: Any) -> list[Any]:
        """See `Packed.groups`."""
        return [emit_load(self._b, block, V_I32, 64 * g) for g in range(8)]

    def scale(self, block: Any, number: int) -> Any:
        """See `Packed.scale`."""
        return emit_load(self._b, block, V_F32, PANEL * BLOCK + 4 * PANEL * number)


def _middle(layout: QuantLayout, dot: str) -> int:
    """Where the code of 0 is moved to: nowhere for `vpmaddubsw`, which needs small codes."""
    return layout.offset if dot == "avx2" or not layout.offset else SUM_SCALE


def _bits(layout: QuantLayout, middle: int) -> int:
    return 8 if layout.table or middle == SUM_SCALE else layout.bits


def _codes(b: Any, block: Any, layout: QuantLayout, dot: str) -> list[Any]:
    """The codes as they are stored, 8 groups of 64 bytes."""

    def vector(index: int) -> Any:
        return emit_load(b, block, V_I8, 64 * index)

    def bits_of(v: Any, shift: int, mask: int) -> Any:
        """Shift right (left if negative) within pairs of bytes, then mask each byte."""
        wide = b.bitcast(v, V_I16)
        if shift:
            by = ir.Constant(V_I16, [abs(shift)] * 32)
            wide = b.lshr(wide, by) if shift > 0 else b.shl(wide, by)
        return b.and_(b.bitcast(wide, V_I8), ir.Constant(V_I8, [mask] * 64))

    if layout.bits == 8:
        return [vector(g) for g in range(8)]
    planes = [vector(g) for g in range(4)]
    groups = [bits_of(v, 0, 15) for v in planes] + [bits_of(v, 4, 15) for v in planes]
    if layout.bits == 5:
        high = vector(4)
        groups = [b.or_(low, bits_of(high, g - 4, 16)) for g, low in enumerate(groups)]
    elif layout.bits == 6:
        high = [vector(4), vector(5)]
        groups = [b.or_(low, bits_of(high[g // 4], 2 * (g % 4) - 4, 48)) for g, low in enumerate(groups)]
    elif layout.table:
        groups = [_lookup(b, dot)(v) for v in groups]
    return groups


def _lookup(b: Any, dot: str) -> Any:
    """Codes to values + 128 of the IQ4 table, for 64 bytes."""
    values = [v + 128 for v in IQ4_VALUES]

    def avx512(v: Any) -> Any:
        whole = ir.Constant(V_I8, [ir.Constant(I8, x) for x in values * 4])
        return call(b, "llvm.x86.avx512.pshuf.b.512", V_I8, [whole, v])

    def halves(v: Any) -> Any:
        kind = ir.VectorType(I8, 32)
        whole = ir.Constant(kind, [ir.Constant(I8, x) for x in values * 2])
        parts = []
        for side in (0, 1):
            mask = ir.Constant(ir.VectorType(I32, 32), list(range(32 * side, 32 * side + 32)))
            parts.append(call(b, "llvm.x86.avx2.pshuf.b", kind, [whole, b.shuffle_vector(v, v, mask)]))
        return b.shuffle_vector(*parts, ir.Constant(ir.VectorType(I32, 64), list(range(64))))

    def selects(v: Any) -> Any:
        out = ir.Constant(V_I8, [values[0]] * 64)
        for code in range(1, 16):
            same = b.icmp_unsigned("==", v, ir.Constant(V_I8, [code] * 64))
            out = b.select(same, ir.Constant(V_I8, [values[code]] * 64), out)
        return out

    return {"avx512vnni": avx512, "plain": selects}.get(dot, halves)
