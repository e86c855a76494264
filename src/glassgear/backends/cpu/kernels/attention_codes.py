"""Attention in 16-bit codes: the work at a page for machines that have `vpdpwssd`.

Everything that is multiplied is rounded to int16 first, with one scale for a row; products are
summed exactly, in int32, 32 of them an instruction where float32 makes 16. No sum can overflow:

- A key, of one head and token, is its codes times a scale: norm / 32767. A query likewise. By
  Cauchy and Schwarz their product is at most 32767^2, and so is that of any of their parts.
- A value has the scale largest magnitude / 32767, so its codes are at most 32767. The weights of
  a row at a page, each times its token's scale, are rounded to codes that add up to 32767.

What codes lose of a key or a value is at most sqrt(channels) / 65534 of its length, which up to
1,024 channels is no more than float16 may lose, 2^-11.

A page's keys are [64 scales as floats][pairs of channels, 64 tokens, 2] int16, its values
[64 scales][pairs of tokens, channels, 2], channels rounded up to 16.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit, types
from numba.extending import intrinsic

from glassgear.backends.base import PAGE
from glassgear.backends.cpu.fields import QUERY_ROWS, Step
from glassgear.backends.cpu.kernels.attention_loops import ROW, clip, tiles
from glassgear.backends.cpu.kernels.attention_tiles import FEW_ROWS, accumulate, cells, word
from glassgear.backends.cpu.kernels.vectors import (
    F32,
    LANES,
    V_F32,
    V_I32,
    at,
    emit_fma,
    emit_load,
    emit_splat,
    emit_store,
    exp,
    exp2,
    first_lane,
    fma,
    get_f32,
    hidden,
    inside,
    integer,
    largest,
    load16,
    maximum,
    narrow16,
    nearest,
    nearest_codes,
    put_f32,
    splat,
    store16,
    sum16,
    visible,
)

__all__ = ["SCALES", "TOP", "page_of_codes", "query_codes", "query_stride"]

_I = types.int64
SCALES = 4 * PAGE  # bytes of the scales of a page's tokens
CODES = 2 * PAGE  # bytes of a row's weights as codes
TOP = np.float32(32767)
UNIT = np.float32(1 / 32767)
ONE, TWO, ZERO = np.float32(1), np.float32(2), np.float32(0)
LOG2E = np.float32(1.4426950408889634)
FLOOR = np.float32(-126)  # 2^x of less is nothing
NAN, INFINITE = np.float32(math.nan), np.float32(math.inf)
TINY = np.float32(1e-30)  # below it TOP / x could overflow: such a row counts as zeros


@intrinsic(prefer_literal=True)
def score_codes(typingctx, rows, wide, queries, stride, keys, pairs, out, ahead):  # type: ignore[no-untyped-def]
    """Products of `rows` queries with the first 16 * `wide` keys of a page, times the keys' scales.

    `rows`, `wide` are literals. out: [rows, 64] floats. `stride`: bytes from query to query.
    `pairs`: of channels. `ahead`: what will be read next.
    """
    count, vectors = rows.literal_value, wide.literal_value

    def codegen(context: Any, b: Any, sig: Any, arguments: Any) -> Any:
        _, _, queries, stride, scales, pairs, out, ahead = arguments
        keys = b.add(scales, word(SCALES))
        sums = cells(b, V_I32, count, vectors)
        for cell in (c for row in sums for c in row):
            b.store(integer(0), cell)
        accumulate(
            b, sums, 2, pairs,
            lambda r, i: b.add(b.add(queries, b.mul(stride, word(r))), b.mul(i, word(4))),
            lambda i: b.add(keys, b.mul(i, word(4 * PAGE))),
            _ahead(b, count, ahead), _lines(count),
        )  # fmt: skip
        units = [emit_load(b, scales, V_F32, 4 * LANES * v) for v in range(vectors)]
        for r in range(count):
            for v in range(vectors):
                score = b.fmul(b.sitofp(b.load(sums[r][v]), V_F32), units[v])
                emit_store(b, score, out, 4 * (PAGE * r + LANES * v))
        return context.get_dummy_value()

    return types.void(rows, wide, *[_I] * 6), codegen


def _lines(rows: int) -> int:
    """Cache lines that are asked for in advance at each pair: a page's worth in one tile or in four."""
    return 4 if rows <= FEW_ROWS else 1


def _ahead(b: Any, rows: int, start: Any) -> Any:
    return lambda i: b.add(start, b.mul(i, word(64 * _lines(rows))))


