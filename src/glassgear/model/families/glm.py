"""GLM-4: Llama's gears where half of each head turns, in neighbouring pairs, with biases on q, k and v.

Folders of type `glm` (GLM-4-9B) and `glm4` (the 0414 models, which also norm what attention and FFN
give). GGUF of the architectures `chatglm` and `glm4`. Gate and up are stored as one matrix, in
`chatglm` files queries, keys and values, too. Source: Zeng et al. 2024 (ChatGLM: GLM-130B to GLM-4).
"""

from __future__ import annotations

from dataclasses import replace

from glassgear.model.families.base import Family, Found, Rows
from glassgear.model.families.llama import (
    GGUF_NAMES,
    HF_NAMES,
    LlamaConfig,
    checked,
    llama,
    sizes_from_gguf,
    sizes_from_hf,
    skip,
)
from glassgear.model.families.rope_settings import rope_from_hf
from glassgear.model.gears import Model, Rope
from glassgear.model.settings import Settings

__all__ = ["GLM", "GLM4"]

# What transformers takes keys for that a config doesn't have.
DEFAULTS = {
    "num_key_value_heads": 2, "head_dim": 128, "max_position_embeddings": 131072, "rms_norm_eps": 1.5625e-7,
    "attention_bias": True,
}  # fmt: skip


def _rope(s: Settings, head_dim: int, context: int) -> Rope:
    return rope_from_hf(s, head_dim, context, partly=True, partial=0.5)


def _from_hf(s: Settings, found: Found) -> LlamaConfig:
    s = s.completed(DEFAULTS)
    sizes = sizes_from_hf(s, found, _rope)
    bias = s.take("attention_bias", bool, False)
    rope = replace(sizes.rope, pairing="interleaved")
    return checked(replace(sizes, rope=rope, attention_bias=bias, family="glm"), s)


def _from_gguf(s: Settings, found: Found) -> LlamaConfig:
    s.only("nextn_predict_layers", 0)
    sizes = sizes_from_gguf(s, found)
    rope = replace(sizes.rope, pairing="interleaved")
    return checked(replace(sizes, rope=rope, family="glm"), s)


def glm_from_hf(s: Settings, found: Found) -> Model:
    """The model of a `config.json` of type `glm`."""
    return llama(_from_hf(s, found))


def glm_from_gguf(s: Settings, found: Found) -> Model:
    """The model of GGUF metadata of architecture `chatglm`."""
    return llama(_from_gguf(s, found))


def glm4_from_hf(s: Settings, found: Found) -> Model:
    """The model of a `config.json` of type `glm4`."""
    return llama(replace(_from_hf(s, found), sandwich=True, family="glm4"))


def glm4_from_gguf(s: Settings, found: Found) -> Model:
    """The model of GGUF metadata of architecture `glm4`."""
    return llama(replace(_from_gguf(s, found), sandwich=True, family="glm4"))


GATE_UP = Rows("blocks.#.ffn.gate.", "blocks.#.ffn.up.")
GLM_HF_NAMES = {
    **{k: v for k, v in HF_NAMES.items() if k not in ("layers.#.mlp.gate_proj.", "layers.#.mlp.up_proj.")},
    "layers.#.mlp.gate_up_proj.": GATE_UP,
}
GLM_GGUF_NAMES = {
    **{k: v for k, v in GGUF_NAMES.items() if k != "blk.#.ffn_gate."},
    "blk.#.ffn_up.": GATE_UP,
    "blk.#.attn_qkv.": Rows(
        "blocks.#.attention.query.", "blocks.#.attention.key.", "blocks.#.attention.value."
    ),
}

GLM = Family(
    "glm",
    hf_types=("glm",),
    from_hf=glm_from_hf,
    hf_names=GLM_HF_NAMES,
    gguf_types=("chatglm",),
    from_gguf=glm_from_gguf,
    gguf_names=GLM_GGUF_NAMES,
    skip=skip,
)
GLM4 = Family(
    "glm4",
    hf_types=("glm4",),
    from_hf=glm4_from_hf,
    hf_names={
        **GLM_HF_NAMES,
        "layers.#.post_self_attn_layernorm.": "blocks.#.attention_post_norm.",
        "layers.#.post_mlp_layernorm.": "blocks.#.ffn_post_norm.",
    },
    gguf_types=("glm4",),
    from_gguf=glm4_from_gguf,
    gguf_names={
        **GLM_GGUF_NAMES,
        "blk.#.post_attention_norm.": "blocks.#.attention_post_norm.",
        "blk.#.post_ffw_norm.": "blocks.#.ffn_post_norm.",
    },
    skip=skip,
)
