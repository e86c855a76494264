"""Rotation, the KV cache, and attention over its pages, with a running softmax.

Scores of long contexts are never held: page by page, a row's maximum, sum and mixed values are
brought up to date (Milakov & Gimelshein 2018; Dao et al. 2022). Masked tokens have weight 0 and
leave every number as it was, so a row's result doesn't depend on its neighbours in the pass.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numba import njit

from glassgear.backends.base import PAGE
from glassgear.backends.cpu.fields import QUERY_ROWS, Frame, Step
from glassgear.backends.cpu.kernels.attention_tiles import mix_tile, score_tile
from glassgear.backends.cpu.kernels.matmul import share
from glassgear.backends.cpu.kernels.vectors import (
    add_atomic,
    at,
    exp,
    fma,
    get_f32,
    largest,
    load16,
    maximum,
    put_f32,
    put_half,
    put_i64,
    splat,
    store16,
    sum16,
    visible,
)

__all__ = ["attention", "rotate", "store_keys", "store_values"]

ONE, ZERO, LOWEST = np.float32(1), np.float32(0), np.float32(-math.inf)
ROW = 4 * PAGE  # bytes of a row's scores


def rotate(step: int, frame: int, thread: int, threads: int) -> int:
    """Turn this thread's heads by their positions.

    A: head_dim. B: channels that turn. C: 1 if neighbours form pairs, 0 if halves do. D: number
    of the table of cos and sin: [positions][dim / 2 cosines, dim / 2 sines] floats.
    """
    head_dim, turning, neighbours = at(step, Step.A), at(step, Step.B), at(step, Step.C)
    table = at(at(frame, Frame.ROTATIONS), at(step, Step.D))
    half = turning // 2
    apart = 4 if neighbours else 4 * half
    forward = 8 if neighbours else 4
    low, high = share(step, thread, threads)
    for row in range(at(frame, Frame.ROWS)):
        cosines = table + at(at(frame, Frame.POSITIONS), row) * turning * 4
        for head in range(low, high):
            x = at(step, Step.INPUT) + row * at(step, Step.INPUT_STRIDE) + head * head_dim * 4
            y = at(step, Step.OUTPUT) + row * at(step, Step.OUTPUT_STRIDE) + head * head_dim * 4
            done = 0 if neighbours else half // 16 * 16
            for i in range(0, done, 16):
                a, b = load16(x + 4 * i), load16(x + 4 * (half + i))
                c, s = load16(cosines + 4 * i), load16(cosines + 4 * (half + i))
                store16(y + 4 * i, a * c - b * s)
                store16(y + 4 * (half + i), a * s + b * c)
            for i in range(done, half):
                a, b = get_f32(x + forward * i), get_f32(x + forward * i + apart)
                c, s = get_f32(cosines + 4 * i), get_f32(cosines + 4 * (half + i))
                put_f32(y + forward * i, a * c - b * s)
                put_f32(y + forward * i + apart, a * s + b * c)
            for i in range(turning, head_dim):
                put_f32(y + 4 * i, get_f32(x + 4 * i))
    return 0


def store_keys(half: int) -> Callable[[int, int, int, int], int]:
    """Keys of the new tokens into the cache, channel by channel. A: head_dim.

    B: bytes from a page to this layer's keys. C: bytes of a head there.
    """
    width = 2 if half else 4

    def kernel(step: int, frame: int, thread: int, threads: int) -> int:
        head_dim = at(step, Step.A)
        low, high = share(step, thread, threads)
        for row in range(at(frame, Frame.ROWS)):
            slot = at(at(frame, Frame.POSITIONS), row) % PAGE
            page = at(at(frame, Frame.PAGE_OF_ROW), row) + at(step, Step.B) + slot * width
            x = at(step, Step.INPUT) + row * at(step, Step.INPUT_STRIDE)
            for head in range(low, high):
                y = page + head * at(step, Step.C)
                for i in range(head_dim):
                    value = get_f32(x + (head * head_dim + i) * 4)
                    if half:
                        put_half(y + i * (PAGE * 2), value)
                    else:
                        put_f32(y + i * (PAGE * 4), value)
        return 0

    return kernel


def store_values(half: int) -> Callable[[int, int, int, int], int]:
    """Values of the new tokens into the cache, token by token. Fields as in `store_keys`."""
    width = 2 if half else 4

    def kernel(step: int, frame: int, thread: int, threads: int) -> int:
        head_dim = at(step, Step.A)
        padded = (head_dim + 15) // 16 * 16
        low, high = share(step, thread, threads)
        for row in range(at(frame, Frame.ROWS)):
            slot = at(at(frame, Frame.POSITIONS), row) % PAGE
            page = at(at(frame, Frame.PAGE_OF_ROW), row) + at(step, Step.B) + slot * padded * width
            x = at(step, Step.INPUT) + row * at(step, Step.INPUT_STRIDE)
            for head in range(low, high):
                y = page + head * at(step, Step.C)
                for i in range(head_dim):
                    value = get_f32(x + (head * head_dim + i) * 4)
                    if half:
                        put_half(y + 2 * i, value)
                    else:
                        put_f32(y + 4 * i, value)
        return 0

    return kernel


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


def attention(half: int, rows_at_once: int) -> Callable[[int, int, int, int], int]:
    """softmax(q k^T * scale) v for all rows of a pass.

    A: head_dim. B, C: bytes from a page to this layer's keys and values. D, E: bytes of a head
    there. F: query heads to a key head. G: 0, or address where scores go, as the frame's spans
    say. H: scale as float32. PANELS: key heads. UNIT_FIRST: number of the counter from which
    threads take pieces of work: a key head and up to QUERY_ROWS pairs of token and query head.
    """
    width = 2 if half else 4
    large, small = rows_at_once, 3 if rows_at_once > 3 else 1

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

    score, mix_rows = njit(inline="never")(score), njit(inline="never")(mix_rows)

    def mix(
        weights: int, values: int, channels: int, seen: int, out: int, first: int, count: int, group: int,
        ahead: int,
    ) -> None:  # fmt: skip
        # Each row takes the tokens that it sees and no others: what lies behind them may be NaN.
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

    mix = njit(inline="never")(mix)

    def piece(step: int, frame: int, head: int, span: int, first: int, scratch: int) -> None:
        """Pairs `first`, ... of a sequence's (token, query head) pairs at one key head."""
        head_dim, group = at(step, Step.A), at(step, Step.F)
        channels = (head_dim + 15) // 16 * 16
        row, rows = at(span, 0), at(span, 1)
        pages = at(frame, Frame.PAGES) + 8 * at(span, 2)
        count = min(QUERY_ROWS, rows * group - first)
        stride = channels * 4
        # A tile may be wider than what is left: room for some more rows than are used.
        room = QUERY_ROWS + 8
        queries, mixed, scores = scratch, scratch + room * stride, scratch + 2 * room * stride
        state = scores + room * ROW
        # Indexed by token of the sequence, of which this piece has a few: hence the distance back.
        seen = state + room * 128 - 8 * (first // group)
        scale = splat(get_f32(step + 8 * Step.H))
        for i in range(count):
            pair = first + i
            q = at(step, Step.INPUT) + (row + pair // group) * at(step, Step.INPUT_STRIDE)
            q += (head * group + pair % group) * head_dim * 4
            for c in range(0, channels, 16):
                store16(queries + i * stride + 4 * c, load16(q + 4 * c) * scale)
                store16(mixed + i * stride + 4 * c, splat(ZERO))
            store16(state + 128 * i, splat(LOWEST))
            store16(state + 128 * i + 64, splat(ZERO))
        positions = at(frame, Frame.POSITIONS) + 8 * row
        length = at(positions, (first + count - 1) // group) + 1
        for page in range((length + PAGE - 1) // PAGE):
            base = at(pages, page)
            keys = base + at(step, Step.B) + head * at(step, Step.D)
            values = base + at(step, Step.C) + head * at(step, Step.E)
            score(queries, stride, keys, head_dim, scores, count, values)
            if at(step, Step.G):
                keep_scores(step, frame, head, span, first, count, page, scores)
            for i in range(count):
                sees = at(positions, (first + i) // group) + 1 - page * PAGE
                soften(scores + i * ROW, sees, state + 128 * i, mixed + i * stride, channels)
            for token in range(first // group, (first + count - 1) // group + 1):
                put_i64(seen + 8 * token, at(positions, token) + 1 - page * PAGE)
            later = at(pages, page + 1) if (page + 1) * PAGE < length else base
            later += at(step, Step.B) + head * at(step, Step.D)
            mix(scores, values, channels, seen, mixed, first, count, group, later)
        for i in range(count):
            pair = first + i
            out = at(step, Step.OUTPUT) + (row + pair // group) * at(step, Step.OUTPUT_STRIDE)
            out += (head * group + pair % group) * head_dim * 4
            whole = ONE / sum16(load16(state + 128 * i + 64))
            for c in range(0, head_dim - 15, 16):
                store16(out + 4 * c, load16(mixed + i * stride + 4 * c) * splat(whole))
            for c in range(head_dim // 16 * 16, head_dim):
                put_f32(out + 4 * c, get_f32(mixed + i * stride + 4 * c) * whole)

    piece = njit(inline="never")(piece)

    def kernel(step: int, frame: int, thread: int, threads: int) -> int:
        heads, group = at(step, Step.PANELS), at(step, Step.F)
        scratch = at(frame, Frame.SCRATCH) + thread * at(frame, Frame.SCRATCH_BYTES)
        counter = at(frame, Frame.COUNTERS) + 8 * at(step, Step.UNIT_FIRST)
        mine, before = add_atomic(counter, 1), 0
        for s in range(at(frame, Frame.SPAN_COUNT)):
            span = at(frame, Frame.SPANS) + 32 * s
            tiles = (at(span, 1) * group + QUERY_ROWS - 1) // QUERY_ROWS
            while mine < before + tiles * heads:
                # The last tiles of a sequence see most: they go first, so that no thread ends late.
                tile = tiles - 1 - (mine - before) // heads
                piece(step, frame, (mine - before) % heads, span, tile * QUERY_ROWS, scratch)
                mine = add_atomic(counter, 1)
            before += tiles * heads
        return 0

    return kernel


@njit(inline="never")
def keep_scores(step, frame, head, span, first, count, page, scores):  # type: ignore[no-untyped-def]
    """Copy what rows may see of a page's scores to [heads, rows, length] of their sequence."""
    group, rows = at(step, Step.F), at(span, 1)
    positions = at(frame, Frame.POSITIONS) + 8 * at(span, 0)
    length = at(positions, rows - 1) + 1
    for i in range(count):
        token = (first + i) // group
        query_head = head * group + (first + i) % group
        out = at(step, Step.G) + 4 * (at(span, 3) + (query_head * rows + token) * length + page * PAGE)
        for k in range(min(PAGE, at(positions, token) + 1 - page * PAGE)):
            put_f32(out + 4 * k, get_f32(scores + i * ROW + 4 * k))
