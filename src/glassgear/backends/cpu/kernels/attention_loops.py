"""The loops of attention over one page: all rows of a piece in register tiles, and their softmax."""

from __future__ import annotations

from typing import Any

from numba import njit

from glassgear.backends.base import PAGE
from glassgear.backends.cpu.kernels.attention_tiles import mix_tile, score_tile
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

__all__ = ["ROW", "mix_loop", "score_loop", "soften"]

ROW = 4 * PAGE  # bytes of a row's scores


def _tiles(rows_at_once: int) -> tuple[int, int]:
    """Rows of the wide tile and of the narrow one."""
    return rows_at_once, 3 if rows_at_once > 3 else 1


def score_loop(half: int, rows_at_once: int) -> Any:
    """The compiled loop that fills `count` rows of scores with one page's keys."""
    large, small = _tiles(rows_at_once)

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
    large, small = _tiles(rows_at_once)
    width = 2 if half else 4

    def mix_rows(
        rows: int, weights: int, values: int, channels: int, tokens: int, out: int, ahead: int
    ) -> None:
        stride, value_stride, c = channels * 4, channels * width, 0
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

    Each row takes the tokens that it sees and no others: what lies behind them may be NaN.
    """
    large, small = _tiles(rows_at_once)
    width = 2 if half else 4
    mix_rows = _mix_rows(half, rows_at_once)

    def mix(
        weights: int, values: int, channels: int, seen: int, out: int, first: int, count: int, group: int,
        ahead: int,
    ) -> None:  # fmt: skip
        r, stride, value_bytes = 0, channels * 4, channels * width
        while r < count:
            rows = large if count - r > small else (small if count - r > 1 else 1)
            common = min(PAGE, max(0, at(seen, (first + r) // group)))
            w, o = weights + r * ROW, out + r * stride
            mix_rows(rows, w, values, channels, common, o, ahead)
            for i in range(min(rows, count - r)):
                more = min(PAGE, at(seen, (first + r + i) // group)) - common
                if more > 0:
                    start = values + common * value_bytes
                    mix_rows(1, w + i * ROW + 4 * common, start, channels, more, o + i * stride, ahead)
            r += rows

    return njit(inline="never")(mix)


@njit(inline="always")
def soften(scores, seen, state, mixed, channels):  # type: ignore[no-untyped-def]
    """Turn a row's 64 scores into weights, and bring its state and mixed values to them.

    `seen`: how many of the 64 tokens the row may look at. `state`: address of the running
    maximum (16 equal lanes) and the running sum (16 partial ones).
    """
    if seen <= 0:
        return
    s0, s1, s2, s3 = load16(scores), load16(scores + 64), load16(scores + 128), load16(scores + 192)
    if seen < PAGE:
        s0, s1 = visible(s0, seen), visible(s1, seen - 16)
        s2, s3 = visible(s2, seen - 32), visible(s3, seen - 48)
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
