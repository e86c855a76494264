"""Norms: what keeps a vector's size in bounds between the gears."""

from __future__ import annotations

from dataclasses import dataclass

from glassgear.model.gears.base import Gear, Shape

__all__ = ["Affine", "BatchNorm", "LayerNorm", "Norm", "RMSNorm", "ScaleNorm"]


@dataclass(frozen=True)
class RMSNorm(Gear):
    """x / sqrt(mean(x^2) + eps) * (offset + weight), row by row (Zhang & Sennrich 2019).

    `offset` is 1 where a file stores the weight's distance from 1 (Gemma), else 0.
    """

    dim: int
    eps: float
    offset: float = 0.0

    @property
    def tensors(self) -> dict[str, Shape]:
        """`weight` [dim]."""
        return {"weight": (self.dim,)}


@dataclass(frozen=True)
class LayerNorm(Gear):
    """(x - mean(x)) / sqrt(variance(x) + eps) * weight (+ bias), row by row (Ba et al. 2016)."""

    dim: int
    eps: float
    bias: bool = True

    @property
    def tensors(self) -> dict[str, Shape]:
        """`weight` [dim], and `bias` [dim] where there is one."""
        extra: dict[str, Shape] = {"bias": (self.dim,)} if self.bias else {}
        return {"weight": (self.dim,)} | extra


@dataclass(frozen=True)
class ScaleNorm(Gear):
    """g * x / max(|x|, eps), one number g for all channels (Nguyen & Salazar 2019)."""

    dim: int
    eps: float

    @property
    def tensors(self) -> dict[str, Shape]:
        """`weight` [1]: g."""
        return {"weight": (1,)}


@dataclass(frozen=True)
class BatchNorm(Gear):
    """(x - mean) / sqrt(variance + eps) * weight + bias with stored statistics (Ioffe & Szegedy 2015).

    The form for inference: mean and variance belong to the checkpoint, not to the row.
    """

    dim: int
    eps: float

    @property
    def tensors(self) -> dict[str, Shape]:
        """`weight`, `bias`, `mean` and `variance`, each [dim]."""
        return {name: (self.dim,) for name in ("weight", "bias", "mean", "variance")}


@dataclass(frozen=True)
class Affine(Gear):
    """x * weight + bias, channel by channel: what MobileBERT has in the place of a norm."""

    dim: int

    @property
    def tensors(self) -> dict[str, Shape]:
        """`weight` and `bias`, each [dim]."""
        return {"weight": (self.dim,), "bias": (self.dim,)}


Norm = RMSNorm | LayerNorm | ScaleNorm | BatchNorm | Affine
