"""Norms, each row alone (BatchNorm and Affine each channel alone)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from glassgear.backends.reference.scope import Scope
from glassgear.model.gears import Affine, BatchNorm, LayerNorm, RMSNorm, ScaleNorm

__all__ = ["affine", "batch_norm", "layer_norm", "rms_norm", "scale_norm"]

Floats = NDArray[np.float32]


def rms_norm(gear: RMSNorm, x: Floats, at: Scope) -> Floats:
    """X / sqrt(mean(x^2) + eps) * (offset + weight): [..., dim] -> the same (Zhang & Sennrich 2019)."""
    mean_square: Floats = np.mean(x * x, axis=-1, keepdims=True, dtype=np.float32)
    root: Floats = np.sqrt(mean_square + np.float32(gear.eps))
    weight = at.weight()
    if gear.offset:
        weight = np.float32(gear.offset) + weight
    return x / root * weight


def layer_norm(gear: LayerNorm, x: Floats, at: Scope) -> Floats:
    """(x - mean) / sqrt(variance + eps) * weight + bias: [..., dim] -> the same (Ba et al. 2016)."""
    mean: Floats = np.mean(x, axis=-1, keepdims=True, dtype=np.float32)
    centred = x - mean
    variance: Floats = np.mean(centred * centred, axis=-1, keepdims=True, dtype=np.float32)
    spread: Floats = np.sqrt(variance + np.float32(gear.eps))
    y = centred / spread * at.weight()
    return y + at.weight("bias") if gear.bias else y


def scale_norm(gear: ScaleNorm, x: Floats, at: Scope) -> Floats:
    """G x / max(|x|, eps): [..., dim] -> the same (Nguyen & Salazar 2019)."""
    length: Floats = np.sqrt(np.sum(x * x, axis=-1, keepdims=True, dtype=np.float32))
    divisor: Floats = np.maximum(length, np.float32(gear.eps))
    return at.weight() * x / divisor


def batch_norm(gear: BatchNorm, x: Floats, at: Scope) -> Floats:
    """(x - mean) / sqrt(variance + eps) * weight + bias, with the statistics that are stored."""
    spread: Floats = np.sqrt(at.weight("variance") + np.float32(gear.eps))
    return (x - at.weight("mean")) / spread * at.weight() + at.weight("bias")


def affine(gear: Affine, x: Floats, at: Scope) -> Floats:
    """X * weight + bias."""
    return x * at.weight() + at.weight("bias")
