"""Qwen3 with experts: Qwen3's attention, and in most layers experts in the place of one network.

Source: Yang et al. 2025 (Qwen3); 128 experts of which a token uses 8, chosen by a softmax over all.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from glassgear.errors import FormatError
from glassgear.model.families import qwen3
from glassgear.model.families.base import Family, Found, sizes_of
from glassgear.model.families.deepseek import EXPERT_GGUF_NAMES, EXPERT_HF_NAMES, MOST_EXPERTS
from glassgear.model.families.llama import (
    LlamaConfig,
    checked,
    llama,
    sizes_from_gguf,
    sizes_from_hf,
    skip,
)
from glassgear.model.gears import Block, Experts, GatedFFN, Model, Residual, RMSNorm, Router
from glassgear.model.settings import Settings

__all__ = ["FAMILY", "Qwen3MoeConfig", "qwen3_moe"]

# What transformers takes keys for that a config doesn't have.
DEFAULTS = {"num_key_value_heads": 4, "max_position_embeddings": 32768, "sliding_window": 4096}


@dataclass(frozen=True)
class Qwen3MoeConfig:
    """A Qwen3 and what stands in place of its networks.

    Attributes:
        sizes: of all the rest; `hidden` is that of layers without experts.
        router: chooses experts.
        expert_hidden: width inside an expert, in channels.
        dense: numbers of the layers that have one network as Qwen3 does.
    """

    sizes: LlamaConfig
    router: Router
    expert_hidden: int
    dense: frozenset[int] = frozenset()


def qwen3_moe(c: Qwen3MoeConfig) -> Model:
    """The tree of gears."""
    plain = llama(replace(c.sizes, head_norms=True, family="qwen3_moe"))
    experts = Experts(c.router, GatedFFN.build(c.sizes.dim, c.expert_hidden))
    ffn = Residual(RMSNorm(c.sizes.dim, c.sizes.eps), experts)
    sparse = {block: Block((block.steps[0], ffn)) for block in set(plain.blocks)}
    blocks = (block if i in c.dense else sparse[block] for i, block in enumerate(plain.blocks))
    return replace(plain, blocks=tuple(blocks))


def from_hf(s: Settings, found: Found) -> Model:
    """The model of a `config.json` of type `qwen3_moe`."""
    s = s.completed(DEFAULTS)
    s.ignore(["output_router_logits", "router_aux_loss_coef"])
    sizes = sizes_from_hf(s, found)
    window = _window(s)
    bias = s.take("attention_bias", bool, False)
    count = s.size(
        "num_local_experts" if s.has("num_local_experts") else "num_experts", 128, most=MOST_EXPERTS
    )
    s.only("num_experts", count)
    with sizes_of(s.path):
        router = Router(
            sizes.dim,
            count,
            used=s.size("num_experts_per_tok", 8),
            normalize=s.take("norm_topk_prob", bool, False),
        )
    expert_hidden, dense = s.size("moe_intermediate_size", 768), _dense(s, sizes.layers)
    sizes = replace(sizes, attention_bias=bias, output_bias=bias, windows=(window,) * sizes.layers)
    return qwen3_moe(Qwen3MoeConfig(checked(sizes, s), router, expert_hidden, dense))


def _window(s: Settings) -> int:
    """One for all layers; `max_window_layers`, which Qwen2 goes by, is passed over in transformers."""
    on, window = s.take("use_sliding_window", bool, False), s.size("sliding_window", 0, least=0)
    if on and window:
        s.only("max_window_layers", 0)
    s.ignore(["max_window_layers"])
    return window if on else 0


def _dense(s: Settings, layers: int) -> frozenset[int]:
    """Layers without experts: those that are listed, and those that a step passes over."""
    listed = s.items("mlp_only_layers")
    if not all(type(i) is int for i in listed):
        raise FormatError(s.path, f"`mlp_only_layers` should list numbers of layers, found {listed!r:.60}")
    step = s.size("decoder_sparse_step", 1)
    return frozenset(i for i in range(layers) if i in listed or (i + 1) % step)


def from_gguf(s: Settings, found: Found) -> Model:
    """The model of GGUF metadata of architecture `qwen3moe`."""
    s.only("expert_gating_func", 1)
    s.only("expert_shared_count", 0)
    s.only("expert_group_count", 0, 1)
    s.only("expert_group_used_count", 0, 1)
    sizes = sizes_from_gguf(s, found, experts=True)
    with sizes_of(s.path):
        router = Router(
            sizes.dim,
            count=s.size("expert_count", most=MOST_EXPERTS),
            used=s.size("expert_used_count"),
            normalize=s.take("expert_weights_norm", bool, True),  # as llama.cpp does without being told
            scale=s.take("expert_weights_scale", float, 1.0) or 1.0,
        )
    expert_hidden = s.size("expert_feed_forward_length")
    dense = frozenset(i for i in range(sizes.layers) if not found.has(f"blk.{i}.ffn_gate_inp.weight"))
    return qwen3_moe(Qwen3MoeConfig(checked(sizes, s), router, expert_hidden, dense))


FAMILY = Family(
    "qwen3_moe",
    hf_types=("qwen3_moe",),
    from_hf=from_hf,
    hf_names={**qwen3.FAMILY.hf_names, **EXPERT_HF_NAMES},
    gguf_types=("qwen3moe",),
    from_gguf=from_gguf,
    gguf_names={**qwen3.FAMILY.gguf_names, **EXPERT_GGUF_NAMES},
    skip=skip,
)
