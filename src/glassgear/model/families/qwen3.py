"""Qwen3, dense: Llama's gears with a norm over each head's query and key instead of Qwen2's biases.

Source: Yang et al. 2025 (Qwen3).
"""

from __future__ import annotations

from dataclasses import replace

from glassgear.model.families.base import Family, Found
from glassgear.model.families.llama import (
    GGUF_NAMES,
    HF_NAMES,
    checked,
    llama,
    sizes_from_gguf,
    sizes_from_hf,
    skip,
)
from glassgear.model.families.qwen2 import DEFAULTS, qwen_windows
from glassgear.model.gears import Model
from glassgear.model.settings import Settings

__all__ = ["FAMILY"]


def from_hf(s: Settings, found: Found) -> Model:
    """The model of a `config.json` of type `qwen3`."""
    s = s.completed({**DEFAULTS, "head_dim": 128})
    sizes = sizes_from_hf(s, found)
    bias = s.take("attention_bias", bool, False)
    made = replace(
        sizes,
        attention_bias=bias,
        output_bias=bias,
        head_norms=True,
        windows=qwen_windows(s, sizes.layers),
        family="qwen3",
    )
    return llama(checked(made, s))


def from_gguf(s: Settings, found: Found) -> Model:
    """The model of GGUF metadata of architecture `qwen3`."""
    return llama(checked(replace(sizes_from_gguf(s, found), head_norms=True, family="qwen3"), s))


FAMILY = Family(
    "qwen3",
    hf_types=("qwen3",),
    from_hf=from_hf,
    hf_names={
        **HF_NAMES,
        "layers.#.self_attn.q_norm.": "blocks.#.attention.query_norm.",
        "layers.#.self_attn.k_norm.": "blocks.#.attention.key_norm.",
    },
    gguf_types=("qwen3",),
    from_gguf=from_gguf,
    gguf_names={
        **GGUF_NAMES,
        "blk.#.attn_q_norm.": "blocks.#.attention.query_norm.",
        "blk.#.attn_k_norm.": "blocks.#.attention.key_norm.",
    },
    skip=skip,
)
