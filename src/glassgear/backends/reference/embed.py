"""Ids, positions and token types to the rows that enter the first block."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from glassgear.backends.reference.scope import Scope
from glassgear.model.gears import Embed, LearnedPositions, Neighbours, TokenTypes

__all__ = ["neighbours", "positions", "run", "token_types"]

Floats = NDArray[np.float32]
Ids = NDArray[np.int64]


def run(gear: Embed, ids: Ids, at: Scope) -> Floats:
    """A row of the table for each id, times the scale: [T] -> [T, dim]."""
    rows = at.weights.rows(f"{at.path}.weight", ids)
    return rows if gear.scale == 1 else rows * np.float32(gear.scale)


def positions(gear: LearnedPositions, where: Ids, at: Scope) -> Floats:
    """A row for each position: [T] -> [T, dim]."""
    return at.weights.rows(f"{at.path}.weight", where + gear.offset)


def token_types(gear: TokenTypes, types: Ids, at: Scope) -> Floats:
    """A row for each token's type: [T] -> [T, dim]."""
    return at.weights.rows(f"{at.path}.weight", types)


def neighbours(gear: Neighbours, x: Floats, at: Scope) -> Floats:
    """mix([next, own, previous]) within each sequence: [T, dim] -> [T, outputs]."""
    later, earlier = np.zeros_like(x), np.zeros_like(x)
    for span in at.step.spans:
        later[span.start : span.stop - 1] = x[span.start + 1 : span.stop]
        earlier[span.start + 1 : span.stop] = x[span.start : span.stop - 1]
    return at.run("mix", gear.mix, np.concatenate([later, x, earlier], axis=1))
