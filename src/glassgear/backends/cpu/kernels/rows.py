"""Work that each row does alone: int8 codes, activations, products."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numba import njit

from glassgear.backends.cpu.fields import ACTIVATION_BLOCK, GROUP, SUM_SCALE, Frame, Step
from glassgear.backends.cpu.kernels.matmul import codes_of_row, private, rows_of, share
from glassgear.backends.cpu.kernels.vectors import (
    absolute_bits,
    at,
    exp,
    fma,
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
    sum_integers,
    where_below,
)

__all__ = ["ACTIVATIONS", "activate", "codes_of_row", "encode", "multiply", "quantize", "row_share", "tanh"]

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
    for i, total in enumerate((-a - b, -a, -b)):
        put_i32(block + 36 + 4 * i, np.int32(total * SUM_SCALE))
        put_f32(block + 48 + 4 * i, np.float32(total))


@njit(inline="always")
def row_share(step, frame, thread, threads):  # type: ignore[no-untyped-def]
    """The rows that this thread does: its share, or all of a few if it has a buffer for itself."""
    rows = rows_of(step, frame)
    if at(frame, Frame.SHARED_OUT) or at(step, Step.PRIVATE) == 0:
        return rows * thread // threads, rows * (thread + 1) // threads
    return 0, rows


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
def plus(first, second, vector):  # type: ignore[no-untyped-def]
    """32 floats and those at an address, added."""
    return first + load16(vector), second + load16(vector + 64)


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


@njit(inline="always")
def tanh(x):  # type: ignore[no-untyped-def]
    """(1 - e^-2|x|) / (1 + e^-2|x|) with the sign of x; near 0 its series, which loses no digits."""
    size = maximum(x, splat(ZERO) - x)
    e = exp(size * splat(np.float32(-2)))
    far = (splat(ONE) - e) / (splat(ONE) + e)
    far = where_below(x, splat(ZERO), splat(ZERO) - far, far)
    square = x * x
    near = fma(square, splat(np.float32(62 / 2835)), splat(np.float32(-17 / 315)))
    near = fma(square, near, splat(np.float32(2 / 15)))
    near = fma(square, near, splat(np.float32(-1 / 3)))
    near = fma(square * near, x, x)
    return where_below(size, splat(np.float32(0.3)), near, far)


ACTIVATIONS: dict[str, Any] = {
    "silu": silu, "gelu": gelu, "gelu_tanh": gelu_tanh, "relu": relu, "identity": identity, "tanh": tanh,
}  # fmt: skip


def activate(name: str) -> Callable[[int, int, int, int], int]:
    """activation(gate) * up, for this thread's units of 32 channels.

    A: bytes from a row's gate to its up; 0 for no up. B: address of activation(gate) alone, or 0.
    C: bias of the gate, D: of the up; 0 for none. PANELS: units of a row. Product as floats, as
    codes, or both.
    """
    function = ACTIVATIONS[name]

    def kernel(step: int, frame: int, thread: int, threads: int) -> int:
        stride, to_up = at(step, Step.INPUT_STRIDE), at(step, Step.A)
        out, out_stride, codes = at(step, Step.OUTPUT), at(step, Step.OUTPUT_STRIDE), at(step, Step.CODES)
        alone, gate_bias, up_bias = at(step, Step.B), at(step, Step.C), at(step, Step.D)
        low, high = share(step, thread, threads)
        for row in range(rows_of(step, frame)):
            gate = at(step, Step.INPUT) + row * stride
            block = codes_of_row(codes, row, at(step, Step.PANELS))
            for unit in range(low, high):
                x, inside = gate + 128 * unit, 128 * unit
                first, second = load16(x), load16(x + 64)
                if gate_bias:
                    first, second = plus(first, second, gate_bias + inside)
                first, second = function(first), function(second)
                if alone:
                    store16(alone + row * out_stride + inside, first)
                    store16(alone + row * out_stride + inside + 64, second)
                if to_up:
                    other, more = load16(x + to_up), load16(x + to_up + 64)
                    if up_bias:
                        other, more = plus(other, more, up_bias + inside)
                    first, second = first * other, second * more
                if out:
                    store16(out + row * out_stride + inside, first)
                    store16(out + row * out_stride + inside + 64, second)
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
