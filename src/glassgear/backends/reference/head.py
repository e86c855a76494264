"""From hidden rows to logits, and to one vector for a whole text."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from glassgear.backends.reference.activation import ACTIVATIONS
from glassgear.backends.reference.scope import Scope
from glassgear.model.gears import Head, Pooler, Transform

__all__ = ["pooler", "run", "transform"]

Floats = NDArray[np.float32]


def run(gear: Head, x: Floats, at: Scope) -> Floats:
    """By a matrix of its own, or by the embedding's table: [T, dim] -> [T, vocab]."""
    table = at.weights["embed.weight" if gear.tied else f"{at.path}.weight"]
    logits = x[:, : gear.dim - gear.extra] @ table.T
    if gear.extra:
        logits = logits + x[:, gear.dim - gear.extra :] @ at.weight("extra").T
    if gear.bias:
        logits = logits + at.weight("bias")
    return np.float32(gear.cap) * np.tanh(logits / np.float32(gear.cap)) if gear.cap else logits


def transform(gear: Transform, x: Floats, at: Scope) -> Floats:
    """norm(activation(dense(x))): [T, dim] -> [T, dim]."""
    bent = at.see("activated", ACTIVATIONS[gear.activation](at.run("dense", gear.dense, x)))
    return at.run("norm", gear.norm, bent)


def pooler(gear: Pooler, x: Floats, at: Scope) -> Floats:
    """tanh(dense(x)) of the first tokens: [texts, dim] -> [texts, dim]."""
    return np.tanh(at.run("dense", gear.dense, x))
