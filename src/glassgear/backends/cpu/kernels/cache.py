"""Rotary positions, and new keys and values into the pages of the cache."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numba import njit

from glassgear.backends.base import PAGE
from glassgear.backends.cpu.fields import Frame, Step
from glassgear.backends.cpu.kernels.attention_codes import INFINITE, NAN, SCALES, TINY, TOP, ZERO
from glassgear.backends.cpu.kernels.matmul import share
from glassgear.backends.cpu.kernels.vectors import (
    absolute_bits,
    at,
    fma,
    get_f32,
    inside,
    largest_bits,
    largest_magnitude,
    load16,
    nearest,
    put_f32,
    put_half,
    scatter16,
    scatter_pairs,
    splat,
    store16,
    sum16,
)

__all__ = ["rotate", "store_key_codes", "store_keys", "store_value_codes", "store_values"]


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
    """Values of the new tokens into the cache, token by token. Fields as in `store_keys`, and VALUE_ROW."""

    def kernel(step: int, frame: int, thread: int, threads: int) -> int:
        head_dim = at(step, Step.A)
        low, high = share(step, thread, threads)
        for row in range(at(frame, Frame.ROWS)):
            slot = at(at(frame, Frame.POSITIONS), row) % PAGE
            page = at(at(frame, Frame.PAGE_OF_ROW), row) + at(step, Step.B) + slot * at(step, Step.VALUE_ROW)
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
def scales_of(size):  # type: ignore[no-untyped-def]
    """What a code of a row is worth, and by what its values are multiplied to give codes.

    `size` becomes TOP. A row that isn't finite is worth NaN.
    """
    if size < TINY:
        return ZERO, ZERO
    return (size / TOP, TOP / size) if size < INFINITE else (NAN, ZERO)


@njit(inline="always")
def place_of(step, frame, row):  # type: ignore[no-untyped-def]
    """Address of a layer's keys or values in the page of a row, and which of the page's tokens it is."""
    page = at(at(frame, Frame.PAGE_OF_ROW), row) + at(step, Step.B)
    return page, at(at(frame, Frame.POSITIONS), row) % PAGE


def store_key_codes(step: int, frame: int, thread: int, threads: int) -> int:
    """Keys of the new tokens as codes; see `kernels/attention_codes.py`. Fields as in `store_keys`."""
    key_dim = at(step, Step.A)
    low, high = share(step, thread, threads)
    for row in range(at(frame, Frame.ROWS)):
        page, slot = place_of(step, frame, row)
        for head in range(low, high):
            x = at(step, Step.INPUT) + row * at(step, Step.INPUT_STRIDE) + head * key_dim * 4
            y = page + head * at(step, Step.C)
            squares = splat(ZERO)
            for c in range(0, key_dim, 16):
                v = inside(load16(x + 4 * c), key_dim - c)
                squares = fma(v, v, squares)
            unit, inverse = scales_of(np.sqrt(sum16(squares)))
            put_f32(y + 4 * slot, unit)
            for c in range(0, key_dim, 16):
                v = nearest(inside(load16(x + 4 * c), key_dim - c) * splat(inverse))
                scatter_pairs(y + SCALES + c * (2 * PAGE) + 4 * slot, 4 * PAGE, v)
    return 0


def store_value_codes(step: int, frame: int, thread: int, threads: int) -> int:
    """Values of the new tokens as codes. Fields as in `store_keys`."""
    value_dim = at(step, Step.A)
    channels = (value_dim + 15) // 16 * 16
    low, high = share(step, thread, threads)
    for row in range(at(frame, Frame.ROWS)):
        page, slot = place_of(step, frame, row)
        for head in range(low, high):
            x = at(step, Step.INPUT) + row * at(step, Step.INPUT_STRIDE) + head * value_dim * 4
            y = page + head * at(step, Step.C)
            top = absolute_bits(splat(ZERO))
            for c in range(0, value_dim, 16):
                top = largest_bits(top, absolute_bits(inside(load16(x + 4 * c), value_dim - c)))
            unit, inverse = scales_of(largest_magnitude(top))
            put_f32(y + 4 * slot, unit)
            y += SCALES + slot // 2 * channels * 4 + slot % 2 * 2
            for c in range(0, value_dim, 16):
                scatter16(y + 4 * c, 4, nearest(inside(load16(x + 4 * c), value_dim - c) * splat(inverse)))
    return 0