@intrinsic(prefer_literal=True)
def mix_codes(typingctx, rows, wide, weights, values, value_stride, pairs, changes, out, stride, ahead):  # type: ignore[no-untyped-def]
    """out[r] = out[r] * shrink[r] + unit[r] * (sum over tokens of weight codes * value codes).

    16 * `wide` channels of `rows` rows (literals). `weights`: [rows, 64] int16. `pairs`: of
    tokens. `changes`: 16 shrinks, 16 units. Strides in bytes. `ahead`: what will be read next.
    """
    count, columns = rows.literal_value, wide.literal_value

    def codegen(context: Any, b: Any, sig: Any, arguments: Any) -> Any:
        _, _, weights, values, value_stride, pairs, changes, out, stride, ahead = arguments
        sums = cells(b, V_I32, count, columns)
        for cell in (c for row in sums for c in row):
            b.store(integer(0), cell)
        accumulate(
            b, sums, 2, pairs,
            lambda r, i: b.add(b.add(weights, word(CODES * r)), b.mul(i, word(4))),
            lambda i: b.add(values, b.mul(i, value_stride)),
            _ahead(b, count, ahead), _lines(count),
        )  # fmt: skip
        for r in range(count):
            place = b.add(out, b.mul(stride, word(r)))
            shrink, unit = (emit_splat(b, emit_load(b, changes, F32, 4 * r + at)) for at in (0, 64))
            for v in range(columns):
                new = b.fmul(b.sitofp(b.load(sums[r][v]), V_F32), unit)
                old = emit_load(b, place, V_F32, 4 * LANES * v)
                emit_store(b, emit_fma(b, old, shrink, new), place, 4 * LANES * v)
        return context.get_dummy_value()

    return types.void(rows, wide, *[_I] * 8), codegen


@njit(inline="always")
def query_stride(key_dim):  # type: ignore[no-untyped-def]
    """Bytes of a query: codes of its pairs of channels, then what its products are worth."""
    return (key_dim + 1) // 2 * 4 + 4


@njit(inline="always")
def query_codes(q, key_dim, scale, out):  # type: ignore[no-untyped-def]
    """A query of floats as codes; its products are worth `scale` times its own scale."""
    squares, whole = splat(ZERO), key_dim // 16 * 16
    for c in range(0, whole, 16):
        x = load16(q + 4 * c)
        squares = fma(x, x, squares)
    if whole < key_dim:
        x = inside(load16(q + 4 * whole), key_dim - whole)
        squares = fma(x, x, squares)
    norm = np.sqrt(sum16(squares))
    # A query of zeros has products of 0, whatever they are worth.
    unit, inverse = norm * UNIT, TOP / norm
    if norm < TINY:
        unit, inverse = ONE, ZERO
    if not norm < INFINITE:
        unit, inverse = NAN, ZERO
    last = out + query_stride(key_dim) - 4
    for c in range(0, whole, 16):
        narrow16(out + 2 * c, nearest(load16(q + 4 * c) * splat(inverse)))
    if whole < key_dim:
        x = inside(load16(q + 4 * whole), key_dim - whole)
        narrow16(out + 2 * whole, nearest(x * splat(inverse)))
    put_f32(last, unit * scale)


@njit(inline="always")
def capped(t, worth, cap):  # type: ignore[no-untyped-def]
    """Cap * tanh(t * worth / cap): tanh(x) = 1 - 2 / (e^2x + 1)."""
    e = exp(t * splat(TWO * worth / cap))
    return splat(cap) * (splat(ONE) - splat(TWO) / (e + splat(ONE)))


@njit(inline="always")
def rise(scores, worth, low, high, state, change):  # type: ignore[no-untyped-def]
    """Bring a row's maximum to a page's scores; hide those that it doesn't see.

    `change`: takes the binary logarithm of what the row's mixed values and sum shrink by.
    """
    t0, t1, t2, t3 = load16(scores), load16(scores + 64), load16(scores + 128), load16(scores + 192)
    if high - low < PAGE:
        t0, t1 = visible(t0, low, high), visible(t1, low - 16, high - 16)
        t2, t3 = visible(t2, low - 32, high - 32), visible(t3, low - 48, high - 48)
        store16(scores, t0)
        store16(scores + 64, t1)
        store16(scores + 128, t2)
        store16(scores + 192, t3)
    before = get_f32(state)
    top = first_lane(maximum(splat(largest(maximum(maximum(t0, t1), maximum(t2, t3)))), splat(before)))
    put_f32(state, top)
    drop = (before - top) * (worth * LOG2E)
    drop = max(drop, FLOOR)
    put_f32(change, drop)


