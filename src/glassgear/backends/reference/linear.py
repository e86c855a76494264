"""y = x W^T + b."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from glassgear.backends.reference.scope import Scope
from glassgear.model.gears import Linear

__all__ = ["run"]


def run(gear: Linear, x: NDArray[np.float32], at: Scope) -> NDArray[np.float32]:
    """[T, inputs] -> [T, outputs]."""
    y = x @ at.weight().T
    return y + at.weight("bias") if gear.bias else y
