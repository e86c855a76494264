"""The gears: frozen data that says what a transformer computes, never how.

A model is a tree of them. Backends run the tree, the ledger counts it, the trace names its
values by path. Nothing here holds an array or reads a file.

Axis letters used in every shape comment of the project:

    T         tokens in a batch step, over all its sequences
    S         tokens a query can see: cached ones and new ones
    dim       width of the residual stream
    heads     query heads;  kv_heads: key and value heads, a divisor of heads
    head_dim  width of one head
    hidden    width inside the feed-forward network
    vocab     entries of the vocabulary

A weight matrix is [outputs, inputs] and is applied as x @ W.T, as the files store it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import ClassVar, Literal

from glassgear.errors import SettingError

__all__ = [
    "Activation",
    "Attention",
    "Block",
    "Embed",
    "GatedFFN",
    "Gear",
    "Head",
    "Linear",
    "Model",
    "RMSNorm",
    "Residual",
    "Rope",
    "RopeScaling",
    "Shape",
    "tensors",
    "walk",
]

Shape = tuple[int, ...]
Activation = Literal["silu", "gelu", "gelu_tanh", "relu", "identity"]


@dataclass(frozen=True)
class Gear:
    """A node of the tree. Its fields that are gears are its parts, named by the field."""

    label: ClassVar[str] = ""  # the name a part takes where its place alone doesn't give one

    @property
    def parts(self) -> dict[str, Gear]:
        """The gears inside this one, by the name that enters their path, in order of use."""
        return {f.name: value for f in fields(self) if isinstance(value := getattr(self, f.name), Gear)}

    @property
    def tensors(self) -> dict[str, Shape]:
        """The parameters this gear holds itself: name -> shape."""
        return {}


def walk(gear: Gear, path: str = "") -> Iterator[tuple[str, Gear]]:
    """Yield every gear below `gear` with its path, in the order in which a token meets them."""
    yield path, gear
    for name, part in gear.parts.items():
        yield from walk(part, f"{path}.{name}" if path else name)


def tensors(gear: Gear) -> dict[str, Shape]:
    """Every parameter tensor below `gear`: path such as `blocks.0.ffn.up.weight` -> shape."""
    return {
        f"{path}.{name}" if path else name: shape
        for path, part in walk(gear)
        for name, shape in part.tensors.items()
    }


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
    """One row of a table for each id: [T] -> [T, dim]."""

    vocab: int
    dim: int

    @property
    def tensors(self) -> dict[str, Shape]:
        """`weight` [vocab, dim]."""
        return {"weight": (self.vocab, self.dim)}


@dataclass(frozen=True)
class RMSNorm(Gear):
    """x / sqrt(mean(x^2) + eps) * weight, row by row (Zhang & Sennrich 2019)."""

    dim: int
    eps: float

    @property
    def tensors(self) -> dict[str, Shape]:
        """`weight` [dim]."""
        return {"weight": (self.dim,)}


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


@dataclass(frozen=True)
class Attention(Gear):
    """softmax(q k^T / sqrt(head_dim)) v over what each token may see, then W_o.

    Query head h reads key and value head h // (heads / kv_heads): MHA, GQA and MQA in one.
    """

    label: ClassVar[str] = "attention"

    query: Linear
    key: Linear
    value: Linear
    output: Linear
    heads: int
    kv_heads: int
    head_dim: int
    rope: Rope | None = None

    def __post_init__(self) -> None:
        if self.kv_heads < 1 or self.heads % self.kv_heads:
            raise SettingError(f"{self.heads} query heads can't share {self.kv_heads} key/value heads evenly")
        if self.rope and self.rope.dim > self.head_dim:
            raise SettingError(f"rotary width {self.rope.dim} is more than a head's {self.head_dim}")

    @property
    def scale(self) -> float:
        """What a score is multiplied by before softmax."""
        return float(self.head_dim**-0.5)

    @classmethod
    def build(
        cls,
        dim: int,
        heads: int,
        kv_heads: int,
        head_dim: int,
        *,
        rope: Rope | None = None,
        bias: bool = False,
        output_bias: bool = False,
    ) -> Attention:
        """The four projections from the sizes that configs give."""
        return cls(
            query=Linear(dim, heads * head_dim, bias),
            key=Linear(dim, kv_heads * head_dim, bias),
            value=Linear(dim, kv_heads * head_dim, bias),
            output=Linear(heads * head_dim, dim, output_bias),
            heads=heads,
            kv_heads=kv_heads,
            head_dim=head_dim,
            rope=rope,
        )


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


Norm = RMSNorm
Sublayer = Attention | GatedFFN


@dataclass(frozen=True)
class Residual(Gear):
    """x + gear(norm(x)): pre-norm with a straight path past it.

    It leaves no step of its own in a path: `blocks.0.attention_norm`, `blocks.0.attention`.
    """

    norm: Norm
    gear: Sublayer

    @property
    def parts(self) -> dict[str, Gear]:
        """`<label>_norm` and `<label>`, as `attention_norm` and `attention`."""
        return {f"{self.gear.label}_norm": self.norm, self.gear.label: self.gear}


@dataclass(frozen=True)
class Block(Gear):
    """One layer: attention relates the tokens, the feed-forward network refines each of them."""

    attention: Residual
    ffn: Residual

    @property
    def residuals(self) -> tuple[Residual, ...]:
        """The residual steps in order of use."""
        return self.attention, self.ffn

    @property
    def parts(self) -> dict[str, Gear]:
        """The parts of the residual steps, in order."""
        return {name: part for step in self.residuals for name, part in step.parts.items()}


@dataclass(frozen=True)
class Head(Gear):
    """Hidden rows to logits: [T, dim] -> [T, vocab]. Tied: the embedding's own table is used."""

    dim: int
    vocab: int
    tied: bool

    @property
    def tensors(self) -> dict[str, Shape]:
        """`weight` [vocab, dim] unless tied."""
        return {} if self.tied else {"weight": (self.vocab, self.dim)}


@dataclass(frozen=True)
class Model(Gear):
    """Embedding, blocks, final norm, head. `context` is the trained length in tokens."""

    embed: Embed
    blocks: tuple[Block, ...]
    norm: Norm
    head: Head
    context: int
    family: str = ""  # for people; nothing branches on it

    @property
    def parts(self) -> dict[str, Gear]:
        """`embed`, `blocks.0` ..., `norm`, `head`."""
        blocks = {f"blocks.{i}": block for i, block in enumerate(self.blocks)}
        return {"embed": self.embed, **blocks, "norm": self.norm, "head": self.head}
