"""A row of the table for each id."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from glassgear.backends.reference.scope import Scope
from glassgear.model.gears import Embed

__all__ = ["run"]


def run(gear: Embed, ids: NDArray[np.int64], at: Scope) -> NDArray[np.float32]:
    """[T] -> [T, dim]."""
    return at.weights.rows(f"{at.path}.weight", ids)
