"""Rotary positions, and new keys and values into the pages of the cache."""

from __future__ import annotations

from collections.abc import Callable

from glassgear.backends.base import PAGE
from glassgear.backends.cpu.fields import Frame, Step
from glassgear.backends.cpu.kernels.matmul import share
from glassgear.backends.cpu.kernels.vectors import at, get_f32, load16, put_f32, put_half, store16

__all__ = ["rotate", "store_keys", "store_values"]


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
    """Values of the new tokens into the cache, token by token. Fields as in `store_keys`."""
    width = 2 if half else 4

    def kernel(step: int, frame: int, thread: int, threads: int) -> int:
        head_dim = at(step, Step.A)
        padded = (head_dim + 15) // 16 * 16
        low, high = share(step, thread, threads)
        for row in range(at(frame, Frame.ROWS)):
            slot = at(at(frame, Frame.POSITIONS), row) % PAGE
            page = at(at(frame, Frame.PAGE_OF_ROW), row) + at(step, Step.B) + slot * padded * width
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
