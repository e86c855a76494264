"""BERT: an encoder. Post-norm LayerNorm, learned positions, token types, exact GELU, every token sees all.

Beside the encoder a file may hold the pooler (one vector for a text) and the masked-word head. Source:
Devlin et al. 2018; google-research/bert `modeling.py`. Many models that embed texts are this family
(MiniLM, BGE, E5, GTE).
"""

from __future__ import annotations

from dataclasses import dataclass

from glassgear.model.families.base import (
    IGNORED,
    Family,
    Found,
    Names,
    Rows,
    activation,
    quotient,
    table,
)
from glassgear.model.gears import (
    FFN,
    Activation,
    Attention,
    Block,
    Embed,
    Head,
    LayerNorm,
    LearnedPositions,
    Linear,
    Model,
    Pooler,
    Residual,
    TokenTypes,
    Transform,
)
from glassgear.model.settings import Settings

__all__ = ["ENCODER_IGNORED", "FAMILY", "BertConfig", "bert", "old_norm_names", "skip"]


@dataclass(frozen=True)
class BertConfig:
    """The sizes that make a BERT.

    Attributes:
        dim: width of the residual stream.
        layers: blocks.
        heads: attention heads.
        hidden: width inside the feed-forward network.
        vocab: entries of the vocabulary.
        context: rows of the table of positions.
        types: token types; 0: the model has no such table.
        eps: of the norms.
        activation: of the feed-forward network and before the head.
        pooler: whether it is there.
        head: whether the masked-word head is there; its matrix is the embedding's table.
    """

    dim: int
    layers: int
    heads: int
    hidden: int
    vocab: int
    context: int = 512
    types: int = 2
    eps: float = 1e-12
    activation: Activation = "gelu"
    pooler: bool = True
    head: bool = False


def bert(c: BertConfig) -> Model:
    """The tree of gears."""
    norm = LayerNorm(c.dim, c.eps)
    attention = Attention.build(
        c.dim, c.heads, c.heads, c.dim // c.heads, bias=True, output_bias=True, causal=False
    )
    ffn = FFN.build(c.dim, c.hidden, activation=c.activation)
    block = Block((Residual(None, attention, sum_norm=norm), Residual(None, ffn, sum_norm=norm)))
    square = Linear(c.dim, c.dim, bias=True)
    return Model(
        Embed(c.vocab, c.dim),
        (block,) * c.layers,
        None,
        Head(c.dim, c.vocab, tied=True, bias=True) if c.head else None,
        context=c.context,
        family="bert",
        positions=LearnedPositions(c.context, c.dim),
        token_types=TokenTypes(c.types, c.dim) if c.types else None,
        embed_norm=norm,
        transform=Transform(square, c.activation, norm) if c.head else None,
        pooler=Pooler(square) if c.pooler else None,
    )


def from_hf(s: Settings, found: Found) -> Model:
    """The model of a Hugging Face `config.json`, and of which parts there are tensors for."""
    s.ignore(IGNORED)
    s.ignore(ENCODER_IGNORED)
    s.only("is_decoder", False)
    s.only("add_cross_attention", False)
    s.only("position_embedding_type", "absolute")
    head = found.has("cls.predictions.transform.dense.weight")
    if head:
        s.only("tie_word_embeddings", True)
    s.ignore(["tie_word_embeddings"])
    dim, heads = s.size("hidden_size"), s.size("num_attention_heads")
    quotient(dim, heads, s.path)
    made = BertConfig(
        dim=dim,
        layers=s.size("num_hidden_layers", most=10_000),
        heads=heads,
        hidden=s.size("intermediate_size"),
        vocab=s.size("vocab_size"),
        context=s.size("max_position_embeddings", 512),
        types=s.size("type_vocab_size", 2, least=0),
        eps=s.epsilon("layer_norm_eps", 1e-12),
        activation=activation(s, "hidden_act", "gelu"),
        pooler=found.has("pooler.dense.weight"),
        head=head,
    )
    s.finish()
    return bert(made)


