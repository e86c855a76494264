"""Llama and the models that share its gears: Llama 2 and 3, TinyLlama, SmolLM2, llama2.c's.

Pre-norm RMSNorm, rotary positions, grouped-query attention, SwiGLU, no biases, head tied or not.
Sources: Touvron et al. 2023 (LLaMA; Llama 2), Dubey et al. 2024 (Llama 3).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from glassgear.errors import FormatError
from glassgear.model.families.base import IGNORED, Family, Found, quotient, table
from glassgear.model.families.rope_settings import rope_from_gguf, rope_from_hf
from glassgear.model.gears import (
    Attention,
    Block,
    Embed,
    GatedFFN,
    Head,
    Model,
    Residual,
    RMSNorm,
    Rope,
)
from glassgear.model.settings import Settings

__all__ = ["FAMILY", "GGUF_NAMES", "HF_NAMES", "LlamaConfig", "llama", "skip"]


@dataclass(frozen=True)
class LlamaConfig:
    """The sizes that make a Llama. Lengths in tokens, widths in channels."""

    dim: int
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    vocab: int
    context: int
    eps: float
    rope: Rope
    tied: bool
    attention_bias: bool = False
    output_bias: bool = False
    mlp_bias: bool = False


def llama(c: LlamaConfig) -> Model:
    """The tree of gears."""
    attention = Attention.build(
        c.dim, c.heads, c.kv_heads, c.head_dim,
        rope=c.rope, bias=c.attention_bias, output_bias=c.output_bias,
    )  # fmt: skip
    ffn = GatedFFN.build(c.dim, c.hidden, activation="silu", bias=c.mlp_bias)
    block = Block((Residual(RMSNorm(c.dim, c.eps), attention), Residual(RMSNorm(c.dim, c.eps), ffn)))
    return Model(
        Embed(c.vocab, c.dim),
        (block,) * c.layers,
        RMSNorm(c.dim, c.eps),
        Head(c.dim, c.vocab, c.tied),
        context=c.context,
        family="llama",
    )


def from_hf(s: Settings, found: Found) -> Model:
    """The model of a Hugging Face `config.json`. Every key is used, ignorable, or an error."""
    return llama(config_from_hf(s))


def config_from_hf(s: Settings) -> LlamaConfig:
    """The sizes in a Hugging Face `config.json`."""
    s.ignore(IGNORED)
    s.only("hidden_act", "silu", "swish")
    s.only("rope_interleaved", False)
    s.only("use_sliding_window", False)
    s.ignore(["sliding_window", "max_window_layers"] if s.is_false("use_sliding_window") else [])
    dim, heads, context = (
        s.size("hidden_size"),
        s.size("num_attention_heads"),
        s.size("max_position_embeddings", 2048),
    )
    head_dim = s.size("head_dim") if s.has("head_dim") else quotient(dim, heads, s.path)
    bias = s.take("attention_bias", bool, False)
    made = LlamaConfig(
        dim=dim,
        hidden=s.size("intermediate_size"),
        layers=s.size("num_hidden_layers", most=10_000),
        heads=heads,
        kv_heads=s.size("num_key_value_heads", heads),
        head_dim=head_dim,
        vocab=s.size("vocab_size"),
        context=context,
        eps=s.epsilon("rms_norm_eps", 1e-6),
        rope=rope_from_hf(s, head_dim, context),
        tied=s.take("tie_word_embeddings", bool, False),
        attention_bias=bias,
        output_bias=bias,
        mlp_bias=s.take("mlp_bias", bool, False),
    )
    s.finish()
    return _checked(made, s.path)


def from_gguf(s: Settings, found: Found) -> Model:
    """The model of GGUF metadata of architecture `llama`."""
    return llama(config_from_gguf(s, found))


def config_from_gguf(s: Settings, found: Found) -> LlamaConfig:
    """The sizes in GGUF metadata, and in which tensors there are."""
    vocab = found.rows("token_embd.weight", s.path)
    dim, heads, context = s.size("embedding_length"), s.size("attention.head_count"), s.size("context_length")
    explicit = s.has("attention.key_length")
    head_dim = s.size("attention.key_length") if explicit else quotient(dim, heads, s.path)
    s.only("attention.value_length", head_dim)
    s.only("vocab_size", vocab)
    s.only("expert_count", 0)
    s.ignore(["expert_used_count", "tensor_data_layout", "attention.layer_norm_epsilon"])
    made = LlamaConfig(
        dim=dim,
        hidden=s.size("feed_forward_length"),
        layers=s.size("block_count", most=10_000),
        heads=heads,
        kv_heads=s.size("attention.head_count_kv", heads),
        head_dim=head_dim,
        vocab=vocab,
        context=context,
        eps=s.epsilon("attention.layer_norm_rms_epsilon", 1e-5),
        rope=_gguf_rope(s, head_dim, context, found.rope_factors),
        tied=not found.has("output.weight"),
        attention_bias=found.has("blk.0.attn_q.bias"),
        output_bias=found.has("blk.0.attn_output.bias"),
        mlp_bias=found.has("blk.0.ffn_up.bias"),
    )
    s.finish()
    return _checked(made, s.path)


def _checked(made: LlamaConfig, path: str) -> LlamaConfig:
    """Refuse sizes that don't fit together, with the file they came from."""
    if made.heads % made.kv_heads:
        raise FormatError(
            path, f"{made.heads} query heads can't share {made.kv_heads} key/value heads evenly"
        )
    if made.rope.dim > made.head_dim:
        raise FormatError(path, f"the rotary width {made.rope.dim} is more than a head's {made.head_dim}")
    return made


def _gguf_rope(s: Settings, head_dim: int, context: int, factors: tuple[float, ...] | None) -> Rope:
    rope = rope_from_gguf(s, head_dim, context, factors)
    # Files of this architecture interleave the halves of each head; that is undone when they are
    # opened, except where only part of a head turns: those rows stay as they are.
    return rope if rope.dim == head_dim else replace(rope, pairing="interleaved")


def skip(name: str, model: Model) -> str | None:
    """Tables that follow from the config, and the copy of a tied head."""
    tied = model.head is not None and model.head.tied
    return "" if name.endswith("rotary_emb.inv_freq") or (tied and name == "lm_head.weight") else None


GGUF_NAMES = table(
    "blk.#.",
    {
        "attn_norm": "attention_norm", "attn_q": "attention.query", "attn_k": "attention.key",
        "attn_v": "attention.value", "attn_output": "attention.output", "ffn_norm": "ffn_norm",
        "ffn_gate": "ffn.gate", "ffn_up": "ffn.up", "ffn_down": "ffn.down",
    },
    {"token_embd.": "embed.", "output_norm.": "norm.", "output.": "head."},
)  # fmt: skip
HF_NAMES = table(
    "layers.#.",
    {
        "input_layernorm": "attention_norm", "self_attn.q_proj": "attention.query",
        "self_attn.k_proj": "attention.key", "self_attn.v_proj": "attention.value",
        "self_attn.o_proj": "attention.output", "post_attention_layernorm": "ffn_norm",
        "mlp.gate_proj": "ffn.gate", "mlp.up_proj": "ffn.up", "mlp.down_proj": "ffn.down",
    },
    {"embed_tokens.": "embed.", "norm.": "norm.", "lm_head.": "head."},
)  # fmt: skip

FAMILY = Family(
    "llama",
    hf_types=("llama",),
    from_hf=from_hf,
    hf_names=HF_NAMES,
    gguf_types=("llama",),
    from_gguf=from_gguf,
    gguf_names=GGUF_NAMES,
    gguf_interleaved=True,
    skip=skip,
)
