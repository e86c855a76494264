"""DeepSeek-V2 and V3: latent attention, a few dense layers, then experts beside a shared one.

Sources: DeepSeek-AI 2024, "DeepSeek-V2" and "DeepSeek-V3"; the code published with the weights and its
port in transformers, which agree but where a comment says so. GGUF: `deepseek2` of llama.cpp.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from glassgear.errors import FormatError
from glassgear.model.families import llama
from glassgear.model.families.base import (
    IGNORED,
    Family,
    Found,
    HeadRows,
    Names,
    Rows,
    Stacked,
    sizes_of,
    table,
)
from glassgear.model.families.rope_settings import rope_from_gguf, rope_from_hf
from glassgear.model.gears import (
    Block,
    Embed,
    Experts,
    GatedFFN,
    Head,
    LatentAttention,
    Linear,
    Model,
    Residual,
    RMSNorm,
    Rope,
    Router,
)
from glassgear.model.rope import yarn_magnitude
from glassgear.model.settings import Settings

__all__ = ["EXPERT_GGUF_NAMES", "EXPERT_HF_NAMES", "FAMILY", "DeepSeekConfig", "deepseek"]

MOST_EXPERTS = 100_000
LATENT_EPS = 1e-6  # of the norms over latents: their code doesn't give them the config's epsilon
TRAINING = ("aux_loss_alpha", "ep_size", "output_router_logits", "router_aux_loss_coef", "seq_aux")


@dataclass(frozen=True)
class DeepSeekConfig:
    """The sizes that make a DeepSeek. Lengths in tokens, widths in channels.

    Attributes:
        hidden: width inside the network of a dense layer.
        dense_layers: how many layers at the start have one network instead of experts.
        expert_hidden: width inside an expert.
        shared_hidden: width inside the shared expert; 0: there is none.
        query_rank: width of a query's latent; 0: queries are made in one step.
        latent_eps: epsilon of the norms over latents.
        score_scale: see `LatentAttention`.
        head: whether there is one; a folder can hold a model that only gives hidden states.
        bias: whether the projections down from the stream and back to it have one.
    """

    dim: int
    hidden: int
    layers: int
    dense_layers: int
    expert_hidden: int
    shared_hidden: int
    heads: int
    query_rank: int
    kv_rank: int
    plain_dim: int
    value_dim: int
    vocab: int
    context: int
    eps: float
    latent_eps: float
    rope: Rope
    score_scale: float | None
    tied: bool
    head: bool = True
    bias: bool = False


def deepseek(c: DeepSeekConfig, router: Router) -> Model:
    """The tree of gears."""
    norm = RMSNorm(c.dim, c.eps)
    attention = Residual(norm, _attention(c))
    shared = GatedFFN.build(c.dim, c.shared_hidden) if c.shared_hidden else None
    experts = Experts(router, GatedFFN.build(c.dim, c.expert_hidden), shared)
    dense = Block((attention, Residual(norm, GatedFFN.build(c.dim, c.hidden))))
    sparse = Block((attention, Residual(norm, experts)))
    leading = min(c.dense_layers, c.layers)
    return Model(
        Embed(c.vocab, c.dim),
        (dense,) * leading + (sparse,) * (c.layers - leading),
        norm,
        Head(c.dim, c.vocab, c.tied) if c.head else None,
        context=c.context,
        family="deepseek",
    )


def _attention(c: DeepSeekConfig) -> LatentAttention:
    queries = c.heads * (c.plain_dim + c.rope.dim)
    two_steps = c.query_rank > 0
    return LatentAttention(
        query=None if two_steps else Linear(c.dim, queries),
        query_down=Linear(c.dim, c.query_rank, c.bias) if two_steps else None,
        query_norm=RMSNorm(c.query_rank, c.latent_eps) if two_steps else None,
        query_up=Linear(c.query_rank, queries) if two_steps else None,
        kv_down=Linear(c.dim, c.kv_rank + c.rope.dim, c.bias),
        kv_norm=RMSNorm(c.kv_rank, c.latent_eps),
        kv_up=Linear(c.kv_rank, c.heads * (c.plain_dim + c.value_dim)),
        output=Linear(c.heads * c.value_dim, c.dim, c.bias),
        rope=c.rope,
        heads=c.heads,
        plain_dim=c.plain_dim,
        value_dim=c.value_dim,
        kv_rank=c.kv_rank,
        score_scale=c.score_scale,
    )


def _score_scale(head_dim: int, rope: Rope, mscale_all_dim: float) -> float | None:
    """Where YaRN sharpens all channels: its magnitude squared, once for q and once for k."""
    if rope.scaling is None or not mscale_all_dim:
        return None
    return float(head_dim**-0.5) * yarn_magnitude(rope.scaling.factor, mscale_all_dim) ** 2


# --------------------------------------------------------------------------------------------
# Hugging Face folders


def from_hf(s: Settings, found: Found) -> Model:
    """The model of a `config.json` of type `deepseek_v2` or `deepseek_v3`."""
    third = s.take("model_type", str, "") == "deepseek_v3"
    s.ignore((*IGNORED, *TRAINING))
    s.only("hidden_act", "silu", "swish")
    s.only("moe_layer_freq", 1)
    s.only("mlp_bias", False)
    layers = s.size("num_hidden_layers", most=10_000)
    _check_layers(s, found, layers, s.size("num_nextn_predict_layers", 0, least=0, most=1000))
    with sizes_of(s.path):
        router = (_router_v3 if third else _router_v2)(s, s.size("hidden_size"))
        sizes = replace(_hf_sizes(s, layers, third), head=not llama.headless(s, found))
        model = deepseek(sizes, router)
    s.finish()
    return model


def _hf_sizes(s: Settings, layers: int, third: bool) -> DeepSeekConfig:
    heads, context = s.size("num_attention_heads"), s.size("max_position_embeddings", 4096 if third else 2048)
    expert_hidden = s.size("moe_intermediate_size")
    plain_dim, rope_dim = s.size("qk_nope_head_dim"), s.size("qk_rope_head_dim")
    s.only("num_key_value_heads", heads)
    s.only("qk_head_dim", plain_dim + rope_dim)
    s.only("head_dim", rope_dim)  # so transformers calls the width that turns
    rope = rope_from_hf(s, rope_dim, context)
    if not third or s.take("rope_interleave", bool, True):
        rope = replace(rope, pairing="interleaved")
    return DeepSeekConfig(
        dim=s.size("hidden_size"),
        hidden=s.size("intermediate_size"),
        layers=layers,
        dense_layers=s.size("first_k_dense_replace", 0, least=0),
        expert_hidden=expert_hidden,
        shared_hidden=expert_hidden * s.size("n_shared_experts", 0, least=0, most=1000),
        heads=heads,
        query_rank=s.size("q_lora_rank", 0, least=0),
        kv_rank=s.size("kv_lora_rank"),
        plain_dim=plain_dim,
        value_dim=s.size("v_head_dim"),
        vocab=s.size("vocab_size"),
        context=context,
        eps=s.epsilon("rms_norm_eps", 1e-6),
        latent_eps=LATENT_EPS,
        rope=rope,
        score_scale=_score_scale(plain_dim + rope_dim, rope, _mscale_all_dim(s)),
        tied=s.take("tie_word_embeddings", bool, False),
        bias=s.take("attention_bias", bool, False),
    )


def _mscale_all_dim(s: Settings) -> float:
    """The key that `rope_from_hf` uses for cos and sin, and that acts on the scores as well."""
    values = {**(s.mapping("rope_scaling") or {}), **(s.mapping("rope_parameters") or {})}
    return Settings(values, s.path).take("mscale_all_dim", float, 0.0)


def _router_v3(s: Settings, dim: int) -> Router:
    """Sigmoid scores, a correction in the choice, groups worth their two best experts."""
    s.only("topk_method", "noaux_tc")
    s.only("scoring_func", "sigmoid")
    return Router(
        dim,
        count=s.size("n_routed_experts", most=MOST_EXPERTS),
        used=s.size("num_experts_per_tok"),
        score="sigmoid",
        correction=True,
        groups=s.size("n_group", 8),
        groups_kept=s.size("topk_group", 4),
        group_score="top2",
        normalize=s.take("norm_topk_prob", bool, True),
        scale=s.take("routed_scaling_factor", float, 2.5),
    )


def _router_v2(s: Settings, dim: int) -> Router:
    """Softmax scores, groups worth their best expert.

    Weights are divided by their sum or multiplied by the factor, never both (`MoEGate.forward` of the
    published code). transformers has left the division out; no published config asks for it.
    """
    s.only("scoring_func", "softmax")
    method = s.take("topk_method", str, "greedy")
    if method not in ("greedy", "group_limited_greedy"):
        s.only("topk_method", "greedy", "group_limited_greedy")
    used, groups, kept = s.size("num_experts_per_tok"), s.size("n_group", 1), s.size("topk_group", 1)
    grouped = method == "group_limited_greedy"
    normalize = s.take("norm_topk_prob", bool, False) and used > 1
    scale = s.take("routed_scaling_factor", float, 1.0)
    return Router(
        dim,
        count=s.size("n_routed_experts", most=MOST_EXPERTS),
        used=used,
        groups=groups if grouped else 1,
        groups_kept=kept if grouped else 1,
        group_score="max",
        normalize=normalize,
        scale=1.0 if normalize else scale,
    )


def _check_layers(s: Settings, found: Found, layers: int, extra: int) -> None:
    """Layers past the model's own are those that the config says predict further tokens."""
    past = {n for name in found.shapes if (n := _layer(name)) is not None and n >= layers + extra}
    if past:
        raise FormatError(
            s.path,
            f"speaks of {layers} layers and {extra} that look further ahead, but there is layer {min(past)}",
        )


