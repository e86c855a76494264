"""Linear layers, and the tables that ids, positions and token types are looked up in."""

from __future__ import annotations

from dataclasses import dataclass

from glassgear.model.gears.base import Gear, Shape

__all__ = ["Embed", "LearnedPositions", "Linear", "Neighbours", "TokenTypes"]


@dataclass(frozen=True)
class Linear(Gear):
    """y = x W^T (+ b): [T, inputs] -> [T, outputs]."""

    inputs: int
    outputs: int
    bias: bool = False

    @property
    def tensors(self) -> dict[str, Shape]:
        """`weight` [outputs, inputs], and `bias` [outputs] where there is one."""
        return {"weight": (self.outputs, self.inputs)} | ({"bias": (self.outputs,)} if self.bias else {})


@dataclass(frozen=True)
class Embed(Gear):
    """One row of a table for each id, times `scale`: [T] -> [T, dim]."""

    vocab: int
    dim: int
    scale: float = 1.0  # Gemma: sqrt(dim), so that a table shared with the head has the stream's size

    @property
    def tensors(self) -> dict[str, Shape]:
        """`weight` [vocab, dim]."""
        return {"weight": (self.vocab, self.dim)}


@dataclass(frozen=True)
class LearnedPositions(Gear):
    """A row of a table for each position, added to the embedding (GPT-2, BERT): [T] -> [T, dim].

    Position p takes row p + `offset`. A sequence can't be longer than the table.
    """

    count: int
    dim: int
    offset: int = 0

    @property
    def tensors(self) -> dict[str, Shape]:
        """`weight` [count, dim]."""
        return {"weight": (self.count, self.dim)}


@dataclass(frozen=True)
class TokenTypes(Gear):
    """A row for each token's type, added to the embedding (BERT's first and second text)."""

    count: int
    dim: int

    @property
    def tensors(self) -> dict[str, Shape]:
        """`weight` [count, dim]."""
        return {"weight": (self.count, self.dim)}


@dataclass(frozen=True)
class Neighbours(Gear):
    """Each token's embedding beside those of its two neighbours, through a matrix (MobileBERT).

    mix([x of t + 1, x of t, x of t - 1]): [T, dim] -> [T, outputs]; beyond either end there are zeros.
    It needs the whole sequence, so it goes with attention that isn't causal.
    """

    mix: Linear
