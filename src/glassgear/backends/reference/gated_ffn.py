"""down(activation(gate(x)) * up(x)), each row alone (Shazeer 2020, "GLU Variants Improve Transformer")."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from glassgear.backends.reference.activation import ACTIVATIONS
from glassgear.backends.reference.scope import Scope
from glassgear.model.gears import GatedFFN

__all__ = ["run"]


def run(gear: GatedFFN, x: NDArray[np.float32], at: Scope) -> NDArray[np.float32]:
    """[T, dim] -> [T, dim]."""
    gate = at.run("gate", gear.gate, x)  # [T, hidden]
    up = at.run("up", gear.up, x)
    activated = at.see("activated", ACTIVATIONS[gear.activation](gate))
    return at.run("down", gear.down, at.see("product", activated * up))
