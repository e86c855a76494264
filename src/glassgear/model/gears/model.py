"""The whole machine: from ids to hidden states, and from these to logits."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from glassgear.errors import SettingError
from glassgear.model.gears.attention import Attention
from glassgear.model.gears.base import Activation, Gear, Shape, walk
from glassgear.model.gears.block import Block
from glassgear.model.gears.linear import Embed, LearnedPositions, Linear, Neighbours, TokenTypes
from glassgear.model.gears.norms import Norm

__all__ = ["Head", "Model", "Pooler", "Transform"]


@dataclass(frozen=True)
class Head(Gear):
    """Hidden rows to logits: x W^T (+ b), [T, dim] -> [T, vocab].

    Attributes:
        dim: inputs.
        vocab: outputs.
        tied: the embedding's own table is used as W.
        bias: whether b is there.
        cap: above 0, logits z become cap * tanh(z / cap) (Gemma 2).
        extra: inputs, at the end, that a tied table is too narrow for and that have weights
            of their own (MobileBERT).
    """

    dim: int
    vocab: int
    tied: bool
    bias: bool = False
    cap: float = 0.0
    extra: int = 0

    @property
    def tensors(self) -> dict[str, Shape]:
        """`weight` [vocab, dim] unless tied, `extra` [vocab, extra], `bias` [vocab]."""
        found: dict[str, Shape] = {} if self.tied else {"weight": (self.vocab, self.dim)}
        if self.extra:
            found["extra"] = (self.vocab, self.extra)
        return found | ({"bias": (self.vocab,)} if self.bias else {})


@dataclass(frozen=True)
class Transform(Gear):
    """norm(activation(dense(x))): what stands before an encoder's head (BERT)."""

    dense: Linear
    activation: Activation
    norm: Norm


@dataclass(frozen=True)
class Pooler(Gear):
    """tanh(dense(x of the first token)): one vector for a whole text (BERT)."""

    dense: Linear


@dataclass(frozen=True)
class Model(Gear):
    """Embedding, blocks, final norm, head. `context` is the trained length in tokens.

    What comes in is embed(ids), through `neighbours`, plus `positions`, plus `token_types`,
    through `embed_norm`. Hidden states are what the blocks and `norm` make of it; logits are
    head(transform(hidden states)). What a model doesn't have is None.
    """

    embed: Embed
    blocks: tuple[Block, ...]
    norm: Norm | None
    head: Head | None
    context: int
    family: str = ""  # for people; nothing branches on it
    neighbours: Neighbours | None = None
    positions: LearnedPositions | None = None
    token_types: TokenTypes | None = None
    embed_norm: Norm | None = None
    transform: Transform | None = None
    pooler: Pooler | None = None

    def __post_init__(self) -> None:
        if self.neighbours is not None and self.causal:
            raise SettingError("a token that must not see later ones can't take its neighbours in")

    @property
    def parts(self) -> dict[str, Gear]:
        """`embed`, ..., `blocks.0` ..., `norm`, ..., `head`, in order of use."""
        found: dict[str, Gear | None] = {
            "embed": self.embed, "neighbours": self.neighbours, "positions": self.positions,
            "token_types": self.token_types, "embed_norm": self.embed_norm,
            **{f"blocks.{i}": block for i, block in enumerate(self.blocks)},
            "norm": self.norm, "pooler": self.pooler, "transform": self.transform, "head": self.head,
        }  # fmt: skip
        return {name: part for name, part in found.items() if part is not None}

    @property
    def dim(self) -> int:
        """Width of the residual stream."""
        return self.neighbours.mix.outputs if self.neighbours else self.embed.dim

    @cached_property  # each batch step asks
    def causal(self) -> bool:
        """Whether no token sees later ones, so that a text can be continued token by token."""
        # Blocks are shared objects as a rule: each is looked at once.
        unique = {id(block): block for block in self.blocks}.values()
        attention = [g for block in unique for _, g in walk(block) if isinstance(g, Attention)]
        return all(gear.causal for gear in attention)

    @property
    def vocab(self) -> int:
        """Entries of the vocabulary."""
        return self.embed.vocab
