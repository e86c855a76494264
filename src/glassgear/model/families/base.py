"""What a family is: from a config to a tree of gears, and which tensor belongs where.

A family is one file that makes one `Family` and is listed in `families/__init__.py`. Everything
that is particular to how somebody's files spell a model is in that file; past it there are only
gears and their paths.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from glassgear.errors import FormatError, SettingError, UnsupportedError
from glassgear.model.gears import Activation, Model, Shape
from glassgear.model.settings import Settings

__all__ = [
    "IGNORED",
    "Family",
    "Found",
    "HeadRows",
    "Names",
    "Rows",
    "Stacked",
    "Transposed",
    "activation",
    "quotient",
    "sizes_of",
    "table",
]


@dataclass(frozen=True)
class Rows:
    """The stored matrix (or vector) is several, one below the other, in this order."""

    targets: tuple[str, ...]

    def __init__(self, *targets: str) -> None:
        object.__setattr__(self, "targets", targets)


@dataclass(frozen=True)
class Transposed:
    """The stored matrix is [inputs, outputs]; vectors of the same stem are as they should be."""

    target: str | Rows


@dataclass(frozen=True)
class Stacked:
    """The stored tensor has one more axis in front, over the last `#` of each target."""

    target: str | Rows


@dataclass(frozen=True)
class HeadRows:
    """The stored tensor is [heads, rows, columns]: some rows of each head of the target.

    Several tensors lead to one target, which has the heads one below the other, and in each head
    the rows of the first tensor, then those of the next.

    Attributes:
        target: where they belong.
        order: which of them this is, from 0.
        count: how many there are.
        transposed: whether it is [heads, columns, rows].
    """

    target: str
    order: int
    count: int = 2
    transposed: bool = False


Place = str | Rows | Transposed | Stacked | HeadRows
Names = Mapping[str, Place]
"""Foreign stem -> gear stem or rule, such as `layers.#.mlp.up_proj.` -> `blocks.#.ffn.up.`.

