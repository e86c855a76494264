"""Work that each row does alone: norms, int8 codes, activations, sums."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numba import njit

from glassgear.backends.cpu.fields import ACTIVATION_BLOCK, GROUP, Frame, Step
from glassgear.backends.cpu.kernels.matmul import private, rows_of, share
from glassgear.backends.cpu.kernels.vectors import (
    absolute_bits,
    at,
    exp,
    fma,
    get_f32,
    largest_bits,
    largest_magnitude,
    load16,
    maximum,
    narrow8,
    nearest,
    put_f32,
    put_i32,
    splat,
    store16,
    sum16,
    sum_integers,
)

__all__ = ["ACTIVATIONS", "activate", "add_rows", "bias", "multiply", "quantize", "rms_norm"]

ONE = np.float32(1)
ZERO = np.float32(0)
TOP = np.float32(127)
TINY = np.float32(1e-30)  # below it 127 / x could overflow: such a block counts as zeros
NAN = np.float32(math.nan)
INFINITE = np.float32(math.inf)


@njit(inline="always")
def encode(first, second, block):  # type: ignore[no-untyped-def]
    """Write 32 floats as an activation block. One that isn't finite makes the whole block NaN."""
    top = largest_magnitude(largest_bits(absolute_bits(first), absolute_bits(second)))
    unit, inverse = top / TOP, TOP / top
    if top < TINY:
        unit, inverse = ZERO, ZERO
    if not top < INFINITE:
        unit, inverse = NAN, ZERO
    low, high = nearest(first * splat(inverse)), nearest(second * splat(inverse))
    narrow8(block, low)
    narrow8(block + 16, high)
    a, b = sum_integers(low), sum_integers(high)
    put_f32(block + 32, unit)
    put_i32(block + 36, np.int32(-a - b))
    put_i32(block + 40, np.int32(-a))
    put_i32(block + 44, np.int32(-b))