@njit(inline="always")
def shrink_all(changes):  # type: ignore[no-untyped-def]
    """Logarithms that `rise` left to shrinks, for all rows of a tile."""
    store16(changes, exp2(load16(changes), splat(ONE)))


@njit(inline="always")
def weigh(scores, values, worth, low, high, state, change, codes):  # type: ignore[no-untyped-def]
    """Scores of a row to codes of weights, its sum brought to them.

    A weight is e^(score - maximum) times its value's scale. `change`: has the row's shrink, and
    64 bytes on takes what a product of its codes is worth.
    """
    top, scale = splat(get_f32(state)), splat(worth * LOG2E)
    floor = splat(FLOOR / (worth * LOG2E))
    p0 = exp2(maximum(load16(scores) - top, floor), scale)
    p1 = exp2(maximum(load16(scores + 64) - top, floor), scale)
    p2 = exp2(maximum(load16(scores + 128) - top, floor), scale)
    p3 = exp2(maximum(load16(scores + 192) - top, floor), scale)
    w0, w1 = p0 * load16(values), p1 * load16(values + 64)
    w2, w3 = p2 * load16(values + 128), p3 * load16(values + 192)
    if high - low < PAGE:  # scales of tokens that aren't seen may be NaN
        w0, w1 = hidden(w0, low, high), hidden(w1, low - 16, high - 16)
        w2, w3 = hidden(w2, low - 32, high - 32), hidden(w3, low - 48, high - 48)
        p0, p1 = hidden(p0, low, high), hidden(p1, low - 16, high - 16)
        p2, p3 = hidden(p2, low - 32, high - 32), hidden(p3, low - 48, high - 48)
    sums, shrink = load16(state + 64), splat(get_f32(change))
    store16(state + 64, fma(sums, shrink, (p0 + p1) + (p2 + p3)))
    whole = sum16((w0 + w1) + (w2 + w3))
    inverse = TOP / whole
    if whole < TINY:
        whole, inverse = ZERO, ZERO
    nearest_codes(codes, splat(inverse), w0, w1)
    nearest_codes(codes + 64, splat(inverse), w2, w3)
    put_f32(change + 64, whole * UNIT)


@njit(inline="never")
def end_segment(key_dim: int, queries: int, cap: float, state: int, count: int) -> None:
    """States of rows as float kernels have them: the maximum of scores, in 16 equal lanes."""
    stride = query_stride(key_dim)
    for i in range(count):
        worth = ONE if cap > ZERO else get_f32(queries + (i + 1) * stride - 4)
        store16(state + 128 * i, splat(get_f32(state + 128 * i) * worth))


@njit(inline="never")
def soften_some(scores, worths, stride, cap, values, seen, page, state, changes, codes, count):  # type: ignore[no-untyped-def]
    """Weights of rows that don't see all of a page."""
    for i in range(count):
        worth = ONE if cap > ZERO else get_f32(worths + i * stride)
        low, high = clip(seen, i, page)
        if low < high:
            rise(scores + i * ROW, worth, low, high, state + 128 * i, changes + 4 * i)
        else:
            put_f32(changes + 4 * i, ZERO)
    shrink_all(changes)
    for i in range(count):
        worth = ONE if cap > ZERO else get_f32(worths + i * stride)
        low, high = clip(seen, i, page)
        if low < high:
            c = changes + 4 * i
            weigh(scores + i * ROW, values, worth, low, high, state + 128 * i, c, codes + i * CODES)
        else:
            put_f32(changes + 64 + 4 * i, ZERO)
            for k in range(0, CODES, 32):
                narrow16(codes + i * CODES + k, nearest(splat(ZERO)))


def _score_rows(rows_at_once: int) -> Any:
    """The compiled choice of a tile for some rows' scores; `high`: tokens of the page that count."""
    large, small = tiles(rows_at_once)

    def score(rows: int, q: int, stride: int, keys: int, pairs: int, high: int, out: int, ahead: int) -> None:
        if rows == large and high > 32:
            score_codes(large, 4, q, stride, keys, pairs, out, ahead)
        elif rows == large:
            score_codes(large, 2, q, stride, keys, pairs, out, ahead)
        elif rows == small:
            score_codes(small, 4, q, stride, keys, pairs, out, ahead)
        else:
            score_codes(1, 4, q, stride, keys, pairs, out, ahead)

    return njit(inline="never")(score)


