"""Rotary positions, and how they are stretched."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from glassgear.errors import SettingError
from glassgear.model.gears.base import Gear

__all__ = ["Rope", "RopeScaling"]


@dataclass(frozen=True)
class RopeScaling:
    """How rotary frequencies are stretched past the trained length.

    kind `linear`: every frequency divided by `factor`.
    kind `llama3`: long waves divided by `factor`, short ones kept, a ramp between (Llama 3.1).
    kind `yarn`: the ramp over rotations of Peng et al. 2023, and `attention_factor` on cos and sin.
    kind `factors`: each frequency divided by its own entry of `factors` (a file's `rope_freqs`).
    """

    kind: Literal["linear", "llama3", "yarn", "factors"]
    factor: float = 1.0
    original_context: int = 0
    low_freq_factor: float = 1.0  # llama3
    high_freq_factor: float = 4.0  # llama3
    beta_fast: float = 32.0  # yarn
    beta_slow: float = 1.0  # yarn
    attention_factor: float = 1.0  # multiplies cos and sin
    truncate: bool = True  # yarn: round the borders of the ramp to whole dimensions
    factors: tuple[float, ...] = ()


@dataclass(frozen=True)
class Rope(Gear):
    """Rotary position embedding (Su et al. 2021) of the first `dim` channels of each head.

    Pair i turns by position * theta^(-2i/dim). `half` pairs channel i with i + dim/2 (Hugging
    Face files); `interleaved` pairs 2i with 2i + 1 (the paper, llama2.c).
    """

    dim: int
    theta: float
    pairing: Literal["half", "interleaved"] = "half"
    scaling: RopeScaling | None = None

    def __post_init__(self) -> None:
        if self.dim % 2 or self.dim <= 0:
            raise SettingError(f"rotary width must be even and positive, found {self.dim}")
