"""Mixture of experts: a router chooses, and only the chosen networks run (Shazeer et al. 2017).

Grouped choice and the correction of scores: DeepSeek-AI 2024, "DeepSeek-V3", section 2.1.2.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from glassgear.backends.reference.activation import sigmoid
from glassgear.backends.reference.scope import Scope
from glassgear.backends.reference.softmax import softmax
from glassgear.model.gears import Experts, Router

__all__ = ["choose", "router", "run"]

Floats = NDArray[np.float32]


def router(gear: Router, x: Floats, at: Scope) -> Floats:
    """The weight of every expert, 0 where it wasn't chosen: [T, dim] -> [T, count]."""
    logits = at.see("logits", x @ at.weight().T)
    scores = at.see("scores", softmax(logits) if gear.score == "softmax" else sigmoid(logits))
    chosen = choose(gear, scores + at.weight("correction") if gear.correction else scores)
    weights = np.take_along_axis(scores, chosen, axis=1)
    if gear.normalize:
        weights = weights / (weights.sum(axis=1, keepdims=True) + np.float32(1e-20))
    out = np.zeros_like(scores)
    np.put_along_axis(out, chosen, weights * np.float32(gear.scale), axis=1)
    return out


def choose(gear: Router, scores: Floats) -> NDArray[np.int64]:
    """Numbers of the experts with the best scores, best first: [T, count] -> [T, used]."""
    if gear.groups > 1:
        grouped = scores.reshape(len(scores), gear.groups, -1)
        best = np.sort(grouped, axis=2)[:, :, ::-1]
        worth = best[:, :, :2].sum(axis=2) if gear.group_score == "top2" else best[:, :, 0]
        kept = _best(worth, gear.groups_kept)
        open_ = np.zeros(worth.shape, np.bool_)
        np.put_along_axis(open_, kept, True, axis=1)
        # Not 0: scores with a correction can be negative, and 0 would beat them.
        scores = np.where(open_[:, :, None], grouped, np.float32(-np.inf)).reshape(scores.shape)
    return _best(scores, gear.used)


def _best(values: Floats, count: int) -> NDArray[np.int64]:
    """Where the largest values of each row are; of equal ones the first."""
    return np.argsort(-values, axis=1, kind="stable")[:, :count]


def run(gear: Experts, x: Floats, at: Scope) -> Floats:
    """[T, dim] -> [T, dim]."""
    weights = at.run("router", gear.router, x)  # [T, count]
    out = np.zeros_like(x)
    for number in np.flatnonzero((weights != 0).any(axis=0)):
        rows = np.flatnonzero(weights[:, number])
        y = at.run(f"experts.{number}", gear.expert, x[rows])
        out[rows] += weights[rows, number, None] * y
    return out if gear.shared is None else out + at.run("shared", gear.shared, x)
