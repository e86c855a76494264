"""How the learning rate goes: up in a line, down in half a cosine, then level."""

from __future__ import annotations

import math

__all__ = ["learning_rate"]


def learning_rate(step: int, *, peak: float, floor: float, warmup: int, decay: int) -> float:
    """The rate of a step, counted from 0.

    Step 0 already has a rate above 0, (step + 1) / (warmup + 1) of the peak, which is reached at step
    `warmup`. From step `decay` on it is `floor`.

    Args:
        step: 0, 1, ...
        peak: the largest rate.
        floor: the last one.
        warmup: steps on the way up.
        decay: steps in all; `warmup` or less: no way down, the peak stays until it, then the floor.
    """
    if step < warmup:
        return peak * (step + 1) / (warmup + 1)
    if step > decay or (step == decay and decay > warmup):
        return floor
    if decay <= warmup:
        return peak
    part = (step - warmup) / (decay - warmup)
    return floor + 0.5 * (1 + math.cos(math.pi * part)) * (peak - floor)
