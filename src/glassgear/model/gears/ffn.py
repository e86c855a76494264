"""Feed-forward networks: each token by itself, wide in the middle."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from glassgear.model.gears.base import Activation, Gear
from glassgear.model.gears.linear import Linear

__all__ = ["FFN", "GatedFFN"]


@dataclass(frozen=True)
class FFN(Gear):
    """down(activation(up(x))): the plain form (Vaswani et al. 2017)."""

    label: ClassVar[str] = "ffn"

    up: Linear
    down: Linear
    activation: Activation = "relu"

    @classmethod
    def build(cls, dim: int, hidden: int, *, activation: Activation = "relu", bias: bool = True) -> FFN:
        """The two projections from the sizes that configs give."""
        return cls(Linear(dim, hidden, bias), Linear(hidden, dim, bias), activation)


@dataclass(frozen=True)
class GatedFFN(Gear):
    """down(activation(gate(x)) * up(x)): SwiGLU with silu, GeGLU with gelu (Shazeer 2020)."""

    label: ClassVar[str] = "ffn"

    gate: Linear
    up: Linear
    down: Linear
    activation: Activation = "silu"

    @classmethod
    def build(cls, dim: int, hidden: int, *, activation: Activation = "silu", bias: bool = False) -> GatedFFN:
        """The three projections from the sizes that configs give."""
        return cls(
            Linear(dim, hidden, bias), Linear(dim, hidden, bias), Linear(hidden, dim, bias), activation
        )
