"""Hidden rows to logits: by a matrix of its own, or by the embedding's table."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from glassgear.backends.reference.scope import Scope
from glassgear.model.gears import Head

__all__ = ["run"]


def run(gear: Head, x: NDArray[np.float32], at: Scope) -> NDArray[np.float32]:
    """[T, dim] -> [T, vocab]."""
    return x @ at.weights["embed.weight" if gear.tied else f"{at.path}.weight"].T
