"""Llama and the models that share its gears: Llama 2 and 3, TinyLlama, SmolLM2, llama2.c's.

Pre-norm RMSNorm, rotary positions, grouped-query attention, SwiGLU, no biases, head tied or not.
Sources: Touvron et al. 2023 (LLaMA; Llama 2), Dubey et al. 2024 (Llama 3).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from glassgear.errors import FormatError
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

__all__ = ["LlamaConfig", "from_gguf", "from_hf", "llama"]


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
    block = Block(Residual(RMSNorm(c.dim, c.eps), attention), Residual(RMSNorm(c.dim, c.eps), ffn))
    return Model(
        Embed(c.vocab, c.dim),
        (block,) * c.layers,
        RMSNorm(c.dim, c.eps),
        Head(c.dim, c.vocab, c.tied),
        context=c.context,
        family="llama",
    )


# Keys of config.json that don't enter the forward pass.
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


def from_hf(config: Mapping[str, Any], path: str) -> LlamaConfig:
    """The sizes in a Hugging Face `config.json`. Every key is used, ignorable, or an error."""
    s = Settings(config, path)
    s.ignore(IGNORED)
    s.only("hidden_act", "silu", "swish")
    s.only("rope_interleaved", False)
    s.only("use_sliding_window", False)
    if config.get("use_sliding_window") is False:  # a width that the flag turns off
        s.ignore(["sliding_window", "max_window_layers"])
    dim, heads, context = (
        s.size("hidden_size"),
        s.size("num_attention_heads"),
        s.size("max_position_embeddings", 2048),
    )
    head_dim = s.size("head_dim") if s.has("head_dim") else _quotient(dim, heads, path)
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
    return _checked(made, path)


def from_gguf(
    metadata: Mapping[str, Any],
    path: str,
    *,
    vocab: int,
    tied: bool,
    biases: frozenset[str] = frozenset(),
    rope_factors: tuple[float, ...] | None = None,
) -> LlamaConfig:
    """The sizes in GGUF metadata of architecture `llama`.

    Args:
        metadata: every key of the file.
        path: the file, for messages.
        vocab: rows of the embedding table (`llama.vocab_size` may be absent).
        tied: whether the file holds no output matrix.
        biases: names of the bias tensors of layer 0, such as `attn_q.bias`.
        rope_factors: its `rope_freqs.weight`, if it has one.
    """
    prefix = "llama."
    s = Settings(
        {k.removeprefix(prefix): v for k, v in metadata.items() if k.startswith(prefix)}, path, prefix
    )
    dim, heads, context = s.size("embedding_length"), s.size("attention.head_count"), s.size("context_length")
    explicit = s.has("attention.key_length")
    head_dim = s.size("attention.key_length") if explicit else _quotient(dim, heads, path)
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
        rope=_gguf_rope(s, head_dim, context, rope_factors),
        tied=tied,
        attention_bias="attn_q.bias" in biases,
        output_bias="attn_output.bias" in biases,
        mlp_bias="ffn_up.bias" in biases,
    )
    s.finish()
    return _checked(made, path)


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


def _quotient(dim: int, heads: int, path: str) -> int:
    if dim % heads:
        raise FormatError(path, f"width {dim} doesn't divide by {heads} heads, and no head width is given")
    return dim // heads
