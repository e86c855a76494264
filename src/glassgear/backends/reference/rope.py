"""Rotary position embedding: each pair of channels turned by position x frequency (Su et al. 2021)."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from glassgear.model.gears import Rope
from glassgear.model.rope import attention_factor, inverse_frequencies

__all__ = ["rotate", "rotation"]


@lru_cache(maxsize=16)
def _frequencies(rope: Rope) -> NDArray[np.float32]:
    return np.array(inverse_frequencies(rope), np.float32)


def rotation(rope: Rope, positions: NDArray[np.int64]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Cos and sin for each position and pair, [T, dim/2].

    Angles in float32, as the programs that trained the models have them; half precision
    would turn position 257 into 256.
    """
    angle = positions.astype(np.float32)[:, None] * _frequencies(rope)
    factor = np.float32(attention_factor(rope))
    return np.cos(angle) * factor, np.sin(angle) * factor


def rotate(rope: Rope, x: NDArray[np.float32], positions: NDArray[np.int64]) -> NDArray[np.float32]:
    """Turn the first `rope.dim` channels of every head: [T, heads, head_dim] -> same."""
    cos, sin = (table[:, None, :] for table in rotation(rope, positions))  # [T, 1, dim/2]
    half = rope.dim // 2
    if rope.pairing == "half":
        first, second = slice(0, half), slice(half, rope.dim)
    else:
        first, second = slice(0, rope.dim, 2), slice(1, rope.dim, 2)
    a, b = x[..., first], x[..., second]
    out = x.copy()
    out[..., first] = a * cos - b * sin
    out[..., second] = a * sin + b * cos
    return out
