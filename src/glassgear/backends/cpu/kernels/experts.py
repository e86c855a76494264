"""Mixture of experts: which rows go to which expert, and those experts alone at work.

The rows of an expert are gathered behind each other in **slots**, so that the kernels of plain
networks run over them. The **plan** of a pass, int64, says which: for `count` experts and `used`
of them to a row, [count] first slots, [count] numbers of rows, then for each row [used] experts in
ascending order (-1: none) and [used] slots.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from glassgear.backends.cpu.fields import ACTIVATION_BLOCK, COPIES, GROUP, STEP_FIELDS, TILE, Frame, Step
from glassgear.backends.cpu.kernels.matmul import private, rows_of, share
from glassgear.backends.cpu.kernels.rows import codes_of_row, row_share
from glassgear.backends.cpu.kernels.team import call_kernel
from glassgear.backends.cpu.kernels.vectors import (
    add_atomic,
    at,
    exp,
    get_f32,
    largest,
    load16,
    maximum,
    put_f32,
    put_i64,
    splat,
    store16,
    sum16,
    visible,
)

__all__ = ["combine", "dispatch", "gather", "route", "score"]

ONE, ZERO, LOWEST = np.float32(1), np.float32(0), np.float32(-math.inf)
ENOUGH = np.float32(1e-20)  # added to a sum of weights before it divides them
FIELDS = len(Frame)
PIECES = 4  # of the work for each thread, or more


def score(step: int, frame: int, thread: int, threads: int) -> int:
    """Logits of COLUMNS experts to scores. A: 1: sigmoid of each; 0: softmax of all."""
    count = at(step, Step.COLUMNS)
    first, last = row_share(step, frame, thread, threads)
    for row in range(first, last):
        x = at(step, Step.INPUT) + row * at(step, Step.INPUT_STRIDE)
        y = at(step, Step.OUTPUT) + row * at(step, Step.OUTPUT_STRIDE)
        if at(step, Step.A):
            for i in range(0, count, 16):
                store16(y + 4 * i, splat(ONE) / (splat(ONE) + exp(splat(ZERO) - load16(x + 4 * i))))
            continue
        top, total = splat(LOWEST), splat(ZERO)
        for i in range(0, count, 16):
            top = maximum(top, visible(load16(x + 4 * i), 0, count - i))
        top = splat(largest(top))
        for i in range(0, count, 16):
            e = exp(visible(load16(x + 4 * i), 0, count - i) - top)
            store16(y + 4 * i, e)
            total = total + e
        whole = splat(sum16(total))
        for i in range(0, count, 16):
            store16(y + 4 * i, load16(y + 4 * i) / whole)
    return 0


@njit(inline="always")
def better(x, y):  # type: ignore[no-untyped-def]
    """Whether x comes before y, which has the lower number. NaN comes last."""
    return x > y or (y != y and x == x)  # noqa: PLR0124


@njit(inline="never")
def pick(values, taken, count, wanted):  # type: ignore[no-untyped-def]
    """Mark the `wanted` largest of `count` floats with the order in which they come, from 1 on."""
    for i in range(count):
        put_i64(taken + 8 * i, 0)
    for k in range(wanted):
        best = -1
        for i in range(count):
            if at(taken, i) == 0 and (
                best < 0 or better(get_f32(values + 4 * i), get_f32(values + 4 * best))
            ):
                best = i
        put_i64(taken + 8 * best, k + 1)


@njit(inline="never")
def close_groups(step, values, worth, taken):  # type: ignore[no-untyped-def]
    """Put -infinity where a group isn't among the best. `worth`, `taken`: room for all groups."""
    groups, size = at(step, Step.C), at(step, Step.COLUMNS) // at(step, Step.C)
    for g in range(groups):
        top, second = LOWEST, LOWEST
        for i in range(g * size, (g + 1) * size):
            v = get_f32(values + 4 * i)
            if v != v:  # noqa: PLR0124
                continue
            if v > top:
                top, second = v, top
            elif v > second:
                second = v
        put_f32(worth + 4 * g, top if at(step, Step.E) or size == 1 else top + second)
    pick(worth, taken, groups, at(step, Step.D))
    for g in range(groups):
        if at(taken, g) == 0:
            for i in range(g * size, (g + 1) * size):
                put_f32(values + 4 * i, LOWEST)


@njit(inline="never")
def weigh(step, scores, taken, out):  # type: ignore[no-untyped-def]
    """The weight of every expert, 0 for those that weren't picked."""
    count, used, total, by = at(step, Step.COLUMNS), at(step, Step.A), ZERO, ONE
    if at(step, Step.F):
        for k in range(used):
            for i in range(count):
                if at(taken, i) == k + 1:
                    total += get_f32(scores + 4 * i)
        by = total + ENOUGH
    scale = get_f32(step + 8 * Step.H)
    for i in range(count):
        put_f32(out + 4 * i, get_f32(scores + 4 * i) / by * scale if at(taken, i) else ZERO)


