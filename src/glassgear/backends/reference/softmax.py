"""exp(x - max) / sum of the same."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["softmax"]


def softmax(x: NDArray[np.float32]) -> NDArray[np.float32]:
    """Over the last axis. The maximum comes off first, so that exp stays finite."""
    e: NDArray[np.float32] = x - np.max(x, axis=-1, keepdims=True)
    np.exp(e, out=e)  # in place: of all tokens' scores it is large
    e /= np.sum(e, axis=-1, keepdims=True)
    return e
