"""Matrix products: a thread's share of the panels of one matrix, times all rows of a pass."""

from __future__ import annotations

from collections.abc import Callable

from numba import njit

from glassgear.backends.cpu.fields import ACTIVATION_BLOCK, GROUP, ROWS, SPREAD_BLOCKS, TILE, Frame, Step
from glassgear.backends.cpu.kernels.tiles import float_tile, quant_tile, spread, spread_tile
from glassgear.backends.cpu.kernels.vectors import at, prefetch
from glassgear.backends.cpu.layouts import PANEL, FloatLayout, quant_layout

__all__ = ["codes_of_row", "float_matmul", "output_of", "quant_matmul", "rows_of", "share"]

STRIP = 96  # tokens that stay in the first cache while panels go by: a multiple of every tile
STRIP_BYTES = 1 << 20  # of activations that are read again and again while panels go by
SPREAD_ROWS = 96  # from which spreading pays
AHEAD_OF_ROW = 32  # bytes of the part of a panel that comes next, for each row of the one at hand


@njit(inline="always")
def share(step, thread, threads):  # type: ignore[no-untyped-def]
    """This thread's units of the step, as the range [first, last) of the step's own."""
    first = at(step, Step.UNIT_FIRST)
    units = at(step, Step.UNITS)
    count = at(step, Step.PANELS) // at(step, Step.UNIT)
    low = max(0, units * thread // threads - first)
    high = min(count, units * (thread + 1) // threads - first)
    return low, high


@njit(inline="always")
def rows_of(step, frame):  # type: ignore[no-untyped-def]
    """How many rows the step is for."""
    return at(frame, Frame.WANTED) if at(step, Step.WANTED) else at(frame, Frame.ROWS)


@njit(inline="always")
def codes_of_row(codes, row, blocks):  # type: ignore[no-untyped-def]
    """Address of the first activation block of a row; the next are GROUP blocks apart."""
    return codes + (row // GROUP * blocks * GROUP + row % GROUP) * ACTIVATION_BLOCK


@njit(inline="always")
def private(step, frame, thread):  # type: ignore[no-untyped-def]
    """Distance in bytes to this thread's own copy of a small buffer, if each has one."""
    return 0 if at(frame, Frame.SHARED_OUT) else thread * at(step, Step.PRIVATE)


@njit(inline="always")
def output_of(step, frame):  # type: ignore[no-untyped-def]
    """Address and stride of the output; a step without one writes logits."""
    out = at(step, Step.OUTPUT)
    if out == 0:
        return at(frame, Frame.LOGITS), at(frame, Frame.LOGITS_STRIDE)
    return out, at(step, Step.OUTPUT_STRIDE)


def quant_matmul(key: str, dot: str) -> Callable[[int, int, int, int], int]:
    """The kernel for matrices of codes in the layout `key`."""
    layout = quant_layout(key)
    panel_of_block = layout.block_bytes
    multiply = many_or_few(key, dot) if layout.spread else packed_rows(key, dot)

    def kernel(step: int, frame: int, thread: int, threads: int) -> int:
        rows = rows_of(step, frame)
        blocks = at(step, Step.COLUMNS) // 32
        panel_bytes = blocks * panel_of_block
        x = at(step, Step.INPUT) + private(step, frame, thread)
        out, stride = output_of(step, frame)
        weights, unit, add = at(step, Step.WEIGHTS), at(step, Step.UNIT), at(step, Step.ADD)
        scratch = at(frame, Frame.SCRATCH) + thread * at(frame, Frame.SCRATCH_BYTES)
        low, high = share(step, thread, threads)
        strip = strip_of(rows, blocks * ACTIVATION_BLOCK)
        for start in range(0, rows, strip):
            count = min(rows - start, strip)
            for panel in range(low * unit, high * unit):
                w, y = weights + panel * panel_bytes, out + panel * 64 + start * stride
                multiply(count, w, codes_of_row(x, start, blocks), blocks, y, stride, add, scratch)
        return 0

    return kernel


@njit(inline="always")
def strip_of(rows, row_bytes):  # type: ignore[no-untyped-def]
    """Rows to take at a time, a multiple of every tile, so that their activations stay near."""
    most = max(2 * SPREAD_ROWS, STRIP_BYTES // row_bytes)
    strips = -(-rows // most)
    return (rows // strips // TILE + 1) * TILE


def many_or_few(key: str, dot: str) -> Callable[..., None]:
    """One panel times some rows, in the way that is faster for so many."""
    many, few = spread_rows(key, dot), packed_rows(key, dot)

    @njit(inline="always")
    def multiply(count, w, x, blocks, out, stride, add, scratch):  # type: ignore[no-untyped-def]
        if count >= SPREAD_ROWS:
            many(count, w, x, blocks, out, stride, add, scratch)
        else:
            few(count, w, x, blocks, out, stride, add, scratch)

    return multiply


def packed_rows(key: str, dot: str) -> Callable[..., None]:
    """One panel times some rows."""
    large, middle = (TILE, 8) if dot == "avx512vnni" else (4, 4)

    @njit(inline="always")
    def multiply(count, w, x, blocks, out, stride, add, scratch):  # type: ignore[no-untyped-def]
        r = 0
        while count - r >= large:
            quant_tile(key, dot, large, w, codes_of_row(x, r, blocks), blocks, out + r * stride, stride, add)
            r += large
        while r < count:
            at_x, y = codes_of_row(x, r, blocks), out + r * stride
            if count - r > 4:
                quant_tile(key, dot, middle, w, at_x, blocks, y, stride, add)
                r += middle
            elif count - r > 1:
                quant_tile(key, dot, 4, w, at_x, blocks, y, stride, add)
                r += 4
            else:
                quant_tile(key, dot, 1, w, at_x, blocks, y, stride, add)
                r += 1

    return multiply


def spread_rows(key: str, dot: str) -> Callable[..., None]:
    """One panel times many rows, its codes spread to bytes first, a part of the panel at a time."""
    large = TILE if dot == "avx512vnni" else 4
    block_bytes = quant_layout(key).block_bytes

    @njit(inline="always")
    def multiply(count, w, x, blocks, out, stride, add, scratch):  # type: ignore[no-untyped-def]
        buffer = scratch + (ROWS + TILE) * 64  # behind the unfinished sums
        parts = -(-blocks // SPREAD_BLOCKS)
        for part in range(parts):
            first, end = blocks * part // parts, blocks * (part + 1) // parts
            some, is_first, is_last = end - first, part == 0, end == blocks
            spread(key, dot, w + first * block_bytes, some, buffer)
            x_part, following = x + first * (GROUP * ACTIVATION_BLOCK), w + end * block_bytes
            r = 0
            while r < count:
                at_x, sums, y = codes_of_row(x_part, r, blocks), scratch + r * 64, out + r * stride
                if count - r > large - 4:
                    # What is spread next comes from memory while tiles have work.
                    for line in range(r * AHEAD_OF_ROW, (r + large) * AHEAD_OF_ROW, 64):
                        prefetch(following + line)
                    spread_tile(
                        key, dot, large, buffer, at_x, some, blocks, sums, is_first, is_last, y, stride, add
                    )
                    r += large
                else:
                    spread_tile(
                        key, dot, 4, buffer, at_x, some, blocks, sums, is_first, is_last, y, stride, add
                    )
                    r += 4

    return multiply


def float_matmul(key: str, wide: int) -> Callable[[int, int, int, int], int]:
    """The kernel for float matrices in the layout `key`; `wide` where there are 32 registers of 512 bits."""
    width = PANEL * FloatLayout(key).width
    large = 12 if wide else 4

    def kernel(step: int, frame: int, thread: int, threads: int) -> int:
        rows = rows_of(step, frame)
        columns = at(step, Step.COLUMNS)
        panel_bytes = columns * width
        x = at(step, Step.INPUT) + private(step, frame, thread)
        x_stride = at(step, Step.INPUT_STRIDE)
        out, stride = output_of(step, frame)
        weights, unit, add = at(step, Step.WEIGHTS), at(step, Step.UNIT), at(step, Step.ADD)
        low, high = share(step, thread, threads)
        low, high = low * unit, high * unit
        most = 8 if columns <= 256 else 2
        for start in range(0, rows, STRIP):
            stop = min(rows, start + STRIP)
            if stop - start == 1:
                at_x, y = x + start * x_stride, out + start * stride
                panel = low
                while panel < high:
                    # Long rows come from memory, fastest as one or two streams. Short ones wait for
                    # sums, not for memory: more panels at a time have more sums to work on.
                    w, o, left = weights + panel * panel_bytes, y + panel * 64, min(most, high - panel)
                    if left >= 8:
                        float_tile(key, 8, 1, w, at_x, x_stride, columns, o, stride, add)
                        panel += 8
                    elif left >= 4:
                        float_tile(key, 4, 1, w, at_x, x_stride, columns, o, stride, add)
                        panel += 4
                    elif left >= 2:
                        float_tile(key, 2, 1, w, at_x, x_stride, columns, o, stride, add)
                        panel += 2
                    else:
                        float_tile(key, 1, 1, w, at_x, x_stride, columns, o, stride, add)
                        panel += 1
                continue
            for panel in range(low, high):
                w, o = weights + panel * panel_bytes, out + panel * 64
                r = start
                while stop - r >= large:
                    float_tile(
                        key, 1, large, w, x + r * x_stride, x_stride, columns, o + r * stride, stride, add
                    )
                    r += large
                while r < stop:
                    float_tile(key, 1, 4, w, x + r * x_stride, x_stride, columns, o + r * stride, stride, add)
                    r += 4
        return 0

    return kernel