LAYER = re.compile(r"(?:layers|blk)\.(\d+)\.")


def _layer(name: str) -> int | None:
    found = LAYER.match(name)
    return int(found[1]) if found else None


def skip(name: str, model: Model) -> str | None:
    """Layers that predict tokens further ahead; and what a Llama's files may hold."""
    layer = _layer(name)
    if layer is not None and layer >= len(model.blocks):
        return "leaves out the layers that predict tokens beyond the next one (multi-token prediction)"
    return llama.skip(name, model)


# --------------------------------------------------------------------------------------------
# GGUF


def from_gguf(s: Settings, found: Found) -> Model:
    """The model of GGUF metadata of architecture `deepseek2`."""
    vocab = found.rows("token_embd.weight", s.path)
    s.only("vocab_size", vocab)
    extra = s.size("nextn_predict_layers", 0, least=0, most=1000)
    layers = s.size("block_count", most=10_000) - extra
    if layers < 1:
        raise FormatError(s.path, f"has {layers + extra} layers, and {extra} of them look further ahead")
    _check_layers(s, found, layers, extra)
    with sizes_of(s.path):
        router = _gguf_router(s, found)
        model = deepseek(_gguf_sizes(s, found, layers, vocab), router)
    s.finish()
    return model


def _gguf_sizes(s: Settings, found: Found, layers: int, vocab: int) -> DeepSeekConfig:
    heads, context = s.size("attention.head_count"), s.size("context_length")
    kv_rank, rope_dim = s.size("attention.kv_lora_rank"), s.size("rope.dimension_count")
    head_dim, value_dim = _gguf_widths(s, kv_rank, rope_dim)
    s.only("attention.head_count_kv", 1, heads)
    s.only("rope.scaling.attn_factor", 1.0)
    # llama.cpp's converter writes a tenth of `mscale_all_dim`, and so does its reader take it.
    log_multiplier = s.take("rope.scaling.yarn_log_multiplier", float, 0.0)
    rope = rope_from_gguf(s, rope_dim, context, found.rope_factors, on_scores=True)
    expert_hidden = s.size("expert_feed_forward_length")
    eps = s.epsilon("attention.layer_norm_rms_epsilon", 1e-6)
    return DeepSeekConfig(
        dim=s.size("embedding_length"),
        hidden=s.size("feed_forward_length"),
        layers=layers,
        dense_layers=s.size("leading_dense_block_count", 0, least=0),
        expert_hidden=expert_hidden,
        shared_hidden=expert_hidden * s.size("expert_shared_count", 0, least=0, most=1000),
        heads=heads,
        query_rank=s.size("attention.q_lora_rank", 0, least=0),
        kv_rank=kv_rank,
        plain_dim=head_dim - rope_dim,
        value_dim=value_dim,
        vocab=vocab,
        context=context,
        eps=eps,
        latent_eps=eps,
        rope=replace(rope, pairing="interleaved"),
        score_scale=_score_scale(head_dim, rope, 10 * log_multiplier),
        tied=not found.has("output.weight"),
    )