def _mix_rows(rows_at_once: int) -> Any:
    """The compiled loop over the channels of one tile's rows."""
    large, small = tiles(rows_at_once)

    def mix(
        rows: int, w: int, values: int, channels: int, pairs: int, changes: int, out: int, ahead: int
    ) -> None:
        stride, c = channels * 4, 0
        while c < channels:
            o, v = out + 4 * c, values + 4 * c
            if channels - c >= 64:
                if rows == large:
                    mix_codes(large, 4, w, v, stride, pairs, changes, o, stride, ahead)
                elif rows == small:
                    mix_codes(small, 4, w, v, stride, pairs, changes, o, stride, ahead)
                else:
                    mix_codes(1, 4, w, v, stride, pairs, changes, o, stride, ahead)
                c += 64
            else:
                if rows == large:
                    mix_codes(large, 1, w, v, stride, pairs, changes, o, stride, ahead)
                elif rows == small:
                    mix_codes(small, 1, w, v, stride, pairs, changes, o, stride, ahead)
                else:
                    mix_codes(1, 1, w, v, stride, pairs, changes, o, stride, ahead)
                c += 16

    return njit(inline="never")(mix)


@njit(inline="never")
def change_scores(worths, stride, cap, keep, scores, count):  # type: ignore[no-untyped-def]
    """Scores of a tile as they are seen: capped if there is a cap, in units of 1."""
    for i in range(count):
        worth = get_f32(worths + i * stride)
        for k in range(i * ROW, (i + 1) * ROW, 64):
            t = load16(scores + k)
            store16(scores + k, capped(t, worth, cap) if cap > ZERO else t)
            if keep:
                store16(keep + k, load16(scores + k) * splat(ONE if cap > ZERO else worth))


def page_of_codes(rows_at_once: int) -> Any:
    """The compiled work of `count` rows at a page: scores, weights, mixed values.

    Tile by tile, so that all of it stays in the first-level cache. `kept`: 0, or where to keep
    the scores of all rows. `next_keys`, `next_values`: what will be read at the next page.
    """
    large, small = tiles(rows_at_once)
    score, mix = _score_rows(rows_at_once), _mix_rows(rows_at_once)

    def work(
        step: int, queries: int, keys: int, values: int, seen: int, page: int, scores: int, weights: int,
        kept: int, mixed: int, channels: int, state: int, count: int, next_keys: int, next_values: int,
    ) -> None:  # fmt: skip
        key_dim, cap = at(step, Step.A), get_f32(step + 8 * Step.CAP)
        stride, pairs = query_stride(key_dim), (key_dim + 1) // 2
        worths, changes = queries + stride - 4, weights + (QUERY_ROWS // 2) * CODES
        r, done = 0, 0
        while r < count:
            rows = large if count - r > small else (small if count - r > 1 else 1)
            end = min(r + rows, count)
            # What rows see moves on from row to row.
            low, high = clip(seen, r, page)[0], clip(seen, end - 1, page)[1]
            if low < high:
                s, q = state + 128 * r, queries + r * stride
                few = rows <= small
                ahead = values if few else next_keys + 64 * pairs * done
                score(rows, q, stride, keys, pairs, high, scores, ahead)
                if kept or cap > ZERO:
                    to = kept + r * ROW if kept else 0
                    change_scores(worths + r * stride, stride, cap, to, scores, end - r)
                if clip(seen, end - 1, page)[0] == 0 and clip(seen, r, page)[1] == PAGE:
                    for i in range(end - r):
                        worth = ONE if cap > ZERO else get_f32(worths + (r + i) * stride)
                        rise(scores + i * ROW, worth, 0, PAGE, s + 128 * i, changes + 4 * i)
                    shrink_all(changes)
                    for i in range(end - r):
                        worth = ONE if cap > ZERO else get_f32(worths + (r + i) * stride)
                        c, w = changes + 4 * i, weights + i * CODES
                        weigh(scores + i * ROW, values, worth, 0, PAGE, s + 128 * i, c, w)
                else:
                    t, u = worths + r * stride, seen + 16 * r
                    soften_some(scores, t, stride, cap, values, u, page, s, changes, weights, end - r)
                low, high = low // 2, (high + 1) // 2
                v, o = values + SCALES + low * channels * 4, mixed + r * channels * 4
                ahead = next_keys if few else next_values + 64 * 32 * done
                mix(rows, weights + 4 * low, v, channels, high - low, changes, o, ahead)
                done += 1
            r += rows

    return njit(inline="never")(work)
