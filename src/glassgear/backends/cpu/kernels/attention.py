"""Attention over the pages of the cache, with a running softmax.

Scores of long contexts are never held: page by page, a row's maximum, sum and mixed values are
brought up to date (Milakov & Gimelshein 2018; Dao et al. 2022). A row's numbers depend on its
own tokens alone, taken in order, whatever else is in the pass.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numba import njit

from glassgear.backends.base import PAGE
from glassgear.backends.cpu.fields import QUERY_ROWS, Frame, Step
from glassgear.backends.cpu.kernels.attention_loops import ROW, mix_loop, score_loop, soften
from glassgear.backends.cpu.kernels.vectors import (
    add_atomic,
    at,
    get_f32,
    load16,
    put_f32,
    put_i64,
    splat,
    store16,
    sum16,
)

__all__ = ["attention"]

ONE, ZERO, LOWEST = np.float32(1), np.float32(0), np.float32(-math.inf)


@njit(inline="always")
def pair_offset(step, head, row, pair, stride):  # type: ignore[no-untyped-def]
    """Bytes from the start of a buffer to the query head of a (token, query head) pair."""
    group = at(step, Step.F)
    return (row + pair // group) * stride + (head * group + pair % group) * at(step, Step.A) * 4


@njit(inline="never")
def begin(step, head, row, first, count, queries, mixed, state):  # type: ignore[no-untyped-def]
    """Scaled queries, no mixed values, and the state of a row that has seen nothing."""
    channels = (at(step, Step.A) + 15) // 16 * 16
    scale = splat(get_f32(step + 8 * Step.H))
    for i in range(count):
        q = at(step, Step.INPUT) + pair_offset(step, head, row, first + i, at(step, Step.INPUT_STRIDE))
        for c in range(0, channels, 16):
            store16(queries + 4 * (i * channels + c), load16(q + 4 * c) * scale)
            store16(mixed + 4 * (i * channels + c), splat(ZERO))
        store16(state + 128 * i, splat(LOWEST))
        store16(state + 128 * i + 64, splat(ZERO))


@njit(inline="never")
def finish(step, head, row, first, count, mixed, state):  # type: ignore[no-untyped-def]
    """Mixed values, divided by the sum of their weights, to the output."""
    head_dim = at(step, Step.A)
    channels = (head_dim + 15) // 16 * 16
    for i in range(count):
        out = at(step, Step.OUTPUT) + pair_offset(step, head, row, first + i, at(step, Step.OUTPUT_STRIDE))
        y = mixed + 4 * i * channels
        whole = ONE / sum16(load16(state + 128 * i + 64))
        for c in range(0, head_dim - 15, 16):
            store16(out + 4 * c, load16(y + 4 * c) * splat(whole))
        for c in range(head_dim // 16 * 16, head_dim):
            put_f32(out + 4 * c, get_f32(y + 4 * c) * whole)


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


def _piece(half: int, rows_at_once: int) -> Any:
    """The compiled work at one key head for some of a sequence's (token, query head) pairs."""
    score, mix = score_loop(half, rows_at_once), mix_loop(half, rows_at_once)

    def piece(step: int, frame: int, head: int, span: int, first: int, scratch: int) -> None:
        head_dim, group = at(step, Step.A), at(step, Step.F)
        channels = (head_dim + 15) // 16 * 16
        row, rows = at(span, 0), at(span, 1)
        pages, positions = at(frame, Frame.PAGES) + 8 * at(span, 2), at(frame, Frame.POSITIONS) + 8 * row
        count, stride = min(QUERY_ROWS, rows * group - first), channels * 4
        # A tile may be wider than what is left: room for some more rows than are used.
        room = QUERY_ROWS + 8
        queries, mixed, scores = scratch, scratch + room * stride, scratch + 2 * room * stride
        state = scores + room * ROW
        # Indexed by token of the sequence, of which this piece has a few: hence the distance back.
        seen = state + room * 128 - 8 * (first // group)
        begin(step, head, row, first, count, queries, mixed, state)
        last = (first + count - 1) // group
        length = at(positions, last) + 1
        for page in range((length + PAGE - 1) // PAGE):
            base = at(pages, page)
            keys = base + at(step, Step.B) + head * at(step, Step.D)
            values = base + at(step, Step.C) + head * at(step, Step.E)
            score(queries, stride, keys, head_dim, scores, count, values)
            if at(step, Step.G):
                keep_scores(step, frame, head, span, first, count, page, scores)
            for token in range(first // group, last + 1):
                put_i64(seen + 8 * token, at(positions, token) + 1 - page * PAGE)
            for i in range(count):
                sees = at(seen, (first + i) // group)
                soften(scores + i * ROW, sees, state + 128 * i, mixed + i * stride, channels)
            later = at(pages, page + 1) if (page + 1) * PAGE < length else base
            later += at(step, Step.B) + head * at(step, Step.D)
            mix(scores, values, channels, seen, mixed, first, count, group, later)
        finish(step, head, row, first, count, mixed, state)

    return njit(inline="never")(piece)


def attention(half: int, rows_at_once: int) -> Callable[[int, int, int, int], int]:
    """softmax(q k^T * scale) v for all rows of a pass.

    A: head_dim. B, C: bytes from a page to this layer's keys and values. D, E: bytes of a head
    there. F: query heads to a key head. G: 0, or address where scores go, as the frame's spans
    say. H: scale as float32. PANELS: key heads. UNIT_FIRST: number of the counter from which
    threads take pieces of work: a key head and up to QUERY_ROWS pairs of token and query head.
    """
    piece = _piece(half, rows_at_once)

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