A stem ends in a dot; what follows it, `weight` or `bias`, is kept. A key without a dot at its end is
a whole name, and so is what it leads to. `#` stands for a number; numbers keep their order.
"""


@dataclass(frozen=True)
class Found:
    """What a family may ask about the tensors of a file.

    Attributes:
        shapes: name as the family's table spells it (a prefix is gone) -> shape.
        rope_factors: GGUF's `rope_freqs.weight`, if there is one.
    """

    shapes: Mapping[str, Shape]
    rope_factors: tuple[float, ...] | None = None

    def has(self, name: str) -> bool:
        """Whether a tensor is there."""
        return name in self.shapes

    def rows(self, name: str, path: str) -> int:
        """Rows of a matrix that every file of the family has."""
        shape = self.shapes.get(name)
        if shape is None or len(shape) != 2:
            raise FormatError(path, f"has no `{name}`")
        return shape[0]


Reader = Callable[[Settings, Found], Model]


@dataclass(frozen=True)
class Family:
    """How one kind of model is spelled.

    Attributes:
        name: for people and `Model.family`.
        hf_types: values of `model_type` in a config.json that this family reads.
        from_hf: its reader; every key must be accounted for.
        hf_names: where the tensors of a folder belong.
        hf_prefixes: what may stand before a name, depending on which class saved it.
        gguf_types: values of `general.architecture`.
        from_gguf: its reader; gets the keys under `<architecture>.`.
        gguf_names: where the tensors of a GGUF belong.
        gguf_interleaved: whether llama.cpp's converter interleaved the rows of q and k, head by
            head; done for gears whose rotation pairs halves and turns the whole head.
        skip: of a tensor that belongs nowhere: None if that is an error, "" if nobody needs to know,
            else a notice.
    """

    name: str
    hf_types: tuple[str, ...] = ()
    from_hf: Reader | None = None
    hf_names: Names = field(default_factory=dict)
    hf_prefixes: tuple[str, ...] = ("model.",)
    gguf_types: tuple[str, ...] = ()
    from_gguf: Reader | None = None
    gguf_names: Names = field(default_factory=dict)
    gguf_interleaved: bool = False
    skip: Callable[[str, Model], str | None] = lambda name, model: None


def table(layer: str, parts: Mapping[str, Place], rest: Mapping[str, Place]) -> dict[str, Place]:
    """The names of a model whose layers are alike.

    Args:
        layer: what stands before a part, such as `layers.#.`.
        parts: foreign part -> ours, both without what stands before and without the last dot.
        rest: names outside of layers, complete.
    """
    return {**rest, **{f"{layer}{theirs}.": _in_block(ours) for theirs, ours in parts.items()}}


def _in_block(place: Place) -> Place:
    if isinstance(place, str):
        return f"blocks.#.{place}."
    if isinstance(place, Rows):
        return Rows(*(f"blocks.#.{target}." for target in place.targets))
    if isinstance(place, HeadRows):
        return replace(place, target=f"blocks.#.{place.target}.")
    inner = _in_block(place.target)
    assert isinstance(inner, str | Rows)
    return type(place)(inner)


def quotient(dim: int, heads: int, path: str) -> int:
    """Width of a head where none is given."""
    if dim % heads:
        raise FormatError(path, f"width {dim} doesn't divide by {heads} heads, and no head width is given")
    return dim // heads


@contextmanager
def sizes_of(path: str) -> Iterator[None]:
    """Inside, sizes that gears refuse are the fault of the file.

    Raises:
        FormatError: such sizes.
    """
    try:
        yield
    except SettingError as error:
        raise FormatError(path, f"describes a model that can't be: {error}") from None


# How config.json spells activations. `gelu` is the exact one; all the others of that name are its tanh
# form, which transformers writes in several ways that differ in rounding alone.
ACTIVATIONS: Mapping[str, Activation] = {
    "gelu": "gelu", "gelu_python": "gelu",
    "gelu_new": "gelu_tanh", "gelu_pytorch_tanh": "gelu_tanh", "gelu_python_tanh": "gelu_tanh",
    "gelu_fast": "gelu_tanh", "gelu_accurate": "gelu_tanh",
    "silu": "silu", "swish": "silu", "relu": "relu", "linear": "identity",
}  # fmt: skip


def activation(s: Settings, key: str, default: str, *allowed: Activation) -> Activation:
    """The activation that a config names.

    Args:
        s: the config.
        key: its key, such as `hidden_act`.
        default: the name that holds where the config doesn't say.
        allowed: those that the family takes; empty: all that there are.

    Raises:
        UnsupportedError: another name.
    """
    name = s.take(key, str, default)
    found = ACTIVATIONS.get(name)
    if found is None or (allowed and found not in allowed):
        fitting = (theirs for theirs, ours in ACTIVATIONS.items() if not allowed or ours in allowed)
        raise UnsupportedError(
            s.path, f"`{s.prefix}{key}` is {name!r:.80}; only {', '.join(fitting)} can be run"
        )
    return found


# Keys of config.json that don't enter the forward pass of any family.
IGNORED = (
    "_name_or_path", "architectures", "attention_dropout", "auto_map", "bos_token_id", "dtype",
    "eos_token_id", "id2label", "initializer_range",
    "is_encoder_decoder", "is_llama_config", "label2id", "model_type",
    "output_attentions", "output_hidden_states", "pad_token_id", "problem_type", "return_dict",
    "torch_dtype", "transformers.js_config", "transformers_version", "unsloth_fixed", "unsloth_version",
    "use_cache", "chunk_size_feed_forward", "hidden_dropout", "unk_token_id", "pretraining_tp",
    "_flash_attn_2_enabled", "_attn_implementation", "_attn_implementation_autoset", "quantization_map",
    "max_length", "min_length", "do_sample", "temperature", "top_k", "top_p", "repetition_penalty",
)  # fmt: skip
