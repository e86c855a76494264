"""o = x / sqrt(mean(x^2) + eps) * w, row by row (Zhang & Sennrich 2019, eq. 4)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from glassgear.backends.reference.scope import Scope
from glassgear.model.gears import RMSNorm

__all__ = ["rms_norm", "run"]


def rms_norm(x: NDArray[np.float32], weight: NDArray[np.float32], eps: float) -> NDArray[np.float32]:
    """[..., dim] -> [..., dim]; eps stands inside the root."""
    mean_square: NDArray[np.float32] = np.mean(np.square(x), axis=-1, keepdims=True)
    root: NDArray[np.float32] = np.sqrt(mean_square + np.float32(eps))
    return weight * (x / root)


def run(gear: RMSNorm, x: NDArray[np.float32], at: Scope) -> NDArray[np.float32]:
    """[T, dim] -> [T, dim]."""
    return rms_norm(x, at.weight(), gear.eps)
