"""Attention over the pages of the cache, with a running softmax.

Scores of long contexts are never held: page by page, a row's maximum, sum and mixed values are
brought up to date (Milakov & Gimelshein 2018; Dao et al. 2022). That is done for each segment
of SEGMENT positions by itself, and segments are merged in order, so that threads may share out
the segments of one row. A row's numbers depend on its own tokens alone, whatever else is in the
pass and whoever computes them. Pages that no row of a tile sees aren't touched.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numba import njit

from glassgear.backends.base import PAGE
from glassgear.backends.cpu.fields import QUERY_ROWS, SEGMENT, SPARE_ROWS, Frame, Step
from glassgear.backends.cpu.kernels.attention_codes import (
    end_segment,
    page_of_codes,
    query_codes,
    query_stride,
)
from glassgear.backends.cpu.kernels.attention_loops import (
    ROW,
    cap_scores,
    clip,
    mix_loop,
    score_loop,
    soften,
    turn_loop,
)
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
PAGES = SEGMENT // PAGE  # of a segment


# --- where things lie ------------------------------------------------------------------------
# A thread's scratch: queries, scores of a page, weights as codes, what rows see, two times mixed
# values with their states (of a whole row, and of a segment), and keys that had to be turned, or
# scores to be shown: `scratch_bytes`.


@njit(inline="always")
def channels(width):  # type: ignore[no-untyped-def]
    """Floats that so many channels take: whole vectors."""
    return (width + 15) // 16 * 16


@njit(inline="always")
def scores_in(step, scratch):  # type: ignore[no-untyped-def]
    """Scores of a page, [ROOM, 64] floats."""
    return scratch + ROOM * 4 * channels(at(step, Step.A))


@njit(inline="always")
def weights_in(step, scratch):  # type: ignore[no-untyped-def]
    """Weights of a page as codes, [ROOM, 64] int16."""
    return scores_in(step, scratch) + ROOM * ROW


@njit(inline="always")
def seen_in(step, scratch):  # type: ignore[no-untyped-def]
    """For each row the first position that it sees, and the one behind the last: [ROOM, 2] int64."""
    return weights_in(step, scratch) + ROOM * ROW // 2


@njit(inline="always")
def mixed_in(step, scratch, number):  # type: ignore[no-untyped-def]
    """Mixed values and states, number 0 or 1; number 2: what lies behind them."""
    each = ROOM * (4 * channels(at(step, Step.VALUE_DIM)) + 128)
    return seen_in(step, scratch) + ROOM * 16 + number * each


@njit(inline="always")
def state_of(mixed, count, width):  # type: ignore[no-untyped-def]
    """Where the states of `count` mixed rows lie: behind them and what tiles write past them."""
    return mixed + (count + SPARE_ROWS) * width * 4


# --- what a row sees -------------------------------------------------------------------------


@njit(inline="always")
def pairs_of(step, span, first):  # type: ignore[no-untyped-def]
    """How many pairs of token and query head a tile that starts at pair `first` has."""
    return min(QUERY_ROWS, at(span, 1) * at(step, Step.F) - first)


@njit(inline="always")
def first_seen(step, frame, span, token):  # type: ignore[no-untyped-def]
    """The first position that a token of a span sees."""
    window = at(step, Step.WINDOW)
    own = at(at(frame, Frame.POSITIONS), at(span, 0) + token)
    return max(0, own + 1 - window) if window else 0


@njit(inline="always")
def last_seen(step, frame, span, token):  # type: ignore[no-untyped-def]
    """The last position that a token of a span sees: its own, or its sequence's last."""
    seeing = at(span, 1) - 1 if at(step, Step.BOTH_WAYS) else token
    return at(at(frame, Frame.POSITIONS), at(span, 0) + seeing)


@njit(inline="never")
def look(step, frame, span, first, count, seen):  # type: ignore[no-untyped-def]
    """Note what the rows of a tile see."""
    group = at(step, Step.F)
    token, own = first // group, first % group
    for i in range(count):
        put_i64(seen + 16 * i, first_seen(step, frame, span, token))
        put_i64(seen + 16 * i + 8, last_seen(step, frame, span, token) + 1)
        own += 1
        if own == group:
            own, token = 0, token + 1


# --- steps of the work -----------------------------------------------------------------------


