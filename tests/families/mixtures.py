"""Tiny models with experts: as transformers holds them, and as llama.cpp's converter writes them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from glassgear.weights import gguf_write
from tests.families.decoders import HF_TO_GGUF, SIZES, metadata
from tests.families.support import config_of, made
from tests.models import stored

# Widths that all differ; three of eight experts, and where there are groups, from two of four.
EXPERTS: dict[str, Any] = {"num_experts_per_tok": 3, "moe_intermediate_size": 20}
LATENT: dict[str, Any] = {key: value for key, value in SIZES.items() if key != "head_dim"} | EXPERTS | {
    "num_key_value_heads": 4, "kv_lora_rank": 16, "q_lora_rank": 28,
    "qk_rope_head_dim": 8, "qk_nope_head_dim": 12, "v_head_dim": 10, "n_routed_experts": 8,
    "first_k_dense_replace": 1, "n_group": 4, "topk_group": 2, "rms_norm_eps": 2.0**-12,
}  # fmt: skip
MIXTURE_TO_GGUF = {
    **HF_TO_GGUF, "mlp.gate.e_score_correction_bias": "exp_probs_b.bias", "mlp.gate.": "ffn_gate_inp.",
    "mlp.experts.gate_proj": "ffn_gate_exps.weight", "mlp.experts.up_proj": "ffn_up_exps.weight",
    "mlp.experts.down_proj": "ffn_down_exps.weight",
    "mlp.experts.gate_up_proj": "ffn_gate_up_exps.weight", "mlp.shared_experts.gate_proj": "ffn_gate_shexp",
    "mlp.shared_experts.up_proj": "ffn_up_shexp", "mlp.shared_experts.down_proj": "ffn_down_shexp",
    "self_attn.q_a_proj": "attn_q_a", "self_attn.q_a_layernorm": "attn_q_a_norm",
    "self_attn.q_b_proj": "attn_q_b", "self_attn.kv_a_proj_with_mqa": "attn_kv_a_mqa",
    "self_attn.kv_a_layernorm": "attn_kv_a_norm", "self_attn.kv_b_proj": "attn_kv_b",
}  # fmt: skip


def mixture(classes: tuple[str, str], values: Mapping[str, Any], seed: int = 0) -> Any:
    """A model whose routers choose among all experts, with corrections of both signs where it has them."""
    import torch

    model = made(classes[0], config_of(classes[1], **values), seed)
    with torch.no_grad():
        for name, value in model.named_buffers():
            if name.endswith("e_score_correction_bias"):
                value.copy_(0.3 * torch.randn(value.shape) - 0.2)
    return model


def arrays(model: Any, fused: bool) -> dict[str, np.ndarray]:
    """Every tensor by its name in transformers, gates and ups of the experts as one or apart."""
    out = {}
    for name, value in model.state_dict().items():
        values = value.float().numpy()
        if name.endswith("experts.gate_up_proj") and not fused:
            stem = name.removesuffix("gate_up_proj")
            out[f"{stem}gate_proj"], out[f"{stem}up_proj"] = np.split(values, 2, axis=1)
        else:
            out[name] = values
    return out


def to_gguf(
    path: Path,
    model: Any,
    architecture: str,
    keys: Mapping[str, Any],
    *,
    split_heads: bool = False,
    fused: bool = False,
) -> Path:
    """Write a GGUF as llama.cpp's converter does.

    Args:
        path: where.
        model: of transformers.
        architecture: llama.cpp's name.
        keys: metadata beside that of every decoder; None takes one away.
        split_heads: whether W_kv_b is stored as one matrix a head for keys, transposed, and one for
            values, as converters have done since 2025.
        fused: whether gates and ups of the experts are one tensor, as the converter can have them.
    """
    tied = model.config.tie_word_embeddings
    named = {}
    for name, values in arrays(model, fused).items():
        if tied and name == "lm_head.weight":
            continue
        for theirs, ours in MIXTURE_TO_GGUF.items():
            name = name.replace(theirs, ours)  # noqa: PLW2901
        if split_heads and name.endswith("attn_kv_b.weight"):
            heads = values.reshape(model.config.num_attention_heads, -1, values.shape[1])
            plain, stem = model.config.qk_nope_head_dim, name.removesuffix("kv_b.weight")
            named[f"{stem}k_b.weight"] = heads[:, :plain].swapaxes(1, 2)
            named[f"{stem}v_b.weight"] = heads[:, plain:]
        else:
            named[name] = values
    gguf_write.write(
        path, metadata(architecture, model.config, **keys), [stored(*item) for item in named.items()]
    )
    return path


def latent_keys(c: Any, *, split_heads: bool, sigmoid: bool, **extra: Any) -> dict[str, Any]:
    """What the converter writes of a DeepSeek; the older form describes heads, the newer one the cache."""
    rotated = c.qk_rope_head_dim
    if split_heads:
        lengths = {
            "attention.head_count_kv": 1, "attention.key_length": c.kv_lora_rank + rotated,
            "attention.value_length": c.kv_lora_rank, "attention.value_length_mla": c.v_head_dim,
            "attention.key_length_mla": c.qk_nope_head_dim + rotated,
        }  # fmt: skip
    else:
        lengths = {
            "attention.key_length": c.qk_nope_head_dim + rotated,
            "attention.value_length": c.v_head_dim,
        }
    return {
        **lengths, "leading_dense_block_count": c.first_k_dense_replace, "vocab_size": c.vocab_size,
        "attention.q_lora_rank": c.q_lora_rank, "attention.kv_lora_rank": c.kv_lora_rank,
        "expert_feed_forward_length": c.moe_intermediate_size, "expert_count": c.n_routed_experts,
        "expert_used_count": c.num_experts_per_tok, "expert_shared_count": c.n_shared_experts,
        "expert_weights_scale": c.routed_scaling_factor, "rope.dimension_count": rotated,
        "expert_weights_norm": True if c.norm_topk_prob else None,
        "expert_gating_func": 2 if sigmoid else None, **extra,
    }  # fmt: skip
