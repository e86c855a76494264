"""Work that threads share out by columns or heads: sums, biases, copies."""

from __future__ import annotations

import numpy as np

from glassgear.backends.cpu.fields import Frame, Step
from glassgear.backends.cpu.kernels.matmul import output_of, rows_of, share
from glassgear.backends.cpu.kernels.rows import row_share, tanh
from glassgear.backends.cpu.kernels.vectors import at, get_f32, load16, put_f32, splat, store16, stream16

__all__ = ["copy", "join", "neighbours", "place_heads"]

ZERO = np.float32(0)
MANY = 256  # rows whose copies are too much for the caches, whatever the model; fewer are better left in them


def join(step: int, frame: int, thread: int, threads: int) -> int:
    """The input [+ a vector] to the output, or added to it, for this thread's units of the columns.

    INPUT: 0 for the output itself. WEIGHTS: the vector, or 0. ADD: 1 for the sum. A: above 0 (a
    float32), values v become A * tanh(v / A) at the end. B: 1: the input's rows are those whose
    output is wanted. Without an output it is the logits.
    """
    low, high = share(step, thread, threads)
    unit, vector, cap = at(step, Step.UNIT), at(step, Step.WEIGHTS), get_f32(step + 8 * Step.A)
    first, stride = output_of(step, frame)
    for row in range(rows_of(step, frame)):
        out = first + row * stride
        source = at(at(frame, Frame.WANTED_ROWS), row) if at(step, Step.B) else row
        x = at(step, Step.INPUT) + source * at(step, Step.INPUT_STRIDE) if at(step, Step.INPUT) else out
        for i in range(64 * low * unit, 64 * high * unit, 64):
            v = load16(x + i)
            if vector:
                v = v + load16(vector + i)
            if at(step, Step.ADD):
                v = load16(out + i) + v
            if cap > ZERO:
                v = tanh(v / splat(cap)) * splat(cap)
            store16(out + i, v)
    return 0


def place_heads(step: int, frame: int, thread: int, threads: int) -> int:
    """A floats of each head to another place. B, C: bytes from head to head there and here."""
    low, high = share(step, thread, threads)
    width = at(step, Step.A)
    for row in range(rows_of(step, frame)):
        for head in range(low, high):
            x = at(step, Step.INPUT) + row * at(step, Step.INPUT_STRIDE) + head * at(step, Step.B)
            y = at(step, Step.OUTPUT) + row * at(step, Step.OUTPUT_STRIDE) + head * at(step, Step.C)
            for i in range(0, width - 15, 16):
                store16(y + 4 * i, load16(x + 4 * i))
            for i in range(width // 16 * 16, width):
                put_f32(y + 4 * i, get_f32(x + 4 * i))
    return 0


def copy(step: int, frame: int, thread: int, threads: int) -> int:
    """Units of A floats of each row to a place that is read after the run; many rows past the caches."""
    low, high = share(step, thread, threads)
    unit, rows = 4 * at(step, Step.A), rows_of(step, frame)
    first, last = low * unit, max(low, high) * unit
    aligned = (at(step, Step.OUTPUT) | at(step, Step.OUTPUT_STRIDE) | unit) % 64 == 0
    past = aligned and rows >= MANY
    for row in range(rows):
        x = at(step, Step.INPUT) + row * at(step, Step.INPUT_STRIDE)
        y = at(step, Step.OUTPUT) + row * at(step, Step.OUTPUT_STRIDE)
        if past:
            for i in range(first, last, 64):
                stream16(y + i, load16(x + i))
        else:
            for i in range(first, last - 63, 64):
                store16(y + i, load16(x + i))
            for i in range(first + (last - first) // 64 * 64, last, 4):
                put_f32(y + i, get_f32(x + i))
    return 0


def neighbours(step: int, frame: int, thread: int, threads: int) -> int:
    """[x of the next token, x, x of the one before] in each sequence; zeros beyond its ends."""
    width, stride = at(step, Step.COLUMNS), at(step, Step.INPUT_STRIDE)
    first, last = row_share(step, frame, thread, threads)
    for s in range(at(frame, Frame.SPAN_COUNT)):
        span = at(frame, Frame.SPANS) + 32 * s
        start, stop = at(span, 0), at(span, 0) + at(span, 1)
        for row in range(max(first, start), min(last, stop)):
            for part in range(3):
                source = row + 1 - part
                x = at(step, Step.INPUT) + source * stride
                y = at(step, Step.OUTPUT) + row * at(step, Step.OUTPUT_STRIDE) + 4 * part * width
                there = start <= source < stop
                for i in range(width):
                    put_f32(y + 4 * i, get_f32(x + 4 * i) if there else ZERO)
    return 0
