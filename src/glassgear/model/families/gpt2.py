"""GPT-2 and GPT-3: pre-norm LayerNorm, learned positions, GELU in its tanh form, biases, a tied head.

Sources: Radford et al. 2019 (GPT-2), Brown et al. 2020 (GPT-3; its sparse attention in every other
layer, which isn't published in detail, isn't part of this), openai/gpt-2 `src/model.py`.
"""

from __future__ import annotations

from dataclasses import dataclass

from glassgear.model.families.base import (
    IGNORED,
    Family,
    Found,
    Rows,
    Transposed,
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
    Model,
    Residual,
)
from glassgear.model.settings import Settings

__all__ = ["FAMILY", "GPT2Config", "gpt2"]


@dataclass(frozen=True)
class GPT2Config:
    """The sizes that make a GPT-2; the defaults are those of all its published sizes.

    Attributes:
        dim: width of the residual stream.
        layers: blocks.
        heads: attention heads.
        hidden: width inside the feed-forward network; 0: four times `dim`.
        vocab: entries of the vocabulary.
        context: trained length, rows of the table of positions.
        eps: of the norms.
        activation: of the feed-forward network.
        tied: whether the head is the embedding's table.
        scaled_by_layer: scores of layer i are divided by i + 1 as well (Mistral's GPT-2 of Stanford).
    """

    dim: int
    layers: int
    heads: int
    hidden: int = 0
    vocab: int = 50257
    context: int = 1024
    eps: float = 1e-5
    activation: Activation = "gelu_tanh"
    tied: bool = True
    scaled_by_layer: bool = False


def gpt2(c: GPT2Config) -> Model:
    """The tree of gears."""
    head_dim = c.dim // c.heads
    ffn = FFN.build(c.dim, c.hidden or 4 * c.dim, activation=c.activation)

    def block(divisor: int) -> Block:
        attention = Attention.build(
            c.dim, c.heads, c.heads, head_dim, bias=True, output_bias=True,
            score_scale=None if divisor == 1 else head_dim**-0.5 / divisor,
        )  # fmt: skip
        return Block((Residual(LayerNorm(c.dim, c.eps), attention), Residual(LayerNorm(c.dim, c.eps), ffn)))

    blocks = tuple(map(block, range(1, c.layers + 1))) if c.scaled_by_layer else (block(1),) * c.layers
    return Model(
        Embed(c.vocab, c.dim),
        blocks,
        LayerNorm(c.dim, c.eps),
        Head(c.dim, c.vocab, c.tied),
        context=c.context,
        family="gpt2",
        positions=LearnedPositions(c.context, c.dim),
    )


def from_hf(s: Settings, found: Found) -> Model:
    """The model of a Hugging Face `config.json`."""
    s.ignore(IGNORED)
    s.ignore(HF_IGNORED)
    s.only("scale_attn_weights", True)
    s.only("add_cross_attention", False)
    s.only("is_decoder", False, True)
    dim, heads, context = s.size("n_embd"), s.size("n_head"), s.size("n_positions", 1024)
    quotient(dim, heads, s.path)
    s.only("n_ctx", context)
    made = GPT2Config(
        dim=dim,
        layers=s.size("n_layer", most=10_000),
        heads=heads,
        hidden=s.size("n_inner", 4 * dim),
        vocab=s.size("vocab_size"),
        context=context,
        eps=s.epsilon("layer_norm_epsilon", 1e-5),
        activation=activation(s, "activation_function", "gelu_new"),
        tied=s.take("tie_word_embeddings", bool, True),
        scaled_by_layer=s.take("scale_attn_by_inverse_layer_idx", bool, False),
    )
    s.finish()
    return gpt2(made)


def from_gguf(s: Settings, found: Found) -> Model:
    """The model of GGUF metadata of architecture `gpt2`."""
    vocab = found.rows("token_embd.weight", s.path)
    dim, heads = s.size("embedding_length"), s.size("attention.head_count")
    quotient(dim, heads, s.path)
    s.only("attention.head_count_kv", heads)
    s.only("attention.causal", True)
    s.only("vocab_size", vocab)
    made = GPT2Config(
        dim=dim,
        layers=s.size("block_count", most=10_000),
        heads=heads,
        hidden=s.size("feed_forward_length"),
        vocab=vocab,
        context=s.size("context_length"),
        eps=s.epsilon("attention.layer_norm_epsilon", 1e-5),
        tied=not found.has("output.weight"),
    )
    s.finish()
    return gpt2(made)


def skip(name: str, model: Model) -> str | None:
    """Masks that older programs stored, and the copy of a tied head."""
    tied = model.head is not None and model.head.tied
    mask = name.endswith((".attn.bias", ".attn.masked_bias"))
    return "" if mask or (tied and name == "lm_head.weight") else None


HF_IGNORED = (
    "attn_pdrop", "embd_pdrop", "gradient_checkpointing", "output_past", "reorder_and_upcast_attn",
    "resid_pdrop", "summary_activation", "summary_first_dropout", "summary_proj_to_labels", "summary_type",
    "summary_use_proj", "task_specific_params",
)  # fmt: skip
QUERY_KEY_VALUE = Rows("attention.query", "attention.key", "attention.value")
HF_NAMES = table(
    "h.#.",
    {
        "ln_1": "attention_norm", "attn.c_attn": Transposed(QUERY_KEY_VALUE),
        "attn.c_proj": Transposed("attention.output"), "ln_2": "ffn_norm",
        "mlp.c_fc": Transposed("ffn.up"), "mlp.c_proj": Transposed("ffn.down"),
    },
    {"wte.": "embed.", "wpe.": "positions.", "ln_f.": "norm.", "lm_head.": "head."},
)  # fmt: skip
GGUF_NAMES = table(
    "blk.#.",
    {
        "attn_norm": "attention_norm", "attn_qkv": QUERY_KEY_VALUE, "attn_output": "attention.output",
        "ffn_norm": "ffn_norm", "ffn_up": "ffn.up", "ffn_down": "ffn.down",
    },
    {"token_embd.": "embed.", "position_embd.": "positions.", "output_norm.": "norm.", "output.": "head."},
)  # fmt: skip

FAMILY = Family(
    "gpt2",
    hf_types=("gpt2",),
    from_hf=from_hf,
    hf_names=HF_NAMES,
    hf_prefixes=("transformer.",),
    gguf_types=("gpt2",),
    from_gguf=from_gguf,
    gguf_names=GGUF_NAMES,
    skip=skip,
)
