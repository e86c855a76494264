"""Register tiles: the inner loops of matrix products, emitted as LLVM vector code.

A tile is 16 rows of weights (or several times 16) by a few tokens. Whatever its width, each
output goes through the same operations in the same order, so one token gives bit-equal results
alone, in a prompt, or beside other sequences. Integer sums are exact; floats are never
reordered.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from glassgear.backends.cpu.fields import ACTIVATION_BLOCK, GROUP, SUM_SCALE, TILE
from glassgear.backends.cpu.kernels.blocks import Packed, Spread
from glassgear.backends.cpu.kernels.dots import DOTS
from glassgear.backends.cpu.kernels.vectors import (
    F32,
    I16,
    I32,
    I64,
    LANES,
    V_F16,
    V_F32,
    V_I32,
    constant,
    emit_fma,
    emit_load,
    emit_prefetch,
    emit_splat,
    emit_store,
    integer,
)
from glassgear.backends.cpu.layouts import BLOCK, PANEL, QuantLayout, quant_layout

__all__ = ["AHEAD", "float_tile", "quant_tile", "spread", "spread_tile"]

AHEAD = 2560  # bytes that memory is asked for in advance
_I = types.int64


def _word(value: int) -> Any:
    return ir.Constant(I64, value)


def _emit_block(b: Any, source: Packed | Spread, block: Any, x: Any, totals: list[Any]) -> None:
    """Add one block's share to every token's sums; `x`: address of the tokens' activation blocks."""
    groups, layout, dot = source.groups(block), source.layout, DOTS[source.dot]
    subs = BLOCK // layout.sub
    per_sub, tokens = 8 // subs, len(totals)

    def load(t: int, kind: Any, offset: int) -> Any:
        return emit_load(b, x, kind, ACTIVATION_BLOCK * t + offset)

    parts: list[Any] = [None] * tokens
    for s in range(subs):
        sums = [integer(0)] * tokens
        if layout.offset:
            # Activations carry minus their sum: the code of 0, times that, starts the products.
            shift = integer((SUM_SCALE // source.middle).bit_length() - 1)
            sums = [emit_splat(b, load(t, I32, _sum_offset(layout, s))) for t in range(tokens)]
            sums = sums if source.middle == SUM_SCALE else [b.ashr(v, shift) for v in sums]
        for g in range(s * per_sub, (s + 1) * per_sub):
            for t in range(tokens):
                sums[t] = dot(b, sums[t], groups[g], load(t, I32, 4 * g), source.bits)
        scale = source.scale(block, s)
        minimum = source.scale(block, subs + s) if layout.minima else None
        for t in range(tokens):
            value = b.sitofp(sums[t], V_F32)
            parts[t] = emit_fma(b, value, scale, parts[t]) if s else b.fmul(value, scale)
            if layout.minima:
                minus = emit_splat(b, load(t, F32, 12 + _sum_offset(layout, s)))
                parts[t] = emit_fma(b, minimum, minus, parts[t])
    for t in range(tokens):
        unit = emit_splat(b, load(t, F32, BLOCK))
        b.store(emit_fma(b, parts[t], unit, b.load(totals[t])), totals[t])


def _sum_offset(layout: QuantLayout, sub: int) -> int:
    """Where an activation block keeps minus the sum of all its codes, or of a half, as int32.

    12 bytes on it stands as float32.
    """
    return BLOCK + 4 + (4 * (1 + sub) if layout.sub == 16 else 0)


def _expect(b: Any, out: Any, stride: Any, count: int) -> None:
    """Ask for the outputs of a wide tile, so that they are there when it ends."""
    for t in range(count if count > 8 else 0):
        emit_prefetch(b, b.add(out, b.mul(stride, _word(t))), 0, 3)


def _finish(b: Any, totals: list[Any], out: Any, stride: Any, add: Any, offset: int = 0) -> None:
    """Store each token's 16 sums, or add them to what is there."""
    for t, total in enumerate(totals):
        address = b.add(out, b.mul(stride, _word(t)))
        value = b.load(total)
        with b.if_else(b.icmp_signed("!=", add, _word(0))) as (then, otherwise):
            with then:
                emit_store(b, b.fadd(emit_load(b, address, V_F32, offset), value), address, offset)
            with otherwise:
                emit_store(b, value, address, offset)


@intrinsic(prefer_literal=True)
def spread(typingctx, layout, dot, weights, blocks, to):  # type: ignore[no-untyped-def]
    """Spread `blocks` blocks of a panel to bytes and float32, as `quant_tile` reads them."""
    made, dot_name = quant_layout(layout.literal_value), dot.literal_value

    def codegen(context: Any, b: Any, sig: Any, arguments: Any) -> Any:
        _, _, weights, blocks, to = arguments
        packed = Packed(b, made, dot_name, TILE)
        with cgutils.for_range(b, blocks) as loop:
            block = b.add(weights, b.mul(loop.index, _word(made.block_bytes)))
            out = b.add(to, b.mul(loop.index, _word(made.spread_bytes)))
            for g, group in enumerate(packed.groups(block)):
                emit_store(b, group, out, 64 * g)
            for s in range(BLOCK // made.sub * (2 if made.minima else 1)):
                emit_store(b, packed.scale(block, s), out, PANEL * BLOCK + 4 * PANEL * s)
        return context.get_dummy_value()

    return types.void(layout, dot, _I, _I, _I), codegen


@intrinsic(prefer_literal=True)
def quant_tile(typingctx, layout, dot, tokens, weights, x, blocks, out, stride, add):  # type: ignore[no-untyped-def]
    """16 rows of codes times `tokens` rows of int8 activations.

    Args:
        typingctx: Numba's.
        layout: literal, the `key` of a `QuantLayout`.
        dot: literal, a key of `DOTS`.
        tokens: literal.
        weights: address of the panel.
        x: address of the tokens' activation blocks (see `fields.py` for how they lie).
        blocks: blocks of 32 inputs.
        out: address of 16 floats of the first token.
        stride: bytes from token to token there.
        add: not 0: add to what `out` holds.
    """
    made, dot_name, count = quant_layout(layout.literal_value), dot.literal_value, tokens.literal_value

    def codegen(context: Any, b: Any, sig: Any, arguments: Any) -> Any:
        _, _, _, weights, x, blocks, out, stride, add = arguments
        totals = [cgutils.alloca_once(b, V_F32) for _ in range(count)]
        for total in totals:
            b.store(constant(0.0), total)
        _expect(b, out, stride, count)
        source = Packed(b, made, dot_name, count)
        _emit_blocks(b, source, weights, x, blocks, blocks, totals)
        _finish(b, totals, out, stride, add)
        return context.get_dummy_value()

    return types.void(layout, dot, tokens, _I, _I, _I, _I, _I, _I), codegen


def _emit_blocks(
    b: Any, source: Packed | Spread, weights: Any, x: Any, blocks: Any, of: Any, totals: list[Any]
) -> None:
    """Add `blocks` blocks, of rows that have `of`, to every token's sums."""
    count = len(totals)
    wide = count > 8
    following = b.add(x, b.mul(of, _word(GROUP * ACTIVATION_BLOCK))) if wide else None
    with cgutils.for_range(b, blocks) as loop:
        block = b.add(weights, b.mul(loop.index, _word(source.block_bytes)))
        inside = b.mul(loop.index, _word(GROUP * ACTIVATION_BLOCK))
        tokens = b.add(x, inside)
        if wide:  # the next tile's activations; weights are used so often that they come in time
            ahead = b.add(following, inside)
            for t in range(count):
                emit_prefetch(b, ahead, ACTIVATION_BLOCK * t, 2)
        elif isinstance(source, Packed):
            for line in range(0, source.block_bytes, 64):
                emit_prefetch(b, block, AHEAD + line)
        _emit_block(b, source, block, tokens, totals)


@intrinsic(prefer_literal=True)
def spread_tile(typingctx, layout, dot, tokens, weights, x, blocks, of, sums, first, last, out, stride, add):  # type: ignore[no-untyped-def]
    """`quant_tile` for a part of a panel that `spread` has made.

    Args:
        typingctx: Numba's.
        layout: literal, the `key` of a `QuantLayout`.
        dot: literal, a key of `DOTS`.
        tokens: literal.
        weights: address of the spread blocks.
        x: address of the tokens' activation blocks that belong to the first of them.
        blocks: blocks of 32 inputs.
        of: how many the rows have.
        sums: address of 16 floats for each token, from part to part.
        first: not 0: nothing is there yet.
        last: not 0: sums go to `out`.
        out: address of 16 floats of the first token.
        stride: bytes from token to token there.
        add: not 0: add to what `out` holds.
    """
    made, dot_name, count = quant_layout(layout.literal_value), dot.literal_value, tokens.literal_value

    def codegen(context: Any, b: Any, sig: Any, arguments: Any) -> Any:
        _, _, _, weights, x, blocks, of, sums, first, last, out, stride, add = arguments
        totals = [cgutils.alloca_once(b, V_F32) for _ in range(count)]
        with b.if_else(b.icmp_signed("!=", first, _word(0))) as (then, otherwise):
            with then:
                for total in totals:
                    b.store(constant(0.0), total)
            with otherwise:
                for t, total in enumerate(totals):
                    b.store(emit_load(b, sums, V_F32, 4 * PANEL * t), total)
        _expect(b, out, stride, count)
        source = Spread(b, made, dot_name)
        _emit_blocks(b, source, weights, x, blocks, of, totals)
        with b.if_else(b.icmp_signed("!=", last, _word(0))) as (then, otherwise):
            with then:
                _finish(b, totals, out, stride, add)
            with otherwise:
                for t, total in enumerate(totals):
                    emit_store(b, b.load(total), sums, 4 * PANEL * t)
        return context.get_dummy_value()

    return types.void(layout, dot, tokens, *[_I] * 10), codegen


def _values(b: Any, kind: str, address: Any, offset: int) -> Any:
    """16 weights as floats."""
    if kind == "f32":
        return emit_load(b, address, V_F32, offset)
    if kind == "f16":
        return b.fpext(emit_load(b, address, V_F16, offset), V_F32)
    bits = emit_load(b, address, ir.VectorType(I16, LANES), offset)
    return b.bitcast(b.shl(b.zext(bits, V_I32), integer(16)), V_F32)


@intrinsic(prefer_literal=True)
def float_tile(typingctx, kind, panels, tokens, weights, x, x_stride, columns, out, stride, add):  # type: ignore[no-untyped-def]
    """16 * `panels` rows of float weights times `tokens` rows of floats.

    Args:
        typingctx: Numba's.
        kind: literal, the layout's key: `f32`, `f16`, `bf16`.
        panels: literal.
        tokens: literal.
        weights: address of the first panel.
        x: address of the first token's values.
        x_stride: bytes from token to token there.
        columns: inputs.
        out: address of the first token's outputs.
        stride: bytes from token to token there.
        add: not 0: add to what `out` holds.
    """
    name, wide, count = kind.literal_value, panels.literal_value, tokens.literal_value
    width = PANEL * (4 if name == "f32" else 2)

    def codegen(context: Any, b: Any, sig: Any, arguments: Any) -> Any:
        _, _, _, weights, x, x_stride, columns, out, stride, add = arguments
        totals = [[cgutils.alloca_once(b, V_F32) for _ in range(count)] for _ in range(wide)]
        for total in (t for row in totals for t in row):
            b.store(constant(0.0), total)
        _expect(b, out, stride, count)
        panel = b.mul(columns, _word(width))
        with cgutils.for_range(b, columns) as loop:
            place_ = b.add(weights, b.mul(loop.index, _word(width)))
            rows = [b.add(place_, b.mul(panel, _word(p))) for p in range(wide)]
            if count == 1 and wide <= 2:
                for row in rows:
                    emit_prefetch(b, row, AHEAD)
            values = [_values(b, name, row, 0) for row in rows]
            for t in range(count):
                at = b.add(b.add(x, b.mul(x_stride, _word(t))), b.mul(loop.index, _word(4)))
                one = emit_splat(b, emit_load(b, at, F32))
                for p in range(wide):
                    b.store(emit_fma(b, values[p], one, b.load(totals[p][t])), totals[p][t])
        for p in range(wide):
            _finish(b, totals[p], out, stride, add, 4 * PANEL * p)
        return context.get_dummy_value()

    return types.void(kind, panels, tokens, *[_I] * 7), codegen
