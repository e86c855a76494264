"""OLMo 2: Llama's gears with the norms behind the sublayers, and one norm over all heads' queries or keys.

Source: OLMo Team 2024 ("2 OLMo 2 Furious"), section 3.
"""

from __future__ import annotations

from dataclasses import replace

from glassgear.model.families.base import Family, Found, table
from glassgear.model.families.llama import LlamaConfig, checked, sizes_from_gguf, sizes_from_hf, skip
from glassgear.model.gears import Attention, Block, Embed, GatedFFN, Head, Model, Residual, RMSNorm
from glassgear.model.settings import Settings

__all__ = ["FAMILY", "olmo2"]

# What transformers takes keys for that a config doesn't have.
DEFAULTS = {"rms_norm_eps": 1e-5}


def olmo2(c: LlamaConfig) -> Model:
    """The tree of gears."""
    attention = Attention.build(
        c.dim, c.heads, c.kv_heads, c.head_dim, rope=c.rope, bias=c.attention_bias, output_bias=c.output_bias,
        query_norm=RMSNorm(c.heads * c.head_dim, c.eps), key_norm=RMSNorm(c.kv_heads * c.head_dim, c.eps),
    )  # fmt: skip
    norm = RMSNorm(c.dim, c.eps)
    block = Block((Residual(None, attention, norm), Residual(None, GatedFFN.build(c.dim, c.hidden), norm)))
    return Model(
        Embed(c.vocab, c.dim),
        (block,) * c.layers,
        norm,
        Head(c.dim, c.vocab, c.tied) if c.head else None,
        context=c.context,
        family="olmo2",
    )


def from_hf(s: Settings, found: Found) -> Model:
    """The model of a `config.json` of type `olmo2`."""
    s = s.completed(DEFAULTS)
    sizes = sizes_from_hf(s, found)
    bias = s.take("attention_bias", bool, False)
    return olmo2(checked(replace(sizes, attention_bias=bias, output_bias=bias), s))


def from_gguf(s: Settings, found: Found) -> Model:
    """The model of GGUF metadata of architecture `olmo2`. OLMo 3 shares it, and has windows."""
    s.only("attention.sliding_window", 0)
    return olmo2(checked(sizes_from_gguf(s, found), s))


FAMILY = Family(
    "olmo2",
    hf_types=("olmo2",),
    from_hf=from_hf,
    hf_names=table(
        "layers.#.",
        {
            "self_attn.q_proj": "attention.query", "self_attn.k_proj": "attention.key",
            "self_attn.v_proj": "attention.value", "self_attn.o_proj": "attention.output",
            "self_attn.q_norm": "attention.query_norm", "self_attn.k_norm": "attention.key_norm",
            "post_attention_layernorm": "attention_post_norm",
            "post_feedforward_layernorm": "ffn_post_norm",
            "mlp.gate_proj": "ffn.gate", "mlp.up_proj": "ffn.up", "mlp.down_proj": "ffn.down",
        },
        {"embed_tokens.": "embed.", "norm.": "norm.", "lm_head.": "head."},
    ),
    gguf_types=("olmo2",),
    from_gguf=from_gguf,
    gguf_names=table(
        "blk.#.",
        {
            "attn_q": "attention.query", "attn_k": "attention.key", "attn_v": "attention.value",
            "attn_output": "attention.output", "attn_q_norm": "attention.query_norm",
            "attn_k_norm": "attention.key_norm", "post_attention_norm": "attention_post_norm",
            "post_ffw_norm": "ffn_post_norm", "ffn_gate": "ffn.gate", "ffn_up": "ffn.up",
            "ffn_down": "ffn.down",
        },
        {"token_embd.": "embed.", "output_norm.": "norm.", "output.": "head."},
    ),
    skip=skip,
)  # fmt: skip
