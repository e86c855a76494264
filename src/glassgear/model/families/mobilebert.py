"""MobileBERT: BERT made thin. Each block works on a stream of a quarter of the width.

Bottlenecks around attention and four feed-forward networks, ReLU, an elementwise affine in the place
of norms, a narrow table of embeddings of which each token takes in its neighbours' rows too. Source: Sun
et al. 2020; google-research/google-research `mobilebert/modeling.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from glassgear.errors import FormatError, UnsupportedError
from glassgear.model.families.base import (
    IGNORED,
    Family,
    Found,
    Transposed,
    activation,
    quotient,
    table,
)
from glassgear.model.families.bert import ENCODER_IGNORED, skip
from glassgear.model.gears import (
    FFN,
    Activation,
    Affine,
    Attention,
    Block,
    Bottleneck,
    Embed,
    Head,
    LayerNorm,
    LearnedPositions,
    Linear,
    Model,
    Neighbours,
    Norm,
    Pooler,
    Residual,
    TokenTypes,
    Transform,
)
from glassgear.model.settings import Settings

__all__ = ["FAMILY", "MobileBertConfig", "mobilebert"]


@dataclass(frozen=True)
class MobileBertConfig:
    """The sizes that make a MobileBERT; the defaults are those of the published one.

    Attributes:
        dim: width of the residual stream between blocks.
        narrow: width inside a block.
        embedding: width of the table of embeddings.
        hidden: width inside a feed-forward network.
        layers: blocks.
        heads: attention heads.
        networks: feed-forward networks of a block.
        vocab: entries of the vocabulary.
        context: rows of the table of positions.
        types: token types.
        norm: `affine`, or `layer_norm` as in the teacher it was distilled from.
        eps: of layer norms.
        activation: of the feed-forward networks and before the head.
        pooler: whether it is there; the published one takes the first token's state as it is.
        head: whether the masked-word head is there.
    """

    dim: int = 512
    narrow: int = 128
    embedding: int = 128
    hidden: int = 512
    layers: int = 24
    heads: int = 4
    networks: int = 4
    vocab: int = 30522
    context: int = 512
    types: int = 2
    norm: Literal["affine", "layer_norm"] = "affine"
    eps: float = 1e-12
    activation: Activation = "relu"
    pooler: bool = False
    head: bool = False


PLAIN_EPS = 1e-5  # where transformers' code leaves the epsilon of a layer norm to PyTorch


def mobilebert(c: MobileBertConfig) -> Model:
    """The tree of gears."""

    def norm(dim: int, eps: float = c.eps) -> Norm:
        return Affine(dim) if c.norm == "affine" else LayerNorm(dim, eps)

    square = Linear(c.dim, c.dim, bias=True)
    widened = Residual(None, _bottleneck(c, norm(c.narrow), norm(c.narrow, PLAIN_EPS)), sum_norm=norm(c.dim))
    return Model(
        Embed(c.vocab, c.embedding),
        (Block((widened,)),) * c.layers,
        None,
        Head(c.dim, c.vocab, tied=True, bias=True, extra=c.dim - c.embedding) if c.head else None,
        context=c.context,
        family="mobilebert",
        neighbours=Neighbours(Linear(3 * c.embedding, c.dim, bias=True)),
        positions=LearnedPositions(c.context, c.dim),
        token_types=TokenTypes(c.types, c.dim) if c.types else None,
        embed_norm=norm(c.dim, PLAIN_EPS),
        transform=Transform(square, c.activation, LayerNorm(c.dim, c.eps)) if c.head else None,
        pooler=Pooler(square) if c.pooler else None,
    )


def _bottleneck(c: MobileBertConfig, norm: Norm, last_norm: Norm) -> Bottleneck:
    """Attention and the feed-forward networks, `ffn_0`, `ffn_1`, ... and at last `ffn`."""
    inside = Linear(c.narrow, c.narrow, bias=True)
    attention = Attention(
        query=inside,
        key=inside,
        value=Linear(c.dim, c.narrow, bias=True),  # it reads the wide stream
        output=inside,
        heads=c.heads,
        kv_heads=c.heads,
        head_dim=c.narrow // c.heads,
        causal=False,
    )
    ffn = FFN.build(c.narrow, c.hidden, activation=c.activation)
    early = (Residual(None, ffn, sum_norm=norm, name=f"ffn_{i}") for i in range(c.networks - 1))
    narrowed = Linear(c.dim, c.narrow, bias=True)
    return Bottleneck(
        narrow=narrowed,
        narrow_norm=norm,
        shared=narrowed,
        shared_norm=norm,
        steps=(
            Residual(None, attention, sum_norm=norm),
            *early,
            Residual(None, ffn, sum_norm=last_norm),
        ),
        widen=Linear(c.narrow, c.dim, bias=True),
    )


def from_hf(s: Settings, found: Found) -> Model:
    """The model of a Hugging Face `config.json`, and of which parts there are tensors for."""
    s.ignore(IGNORED)
    s.ignore(ENCODER_IGNORED)
    s.only("trigram_input", True)
    s.only("use_bottleneck", True)
    s.only("use_bottleneck_attention", False)
    s.only("key_query_shared_bottleneck", True)
    s.only("tie_word_embeddings", True)
    narrow, heads = s.size("intra_bottleneck_size", 128), s.size("num_attention_heads", 4)
    quotient(narrow, heads, s.path)
    s.only("true_hidden_size", narrow)
    made = MobileBertConfig(
        dim=s.size("hidden_size", 512),
        narrow=narrow,
        embedding=s.size("embedding_size", 128),
        hidden=s.size("intermediate_size", 512),
        layers=s.size("num_hidden_layers", 24, most=10_000),
        heads=heads,
        networks=s.size("num_feedforward_networks", 4, most=1000),
        vocab=s.size("vocab_size", 30522),
        context=s.size("max_position_embeddings", 512),
        types=s.size("type_vocab_size", 2, least=0),
        norm=_norm(s),
        eps=s.epsilon("layer_norm_eps", 1e-12),
        activation=activation(s, "hidden_act", "relu"),
        pooler=found.has("pooler.dense.weight"),
        head=found.has("cls.predictions.transform.dense.weight"),
    )
    s.finish()
    if made.embedding >= made.dim:
        raise FormatError(
            s.path, f"`embedding_size` is {made.embedding}, not below the width of {made.dim} between blocks"
        )
    return mobilebert(made)


def _norm(s: Settings) -> Literal["affine", "layer_norm"]:
    name = s.take("normalization_type", str, "no_norm")
    if name == "no_norm":
        return "affine"
    if name == "layer_norm":
        return "layer_norm"
    raise UnsupportedError(
        s.path, f"`normalization_type` is {name!r:.80}; only no_norm and layer_norm can be run"
    )


INSIDE = "bottleneck."  # all but the norm of the sum is inside
HF_NAMES = table(
    "encoder.layer.#.",
    {
        "bottleneck.input.dense": f"{INSIDE}narrow", "bottleneck.input.LayerNorm": f"{INSIDE}narrow_norm",
        "bottleneck.attention.dense": f"{INSIDE}shared",
        "bottleneck.attention.LayerNorm": f"{INSIDE}shared_norm",
        "attention.self.query": f"{INSIDE}attention.query", "attention.self.key": f"{INSIDE}attention.key",
        "attention.self.value": f"{INSIDE}attention.value",
        "attention.output.dense": f"{INSIDE}attention.output",
        "attention.output.LayerNorm": f"{INSIDE}attention_sum_norm",
        "ffn.#.intermediate.dense": f"{INSIDE}ffn_#.up", "ffn.#.output.dense": f"{INSIDE}ffn_#.down",
        "ffn.#.output.LayerNorm": f"{INSIDE}ffn_#_sum_norm",
        "intermediate.dense": f"{INSIDE}ffn.up", "output.dense": f"{INSIDE}ffn.down",
        "output.LayerNorm": f"{INSIDE}ffn_sum_norm", "output.bottleneck.dense": f"{INSIDE}widen",
        "output.bottleneck.LayerNorm": "bottleneck_sum_norm",
    },
    {
        "embeddings.word_embeddings.": "embed.", "embeddings.position_embeddings.": "positions.",
        "embeddings.token_type_embeddings.": "token_types.",
        "embeddings.embedding_transformation.": "neighbours.mix.", "embeddings.LayerNorm.": "embed_norm.",
        "pooler.dense.": "pooler.dense.", "cls.predictions.transform.dense.": "transform.dense.",
        "cls.predictions.transform.LayerNorm.": "transform.norm.",
        "cls.predictions.dense.weight": Transposed("head.extra"), "cls.predictions.bias": "head.bias",
    },
)  # fmt: skip

FAMILY = Family(
    "mobilebert",
    hf_types=("mobilebert",),
    from_hf=from_hf,
    hf_names=HF_NAMES,
    hf_prefixes=("mobilebert.",),
    skip=skip,
)
