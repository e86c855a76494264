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

from glassgear.backends.cpu.fields import ACTIVATION_BLOCK, GROUP
from glassgear.backends.cpu.kernels.dots import DOTS
from glassgear.backends.cpu.kernels.vectors import (
    F32,
    I8,
    I16,
    I32,
    I64,
    LANES,
    V_F16,
    V_F32,
    V_I32,
    call,
    constant,
    emit_fma,
    emit_load,
    emit_prefetch,
    emit_splat,
    emit_store,
    integer,
)
from glassgear.backends.cpu.layouts import BLOCK, IQ4_VALUES, PANEL, QuantLayout, quant_layout

__all__ = ["AHEAD", "float_tile", "quant_tile"]

AHEAD = 2560  # bytes that memory is asked for in advance
V_I8 = ir.VectorType(I8, 64)
V_I16 = ir.VectorType(I16, 32)
_I = types.int64


def _word(value: int) -> Any:
    return ir.Constant(I64, value)


def _groups(b: Any, block: Any, layout: QuantLayout, table: Any) -> list[Any]:
    """The codes of a block, unsigned: 8 groups of [16 rows, 4 inputs] as int32 lanes."""

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
        return [b.bitcast(vector(g), V_I32) for g in range(8)]
    planes = [vector(g) for g in range(4)]
    groups = [bits_of(v, 0, 15) for v in planes] + [bits_of(v, 4, 15) for v in planes]
    if layout.bits == 5:
        high = vector(4)
        groups = [b.or_(low, bits_of(high, g - 4, 16)) for g, low in enumerate(groups)]
    elif layout.bits == 6:
        high = [vector(4), vector(5)]
        groups = [b.or_(low, bits_of(high[g // 4], 2 * (g % 4) - 4, 48)) for g, low in enumerate(groups)]
    elif layout.table:
        groups = [table(v) for v in groups]
    return [b.bitcast(v, V_I32) for v in groups]


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


def _scales(b: Any, address: Any, layout: QuantLayout, offset: int) -> Any:
    if layout.wide:
        return emit_load(b, address, V_F32, offset)
    return b.fpext(emit_load(b, address, V_F16, offset), V_F32)


def _emit_block(b: Any, layout: QuantLayout, dot: str, tokens: int, block: Any, x: Any, totals: Any) -> None:
    """Add one block's share to every token's sums; `x(t)` is the address of token t's block."""
    groups = _groups(b, block, layout, _lookup(b, dot))
    subs = BLOCK // layout.sub
    per_sub = 8 // subs
    bits = 8 if layout.table else layout.bits
    for s in range(subs):
        sums = []
        for t in range(tokens):
            if layout.offset:
                # Activations carry minus their sum: offset * -sum starts the products.
                minus = emit_splat(b, emit_load(b, x(t), I32, _sum_offset(layout, s)))
                sums.append(b.shl(minus, integer(layout.offset.bit_length() - 1)))
            else:
                sums.append(integer(0))
        for g in range(s * per_sub, (s + 1) * per_sub):
            for t in range(tokens):
                four = emit_load(b, x(t), I32, 4 * g)
                sums[t] = DOTS[dot](b, sums[t], groups[g], four, bits)
        scale = _scales(b, block, layout, layout.code_bytes + s * layout.scale_bytes)
        if layout.minima:
            minimum = _scales(b, block, layout, layout.code_bytes + (subs + s) * layout.scale_bytes)
            minimum = b.fneg(minimum)  # what activations carry is minus their sum
        for t in range(tokens):
            part = b.fmul(b.sitofp(sums[t], V_F32), scale)
            if layout.minima:
                minus = b.sitofp(emit_splat(b, emit_load(b, x(t), I32, _sum_offset(layout, s))), V_F32)
                part = emit_fma(b, minimum, minus, part)
            unit = emit_splat(b, emit_load(b, x(t), F32, BLOCK))
            b.store(emit_fma(b, part, unit, b.load(totals[t])), totals[t])


def _sum_offset(layout: QuantLayout, sub: int) -> int:
    """Where an activation block keeps minus the sum of its codes: all 32, or a half of them."""
    return BLOCK + 4 + (4 * (1 + sub) if layout.sub == 16 else 0)


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
        group_bytes = b.mul(blocks, _word(GROUP * ACTIVATION_BLOCK))
        with cgutils.for_range(b, blocks) as loop:
            block = b.add(weights, b.mul(loop.index, _word(made.block_bytes)))
            inside = b.add(x, b.mul(loop.index, _word(GROUP * ACTIVATION_BLOCK)))
            starts = [b.add(inside, b.mul(group_bytes, _word(g))) for g in range(-(-count // GROUP))]
            if count <= 8:  # wider tiles use each block so often that it comes in time
                for line in range(0, made.block_bytes, 64):
                    emit_prefetch(b, block, AHEAD + line)

            def token(t: int) -> Any:
                return b.add(starts[t // GROUP], _word(t % GROUP * ACTIVATION_BLOCK))

            _emit_block(b, made, dot_name, count, block, token, totals)
        _finish(b, totals, out, stride, add)
        return context.get_dummy_value()

    return types.void(layout, dot, tokens, _I, _I, _I, _I, _I, _I), codegen


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
