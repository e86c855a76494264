"""Hidden units of feed-forward networks: which of them a text still moves, and killing some on purpose.

In: a module that is being trained. Needs PyTorch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from glassgear.backends.reference.activation import ACTIVATIONS
from glassgear.model.gears import FFN, Activation, GatedFFN, Model

if TYPE_CHECKING:
    from glassgear.backends.torch import ModelModule

__all__ = ["FLAT", "STEP", "Units", "kill", "slope", "units_of"]

Floats = NDArray[np.float32]
STEP = 2.0**-7
FLAT = 1e-3  # the slope below which a unit counts as flat
MOST = 2048  # tokens that are looked at


def slope(kind: Activation, x: Floats) -> Floats:
    """The derivative, by central differences; at the corner of ReLU their mean."""
    run, step = ACTIVATIONS[kind], np.float32(STEP)
    return (run(x + step) - run(x - step)) / (2 * step)


@dataclass(frozen=True, eq=False)
class Units:
    """The hidden units of all layers, bool [units] each.

    Attributes:
        flat: the activation's slope is below `FLAT` for every token: next to no gradient comes through.
        shut: what enters the activation is at most 0 for every token.
    """

    flat: NDArray[np.bool_]
    shut: NDArray[np.bool_]


def _networks(model: Model) -> list[tuple[str, FFN | GatedFFN]]:
    """Path of what enters each activation, and its network."""
    found = []
    for number, block in enumerate(model.blocks):
        for step in block.steps:
            if isinstance(step.gear, FFN | GatedFFN):
                last = "gate" if isinstance(step.gear, GatedFFN) else "up"
                found.append((f"blocks.{number}.{step.step}.{last}", step.gear))
    return found


def units_of(module: ModelModule, ids: NDArray[Any]) -> Units:
    """Look at every unit while a text is read, in windows of the model's context."""
    import torch

    networks = dict(_networks(module.gears))
    steepest: dict[str, Floats] = {}
    highest: dict[str, Floats] = {}

    def look(path: str, value: Floats) -> None:
        if path in networks:
            size = np.abs(slope(networks[path].activation, value)).max(0)
            steepest[path] = np.maximum(steepest.get(path, size), size)
            highest[path] = np.maximum(highest.get(path, value[0]), value.max(0))

    length = module.gears.context
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # matrices this small are slower with more
    try:
        with torch.no_grad():
            for first in range(0, min(len(ids), MOST) - length + 1, length):
                module(torch.from_numpy(ids[None, first : first + length].astype(np.int64)), hook=look)
    finally:
        torch.set_num_threads(threads)
    return Units(
        np.concatenate([steepest[path] for path in networks]) < FLAT,
        np.concatenate([highest[path] for path in networks]) <= 0,
    )


def kill(module: ModelModule, share: float, depth: float) -> NDArray[np.bool_]:
    """Push units so far below zero that no token opens them.

    Args:
        module: its networks have biases.
        share: of each network's units, from the first on.
        depth: the bias becomes minus this.

    Returns:
        Which units, as in `Units`.
    """
    import torch

    killed = []
    for path, _ in _networks(module.gears):
        bias: Any = module.get_parameter(f"{path}.bias")
        chosen = np.arange(len(bias)) < share * len(bias)
        with torch.no_grad():
            bias[torch.from_numpy(chosen)] = -depth
        killed.append(chosen)
    return np.concatenate(killed)
