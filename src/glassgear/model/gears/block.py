"""Blocks: sublayers, the norms around them, and the path that leads past them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import ClassVar

from glassgear.errors import SettingError
from glassgear.model.gears.attention import Attention
from glassgear.model.gears.base import Gear
from glassgear.model.gears.experts import Experts
from glassgear.model.gears.ffn import FFN, GatedFFN
from glassgear.model.gears.latent_attention import LatentAttention
from glassgear.model.gears.linear import Linear
from glassgear.model.gears.norms import Norm

__all__ = ["Block", "Bottleneck", "Residual", "Sublayer"]


@dataclass(frozen=True)
class Residual(Gear):
    """sum_norm(x + post_norm(gear(norm(x)))), each norm where there is one.

    Pre-norm has `norm` alone, post-norm (BERT) `sum_norm` alone, a sandwich `norm` and
    `post_norm`. It leaves no step of its own in a path: `blocks.0.attention_norm`,
    `blocks.0.attention`, `blocks.0.attention_post_norm`, `blocks.0.attention_sum_norm`.

    Attributes:
        norm: before the gear.
        gear: the sublayer.
        post_norm: on the gear's output, before the sum.
        sum_norm: on the sum, so that the residual stream itself is normed.
        skip: whether there is a sum at all; without it x doesn't go past the gear.
        name: in paths; empty: the gear's own.
    """

    norm: Norm | None
    gear: Sublayer
    post_norm: Norm | None = None
    sum_norm: Norm | None = None
    skip: bool = True
    name: str = ""

    @property
    def step(self) -> str:
        """The sublayer's name in paths."""
        return self.name or self.gear.label

    @property
    def parts(self) -> dict[str, Gear]:
        """The gear and its norms, in order of use."""
        step = self.step
        found = {
            f"{step}_norm": self.norm,
            step: self.gear,
            f"{step}_post_norm": self.post_norm,
            f"{step}_sum_norm": self.sum_norm,
        }
        return {name: part for name, part in found.items() if part is not None}


def _named(steps: tuple[Residual, ...]) -> None:
    twice = [name for name, n in Counter(step.step for step in steps).items() if n > 1]
    if twice:
        raise SettingError(f"two steps of a block are called `{twice[0]}`: give them names of their own")


@dataclass(frozen=True)
class Block(Gear):
    """One layer: sublayers one after the other, as a rule attention and a feed-forward network."""

    steps: tuple[Residual, ...]

    def __post_init__(self) -> None:
        _named(self.steps)

    @property
    def parts(self) -> dict[str, Gear]:
        """The parts of the steps, in order."""
        return {name: part for step in self.steps for name, part in step.parts.items()}


@dataclass(frozen=True)
class Bottleneck(Gear):
    """Sublayers on a narrower stream (MobileBERT): widen(steps(narrow_norm(narrow(x)))).

    Attention inside reads its queries and keys from shared_norm(shared(x)) and its values from x,
    the wide stream; what it adds to is the narrow one.
    """

    label: ClassVar[str] = "bottleneck"

    narrow: Linear
    narrow_norm: Norm | None
    shared: Linear
    shared_norm: Norm | None
    steps: tuple[Residual, ...]
    widen: Linear

    def __post_init__(self) -> None:
        _named(self.steps)

    @property
    def parts(self) -> dict[str, Gear]:
        """In order of use."""
        found = super().parts
        widen = found.pop("widen")
        return (
            found
            | {name: part for step in self.steps for name, part in step.parts.items()}
            | {"widen": widen}
        )


Sublayer = Attention | LatentAttention | GatedFFN | FFN | Experts | Bottleneck
