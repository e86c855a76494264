"""Sublayers on a narrower stream (Sun et al. 2020, "MobileBERT", figure 1)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from glassgear.backends.reference.block import residual
from glassgear.backends.reference.scope import Scope
from glassgear.model.gears import Attention, Bottleneck

__all__ = ["run"]


def run(gear: Bottleneck, x: NDArray[np.float32], at: Scope) -> NDArray[np.float32]:
    """[T, dim] -> [T, dim]."""
    y = at.run("narrow", gear.narrow, x)
    if gear.narrow_norm is not None:
        y = at.run("narrow_norm", gear.narrow_norm, y)
    shared = at.run("shared", gear.shared, x)
    if gear.shared_norm is not None:
        shared = at.run("shared_norm", gear.shared_norm, shared)
    inputs = {"query": shared, "key": shared, "value": x}
    for step in gear.steps:
        y = residual(step, y, at, inputs if isinstance(step.gear, Attention) else None)
    return at.run("widen", gear.widen, y)