@njit(inline="never")
def encode_queries(step, head, row, first, count, queries):  # type: ignore[no-untyped-def]
    """Queries of a tile as codes, one behind the other."""
    key_dim, group, row_bytes = at(step, Step.A), at(step, Step.F), at(step, Step.INPUT_STRIDE)
    scale, stride = get_f32(step + 8 * Step.H), query_stride(key_dim)
    own = first % group
    x = at(step, Step.INPUT) + (row + first // group) * row_bytes + head * group * key_dim * 4
    for i in range(count):
        query_codes(x + own * key_dim * 4, key_dim, scale, queries + i * stride)
        own += 1
        if own == group:
            own, x = 0, x + row_bytes


@njit(inline="never")
def scale_queries(step, head, row, first, count, queries):  # type: ignore[no-untyped-def]
    """Queries of a tile, times the scale, one behind the other."""
    key_dim, group, row_bytes = at(step, Step.A), at(step, Step.F), at(step, Step.INPUT_STRIDE)
    width, scale = channels(key_dim), splat(get_f32(step + 8 * Step.H))
    own = first % group
    x = at(step, Step.INPUT) + (row + first // group) * row_bytes + head * group * key_dim * 4
    for i in range(count):
        q = x + own * key_dim * 4
        own += 1
        if own == group:
            own, x = 0, x + row_bytes
        for c in range(0, width, 16):
            store16(queries + 4 * (i * width + c), load16(q + 4 * c) * scale)


@njit(inline="never")
def begin(count, width, mixed):  # type: ignore[no-untyped-def]
    """No mixed values, and the state of rows that have seen nothing."""
    state = state_of(mixed, count, width)
    for i in range(count):
        for c in range(0, width, 16):
            store16(mixed + 4 * (i * width + c), splat(ZERO))
        store16(state + 128 * i, splat(LOWEST))
        store16(state + 128 * i + 64, splat(ZERO))


@njit(inline="never")
def merge(count, width, seen, number, total, part):  # type: ignore[no-untyped-def]
    """Add what rows saw in segment `number` to what they saw in those before."""
    for i in range(count):
        if at(seen, 2 * i) >= (number + 1) * SEGMENT or at(seen, 2 * i + 1) <= number * SEGMENT:
            continue
        old, new = state_of(total, count, width) + 128 * i, state_of(part, count, width) + 128 * i
        top = maximum(load16(old), load16(new))
        shrink, scale = exp(load16(old) - top), exp(load16(new) - top)
        store16(old, top)
        store16(old + 64, fma(load16(old + 64), shrink, load16(new + 64) * scale))
        x, y = total + 4 * i * width, part + 4 * i * width
        for c in range(0, width, 16):
            store16(x + 4 * c, fma(load16(x + 4 * c), shrink, load16(y + 4 * c) * scale))


@njit(inline="never")
def finish(step, head, row, first, count, mixed):  # type: ignore[no-untyped-def]
    """Mixed values, divided by the sum of their weights, to the output."""
    value_dim = at(step, Step.VALUE_DIM)
    width = channels(value_dim)
    state = state_of(mixed, count, width)
    group, row_bytes = at(step, Step.F), at(step, Step.OUTPUT_STRIDE)
    own = first % group
    line = at(step, Step.OUTPUT) + (row + first // group) * row_bytes + head * group * value_dim * 4
    for i in range(count):
        out, y = line + own * value_dim * 4, mixed + 4 * i * width
        own += 1
        if own == group:
            own, line = 0, line + row_bytes
        whole = ONE / sum16(load16(state + 128 * i + 64))
        for c in range(0, value_dim - 15, 16):
            store16(out + 4 * c, load16(y + 4 * c) * splat(whole))
        for c in range(value_dim // 16 * 16, value_dim):
            put_f32(out + 4 * c, get_f32(y + 4 * c) * whole)


@njit(inline="never")
def keep_scores(step, frame, head, span, first, count, page, seen, scores):  # type: ignore[no-untyped-def]
    """Copy what rows may see of a page's scores to where they are kept."""
    for i in range(count):
        out = row_of_scores(step, frame, head, span, first + i) + 4 * page * PAGE
        low, high = clip(seen, i, page)
        for k in range(low, high - 15, 16):
            store16(out + 4 * k, load16(scores + i * ROW + 4 * k))
        for k in range(max(low, high - (high - low) % 16), high):
            put_f32(out + 4 * k, get_f32(scores + i * ROW + 4 * k))


@njit(inline="always")
def row_of_scores(step, frame, head, span, pair):  # type: ignore[no-untyped-def]
    """Where the scores of a pair of token and query head are kept: [heads, rows, length] of a sequence."""
    group, rows = at(step, Step.F), at(span, 1)
    query_head = head * group + pair % group
    row = query_head * rows + pair // group
    return at(step, Step.G) + 4 * (at(span, 3) + row * length_of(frame, span))


@njit(inline="always")
def length_of(frame, span):  # type: ignore[no-untyped-def]
    """Tokens of a sequence, those of this pass too."""
    return at(at(frame, Frame.POSITIONS), at(span, 0) + at(span, 1) - 1) + 1


@njit(inline="never")
def hide_scores(step, frame, head, span, first, count, seen):  # type: ignore[no-untyped-def]
    """Minus infinity where rows see nothing: before their window, and after themselves."""
    length = length_of(frame, span)
    for i in range(count):
        out = row_of_scores(step, frame, head, span, first + i)
        low, high = at(seen, 2 * i), at(seen, 2 * i + 1)
        for k in range(low):
            put_f32(out + 4 * k, LOWEST)
        for k in range(high, length - 15, 16):
            store16(out + 4 * k, splat(LOWEST))
        for k in range(max(high, length - (length - high) % 16), length):
            put_f32(out + 4 * k, LOWEST)


def _page_of_floats(half: int, rows_at_once: int) -> Any:
    """The compiled work at a page of floats; parameters as of `page_of_codes`.

    Where keys and values are one, the rows are latents: keys are turned to floats for the scores.
    """
    score_turned = score_loop(0, rows_at_once)
    score = score_loop(half, rows_at_once) if half else score_turned
    mix, turn = mix_loop(half, rows_at_once), turn_loop(half)

    def work(
        step: int, frame: int, head: int, span: int, first: int, scratch: int, keys: int, values: int,
        page: int, mixed: int, count: int, ahead: int,
    ) -> None:  # fmt: skip
        key_dim, width, value_row = (
            at(step, Step.A),
            channels(at(step, Step.VALUE_DIM)),
            at(step, Step.VALUE_ROW),
        )
        scores, seen, turned = scores_in(step, scratch), seen_in(step, scratch), mixed_in(step, scratch, 2)
        state, cap = state_of(mixed, count, width), get_f32(step + 8 * Step.CAP)
        if keys == values:
            turn(keys, value_row, key_dim, turned)
            score_turned(scratch, 4 * channels(key_dim), turned, key_dim, scores, count, values)
        else:
            score(scratch, 4 * channels(key_dim), keys, key_dim, scores, count, values)
        if cap > ZERO:
            cap_scores(scores, count, cap)
        if at(step, Step.G):
            keep_scores(step, frame, head, span, first, count, page, seen, scores)
        for i in range(count):
            low, high = clip(seen, i, page)
            soften(scores + i * ROW, low, high, state + 128 * i, mixed + 4 * i * width, width)
        mix(scores, values, value_row, width, seen, page, mixed, count, ahead)

    return njit(inline="never")(work)


def _page_of_codes(rows_at_once: int) -> Any:
    """The compiled work at a page of codes."""
    inner = page_of_codes(rows_at_once)

    def work(
        step: int, frame: int, head: int, span: int, first: int, scratch: int, keys: int, values: int,
        page: int, mixed: int, count: int, ahead: int,
    ) -> None:  # fmt: skip
        width = channels(at(step, Step.VALUE_DIM))
        scores, weights, seen = scores_in(step, scratch), weights_in(step, scratch), seen_in(step, scratch)
        state = state_of(mixed, count, width)
        kept = mixed_in(step, scratch, 2) if at(step, Step.G) else 0
        inner(
            step, scratch, keys, values, seen, page, scores, weights, kept, mixed, width, state, count,
            ahead, ahead + values - keys,
        )  # fmt: skip
        if kept:
            keep_scores(step, frame, head, span, first, count, page, seen, kept)

    return njit(inline="always")(work)


def _segment(kind: int, rows_at_once: int) -> Any:
    """The compiled work at one key head and one segment of pages for a tile of pairs.

    `reach`: up to which page of the sequence to ask for memory. `mixed`: where the result goes.
    """
    codes = kind == 2
    work = _page_of_codes(rows_at_once) if codes else _page_of_floats(kind, rows_at_once)

    def segment(
        step: int, frame: int, head: int, span: int, first: int, number: int, reach: int, scratch: int,
        mixed: int,
    ) -> None:  # fmt: skip
        width, group = channels(at(step, Step.VALUE_DIM)), at(step, Step.F)
        pages, count = at(frame, Frame.PAGES) + 8 * at(span, 2), pairs_of(step, span, first)
        begin(count, width, mixed)
        start = max(number * PAGES, first_seen(step, frame, span, first // group) // PAGE)
        end = last_seen(step, frame, span, (first + count - 1) // group) // PAGE + 1
        for page in range(start, min(end, (number + 1) * PAGES)):
            keys = at(pages, page) + at(step, Step.B) + head * at(step, Step.D)
            values = at(pages, page) + at(step, Step.C) + head * at(step, Step.E)
            later = at(pages, min(page + 1, reach - 1)) + at(step, Step.B) + head * at(step, Step.D)
            work(step, frame, head, span, first, scratch, keys, values, page, mixed, count, later)
        if codes:
            cap, state = get_f32(step + 8 * Step.CAP), state_of(mixed, count, width)
            end_segment(at(step, Step.A), scratch, cap, state, count)

    return njit(inline="never")(segment)


def _whole(segment: Any, prepare: Any) -> Any:
    """The compiled work at one key head for a tile: all segments, one after the other."""

    def whole(step: int, frame: int, head: int, span: int, first: int, scratch: int) -> None:
        count, group, width = (
            pairs_of(step, span, first),
            at(step, Step.F),
            channels(at(step, Step.VALUE_DIM)),
        )
        total, part = mixed_in(step, scratch, 0), mixed_in(step, scratch, 1)
        seen = seen_in(step, scratch)
        prepare(step, head, at(span, 0), first, count, scratch)
        look(step, frame, span, first, count, seen)
        start = first_seen(step, frame, span, first // group) // SEGMENT
        last = last_seen(step, frame, span, (first + count - 1) // group)
        reach = last // PAGE + 1
        segment(step, frame, head, span, first, start, reach, scratch, total)
        for number in range(start + 1, last // SEGMENT + 1):
            segment(step, frame, head, span, first, number, reach, scratch, part)
            merge(count, width, seen, number, total, part)
        finish(step, head, at(span, 0), first, count, total)
        if at(step, Step.G):
            hide_scores(step, frame, head, span, first, count, seen)

    return njit(inline="never")(whole)


@njit(inline="always")
def segments_of(step, frame, span):  # type: ignore[no-untyped-def]
    """The first segment that a span sees, and how many it sees."""
    start = first_seen(step, frame, span, 0) // SEGMENT
    return start, last_seen(step, frame, span, at(span, 1) - 1) // SEGMENT + 1 - start


def _part(segment: Any, prepare: Any) -> Any:
    """The compiled work at one key head and one segment; who ends last merges all of a tile.

    `number`: of the segment, counted from the first that the span sees. `parts`: address of the
    memory of the tile's segments: a counter of those done, on a cache line of its own, then mixed
    values and states. The same operations as in one go.
    """

    def part(
        step: int, frame: int, head: int, span: int, first: int, number: int, parts: int, scratch: int
    ) -> None:
        count, apart = pairs_of(step, span, first), at(frame, Frame.PART_BYTES)
        width, seen = channels(at(step, Step.VALUE_DIM)), seen_in(step, scratch)
        start, segments = segments_of(step, frame, span)
        prepare(step, head, at(span, 0), first, count, scratch)
        look(step, frame, span, first, count, seen)
        last = last_seen(step, frame, span, at(span, 1) - 1) // PAGE + 1
        reach = min(last, (start + number + 1) * PAGES)
        mixed = parts + 64
        segment(step, frame, head, span, first, start + number, reach, scratch, mixed + number * apart)
        if add_atomic(parts, 1) == segments - 1:
            store_atomic(parts, 0)
            for later in range(1, segments):
                merge(count, width, seen, start + later, mixed, mixed + later * apart)
            finish(step, head, at(span, 0), first, count, mixed)
            if at(step, Step.G):
                hide_scores(step, frame, head, span, first, count, seen)

    return njit(inline="never")(part)


def attention(kind: int, rows_at_once: int) -> Callable[[int, int, int, int], int]:
    """softmax(q k^T * scale) v for all rows of a pass.

    A: key width. B, C: bytes from a page to this layer's keys and values. D, E: bytes of a head
    there. F: query heads to a key head. G: 0, or address where scores go, as the frame's spans
    say. H: scale as float32. PANELS: key heads. UNIT_FIRST: number of the counter from which threads take
    pieces of work: a key head and up to QUERY_ROWS pairs of token and query head, and, where the
    frame has memory for parts, one segment of positions.

    `kind`: of the cache: 0 float32, 1 float16, 2 codes. Where B and C are equal, it has one row a token,
    which is its key and begins with its value (latents; never as codes).
    """
    segment = _segment(kind, rows_at_once)
    prepare = encode_queries if kind == 2 else scale_queries
    whole, part = _whole(segment, prepare), _part(segment, prepare)

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
                _, segments = segments_of(step, frame, span)
            while mine < before + tiles * heads * segments:
                number = (mine - before) % segments
                head = (mine - before) // segments % heads
                # The last tiles of a sequence see most: they go first, so that no thread ends late.
                first = (tiles - 1 - (mine - before) // segments // heads) * QUERY_ROWS
                if parts:
                    place = parts + (mine - number) * apart
                    part(step, frame, head, span, first, number, place, scratch)
                else:
                    whole(step, frame, head, span, first, scratch)
                mine = add_atomic(counter, 1)
            before += tiles * heads * segments
        return 0

    return kernel
