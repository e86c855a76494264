"""One layer: x + attention(norm(x)), then x + ffn(norm(x)). The sum is the residual stream."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from glassgear.backends.reference.scope import Scope
from glassgear.model.gears import Block

__all__ = ["run"]


def run(gear: Block, x: NDArray[np.float32], at: Scope) -> NDArray[np.float32]:
    """[T, dim] -> [T, dim]."""
    for step in gear.residuals:
        label = step.gear.label
        normed = at.run(f"{label}_norm", step.norm, x)
        x = at.see(f"{label}_residual", x + at.run(label, step.gear, normed))
    return x
