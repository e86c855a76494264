"""Running one gear of the reference by itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glassgear.backends.base import PAGE, Hook
from glassgear.backends.reference.cache import KVCache
from glassgear.backends.reference.machine import TABLE
from glassgear.backends.reference.scope import Scope, Span, Step, Weights
from glassgear.model.gears import Gear
from glassgear.weights.tensor import StoredTensor

Floats = NDArray[np.float32]


def stored(name: str, values: NDArray[Any]) -> StoredTensor:
    """An array as a checkpoint would hold it."""
    flat = np.ascontiguousarray(values, np.float32)
    return StoredTensor(name, "F32", flat.shape, flat.reshape(-1).view(np.uint8), "memory")


def place(weights: Mapping[str, NDArray[Any]], count: int, hook: Hook | None = None) -> Scope:
    """The place `gear` in a model that runs one sequence of `count` tokens; parameters by path below it."""
    held = Weights({f"gear.{name}": stored(name, value) for name, value in weights.items()})
    rows = np.arange(count)
    pages = tuple(range(-(-count // PAGE)))
    step = Step(rows, rows, np.zeros(count, np.int64), (Span(0, count, pages),), rows)
    return Scope("gear", held, step, KVCache({}), TABLE, hook)


def run_gear(
    gear: Gear, x: NDArray[Any], weights: Mapping[str, NDArray[Any]] | None = None, hook: Hook | None = None
) -> Floats:
    """What a gear without a cache makes of rows [T, ...] at positions 0, 1, ... of one sequence.

    Args:
        gear: the gear.
        x: its input.
        weights: its parameters by path below it, such as `up.weight`.
        hook: sees values.
    """
    return TABLE[type(gear)](gear, x, place(weights or {}, len(x), hook))
