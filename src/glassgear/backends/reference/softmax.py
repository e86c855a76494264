"""exp(x - max) / sum of the same."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["softmax"]


def softmax(x: NDArray[np.float32], out: NDArray[np.float32] | None = None) -> NDArray[np.float32]:
    """Over the last axis, into `out` if given. The maximum comes off first, so that exp stays finite."""
    e: NDArray[np.float32] = np.subtract(x, np.max(x, axis=-1, keepdims=True), out=out)
    np.exp(e, out=e)  # in place: of all tokens' scores it is large
    e /= np.sum(e, axis=-1, keepdims=True)
    return e