def _gguf_widths(s: Settings, kv_rank: int, rope_dim: int) -> tuple[int, int]:
    """Widths of a head's query and of its value.

    Newer files describe the cache under the usual keys, as one head of latents, and the heads apart.
    """
    newer = s.has("attention.key_length_mla")
    if newer:
        s.only("attention.key_length", kv_rank + rope_dim)
        s.only("attention.value_length", kv_rank)
    suffix = "_mla" if newer else ""
    head_dim, value_dim = s.size(f"attention.key_length{suffix}"), s.size(f"attention.value_length{suffix}")
    if head_dim <= rope_dim:
        raise FormatError(
            s.path, f"heads of {head_dim} channels, of which {rope_dim} turn, leave none that don't"
        )
    return head_dim, value_dim


def _gguf_router(s: Settings, found: Found) -> Router:
    s.only("expert_gating_func", 1, 2)
    sigmoid = s.take("expert_gating_func", int, 1) == 2  # DeepSeek-V2's files don't say
    return Router(
        s.size("embedding_length"),
        count=s.size("expert_count", most=MOST_EXPERTS),
        used=s.size("expert_used_count"),
        score="sigmoid" if sigmoid else "softmax",
        correction=any(name.endswith(".exp_probs_b.bias") for name in found.shapes),
        groups=s.size("expert_group_count", 1),
        groups_kept=s.size("expert_group_used_count", 1),
        group_score="top2" if sigmoid else "max",
        normalize=s.take("expert_weights_norm", bool, False),
        scale=s.take("expert_weights_scale", float, 1.0) or 1.0,
    )


