"""Register tiles of attention: queries against a page of keys, softmax weights against its values.

A page holds 64 tokens. Its keys lie channel by channel, [head_dim, 64], so that a lane is a
token; its values lie token by token, [64, head_dim rounded up to 16]. Each query row goes
through the same operations whatever else is in the tile.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from glassgear.backends.base import PAGE
from glassgear.backends.cpu.kernels.vectors import (
    F32,
    I64,
    LANES,
    V_F16,
    V_F32,
    constant,
    emit_fma,
    emit_load,
    emit_prefetch,
    emit_splat,
    emit_store,
)

__all__ = ["mix_tile", "score_tile"]

_I = types.int64
WIDE = PAGE // LANES  # vectors of a page's tokens
FEW_ROWS = 3  # up to so many rows, a page is read faster than it comes: it is asked for in advance


def _word(value: int) -> Any:
    return ir.Constant(I64, value)


def _cached(b: Any, half: int, address: Any, index: int) -> Any:
    """16 cached values as floats."""
    if half:
        return b.fpext(emit_load(b, address, V_F16, 2 * LANES * index), V_F32)
    return emit_load(b, address, V_F32, 4 * LANES * index)


def _accumulate(
    b: Any, sums: list[list[Any]], half: int, count: Any, left: Any, right: Any, ahead: Any
) -> None:
    """sums[r][v] += sum over i < count of left(r, i) * right(i)[v], in the order of i.

    `ahead(i)`: what memory is asked for meanwhile, 128 bytes; None for nothing.
    """
    rows, wide = len(sums), len(sums[0])
    with cgutils.for_range(b, count) as loop:
        base = right(loop.index)
        if ahead is not None:
            for line in (0, 64):
                emit_prefetch(b, ahead(loop.index), line, locality=2)
        values = [_cached(b, half, base, v) for v in range(wide)]
        for r in range(rows):
            one = emit_splat(b, emit_load(b, left(r, loop.index), F32))
            for v in range(wide):
                b.store(emit_fma(b, one, values[v], b.load(sums[r][v])), sums[r][v])


def _cells(b: Any, rows: int, wide: int) -> list[list[Any]]:
    return [[cgutils.alloca_once(b, V_F32) for _ in range(wide)] for _ in range(rows)]


@intrinsic(prefer_literal=True)
def score_tile(typingctx, rows, half, queries, stride, keys, head_dim, out, ahead):  # type: ignore[no-untyped-def]
    """Scores of `rows` queries (literal) with the 64 keys of a page: out [rows, 64] floats.

    `half` (literal): keys are float16. `stride`: bytes from query to query. `ahead`: address of
    what will be read next.
    """
    count, narrow = rows.literal_value, half.literal_value

    def codegen(context: Any, b: Any, sig: Any, arguments: Any) -> Any:
        _, _, queries, stride, keys, head_dim, out, ahead = arguments
        sums = _cells(b, count, WIDE)
        for cell in (c for row in sums for c in row):
            b.store(constant(0.0), cell)
        _accumulate(
            b, sums, narrow, head_dim,
            lambda r, i: b.add(b.add(queries, b.mul(stride, _word(r))), b.mul(i, _word(4))),
            lambda i: b.add(keys, b.mul(i, _word(PAGE * (2 if narrow else 4)))),
            (lambda i: b.add(ahead, b.mul(i, _word(128)))) if count <= FEW_ROWS else None,
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
        sums = _cells(b, count, columns)
        places = [b.add(out, b.mul(stride, _word(r))) for r in range(count)]
        for r in range(count):
            for v in range(columns):
                b.store(emit_load(b, places[r], V_F32, 4 * LANES * v), sums[r][v])
        _accumulate(
            b, sums, narrow, tokens,
            lambda r, i: b.add(b.add(weights, _word(4 * PAGE * r)), b.mul(i, _word(4))),
            lambda i: b.add(values, b.mul(i, value_stride)),
            (lambda i: b.add(ahead, b.mul(i, _word(128)))) if count <= FEW_ROWS else None,
        )  # fmt: skip
        for r in range(count):
            for v in range(columns):
                emit_store(b, b.load(sums[r][v]), places[r], 4 * LANES * v)
        return context.get_dummy_value()

    return types.void(rows, wide, half, *[_I] * 7), codegen
