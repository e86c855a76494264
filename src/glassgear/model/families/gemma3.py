"""Gemma 3, text: norms before and after each sublayer, layers that see a window and layers that see all.

A token's embedding is scaled by sqrt(width). Layers with a window turn queries and keys by a rope of
their own; the others' may be stretched. In folders a norm's weight is its distance from 1; llama.cpp's
converter has added the 1. Of multimodal folders (type `gemma3`) the text part is read.
Source: Gemma Team 2025 (Gemma 3).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from glassgear.errors import FormatError
from glassgear.model.families.base import IGNORED, Family, Found, table
from glassgear.model.families.llama import (
    GGUF_NAMES,
    LlamaConfig,
    checked,
    sizes_from_gguf,
    sizes_from_hf,
    skip,
)
from glassgear.model.families.rope_settings import rope_from_hf
from glassgear.model.families.windows import FULL, SLIDING, sliding_layers, windows
from glassgear.model.gears import Attention, Block, Embed, GatedFFN, Head, Model, Residual, RMSNorm, Rope
from glassgear.model.settings import Settings

__all__ = ["FAMILY", "Gemma3Config", "gemma3"]

# What transformers takes keys for that a config doesn't have: published ones leave out most of them.
DEFAULTS = {
    "vocab_size": 262_208, "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256,
    "max_position_embeddings": 131_072, "query_pre_attn_scalar": 256, "sliding_window": 4096,
    "tie_word_embeddings": True, "hidden_activation": "gelu_pytorch_tanh",
}  # fmt: skip
LOCAL_THETA, GLOBAL_THETA = 10_000.0, 1_000_000.0
PERIOD = 6  # every sixth layer sees all tokens


@dataclass(frozen=True)
class Gemma3Config:
    """What makes a Gemma 3.

    Attributes:
        sizes: sizes, the window of each layer, and the rope of layers that see all tokens.
        local_rope: the rope of layers with a window.
        score_scale: what attention scores are multiplied by.
        offset: what is added to the weight of a norm.
        cap: of attention scores; 0 for none.
        head_cap: of logits; 0 for none.
    """

    sizes: LlamaConfig
    local_rope: Rope
    score_scale: float
    offset: float
    cap: float = 0.0
    head_cap: float = 0.0


def gemma3(c: Gemma3Config) -> Model:
    """The tree of gears."""
    s = c.sizes
    blocks = {window: _block(c, window) for window in s.windows}
    return Model(
        Embed(s.vocab, s.dim, scale=s.dim**0.5),
        tuple(blocks[window] for window in s.windows),
        RMSNorm(s.dim, s.eps, c.offset),
        Head(s.dim, s.vocab, s.tied, cap=c.head_cap) if s.head else None,
        context=s.context,
        family="gemma3",
    )


def _block(c: Gemma3Config, window: int) -> Block:
    s = c.sizes
    norm, head_norm = RMSNorm(s.dim, s.eps, c.offset), RMSNorm(s.head_dim, s.eps, c.offset)
    attention = Attention.build(
        s.dim, s.heads, s.kv_heads, s.head_dim,
        rope=c.local_rope if window else s.rope, bias=s.attention_bias, output_bias=s.output_bias,
        query_norm=head_norm, key_norm=head_norm, window=window, cap=c.cap, score_scale=c.score_scale,
    )  # fmt: skip
    ffn = GatedFFN.build(s.dim, s.hidden, activation="gelu_tanh")
    return Block((Residual(norm, attention, norm), Residual(norm, ffn, norm)))


def from_hf(s: Settings, found: Found) -> Model:
    """The model of a `config.json` of type `gemma3_text`, or the text part of one of type `gemma3`."""
    s = (_text(s) if s.has("text_config") else s).completed(DEFAULTS)
    s.ignore(["cache_implementation"])
    s.only("hidden_activation", "gelu_pytorch_tanh")
    s.only("use_bidirectional_attention", False)
    sizes = sizes_from_hf(s, found, _global_rope)
    bias = s.take("attention_bias", bool, False)
    made = Gemma3Config(
        replace(sizes, attention_bias=bias, output_bias=bias, windows=_windows(s, sizes.layers)),
        _rope(s, sizes.head_dim, sizes.context, SLIDING),
        s.size("query_pre_attn_scalar", 256) ** -0.5,
        offset=1.0,
        cap=s.take("attn_logit_softcapping", float, 0.0),
        head_cap=s.take("final_logit_softcapping", float, 0.0),
    )
    checked(made.sizes, s)
    return gemma3(made)


def _text(s: Settings) -> Settings:
    """The text part of a multimodal config. What is said outside of it counts for the whole."""
    s.ignore(IGNORED)
    s.ignore(["boi_token_index", "eoi_token_index", "image_token_index", "mm_tokens_per_image"])
    s.mapping("vision_config")
    values: dict[str, Any] = {**(s.mapping("text_config") or {}), "architectures": s.words("architectures")}
    tied = s.take("tie_word_embeddings", bool, None)
    s.finish()
    return Settings(
        values if tied is None else values | {"tie_word_embeddings": tied}, s.path, "text_config."
    )


def _windows(s: Settings, layers: int) -> tuple[int, ...]:
    width = s.size("sliding_window", 0, least=0)
    old = s.size("_sliding_window_pattern", PERIOD)
    period = s.size("sliding_window_pattern", old)
    sliding = sliding_layers(s, layers)
    return windows(s, _periodic(layers, period) if sliding is None else sliding, width)


def _periodic(layers: int, period: int) -> tuple[bool, ...]:
    """Every `period`-th layer sees all tokens, the others have a window."""
    return tuple((layer + 1) % period != 0 for layer in range(layers))


def _global_rope(s: Settings, head_dim: int, context: int) -> Rope:
    return _rope(s, head_dim, context, FULL)


def _rope(s: Settings, head_dim: int, context: int, kind: str) -> Rope:
    """The rope of one kind of layer; newer configs have a set of settings for each kind."""
    theta = LOCAL_THETA if kind == SLIDING else GLOBAL_THETA
    new = s.mapping("rope_parameters") or {}
    if FULL in new or SLIDING in new:
        inner = Settings(new, s.path, f"{s.prefix}rope_parameters.")
        both = {each: inner.mapping(each) for each in (FULL, SLIDING)}
        inner.finish()
        s = Settings({"rope_parameters": both[kind]}, s.path)
    elif kind == SLIDING:
        s = Settings({"rope_theta": s.take("rope_local_base_freq", float, LOCAL_THETA)}, s.path)
    return rope_from_hf(s, head_dim, context, theta=theta)


def from_gguf(s: Settings, found: Found) -> Model:
    """The model of GGUF metadata of architecture `gemma3`."""
    sizes = sizes_from_gguf(s, found)
    width = s.size("attention.sliding_window", 0, least=0)
    sliding = _periodic(sizes.layers, s.size("attention.sliding_window_pattern", PERIOD))
    # Files don't hold the scale of scores. It is 1 / sqrt(head_dim) in all published models but the
    # 27B, which llama.cpp, too, knows by its 62 layers.
    width_of_head = sizes.dim // sizes.heads if sizes.layers == 62 else sizes.head_dim
    theta = s.take("rope.freq_base_swa", float, LOCAL_THETA)
    if not theta > 0:
        raise FormatError(s.path, f"`{s.prefix}rope.freq_base_swa` is {theta:g}; it must be above 0")
    made = Gemma3Config(
        replace(sizes, windows=tuple(width if slides else 0 for slides in sliding)),
        Rope(sizes.rope.dim, theta),
        width_of_head**-0.5,
        offset=0.0,
        cap=s.take("attn_logit_softcapping", float, 0.0),
        head_cap=s.take("final_logit_softcapping", float, 0.0),
    )
    checked(made.sizes, s)
    return gemma3(made)


def skip_images(name: str, model: Model) -> str | None:
    """The image part of multimodal folders is left out, with a word about it."""
    if name.startswith(("vision_tower.", "multi_modal_projector.")):
        return "the image part of this model is left out: it reads text alone"
    return skip(name, model)


FAMILY = Family(
    "gemma3",
    hf_types=("gemma3_text", "gemma3"),
    from_hf=from_hf,
    hf_names=table(
        "layers.#.",
        {
            "input_layernorm": "attention_norm", "post_attention_layernorm": "attention_post_norm",
            "pre_feedforward_layernorm": "ffn_norm", "post_feedforward_layernorm": "ffn_post_norm",
            "self_attn.q_proj": "attention.query", "self_attn.k_proj": "attention.key",
            "self_attn.v_proj": "attention.value", "self_attn.o_proj": "attention.output",
            "self_attn.q_norm": "attention.query_norm", "self_attn.k_norm": "attention.key_norm",
            "mlp.gate_proj": "ffn.gate", "mlp.up_proj": "ffn.up", "mlp.down_proj": "ffn.down",
        },
        {"embed_tokens.": "embed.", "norm.": "norm.", "lm_head.": "head."},
    ),
    hf_prefixes=("language_model.model.", "model.language_model.", "language_model.", "model."),
    gguf_types=("gemma3",),
    from_gguf=from_gguf,
    gguf_names={
        **GGUF_NAMES,
        "blk.#.attn_q_norm.": "blocks.#.attention.query_norm.",
        "blk.#.attn_k_norm.": "blocks.#.attention.key_norm.",
        "blk.#.post_attention_norm.": "blocks.#.attention_post_norm.",
        "blk.#.post_ffw_norm.": "blocks.#.ffn_post_norm.",
    },
    skip=skip_images,
)  # fmt: skip