# --------------------------------------------------------------------------------------------
# Names. Experts are one tensor each in published folders; transformers holds them stacked. Of two
# names for one thing the last is the usual one.

EXPERT_HF_NAMES: Names = {
    "layers.#.mlp.experts.gate_up_proj": Stacked(
        Rows("blocks.#.ffn.experts.#.gate.weight", "blocks.#.ffn.experts.#.up.weight")
    ),
    "layers.#.mlp.experts.down_proj": Stacked("blocks.#.ffn.experts.#.down.weight"),
    "layers.#.mlp.experts.#.gate_proj.weight": "blocks.#.ffn.experts.#.gate.weight",
    "layers.#.mlp.experts.#.up_proj.weight": "blocks.#.ffn.experts.#.up.weight",
    "layers.#.mlp.experts.#.down_proj.weight": "blocks.#.ffn.experts.#.down.weight",
    "layers.#.mlp.gate.": "blocks.#.ffn.router.",
}
EXPERT_GGUF_NAMES: Names = {
    "blk.#.ffn_gate_up_exps.": Stacked(Rows("blocks.#.ffn.experts.#.gate.", "blocks.#.ffn.experts.#.up.")),
    "blk.#.ffn_gate_exps.": Stacked("blocks.#.ffn.experts.#.gate."),
    "blk.#.ffn_up_exps.": Stacked("blocks.#.ffn.experts.#.up."),
    "blk.#.ffn_down_exps.": Stacked("blocks.#.ffn.experts.#.down."),
    "blk.#.ffn_gate_inp.": "blocks.#.ffn.router.",
}
HF_NAMES = table(
    "layers.#.",
    {
        "input_layernorm": "attention_norm", "self_attn.q_proj": "attention.query",
        "self_attn.q_a_proj": "attention.query_down", "self_attn.q_a_layernorm": "attention.query_norm",
        "self_attn.q_b_proj": "attention.query_up", "self_attn.kv_a_proj_with_mqa": "attention.kv_down",
        "self_attn.kv_a_layernorm": "attention.kv_norm", "self_attn.kv_b_proj": "attention.kv_up",
        "self_attn.o_proj": "attention.output", "post_attention_layernorm": "ffn_norm",
        "mlp.gate_proj": "ffn.gate", "mlp.up_proj": "ffn.up", "mlp.down_proj": "ffn.down",
        "mlp.shared_experts.gate_proj": "ffn.shared.gate", "mlp.shared_experts.up_proj": "ffn.shared.up",
        "mlp.shared_experts.down_proj": "ffn.shared.down",
    },
    {
        "embed_tokens.": "embed.", "norm.": "norm.", "lm_head.": "head.",
        "layers.#.mlp.gate.e_score_correction_bias": "blocks.#.ffn.router.correction",
        **EXPERT_HF_NAMES,
    },
)  # fmt: skip
GGUF_NAMES = table(
    "blk.#.",
    {
        "attn_norm": "attention_norm", "attn_q": "attention.query", "attn_q_a": "attention.query_down",
        "attn_q_a_norm": "attention.query_norm", "attn_q_b": "attention.query_up",
        "attn_kv_a_mqa": "attention.kv_down", "attn_kv_a_norm": "attention.kv_norm",
        "attn_k_b": HeadRows("attention.kv_up", 0, transposed=True),
        "attn_v_b": HeadRows("attention.kv_up", 1),
        "attn_kv_b": "attention.kv_up", "attn_output": "attention.output", "ffn_norm": "ffn_norm",
        "ffn_gate": "ffn.gate", "ffn_up": "ffn.up", "ffn_down": "ffn.down",
        "ffn_gate_shexp": "ffn.shared.gate", "ffn_up_shexp": "ffn.shared.up",
        "ffn_down_shexp": "ffn.shared.down",
    },
    {
        "token_embd.": "embed.", "output_norm.": "norm.", "output.": "head.",
        "blk.#.exp_probs_b.bias": "blocks.#.ffn.router.correction",
        **EXPERT_GGUF_NAMES,
    },
)  # fmt: skip

FAMILY = Family(
    "deepseek",
    hf_types=("deepseek_v2", "deepseek_v3"),
    from_hf=from_hf,
    hf_names=HF_NAMES,
    gguf_types=("deepseek2",),
    from_gguf=from_gguf,
    gguf_names=GGUF_NAMES,
    skip=skip,
)
