"""down(activation(up(x))), each row alone (Vaswani et al. 2017, eq. 2, with any activation)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from glassgear.backends.reference.activation import ACTIVATIONS
from glassgear.backends.reference.scope import Scope
from glassgear.model.gears import FFN

__all__ = ["run"]


def run(gear: FFN, x: NDArray[np.float32], at: Scope) -> NDArray[np.float32]:
    """[T, dim] -> [T, dim]."""
    up = at.run("up", gear.up, x)  # [T, hidden]
    return at.run("down", gear.down, at.see("activated", ACTIVATIONS[gear.activation](up)))
