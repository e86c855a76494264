"""Register tiles of attention: queries against a page of keys, softmax weights against its values.

A page holds 64 tokens. Its keys lie channel by channel, [head_dim, 64], so that a lane is a
token; its values lie token by token, [64, head_dim rounded up to 16]. Each query row goes
through the same operations whatever else is in the tile.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from llvmlite.binding import llvm_version_info
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from glassgear.backends.base import PAGE
from glassgear.backends.cpu.kernels.vectors import (
    F32,
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
)

__all__ = ["FEW_ROWS", "WIDE", "accumulate", "cells", "mix_tile", "score_tile", "turn_tile", "word"]

_I = types.int64
WIDE = PAGE // LANES  # vectors of a page's tokens
FEW_ROWS = 3  # up to so many rows, a page is read faster than it comes: it is asked for in advance


def word(value: int) -> Any:
    """An int64."""
    return ir.Constant(I64, value)


def _cached(b: Any, half: int, address: Any, index: int) -> Any:
    """16 cached values as floats, or 16 pairs of int16."""
    if half == 2:
        return emit_load(b, address, V_I32, 4 * LANES * index)
    if half:
        return b.fpext(emit_load(b, address, V_F16, 2 * LANES * index), V_F32)
    return emit_load(b, address, V_F32, 4 * LANES * index)


def accumulate(
    b: Any, sums: list[list[Any]], half: int, count: Any, left: Any, right: Any, ahead: Any, lines: int = 2
) -> None:
    """sums[r][v] += sum over i < count of left(r, i) * right(i)[v], in the order of i.

    `half`: 0 and 1 for floats as in the cache, 2 for pairs of int16. `ahead(i)`: what memory is
    asked for meanwhile, `lines` of 64 bytes; None for nothing.
    """
    rows, wide = len(sums), len(sums[0])
    kind, multiply = (I32, _dot) if half == 2 else (F32, emit_fma)
    with cgutils.for_range(b, count) as loop:
        base = right(loop.index)
        if ahead is not None:
            for line in range(lines):
                emit_prefetch(b, ahead(loop.index), 64 * line, locality=2)
        values = [_cached(b, half, base, v) for v in range(wide)]
        for r in range(rows):
            one = emit_splat(b, emit_load(b, left(r, loop.index), kind))
            for v in range(wide):
                b.store(multiply(b, one, values[v], b.load(sums[r][v])), sums[r][v])


def _dot(b: Any, x: Any, y: Any, sums: Any) -> Any:
    """Sums + the products of two pairs of int16 in each of 16 lanes: `vpdpwssd`."""
    if llvm_version_info[0] >= 21:  # which changed the operands from i32 to i16 vectors
        x, y = (b.bitcast(v, ir.VectorType(I16, 2 * LANES)) for v in (x, y))
    return call(b, "llvm.x86.avx512.vpdpwssd.512", V_I32, [sums, x, y])


def cells(b: Any, kind: Any, rows: int, wide: int) -> list[list[Any]]:
    """Room for `rows` * `wide` vectors of a kind, which LLVM keeps in registers."""
    return [[cgutils.alloca_once(b, kind) for _ in range(wide)] for _ in range(rows)]


@intrinsic(prefer_literal=True)
def score_tile(typingctx, rows, half, queries, stride, keys, head_dim, out, ahead):  # type: ignore[no-untyped-def]
    """Scores of `rows` queries (literal) with the 64 keys of a page: out [rows, 64] floats.

    `half` (literal): keys are float16. `stride`: bytes from query to query. `ahead`: address of
    what will be read next.
    """
    count, narrow = rows.literal_value, half.literal_value

    def codegen(context: Any, b: Any, sig: Any, arguments: Any) -> Any:
        _, _, queries, stride, keys, head_dim, out, ahead = arguments
        sums = cells(b, V_F32, count, WIDE)
        for cell in (c for row in sums for c in row):
            b.store(constant(0.0), cell)
        accumulate(
            b, sums, narrow, head_dim,
            lambda r, i: b.add(b.add(queries, b.mul(stride, word(r))), b.mul(i, word(4))),
            lambda i: b.add(keys, b.mul(i, word(PAGE * (2 if narrow else 4)))),
            (lambda i: b.add(ahead, b.mul(i, word(128)))) if count <= FEW_ROWS else None,
        )  # fmt: skip
        for r in range(count):
            for v in range(WIDE):
                emit_store(b, b.load(sums[r][v]), out, 4 * (PAGE * r + LANES * v))
        return context.get_dummy_value()

    return types.void(rows, half, *[_I] * 6), codegen


@intrinsic(prefer_literal=True)
def mix_tile(typingctx, rows, wide, half, weights, values, value_stride, tokens, out, stride, ahead):  # type: ignore[no-untyped-def]
    """out[r] += weights[r, token] * values[token], token by token, 16 * `wide` channels.

    Sums start from what `out` holds: taking tokens in several calls changes no bit. `rows`,
    `wide`, `half` are literals. Weights are [rows, 64]; strides in bytes. `ahead`: as above.
    """
    count, columns, narrow = rows.literal_value, wide.literal_value, half.literal_value

    def codegen(context: Any, b: Any, sig: Any, arguments: Any) -> Any:
        _, _, _, weights, values, value_stride, tokens, out, stride, ahead = arguments
        sums = cells(b, V_F32, count, columns)
        places = [b.add(out, b.mul(stride, word(r))) for r in range(count)]
        for r in range(count):
            for v in range(columns):
                b.store(emit_load(b, places[r], V_F32, 4 * LANES * v), sums[r][v])
        accumulate(
            b, sums, narrow, tokens,
            lambda r, i: b.add(b.add(weights, word(4 * PAGE * r)), b.mul(i, word(4))),
            lambda i: b.add(values, b.mul(i, value_stride)),
            (lambda i: b.add(ahead, b.mul(i, word(128)))) if count <= FEW_ROWS else None,
        )  # fmt: skip
        for r in range(count):
            for v in range(columns):
                emit_store(b, b.load(sums[r][v]), places[r], 4 * LANES * v)
        return context.get_dummy_value()

    return types.void(rows, wide, half, *[_I] * 7), codegen


@intrinsic(prefer_literal=True)
def turn_tile(typingctx, half, rows, row_bytes, out):  # type: ignore[no-untyped-def]
    """16 channels of 16 tokens, [token, channel], to [channel, token] floats, PAGE of them a row.

    `half` (a literal): tokens are float16.
    """
    narrow = half.literal_value

    def codegen(context: Any, b: Any, sig: Any, arguments: Any) -> Any:
        _, rows, row_bytes, out = arguments
        turned = [_cached(b, narrow, b.add(rows, b.mul(row_bytes, word(i))), 0) for i in range(LANES)]
        for distance in (1, 2, 4, 8):
            turned = _exchanged(b, turned, distance)
        for i, v in enumerate(turned):
            emit_store(b, v, out, 4 * PAGE * i)
        return context.get_dummy_value()

    return types.void(half, *[_I] * 3), codegen


def _exchanged(b: Any, rows: list[Any], distance: int) -> list[Any]:
    """Swap lane l + distance of row i with lane l of row i + distance: a step of a transposition."""
    out = list(rows)
    for i in range(LANES):
        if i & distance:
            continue
        low = [lane if not lane & distance else LANES + lane - distance for lane in range(LANES)]
        high = [lane + distance if not lane & distance else LANES + lane for lane in range(LANES)]
        for to, mask in ((i, low), (i + distance, high)):
            out[to] = b.shuffle_vector(rows[i], rows[i + distance], ir.Constant(V_I32, mask))
    return out