@njit(inline="always")
def codes_of_row(codes, row, blocks):  # type: ignore[no-untyped-def]
    """Address of the first activation block of a row; the next are GROUP blocks apart."""
    return codes + (row // GROUP * blocks * GROUP + row % GROUP) * ACTIVATION_BLOCK


@njit(inline="always")
def row_share(step, frame, thread, threads):  # type: ignore[no-untyped-def]
    """The rows that this thread does: its share of many, or all of a few."""
    rows = rows_of(step, frame)
    if at(frame, Frame.SHARED_OUT):
        return rows * thread // threads, rows * (thread + 1) // threads
    return 0, rows


def rms_norm(step: int, frame: int, thread: int, threads: int) -> int:
    """X / sqrt(mean(x^2) + eps) * weight; as floats, as codes, or both. A: eps as float32."""
    width = at(step, Step.COLUMNS)
    vectors = (width + 15) // 16
    eps, weight = get_f32(step + 8 * Step.A), at(step, Step.WEIGHTS)
    own = private(step, frame, thread)
    out, codes = at(step, Step.OUTPUT), at(step, Step.CODES)
    wanted = at(frame, Frame.WANTED_ROWS)
    first, last = row_share(step, frame, thread, threads)
    for row in range(first, last):
        source = at(wanted, row) if at(step, Step.WANTED) else row
        x = at(step, Step.INPUT) + source * at(step, Step.INPUT_STRIDE)
        squares, more = splat(ZERO), splat(ZERO)
        for i in range(0, vectors - 1, 2):
            one, two = load16(x + 64 * i), load16(x + 64 * i + 64)
            squares, more = fma(one, one, squares), fma(two, two, more)
        if vectors % 2:
            one = load16(x + 64 * (vectors - 1))
            squares = fma(one, one, squares)
        scale = splat(ONE / np.sqrt(sum16(squares + more) / np.float32(width) + eps))
        if out:
            y = out + own + row * at(step, Step.OUTPUT_STRIDE)
            for i in range(vectors):
                store16(y + 64 * i, load16(x + 64 * i) * scale * load16(weight + 64 * i))
        if codes:
            block = codes_of_row(codes + own, row, width // 32)
            for i in range(0, vectors, 2):
                low = load16(x + 64 * i) * scale * load16(weight + 64 * i)
                high = load16(x + 64 * i + 64) * scale * load16(weight + 64 * i + 64)
                encode(low, high, block)
                block += GROUP * ACTIVATION_BLOCK
    return 0


def quantize(step: int, frame: int, thread: int, threads: int) -> int:
    """Floats to activation blocks."""
    blocks = at(step, Step.COLUMNS) // 32
    codes = at(step, Step.CODES) + private(step, frame, thread)
    first, last = row_share(step, frame, thread, threads)
    for row in range(first, last):
        x = at(step, Step.INPUT) + row * at(step, Step.INPUT_STRIDE)
        block = codes_of_row(codes, row, blocks)
        for i in range(blocks):
            encode(load16(x + 128 * i), load16(x + 128 * i + 64), block)
            block += GROUP * ACTIVATION_BLOCK
    return 0


@njit(inline="always")
def silu(x):  # type: ignore[no-untyped-def]
    """X / (1 + e^-x)."""
    return x / (splat(ONE) + exp(splat(ZERO) - x))


@njit(inline="always")
def gelu_tanh(x):  # type: ignore[no-untyped-def]
    """0.5 x (1 + tanh(u)) = x / (1 + e^-2u), u = sqrt(2/pi) (x + 0.044715 x^3)."""
    cube = x * x * x
    u = fma(splat(np.float32(0.044715)), cube, x) * splat(np.float32(math.sqrt(2 / math.pi) * -2))
    return x / (splat(ONE) + exp(u))


@njit(inline="always")
def gelu(x):  # type: ignore[no-untyped-def]
    """X Phi(x), with erf to 1.5e-7 (Abramowitz & Stegun 7.1.26)."""
    size = maximum(x, splat(ZERO) - x) * splat(np.float32(math.sqrt(0.5)))
    t = splat(ONE) / fma(size, splat(np.float32(0.3275911)), splat(ONE))
    y = fma(splat(np.float32(1.061405429)), t, splat(np.float32(-1.453152027)))
    y = fma(y, t, splat(np.float32(1.421413741)))
    y = fma(y, t, splat(np.float32(-0.284496736)))
    y = fma(y, t, splat(np.float32(0.254829592))) * t * exp(splat(ZERO) - size * size)
    # y = 1 - erf(|x| / sqrt 2): the tail beyond |x|, twice. max(x, 0) - |x| y / 2 holds for both signs.
    return maximum(x, splat(ZERO)) - size * splat(np.float32(math.sqrt(0.5))) * y


@njit(inline="always")
def relu(x):  # type: ignore[no-untyped-def]
    """max(0, x), NaN kept."""
    return maximum(x, splat(ZERO))


@njit(inline="always")
def identity(x):  # type: ignore[no-untyped-def]
    """X."""
    return x


ACTIVATIONS: dict[str, Any] = {
    "silu": silu, "gelu": gelu, "gelu_tanh": gelu_tanh, "relu": relu, "identity": identity,
}  # fmt: skip


def activate(name: str) -> Callable[[int, int, int, int], int]:
    """activation(gate) * up, for this thread's units of 32 channels.

    A: bytes from a row's gate to its up. B: address of activation(gate) alone, or 0. Product as
    floats, as codes, or both.
    """
    function = ACTIVATIONS[name]

    def kernel(step: int, frame: int, thread: int, threads: int) -> int:
        stride, to_up = at(step, Step.INPUT_STRIDE), at(step, Step.A)
        out, out_stride, codes = at(step, Step.OUTPUT), at(step, Step.OUTPUT_STRIDE), at(step, Step.CODES)
        alone = at(step, Step.B)
        low, high = share(step, thread, threads)
        for row in range(at(frame, Frame.ROWS)):
            gate = at(step, Step.INPUT) + row * stride
            block = codes_of_row(codes, row, at(step, Step.UNITS))
            for unit in range(low, high):
                x = gate + 128 * unit
                first, second = function(load16(x)), function(load16(x + 64))
                if alone:
                    store16(alone + row * out_stride + 128 * unit, first)
                    store16(alone + row * out_stride + 128 * unit + 64, second)
                first, second = first * load16(x + to_up), second * load16(x + to_up + 64)
                if out:
                    store16(out + row * out_stride + 128 * unit, first)
                    store16(out + row * out_stride + 128 * unit + 64, second)
                if codes:
                    encode(first, second, block + unit * (GROUP * ACTIVATION_BLOCK))
        return 0

    return kernel


def multiply(step: int, frame: int, thread: int, threads: int) -> int:
    """Output = input * other. A: address of the other, B: its stride."""
    first, last = row_share(step, frame, thread, threads)
    for row in range(first, last):
        x = at(step, Step.INPUT) + row * at(step, Step.INPUT_STRIDE)
        other = at(step, Step.A) + row * at(step, Step.B)
        out = at(step, Step.OUTPUT) + row * at(step, Step.OUTPUT_STRIDE)
        for i in range((at(step, Step.COLUMNS) + 15) // 16):
            store16(out + 64 * i, load16(x + 64 * i) * load16(other + 64 * i))
    return 0


def add_rows(step: int, frame: int, thread: int, threads: int) -> int:
    """Output += input."""
    rows = rows_of(step, frame)
    for row in range(rows * thread // threads, rows * (thread + 1) // threads):
        x = at(step, Step.INPUT) + row * at(step, Step.INPUT_STRIDE)
        out = at(step, Step.OUTPUT) + row * at(step, Step.OUTPUT_STRIDE)
        for i in range((at(step, Step.COLUMNS) + 15) // 16):
            store16(out + 64 * i, load16(out + 64 * i) + load16(x + 64 * i))
    return 0


def bias(step: int, frame: int, thread: int, threads: int) -> int:
    """Output += a vector, for this thread's units of the columns."""
    low, high = share(step, thread, threads)
    unit = at(step, Step.UNIT)
    for row in range(rows_of(step, frame)):
        out = at(step, Step.OUTPUT) + row * at(step, Step.OUTPUT_STRIDE)
        for i in range(low * unit, high * unit):
            store16(out + 64 * i, load16(out + 64 * i) + load16(at(step, Step.WEIGHTS) + 64 * i))
    return 0
