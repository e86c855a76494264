"""Attention over the pages of the cache, with a running softmax.

Scores of long contexts are never held: page by page, a row's maximum, sum and mixed values are
brought up to date (Milakov & Gimelshein 2018; Dao et al. 2022). That is done for each segment
of SEGMENT positions by itself, and segments are merged in order, so that threads may share out
the segments of one row. A row's numbers depend on its own tokens alone, whatever else is in the
pass and whoever computes them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numba import njit

from glassgear.backends.base import PAGE
from glassgear.backends.cpu.fields import QUERY_ROWS, SEGMENT, SPARE_ROWS, Frame, Step
from glassgear.backends.cpu.kernels.attention_loops import ROW, mix_loop, score_loop, soften
from glassgear.backends.cpu.kernels.vectors import (
    add_atomic,
    at,
    exp,
    fma,
    get_f32,
    load16,
    maximum,
    put_f32,
    put_i64,
    splat,
    store16,
    store_atomic,
    sum16,
)

__all__ = ["attention"]

ROOM = QUERY_ROWS + SPARE_ROWS
ONE, ZERO, LOWEST = np.float32(1), np.float32(0), np.float32(-math.inf)


@njit(inline="always")
def pair_offset(step, head, row, pair, stride):  # type: ignore[no-untyped-def]
    """Bytes from the start of a buffer to the query head of a (token, query head) pair."""
    group = at(step, Step.F)
    return (row + pair // group) * stride + (head * group + pair % group) * at(step, Step.A) * 4


@njit(inline="always")
def pairs_of(step, span, first):  # type: ignore[no-untyped-def]
    """How many pairs of token and query head a tile that starts at pair `first` has."""
    return min(QUERY_ROWS, at(span, 1) * at(step, Step.F) - first)


@njit(inline="always")
def channels_of(step):  # type: ignore[no-untyped-def]
    """Channels that a value takes."""
    return (at(step, Step.A) + 15) // 16 * 16


@njit(inline="always")
def state_of(mixed, count, channels):  # type: ignore[no-untyped-def]
    """Where the states of `count` mixed rows lie: behind them and what tiles write past them."""
    return mixed + (count + SPARE_ROWS) * channels * 4


@njit(inline="never")
def scale_queries(step, head, row, first, count, queries):  # type: ignore[no-untyped-def]
    """Queries of a tile, times the scale, one behind the other."""
    channels = channels_of(step)
    scale = splat(get_f32(step + 8 * Step.H))
    for i in range(count):
        q = at(step, Step.INPUT) + pair_offset(step, head, row, first + i, at(step, Step.INPUT_STRIDE))
        for c in range(0, channels, 16):
            store16(queries + 4 * (i * channels + c), load16(q + 4 * c) * scale)


@njit(inline="never")
def begin(count, channels, mixed):  # type: ignore[no-untyped-def]
    """No mixed values, and the state of rows that have seen nothing."""
    state = state_of(mixed, count, channels)
    for i in range(count):
        for c in range(0, channels, 16):
            store16(mixed + 4 * (i * channels + c), splat(ZERO))
        store16(state + 128 * i, splat(LOWEST))
        store16(state + 128 * i + 64, splat(ZERO))


@njit(inline="never")
def merge(step, frame, span, first, number, total, part):  # type: ignore[no-untyped-def]
    """Add what rows saw in segment `number` to what they saw in those before."""
    count, channels, group = pairs_of(step, span, first), channels_of(step), at(step, Step.F)
    positions = at(frame, Frame.POSITIONS) + 8 * at(span, 0)
    for i in range(count):
        if at(positions, (first + i) // group) < number * SEGMENT:
            continue
        old, new = state_of(total, count, channels) + 128 * i, state_of(part, count, channels) + 128 * i
        top = maximum(load16(old), load16(new))
        shrink, scale = exp(load16(old) - top), exp(load16(new) - top)
        store16(old, top)
        store16(old + 64, fma(load16(old + 64), shrink, load16(new + 64) * scale))
        x, y = total + 4 * i * channels, part + 4 * i * channels
        for c in range(0, channels, 16):
            store16(x + 4 * c, fma(load16(x + 4 * c), shrink, load16(y + 4 * c) * scale))


@njit(inline="never")
def finish(step, head, row, first, count, mixed):  # type: ignore[no-untyped-def]
    """Mixed values, divided by the sum of their weights, to the output."""
    head_dim, channels = at(step, Step.A), channels_of(step)
    state = state_of(mixed, count, channels)
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


def _segment(half: int, rows_at_once: int) -> Any:
    """The compiled work at one key head and one segment of pages for a tile of pairs.

    `reach`: up to which page of the sequence to ask for memory. `mixed`: where the result goes.
    """
    score, mix = score_loop(half, rows_at_once), mix_loop(half, rows_at_once)

    def segment(
        step: int, frame: int, head: int, span: int, first: int, number: int, reach: int, scratch: int,
        mixed: int,
    ) -> None:  # fmt: skip
        head_dim, group, channels = at(step, Step.A), at(step, Step.F), channels_of(step)
        pages, positions = at(frame, Frame.PAGES) + 8 * at(span, 2), at(frame, Frame.POSITIONS)
        positions += 8 * at(span, 0)
        count, stride = pairs_of(step, span, first), channels * 4
        # A tile may be wider than what is left: room for some more rows than are used.
        scores = scratch + ROOM * stride
        # Indexed by token of the sequence, of which this tile has a few: hence the distance back.
        seen = scores + ROOM * ROW - 8 * (first // group)
        state = state_of(mixed, count, channels)
        begin(count, channels, mixed)
        last = (first + count - 1) // group
        end = min(at(positions, last) // PAGE + 1, (number + 1) * (SEGMENT // PAGE))
        for page in range(number * (SEGMENT // PAGE), end):
            keys = at(pages, page) + at(step, Step.B) + head * at(step, Step.D)
            values = at(pages, page) + at(step, Step.C) + head * at(step, Step.E)
            score(scratch, stride, keys, head_dim, scores, count, values)
            if at(step, Step.G):
                keep_scores(step, frame, head, span, first, count, page, scores)
            for token in range(first // group, last + 1):
                put_i64(seen + 8 * token, at(positions, token) + 1 - page * PAGE)
            for i in range(count):
                sees = at(seen, (first + i) // group)
                soften(scores + i * ROW, sees, state + 128 * i, mixed + i * stride, channels)
            later = at(pages, min(page + 1, reach - 1)) + at(step, Step.B) + head * at(step, Step.D)
            mix(scores, values, channels, seen, mixed, first, count, group, later)

    return njit(inline="never")(segment)


def _whole(segment: Any) -> Any:
    """The compiled work at one key head for a tile: all segments, one after the other."""

    def whole(step: int, frame: int, head: int, span: int, first: int, scratch: int) -> None:
        count, channels = pairs_of(step, span, first), channels_of(step)
        total = scratch + ROOM * (channels * 4 + ROW + 8)
        part = total + ROOM * (channels * 4 + 128)
        scale_queries(step, head, at(span, 0), first, count, scratch)
        token = at(span, 0) + (first + count - 1) // at(step, Step.F)
        reach = at(at(frame, Frame.POSITIONS), token) // PAGE + 1
        segment(step, frame, head, span, first, 0, reach, scratch, total)
        for number in range(1, (reach * PAGE + SEGMENT - 1) // SEGMENT):
            segment(step, frame, head, span, first, number, reach, scratch, part)
            merge(step, frame, span, first, number, total, part)
        finish(step, head, at(span, 0), first, count, total)

    return njit(inline="never")(whole)


def _part(segment: Any) -> Any:
    """The compiled work at one key head and one segment; who ends last merges all of a tile.

    `parts`: address of the memory of the tile's segments: a counter of those done, on a cache
    line of its own, then mixed values and states. The same operations as in one go.
    """

    def part(
        step: int, frame: int, head: int, span: int, first: int, number: int, segments: int, parts: int,
        scratch: int,
    ) -> None:  # fmt: skip
        count, apart = pairs_of(step, span, first), at(frame, Frame.PART_BYTES)
        scale_queries(step, head, at(span, 0), first, count, scratch)
        last = at(at(frame, Frame.POSITIONS), at(span, 0) + at(span, 1) - 1) // PAGE + 1
        reach = min(last, (number + 1) * (SEGMENT // PAGE))
        mixed = parts + 64
        segment(step, frame, head, span, first, number, reach, scratch, mixed + number * apart)
        if add_atomic(parts, 1) == segments - 1:
            store_atomic(parts, 0)
            for later in range(1, segments):
                merge(step, frame, span, first, later, mixed, mixed + later * apart)
            finish(step, head, at(span, 0), first, count, mixed)

    return njit(inline="never")(part)


def attention(half: int, rows_at_once: int) -> Callable[[int, int, int, int], int]:
    """softmax(q k^T * scale) v for all rows of a pass.

    A: head_dim. B, C: bytes from a page to this layer's keys and values. D, E: bytes of a head
    there. F: query heads to a key head. G: 0, or address where scores go, as the frame's spans
    say. H: scale as float32. PANELS: key heads. UNIT_FIRST: number of the counter from which
    threads take pieces of work: a key head and up to QUERY_ROWS pairs of token and query head,
    and, where the frame has memory for parts, one segment of positions.
    """
    segment = _segment(half, rows_at_once)
    whole, part = _whole(segment), _part(segment)

    def kernel(step: int, frame: int, thread: int, threads: int) -> int:
        heads, group = at(step, Step.PANELS), at(step, Step.F)
        scratch = at(frame, Frame.SCRATCH) + thread * at(frame, Frame.SCRATCH_BYTES)
        parts, apart = at(frame, Frame.PARTS), at(frame, Frame.PART_BYTES)
        counter = at(frame, Frame.COUNTERS) + 8 * at(step, Step.UNIT_FIRST)
        mine, before, segments = add_atomic(counter, 1), 0, 1
        for s in range(at(frame, Frame.SPAN_COUNT)):
            span = at(frame, Frame.SPANS) + 32 * s
            tiles = (at(span, 1) * group + QUERY_ROWS - 1) // QUERY_ROWS
            if parts:
                segments = at(at(frame, Frame.POSITIONS), at(span, 0) + at(span, 1) - 1) // SEGMENT + 1
            while mine < before + tiles * heads * segments:
                number = (mine - before) % segments
                head = (mine - before) // segments % heads
                # The last tiles of a sequence see most: they go first, so that no thread ends late.
                first = (tiles - 1 - (mine - before) // segments // heads) * QUERY_ROWS
                if parts:
                    place = parts + (mine - number) * apart
                    part(step, frame, head, span, first, number, segments, place, scratch)
                else:
                    whole(step, frame, head, span, first, scratch)
                mine = add_atomic(counter, 1)
            before += tiles * heads * segments
        return 0

    return kernel
