"""The CPU backend's kernels in NumPy: the same operations in the same order, so the same bits.

Each function names the kernel that it follows (`backends/cpu/kernels/`). The kernels multiply and add
with one rounding; `fma` does so exactly, through float64 rounded to odd (Boldo & Melquiond 2008). On a
processor without such an instruction kernels round twice, and last bits may differ.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glassgear.backends.cpu.fields import NormKind

__all__ = [
    "ACTIVATIONS",
    "LANES",
    "MAGIC",
    "accumulate",
    "encode",
    "exp",
    "fma",
    "fma_one",
    "moments",
    "normed",
    "products",
    "sigmoid",
    "softmax",
    "sum16",
    "tanh",
    "vectors",
]

Floats = NDArray[np.float32]
LANES = 16
ONE, TWO, ZERO = np.float32(1), np.float32(2), np.float32(0)
MAGIC = np.float32(12582912.0)  # 1.5 * 2^23: adding it leaves the nearest integer in the low bits


def fma(x: Any, y: Any, z: Any) -> Floats:
    """X * y + z of float32 numbers, rounded once."""
    product = np.asarray(x, np.float64) * np.asarray(y, np.float64)  # 48 bits: exact
    z = np.asarray(z, np.float64)
    total = np.asarray(product + z)
    back = total - product
    error = (product - (total - back)) + (z - back)  # Knuth's two-sum: what the addition lost
    bits = total.view(np.int64)
    lost = (error != 0) & np.isfinite(total) & (bits & 1 == 0)
    # To odd: the neighbour towards what was lost. A second rounding then can't go wrong.
    outwards = np.where((error > 0) == (total > 0), 1, -1)
    rounded: Floats = (bits + np.where(lost, outwards, 0)).view(np.float64).astype(np.float32)
    return rounded


def fma_one(x: Any, y: Any, z: Any) -> np.float32:
    """The same of one number."""
    return np.float32(fma(x, y, z)[()])


def accumulate(weights: Floats, x: Floats) -> Floats:
    """What a float tile holds after each input: `float_tile`, `score_tile`."""
    out, total = np.empty(len(x), np.float32), ZERO
    for i in range(len(x)):
        total = out[i] = fma_one(weights[i], x[i], total)
    return out


def products(matrix: Floats, x: Floats) -> Floats:
    """Each row of a float matrix times x: [rows, columns], [columns] -> [rows]: `float_tile`."""
    total = np.zeros(len(matrix), np.float32)
    for column, one in zip(matrix.T, x, strict=True):
        total = fma(column, one, total)
    return total


def sum16(v: Floats) -> Any:
    """Sixteen lanes, halves added to halves; of several rows [rows, 16] the sum of each."""
    while v.shape[-1] > 1:
        half = v.shape[-1] // 2
        v = v[..., :half] + v[..., half:]
    return v[..., 0]


def exp(x: Any) -> Floats:
    """`emit_exp`: a power of two times a polynomial in the rest."""
    x = np.asarray(x, np.float32)
    magic = MAGIC + np.float32(127)
    inside = np.where(x > 88, np.float32(88), x)
    with np.errstate(all="ignore"):
        shifted = fma(inside, np.float32(1.44269504088896341), magic)
        whole = shifted - magic
        rest = fma(whole, np.float32(-0.693359375), inside)
        rest = fma(whole, np.float32(2.12194440e-4), rest)
        y = np.full(x.shape, 0.008312468884930611, np.float32)
        for c in (0.04189056213642582, 0.16667116464871137, 0.49999228716613486):
            y = fma(y, rest, np.float32(c))
        y = fma(y * rest, rest, rest + ONE)
        power = (shifted.view(np.uint32) << np.uint32(23)).view(np.float32)
        out: Floats = np.where(x < np.float32(-87.33654), ZERO, y * power)
    return out


def sigmoid(x: Any) -> Floats:
    """`experts.score`: 1 / (1 + e^-x)."""
    out: Floats = ONE / (ONE + exp(ZERO - np.asarray(x, np.float32)))
    return out


def tanh(x: Any) -> Floats:
    """`rows.tanh`."""
    x = np.asarray(x, np.float32)
    size = np.maximum(x, ZERO - x)
    e = exp(size * np.float32(-2))
    far = (ONE - e) / (ONE + e)
    far = np.where(x < 0, ZERO - far, far)
    square = x * x
    near = fma(square, np.float32(62 / 2835), np.float32(-17 / 315))
    near = fma(square, near, np.float32(2 / 15))
    near = fma(square, near, np.float32(-1 / 3))
    near = fma(square * near, x, x)
    out: Floats = np.where(size < np.float32(0.3), near, far)
    return out


def _silu(x: Floats) -> Floats:
    return np.asarray(x / (ONE + exp(ZERO - x)), np.float32)


def _gelu_tanh(x: Floats) -> Floats:
    u = fma(np.float32(0.044715), x * x * x, x) * np.float32(math.sqrt(2 / math.pi) * -2)
    return np.asarray(x / (ONE + exp(u)), np.float32)


def _gelu(x: Floats) -> Floats:
    half = np.float32(math.sqrt(0.5))
    size = np.maximum(x, ZERO - x) * half
    t = ONE / fma(size, np.float32(0.3275911), ONE)
    y = fma(np.float32(1.061405429), t, np.float32(-1.453152027))
    for c in (1.421413741, -0.284496736):
        y = fma(y, t, np.float32(c))
    y = fma(y, t, np.float32(0.254829592)) * t * exp(ZERO - size * size)
    return np.asarray(np.maximum(x, ZERO) - size * half * y, np.float32)


ACTIVATIONS: dict[str, Callable[[Floats], Floats]] = {
    "silu": _silu,
    "gelu": _gelu,
    "gelu_tanh": _gelu_tanh,
    "relu": lambda x: np.maximum(x, ZERO),
    "identity": lambda x: x,
}


def _total(x: Floats) -> np.float32:
    """`norms.total`: two sets of lanes, whole vectors in turns."""
    one, two = np.zeros((2, LANES), np.float32)
    lanes, whole = vectors(x), len(x) // LANES
    for i in range(0, whole - 1, 2):
        one, two = one + lanes[i], two + lanes[i + 1]
    if whole % 2:
        one = one + lanes[whole - 1]
    if len(x) % LANES:
        two = two + lanes[whole]
    return np.float32(sum16(one + two))


def _squares(x: Floats, middle: np.float32) -> np.float32:
    """`norms.squares`: the sum of (x - middle)^2."""
    one, two = np.zeros((2, LANES), np.float32)
    lanes, whole = vectors(x - middle), len(x) // LANES
    for i in range(0, whole - 1, 2):
        one, two = fma(lanes[i], lanes[i], one), fma(lanes[i + 1], lanes[i + 1], two)
    if whole % 2:
        one = fma(lanes[whole - 1], lanes[whole - 1], one)
    if len(x) % LANES:
        two = fma(lanes[whole], lanes[whole], two)
    return np.float32(sum16(one + two))


def vectors(x: Floats) -> Floats:
    """In lanes, filled up with zeros: [vectors, LANES]; of several rows [rows, vectors, LANES]."""
    *rows, width = x.shape
    filled = np.zeros((*rows, -(-width // LANES) * LANES), np.float32)
    filled[..., :width] = x
    return filled.reshape(*rows, -1, LANES)


def moments(kind: NormKind, x: Floats, eps: float) -> tuple[np.float32, np.float32, np.float32]:
    """`norms.moments`: the sum of squares, what is taken from a row, what it is then multiplied by."""
    size, small, middle = np.float32(len(x)), np.float32(eps), ZERO
    if kind == NormKind.AFFINE:
        return ZERO, ZERO, ONE
    if kind == NormKind.LAYER:
        middle = np.float32(_total(x) / size)
    squares = _squares(x, middle)
    if kind == NormKind.SCALE:
        length = np.sqrt(squares)
        return squares, ZERO, np.float32(ONE / (small if length < small else length))
    return squares, middle, np.float32(ONE / np.sqrt(squares / size + small))


def normed(
    x: Floats, channel: int, middle: np.float32, scale: np.float32, weight: np.float32, bias: np.float32
) -> np.float32:
    """`norms.floats`, one channel; those beyond the last whole vector round after each operation."""
    moved = (x[channel] - middle) * scale
    if channel < len(x) // LANES * LANES:
        return fma_one(moved, weight, bias)
    return np.float32(moved * weight + bias)


def encode(x: Floats) -> tuple[NDArray[np.int64], Floats]:
    """`rows.encode`: int8 codes [n] and a unit for each 32 of them."""
    blocks = x.reshape(-1, 32)
    top = np.abs(blocks).max(axis=1)
    with np.errstate(all="ignore"):
        unit, inverse = top / np.float32(127), np.float32(127) / top
    none = top < np.float32(1e-30)
    unit, inverse = np.where(none, ZERO, unit), np.where(none, ZERO, inverse)
    codes = np.rint(blocks * inverse[:, None]).astype(np.int64)  # to the nearest, ties to even
    return codes.reshape(-1), unit.astype(np.float32)


def softmax(x: Floats) -> tuple[Floats, np.float32]:
    """`experts.score`: exponentials, and their sum over partial lanes."""
    e = exp(x - x.max())
    total = np.zeros(LANES, np.float32)
    for vector in vectors(e):
        total = total + vector
    return e, sum16(total)
