"""The loops of attention over one page: all rows of a piece in register tiles, and their softmax."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from glassgear.backends.base import PAGE
from glassgear.backends.cpu.kernels.attention_tiles import mix_tile, score_tile, turn_tile
from glassgear.backends.cpu.kernels.vectors import (
    at,
    exp,
    fma,
    get_f32,
    largest,
    load16,
    maximum,
    splat,
    store16,
    visible,
)

__all__ = ["ROW", "cap_scores", "clip", "mix_loop", "score_loop", "soften", "tiles", "turn_loop"]

ROW = 4 * PAGE  # bytes of a row's scores
ONE, TWO = np.float32(1), np.float32(2)


@njit(inline="always")
def clip(seen, row, page):  # type: ignore[no-untyped-def]
    """Which of a page's tokens a row may look at: from `low` up to, not with, `high`.

    `seen`: for each row the first position that it sees, and the one behind the last, int64.
    """
    low = max(0, at(seen, 2 * row) - page * PAGE)
    return low, min(PAGE, at(seen, 2 * row + 1) - page * PAGE)


def turn_loop(half: int) -> Any:
    """The compiled loop that turns a page of rows, [64, width], to floats [width, 64]."""
    width_of_one = 2 if half else 4

    def turn(rows: int, row_bytes: int, width: int, out: int) -> None:
        for c in range(0, width, 16):
            for slot in range(0, PAGE, 16):
                x = rows + slot * row_bytes + c * width_of_one
                turn_tile(half, x, row_bytes, out + 4 * (c * PAGE + slot))

    return njit(inline="never")(turn)


@njit(inline="never")
def cap_scores(scores: int, count: int, cap: float) -> None:
    """S -> cap * tanh(s / cap) for `count` rows of scores: tanh(x) = 1 - 2 / (e^2x + 1)."""
    shrink, whole = splat(TWO / cap), splat(cap)
    for i in range(0, count * ROW, 64):
        e = exp(load16(scores + i) * shrink)
        store16(scores + i, whole * (splat(ONE) - splat(TWO) / (e + splat(ONE))))


def tiles(rows_at_once: int) -> tuple[int, int]:
    """Rows of the wide tile and of the narrow one."""
    return rows_at_once, 3 if rows_at_once > 3 else 1


def score_loop(half: int, rows_at_once: int) -> Any:
    """The compiled loop that fills `count` rows of scores with one page's keys."""
    large, small = tiles(rows_at_once)

    def score(queries: int, stride: int, keys: int, head_dim: int, out: int, count: int, ahead: int) -> None:
        r = 0
        while r < count:
            q, o = queries + r * stride, out + r * ROW
            if count - r > small:
                score_tile(large, half, q, stride, keys, head_dim, o, ahead)
                r += large
            elif count - r > 1:
                score_tile(small, half, q, stride, keys, head_dim, o, ahead)
                r += small
            else:
                score_tile(1, half, q, stride, keys, head_dim, o, ahead)
                r += 1

    return njit(inline="never")(score)


def _mix_rows(half: int, rows_at_once: int) -> Any:
    """The compiled loop over the channels of one tile's rows."""
    large, small = tiles(rows_at_once)
    width = 2 if half else 4

    def mix_rows(
        rows: int, weights: int, values: int, value_stride: int, channels: int, tokens: int, out: int,
        ahead: int,
    ) -> None:  # fmt: skip
        stride, c = channels * 4, 0
        while c < channels:
            o, v = out + 4 * c, values + c * width
            if channels - c >= 64:
                if rows == large:
                    mix_tile(large, 4, half, weights, v, value_stride, tokens, o, stride, ahead)
                elif rows == small:
                    mix_tile(small, 4, half, weights, v, value_stride, tokens, o, stride, ahead)
                else:
                    mix_tile(1, 4, half, weights, v, value_stride, tokens, o, stride, ahead)
                c += 64
            else:
                if rows == large:
                    mix_tile(large, 1, half, weights, v, value_stride, tokens, o, stride, ahead)
                elif rows == small:
                    mix_tile(small, 1, half, weights, v, value_stride, tokens, o, stride, ahead)
                else:
                    mix_tile(1, 1, half, weights, v, value_stride, tokens, o, stride, ahead)
                c += 16

    return njit(inline="never")(mix_rows)


def mix_loop(half: int, rows_at_once: int) -> Any:
    """The compiled loop that adds one page's values to `count` mixed rows.

    Each row takes the tokens that it sees, in their order, and no others: what lies elsewhere may
    be NaN. Tokens that all rows of a tile see go together, those before and behind row by row.
    """
    large, small = tiles(rows_at_once)
    mix_rows = _mix_rows(half, rows_at_once)

    def alone(
        weights: int, values: int, value_stride: int, channels: int, low: int, high: int, out: int, ahead: int
    ) -> None:
        if low < high:
            v = values + low * value_stride
            mix_rows(1, weights + 4 * low, v, value_stride, channels, high - low, out, ahead)

    alone = njit(inline="never")(alone)

    def mix(
        weights: int, values: int, value_stride: int, channels: int, seen: int, page: int, out: int,
        count: int, ahead: int,
    ) -> None:  # fmt: skip
        r, stride = 0, channels * 4
        while r < count:
            rows = large if count - r > small else (small if count - r > 1 else 1)
            end = min(r + rows, count)
            low, high = 0, PAGE
            for i in range(r, end):
                first, last = clip(seen, i, page)
                low, high = max(low, first), min(high, last)
            high = max(low, high)
            for i in range(r, end):
                first, last = clip(seen, i, page)
                w, o = weights + i * ROW, out + i * stride
                alone(w, values, value_stride, channels, first, min(low, last), o, ahead)
            w, v, o = weights + r * ROW + 4 * low, values + low * value_stride, out + r * stride
            mix_rows(rows, w, v, value_stride, channels, high - low, o, ahead)
            for i in range(r, end):
                first, last = clip(seen, i, page)
                w, o = weights + i * ROW, out + i * stride
                alone(w, values, value_stride, channels, max(high, first), last, o, ahead)
            r += rows

    return njit(inline="never")(mix)


@njit(inline="always")
def soften(scores, low, high, state, mixed, channels):  # type: ignore[no-untyped-def]
    """Turn a row's 64 scores into weights, and bring its state and mixed values to them.

    `low`, `high`: the tokens that the row may look at. `state`: address of the running maximum
    (16 equal lanes) and the running sum (16 partial ones).
    """
    if low >= high:
        return
    s0, s1, s2, s3 = load16(scores), load16(scores + 64), load16(scores + 128), load16(scores + 192)
    if high - low < PAGE:
        s0, s1 = visible(s0, low, high), visible(s1, low - 16, high - 16)
        s2, s3 = visible(s2, low - 32, high - 32), visible(s3, low - 48, high - 48)
    before = get_f32(state)
    top = splat(largest(maximum(maximum(s0, s1), maximum(s2, s3))))
    top = maximum(top, splat(before))
    s0, s1, s2, s3 = exp(s0 - top), exp(s1 - top), exp(s2 - top), exp(s3 - top)
    store16(scores, s0)
    store16(scores + 64, s1)
    store16(scores + 128, s2)
    store16(scores + 192, s3)
    shrink = exp(splat(before) - top)
    store16(state, top)
    store16(state + 64, fma(load16(state + 64), shrink, (s0 + s1) + (s2 + s3)))
    if get_f32(state) != before:
        for c in range(0, channels, 16):
            store16(mixed + 4 * c, load16(mixed + 4 * c) * shrink)