def from_gguf(s: Settings, found: Found) -> Model:
    """The model of GGUF metadata of architecture `bert`. llama.cpp's converter keeps the encoder alone."""
    vocab = found.rows("token_embd.weight", s.path)
    dim, heads = s.size("embedding_length"), s.size("attention.head_count")
    quotient(dim, heads, s.path)
    s.only("attention.head_count_kv", heads)
    s.only("attention.causal", False)
    s.only("vocab_size", vocab)
    s.ignore(["classifier.output_labels", "rope.freq_base"])
    made = BertConfig(
        dim=dim,
        layers=s.size("block_count", most=10_000),
        heads=heads,
        hidden=s.size("feed_forward_length"),
        vocab=vocab,
        context=s.size("context_length"),
        types=found.rows("token_types.weight", s.path) if found.has("token_types.weight") else 0,
        eps=s.epsilon("attention.layer_norm_epsilon", 1e-12),
        pooler=False,
    )
    s.finish()
    return bert(made)


def skip(name: str, model: Model) -> str | None:
    """What follows from the config, copies of tied tensors, and heads for other tasks."""
    if name in ("embeddings.position_ids", "cls.predictions.decoder.weight", "cls.predictions.decoder.bias"):
        return ""
    if name.startswith("cls.seq_relationship."):
        return "the head that tells whether one text follows another (cls.seq_relationship) isn't used"
    if name.startswith(("classifier.", "qa_outputs.")) or name in GGUF_CLASSIFIER:
        return f"the head for another task ({name.partition('.')[0]}) isn't used: texts can be embedded"
    return None


def old_norm_names(names: Names) -> Names:
    """The same table, for norms whose weight and bias are called gamma and beta, as in the first files."""
    norms = {theirs: ours for theirs, ours in names.items() if theirs.endswith("LayerNorm.")}
    leaves = {"gamma": "weight", "beta": "bias"}
    old = {f"{theirs}{old}": f"{ours}{new}" for theirs, ours in norms.items() for old, new in leaves.items()}
    return {**old, **names}


ENCODER_IGNORED = (
    "attention_probs_dropout_prob", "classifier_activation", "classifier_dropout", "directionality",
    "finetuning_task", "gradient_checkpointing", "hidden_dropout_prob", "model_max_length", "output_past",
    "pooler_fc_size", "pooler_num_attention_heads", "pooler_num_fc_layers", "pooler_size_per_head",
    "pooler_type", "sentence_transformers", "task_specific_params", "tokenizer_class",
)  # fmt: skip
GGUF_CLASSIFIER = frozenset(f"{stem}.{leaf}" for stem in ("cls", "cls.output") for leaf in ("weight", "bias"))
HF_NAMES = old_norm_names(
    table(
        "encoder.layer.#.",
        {
            "attention.self.query": "attention.query", "attention.self.key": "attention.key",
            "attention.self.value": "attention.value", "attention.output.dense": "attention.output",
            "attention.output.LayerNorm": "attention_sum_norm", "intermediate.dense": "ffn.up",
            "output.dense": "ffn.down", "output.LayerNorm": "ffn_sum_norm",
        },
        {
            "embeddings.word_embeddings.": "embed.", "embeddings.position_embeddings.": "positions.",
            "embeddings.token_type_embeddings.": "token_types.", "embeddings.LayerNorm.": "embed_norm.",
            "pooler.dense.": "pooler.dense.", "cls.predictions.transform.dense.": "transform.dense.",
            "cls.predictions.transform.LayerNorm.": "transform.norm.",
            "cls.predictions.bias": "head.bias",
        },
    )
)  # fmt: skip
GGUF_NAMES = table(
    "blk.#.",
    {
        "attn_q": "attention.query", "attn_k": "attention.key", "attn_v": "attention.value",
        "attn_qkv": Rows("attention.query", "attention.key", "attention.value"),
        "attn_output": "attention.output", "attn_output_norm": "attention_sum_norm", "ffn_up": "ffn.up",
        "ffn_down": "ffn.down", "layer_output_norm": "ffn_sum_norm",
    },
    {
        "token_embd.": "embed.", "position_embd.": "positions.", "token_types.": "token_types.",
        "token_embd_norm.": "embed_norm.",
    },
)  # fmt: skip

FAMILY = Family(
    "bert",
    hf_types=("bert",),
    from_hf=from_hf,
    hf_names=HF_NAMES,
    hf_prefixes=("bert.",),
    gguf_types=("bert",),
    from_gguf=from_gguf,
    gguf_names=GGUF_NAMES,
    skip=skip,
)
