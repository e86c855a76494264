"""Norms: rows, or the heads of rows, brought to a size; as floats, as codes, or added to other rows."""

from __future__ import annotations

import numpy as np
from numba import njit

from glassgear.backends.cpu.fields import ACTIVATION_BLOCK, GROUP, Frame, NormKind, Step
from glassgear.backends.cpu.kernels.matmul import private, rows_of, share
from glassgear.backends.cpu.kernels.rows import codes_of_row, encode, row_share
from glassgear.backends.cpu.kernels.vectors import (
    at,
    fma,
    get_f32,
    inside,
    load16,
    put_f32,
    splat,
    store16,
    sum16,
)

__all__ = ["norm"]

ONE, ZERO = np.float32(1), np.float32(0)
RMS, LAYER, SCALE = int(NormKind.RMS), int(NormKind.LAYER), int(NormKind.SCALE)


@njit(inline="never")
def total(x, width):  # type: ignore[no-untyped-def]
    """The sum of `width` floats."""
    one, two, whole = splat(ZERO), splat(ZERO), width // 16
    for i in range(0, whole - 1, 2):
        one, two = one + load16(x + 64 * i), two + load16(x + 64 * i + 64)
    if whole % 2:
        one = one + load16(x + 64 * (whole - 1))
    if width % 16:
        two = two + inside(load16(x + 64 * whole), width % 16)
    return sum16(one + two)


@njit(inline="never")
def squares(x, width, middle):  # type: ignore[no-untyped-def]
    """The sum of (x - middle)^2."""
    one, two, whole, off = splat(ZERO), splat(ZERO), width // 16, splat(middle)
    for i in range(0, whole - 1, 2):
        a, b = load16(x + 64 * i) - off, load16(x + 64 * i + 64) - off
        one, two = fma(a, a, one), fma(b, b, two)
    if whole % 2:
        a = load16(x + 64 * (whole - 1)) - off
        one = fma(a, a, one)
    if width % 16:
        a = inside(load16(x + 64 * whole) - off, width % 16)
        two = fma(a, a, two)
    return sum16(one + two)


@njit(inline="always")
def moments(kind, x, width, eps):  # type: ignore[no-untyped-def]
    """What is taken from a row, and what it is then multiplied by."""
    size = np.float32(width)
    if kind == RMS:
        return ZERO, ONE / np.sqrt(squares(x, width, ZERO) / size + eps)
    if kind == LAYER:
        middle = total(x, width) / size
        return middle, ONE / np.sqrt(squares(x, width, middle) / size + eps)
    if kind == SCALE:
        length = np.sqrt(squares(x, width, ZERO))
        return ZERO, ONE / (eps if length < eps else length)
    return ZERO, ONE


@njit(inline="always")
def scaled(x, off, by, weight, bias):  # type: ignore[no-untyped-def]
    """16 normed floats; `bias`: address, or 0."""
    v = (load16(x) - off) * by
    return fma(v, load16(weight), load16(bias)) if bias else v * load16(weight)


@njit(inline="always")
def floats(step, x, y, other, middle, scale):  # type: ignore[no-untyped-def]
    """One normed row to y, plus `other` where there is one. Nothing behind its end is touched."""
    width, weight, bias = at(step, Step.COLUMNS), at(step, Step.WEIGHTS), at(step, Step.C)
    off, by = splat(middle), splat(scale)
    whole = width // 16
    for i in range(whole):
        v = scaled(x + 64 * i, off, by, weight + 64 * i, bias + 64 * i if bias else 0)
        if other:
            v = load16(other + 64 * i) + v
        store16(y + 64 * i, v)
    for i in range(16 * whole, width):
        one = (get_f32(x + 4 * i) - middle) * scale * get_f32(weight + 4 * i)
        if bias:
            one = one + get_f32(bias + 4 * i)
        if other:
            one = get_f32(other + 4 * i) + one
        put_f32(y + 4 * i, one)


@njit(inline="always")
def codes_of(step, x, block, middle, scale):  # type: ignore[no-untyped-def]
    """One normed row as activation blocks."""
    weight, bias, off, by = at(step, Step.WEIGHTS), at(step, Step.C), splat(middle), splat(scale)
    for i in range(0, at(step, Step.COLUMNS) // 16, 2):
        a, w, b = x + 64 * i, weight + 64 * i, bias + 64 * i if bias else 0
        encode(scaled(a, off, by, w, b), scaled(a + 64, off, by, w + 64, b + 64 if b else 0), block)
        block += GROUP * ACTIVATION_BLOCK


def norm(step: int, frame: int, thread: int, threads: int) -> int:
    """(x - middle) * scale * weight + bias of whole rows, or of this thread's heads of all rows.

    A: eps as float32. B: a `NormKind`. C: address of the bias, or 0. D: 1 for heads,
    each COLUMNS wide. E: 0, or address of rows that the result is added to. F: 1: the input's rows
    are those whose output is wanted.
    """
    kind, eps, heads = at(step, Step.B), get_f32(step + 8 * Step.A), at(step, Step.D)
    width, other = 4 * at(step, Step.COLUMNS), at(step, Step.E)
    out, codes, stride = at(step, Step.OUTPUT), at(step, Step.CODES), at(step, Step.OUTPUT_STRIDE)
    own = private(step, frame, thread)
    wanted = at(frame, Frame.WANTED_ROWS)
    low, high = 0, 1
    first, last = row_share(step, frame, thread, threads)
    if heads:
        low, high = share(step, thread, threads)
        first, last = 0, rows_of(step, frame)
    for row in range(first, last):
        source = at(wanted, row) if at(step, Step.F) else row
        for head in range(low, high):
            x = at(step, Step.INPUT) + source * at(step, Step.INPUT_STRIDE) + head * width
            middle, scale = moments(kind, x, at(step, Step.COLUMNS), eps)
            # Codes first: the floats may take the input's place.
            if codes:
                block = codes_of_row(codes + own, row, at(step, Step.COLUMNS) // 32)
                codes_of(step, x, block, middle, scale)
            if out:
                y = out + own + row * stride + head * width
                floats(step, x, y, other + row * stride if other else 0, middle, scale)
    return 0
