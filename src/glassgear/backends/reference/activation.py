"""Activations: the bend between two linear layers, without which they would be one."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from glassgear.model.gears import Activation

__all__ = ["ACTIVATIONS", "gelu", "gelu_tanh", "relu", "sigmoid", "silu"]

Floats = NDArray[np.float32]


def sigmoid(x: Floats) -> Floats:
    """1 / (1 + e^-x), in the form that never overflows."""
    e: Floats = np.exp(-np.abs(x))
    above: Floats = np.where(x >= 0, np.float32(1), e)
    return above / (1 + e)


def silu(x: Floats) -> Floats:
    """X sigmoid(x) (Elfwing et al. 2017; Swish with beta 1)."""
    return x * sigmoid(x)


def gelu(x: Floats) -> Floats:
    """X Phi(x), exact (Hendrycks & Gimpel 2016)."""
    erf = np.vectorize(math.erf, otypes=[np.float64])
    return (x * 0.5 * (1 + erf(x / math.sqrt(2)))).astype(np.float32) if x.size else x


def gelu_tanh(x: Floats) -> Floats:
    """Its tanh form: 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))."""
    inner = np.float32(math.sqrt(2 / math.pi)) * (x + np.float32(0.044715) * x * x * x)
    bent: Floats = np.tanh(inner)
    return np.float32(0.5) * x * (1 + bent)


def relu(x: Floats) -> Floats:
    """max(0, x)."""
    return np.maximum(x, np.float32(0))


def _identity(x: Floats) -> Floats:
    return x


ACTIVATIONS: dict[Activation, Callable[[Floats], Floats]] = {
    "silu": silu,
    "gelu": gelu,
    "gelu_tanh": gelu_tanh,
    "relu": relu,
    "identity": _identity,
}
