"""What a family is: from a config to a tree of gears, and which tensor belongs where.

A family is one file that makes one `Family` and is listed in `families/__init__.py`. Everything
that is particular to how somebody's files spell a model is in that file; past it there are only
gears and their paths.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from glassgear.errors import FormatError
from glassgear.model.gears import Model, Shape
from glassgear.model.settings import Settings

__all__ = ["IGNORED", "Family", "Found", "Names", "Rows", "Stacked", "Transposed", "quotient", "table"]


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


Place = str | Rows | Transposed | Stacked
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
    inner = _in_block(place.target)
    assert isinstance(inner, str | Rows)
    return type(place)(inner)


def quotient(dim: int, heads: int, path: str) -> int:
    """Width of a head where none is given."""
    if dim % heads:
        raise FormatError(path, f"width {dim} doesn't divide by {heads} heads, and no head width is given")
    return dim // heads


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
