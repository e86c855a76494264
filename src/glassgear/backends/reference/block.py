"""One layer: sublayers, norms around them, and the sum that is the residual stream."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from glassgear.backends.reference.scope import Scope
from glassgear.model.gears import Block, Residual

__all__ = ["residual", "run"]

Floats = NDArray[np.float32]


def run(gear: Block, x: Floats, at: Scope) -> Floats:
    """[T, dim] -> [T, dim]."""
    for step in gear.steps:
        x = residual(step, x, at)
    return x


def residual(gear: Residual, x: Floats, at: Scope, inputs: dict[str, Floats] | None = None) -> Floats:
    """sum_norm(x + post_norm(gear(norm(x)))), each norm where there is one: [T, dim] -> [T, dim].

    Args:
        gear: the step.
        x: the residual stream.
        at: the place of the block.
        inputs: what the sublayer reads beside x, if anything (see `bottleneck.py`).
    """
    step = gear.step
    y = x if gear.norm is None else at.run(f"{step}_norm", gear.norm, x)
    y = at.run(step, gear.gear, y, **({"inputs": inputs} if inputs else {}))
    if gear.post_norm is not None:
        y = at.run(f"{step}_post_norm", gear.post_norm, y)
    if gear.skip:
        y = at.see(f"{step}_residual", x + y)
    return y if gear.sum_norm is None else at.run(f"{step}_sum_norm", gear.sum_norm, y)