@njit(inline="never")
def assign(count, used, rows, plan):  # type: ignore[no-untyped-def]
    """Slots for all rows of all experts; first slots are multiples of GROUP.

    Tiles may write some rows more than they are asked for: hence the room behind each expert's.
    """
    for e in range(count):
        put_i64(plan + 8 * (count + e), 0)
    chosen = plan + 16 * count
    for row in range(rows):
        for k in range(used):
            e = at(chosen, 2 * used * row + k)
            if e >= 0:
                number = at(plan, count + e)
                put_i64(chosen + 8 * (2 * used * row + used + k), number)
                put_i64(plan + 8 * (count + e), number + 1)
    slot = 0
    for e in range(count):
        put_i64(plan + 8 * e, slot)
        if at(plan, count + e):
            slot += (at(plan, count + e) + TILE + GROUP - 1) // GROUP * GROUP
    for row in range(rows):
        for k in range(used):
            e, place = at(chosen, 2 * used * row + k), chosen + 8 * (2 * used * row + used + k)
            if e >= 0:
                put_i64(place, at(place, 0) + at(plan, e))


def route(step: int, frame: int, thread: int, threads: int) -> int:
    """Scores of COLUMNS experts to the weights of those that are used, and the plan.

    WEIGHTS: address of the correction, or 0. A: experts of a row. B: 0 where no plan is wanted.
    C: groups. D: groups that are kept. E: 1: a group is worth its best expert. F: 1: weights are
    divided by their sum. H: what they are multiplied by (float32). G: address of the plan.
    UNIT_FIRST: number of a counter: who ends last makes the plan.
    """
    count, used, plan = at(step, Step.COLUMNS), at(step, Step.A), at(step, Step.G)
    correction = at(step, Step.WEIGHTS)
    values = at(frame, Frame.SCRATCH) + thread * at(frame, Frame.SCRATCH_BYTES)
    worth = values + 4 * (count + 16)
    taken = worth + 4 * (count + 16)
    first, last = row_share(step, frame, thread, threads)
    for row in range(first, last):
        scores = at(step, Step.INPUT) + row * at(step, Step.INPUT_STRIDE)
        out = at(step, Step.OUTPUT) + row * at(step, Step.OUTPUT_STRIDE)
        for i in range(0, count, 16):
            v = load16(scores + 4 * i)
            store16(values + 4 * i, v + load16(correction + 4 * i) if correction else v)
        if at(step, Step.C) > 1:
            close_groups(step, values, worth, taken)
        pick(values, taken, count, used)
        weigh(step, scores, taken, out)
        chosen, k = plan + 16 * count + 16 * used * row, 0
        for e in range(count):
            if k < used and get_f32(out + 4 * e) != ZERO:
                put_i64(chosen + 8 * k, e)
                k += 1
        for rest in range(k, used):
            put_i64(chosen + 8 * rest, -1)
    if add_atomic(at(frame, Frame.COUNTERS) + 8 * at(step, Step.UNIT_FIRST), 1) == threads - 1:
        assign(count, used, rows_of(step, frame), plan)
    return 0


def gather(step: int, frame: int, thread: int, threads: int) -> int:
    """Rows to their slots.

    INPUT, OUTPUT: floats, or 0. B, CODES: codes there and here, or 0. A: experts of a row. C:
    experts. G: address of the plan.
    """
    used, plan, blocks = at(step, Step.A), at(step, Step.G), at(step, Step.COLUMNS) // 32
    chosen = plan + 16 * at(step, Step.C)
    own, pairs = private(step, frame, thread), rows_of(step, frame) * used
    for pair in range(pairs * thread // threads, pairs * (thread + 1) // threads):
        row, k = pair // used, pair % used
        if at(chosen, 2 * used * row + k) < 0:
            continue
        slot = at(chosen, 2 * used * row + used + k)
        if at(step, Step.OUTPUT):
            x = at(step, Step.INPUT) + own + row * at(step, Step.INPUT_STRIDE)
            y = at(step, Step.OUTPUT) + slot * at(step, Step.OUTPUT_STRIDE)
            for i in range((at(step, Step.COLUMNS) + 15) // 16):
                store16(y + 64 * i, load16(x + 64 * i))
        if at(step, Step.CODES):
            x = codes_of_row(at(step, Step.B) + own, row, blocks)
            y = codes_of_row(at(step, Step.CODES), slot, blocks)
            for i in range(blocks):
                here, there = y + i * GROUP * ACTIVATION_BLOCK, x + i * GROUP * ACTIVATION_BLOCK
                for part in range(ACTIVATION_BLOCK // 8):
                    put_i64(here + 8 * part, at(there, part))
    return 0


@njit(inline="never")
def place_step(step, copy, slot, low, high):  # type: ignore[no-untyped-def]
    """A step of one expert, for the rows from `slot` on and its units `low` to `high`."""
    for i in range(STEP_FIELDS):
        put_i64(copy + 8 * i, at(step, i))
    row = at(step, Step.INPUT_STRIDE)
    if row == 0:  # codes
        row = at(step, Step.COLUMNS) // 32 * ACTIVATION_BLOCK
    if at(step, Step.INPUT):
        put_i64(copy + 8 * Step.INPUT, at(step, Step.INPUT) + slot * row)
    if at(step, Step.OUTPUT):
        put_i64(copy + 8 * Step.OUTPUT, at(step, Step.OUTPUT) + slot * at(step, Step.OUTPUT_STRIDE))
    if at(step, Step.CODES):
        codes = at(step, Step.CODES) + slot * at(step, Step.PANELS) * ACTIVATION_BLOCK
        put_i64(copy + 8 * Step.CODES, codes)
    if high > low:
        put_i64(copy + 8 * Step.UNIT_FIRST, -low)
        put_i64(copy + 8 * Step.UNITS, high - low)


@njit(inline="never")
def piece_of(plan, count, units, threads):  # type: ignore[no-untyped-def]
    """Units of an expert that make a piece: few long streams of weights, but enough for all threads."""
    active = 0
    for e in range(count):
        active += 1 if at(plan, count + e) else 0
    pieces = max(1, PIECES * threads // max(1, active))
    return max(1, (units + pieces - 1) // pieces)


def dispatch(step: int, frame: int, thread: int, threads: int) -> int:
    """The same steps for each expert that has rows, over its rows alone.

    WEIGHTS: address of the steps, A for each of C experts. B: units of an expert that threads
    share out; 0: each expert is done by one thread. G: address of the plan. UNIT_FIRST: number of
    the counter from which threads take pieces of work.
    """
    count, inner, plan = at(step, Step.C), at(step, Step.A), at(step, Step.G)
    units = at(step, Step.B)
    copy = at(frame, Frame.SCRATCH) + thread * at(frame, Frame.SCRATCH_BYTES)
    own = copy + 8 * STEP_FIELDS
    for i in range(FIELDS):
        put_i64(own + 8 * i, at(frame, i))
    put_i64(own + 8 * Frame.SHARED_OUT, 1)
    put_i64(own + 8 * Frame.SCRATCH, copy + COPIES)
    at_once = piece_of(plan, count, units, threads)
    pieces = (units + at_once - 1) // at_once if units else 1
    counter = at(frame, Frame.COUNTERS) + 8 * at(step, Step.UNIT_FIRST)
    mine, before = add_atomic(counter, 1), 0
    for e in range(count):
        if at(plan, count + e) == 0:
            continue
        put_i64(own + 8 * Frame.ROWS, at(plan, count + e))
        while mine < before + pieces:
            low = (mine - before) * at_once
            for i in range(inner):
                source = at(step, Step.WEIGHTS) + (e * inner + i) * (8 * STEP_FIELDS)
                place_step(source, copy, at(plan, e), low, min(units, low + at_once))
                call_kernel(at(copy, Step.KERNEL), copy, own, 0, 1)
            mine = add_atomic(counter, 1)
        before += pieces
    return 0


def combine(step: int, frame: int, thread: int, threads: int) -> int:
    """The sum over a row's experts of weight * result [+ another row] to the output, or added to it.

    In ascending order of experts, for this thread's units of the columns. INPUT: results by slot.
    A: weights of all experts, B: bytes from row to row there. C: the other rows or 0, D: bytes
    from row to row there. E: experts of a row. F: experts. G: address of the plan.
    """
    low, high = share(step, thread, threads)
    used, unit = at(step, Step.E), at(step, Step.UNIT)
    chosen = at(step, Step.G) + 16 * at(step, Step.F)
    for row in range(rows_of(step, frame)):
        weights = at(step, Step.A) + row * at(step, Step.B)
        out = at(step, Step.OUTPUT) + row * at(step, Step.OUTPUT_STRIDE)
        for i in range(64 * low * unit, 64 * high * unit, 64):
            total = splat(ZERO)
            for k in range(used):
                e = at(chosen, 2 * used * row + k)
                if e < 0:
                    break
                y = at(step, Step.INPUT) + at(chosen, 2 * used * row + used + k) * at(step, Step.INPUT_STRIDE)
                total = total + splat(get_f32(weights + 4 * e)) * load16(y + i)
            if at(step, Step.C):
                total = total + load16(at(step, Step.C) + row * at(step, Step.D) + i)
            if at(step, Step.ADD):
                total = load16(out + i) + total
            store16(out + i, total)
    return 0
