"""Trees of gears as the settings of files: config.json, and GGUF keys under an architecture.

In: a `Model`. Out: plain dicts. The readers are the families' own; here stands the way back, one
function for each family and kind of file. What can't be said is found by reading back what was
written (`compare.py`), so that nothing needs to be checked here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from glassgear.errors import SettingError
from glassgear.model.gears import FFN, Attention, GatedFFN, Model, Rope, RopeScaling, walk
from glassgear.model.rope import inverse_frequencies, yarn_magnitude

__all__ = ["WRITERS", "Writer", "rope_factors"]


@dataclass(frozen=True)
class Writer:
    """How a family's settings are written.

    Attributes:
        hf: the keys of config.json.
        gguf: the keys under `<architecture>.`.
    """

    hf: Callable[[Model], dict[str, Any]] | None = None
    gguf: Callable[[Model], dict[str, Any]] | None = None


def _first(model: Model, kind: type[Any]) -> Any:
    """The first gear of a kind in the first block, or None."""
    return next((gear for _, gear in walk(model.blocks[0]) if isinstance(gear, kind)), None)


def _eps(model: Model) -> float:
    """The epsilon of the norms. In GGUF's 32 bits 1e-5 is 9.999999747e-6; it is written as 1e-5 again."""
    eps = float(getattr(model.norm or model.embed_norm, "eps", 0.0))
    short = np.float32(eps)
    return float(str(short)) if float(short) == eps else eps


# --------------------------------------------------------------------------------------------
# Rotary positions


def _rope_hf(rope: Rope | None) -> dict[str, Any]:
    if rope is None:
        return {}
    return {"rope_theta": rope.theta, "rope_scaling": None if rope.scaling is None else _scaling_hf(rope)}


def _scaling_hf(rope: Rope) -> dict[str, Any]:
    scaling = rope.scaling
    assert scaling is not None
    if scaling.kind == "linear":
        return {"rope_type": "linear", "factor": scaling.factor}
    if scaling.kind == "yarn":
        return {
            "rope_type": "yarn", "factor": scaling.factor,
            "original_max_position_embeddings": scaling.original_context, "beta_fast": scaling.beta_fast,
            "beta_slow": scaling.beta_slow, "attention_factor": scaling.attention_factor,
            "truncate": scaling.truncate,
        }  # fmt: skip
    if scaling.kind == "factors":
        scaling = _as_llama3(rope)
    return {
        "rope_type": "llama3", "factor": scaling.factor, "low_freq_factor": scaling.low_freq_factor,
        "high_freq_factor": scaling.high_freq_factor,
        "original_max_position_embeddings": scaling.original_context,
    }  # fmt: skip


def _as_llama3(rope: Rope) -> RopeScaling:
    """The rule behind a table of factors, supposing that it is Llama 3.1's (`rope._llama3`).

    On the ramp between long and short waves the kept share is a line over the frequency, from which
    the borders follow. Whether they explain all factors, the comparison of frequencies shows.
    """
    assert rope.scaling is not None
    factors = np.array(rope.scaling.factors)
    stretch = float(factors.max())
    kept = (1 / factors - 1 / stretch) / (1 - 1 / stretch) if stretch > 1 else np.ones_like(factors)
    ramp = (kept > 1e-4) & (kept < 1 - 1e-4)
    turns = np.array(inverse_frequencies(Rope(rope.dim, rope.theta)))[ramp] / (2 * np.pi)
    low, high, original = 1.0, 4.0, 8192  # of the published models; low can always be 1
    if len(turns) == 1:
        original = round((kept[ramp][0] * (high - low) + low) / turns[0])
    elif len(turns) > 1:
        slope, offset = np.polyfit(turns, kept[ramp], 1)  # original / (high - low), -low / (high - low)
        original, high = round(-slope / offset * low), round(low - low / offset, 3)
    return RopeScaling("llama3", round(stretch, 4), original, low, high)


def _rope_gguf(rope: Rope | None) -> dict[str, Any]:
    if rope is None:
        return {}
    found: dict[str, Any] = {"rope.dimension_count": rope.dim, "rope.freq_base": float(rope.theta)}
    scaling = rope.scaling
    if scaling is None or scaling.kind in ("llama3", "factors"):
        return found
    found |= {"rope.scaling.type": scaling.kind, "rope.scaling.factor": float(scaling.factor)}
    if scaling.kind == "yarn":
        found |= {
            "rope.scaling.original_context_length": scaling.original_context,
            "rope.scaling.yarn_beta_fast": float(scaling.beta_fast),
            "rope.scaling.yarn_beta_slow": float(scaling.beta_slow),
            "rope.scaling.attn_factor": scaling.attention_factor / yarn_magnitude(scaling.factor),
        }
    return found


def rope_factors(model: Model) -> tuple[float, ...] | None:
    """What GGUF divides the frequencies by, in a tensor of its own, where scaling has no keys there."""
    for _, gear in walk(model.blocks[0]):
        if isinstance(gear, Attention) and gear.rope and gear.rope.scaling:
            if gear.rope.scaling.kind == "factors":
                return gear.rope.scaling.factors
            if gear.rope.scaling.kind == "llama3":
                plain = inverse_frequencies(Rope(gear.rope.dim, gear.rope.theta))
                scaled = inverse_frequencies(gear.rope)
                return tuple(a / b for a, b in zip(plain, scaled, strict=True))
    return None


# --------------------------------------------------------------------------------------------
# Llama and its relatives


def _decoder(model: Model) -> tuple[Attention, GatedFFN]:
    """The gears of the first block, if they are those of these families.

    Raises:
        SettingError: they are others.
    """
    attention, ffn = _first(model, Attention), _first(model, GatedFFN)
    if attention is None or ffn is None:
        raise SettingError(f"a model of the family {model.family} has no attention with a gated FFN")
    return attention, ffn


def _decoder_hf(model: Model, kind: str, architecture: str, **more: Any) -> dict[str, Any]:
    """What their configs have in common."""
    attention, ffn = _decoder(model)
    return {
        "architectures": [architecture], "model_type": kind, "hidden_act": "silu", "hidden_size": model.dim,
        "intermediate_size": ffn.up.outputs, "num_hidden_layers": len(model.blocks),
        "num_attention_heads": attention.heads, "num_key_value_heads": attention.kv_heads,
        "head_dim": attention.head_dim, "max_position_embeddings": model.context, "rms_norm_eps": _eps(model),
        "tie_word_embeddings": model.head is not None and model.head.tied, "vocab_size": model.vocab,
        **_rope_hf(attention.rope), **more,
    }  # fmt: skip


def _decoder_gguf(model: Model, **more: Any) -> dict[str, Any]:
    attention, ffn = _decoder(model)
    return {
        "block_count": len(model.blocks), "context_length": model.context, "embedding_length": model.dim,
        "feed_forward_length": ffn.up.outputs, "attention.head_count": attention.heads,
        "attention.head_count_kv": attention.kv_heads, "attention.key_length": attention.head_dim,
        "attention.value_length": attention.head_dim, "attention.layer_norm_rms_epsilon": _eps(model),
        "vocab_size": model.vocab, **_rope_gguf(attention.rope), **more,
    }  # fmt: skip


def _llama_hf(model: Model) -> dict[str, Any]:
    attention, ffn = _decoder(model)
    biases = {"attention_bias": attention.query.bias, "mlp_bias": ffn.up.bias}
    return _decoder_hf(model, "llama", "LlamaForCausalLM", **biases)


def _llama_gguf(model: Model) -> dict[str, Any]:
    window = _decoder(model)[0].window
    return _decoder_gguf(model) | ({"attention.sliding_window": window} if window else {})


def _mistral_hf(model: Model) -> dict[str, Any]:
    window = _decoder(model)[0].window
    return _decoder_hf(model, "mistral", "MistralForCausalLM", sliding_window=window or None)


def _qwen2_hf(model: Model) -> dict[str, Any]:
    return _decoder_hf(model, "qwen2", "Qwen2ForCausalLM", use_sliding_window=False)


def _qwen3_hf(model: Model) -> dict[str, Any]:
    bias = _decoder(model)[0].query.bias
    return _decoder_hf(model, "qwen3", "Qwen3ForCausalLM", use_sliding_window=False, attention_bias=bias)


def _glm_hf(kind: str, architecture: str) -> Callable[[Model], dict[str, Any]]:
    def config(model: Model) -> dict[str, Any]:
        attention, _ = _decoder(model)
        partly = attention.rope.dim / attention.head_dim if attention.rope else 1.0
        bias = attention.query.bias
        return _decoder_hf(model, kind, architecture, partial_rotary_factor=partly, attention_bias=bias)

    return config


# --------------------------------------------------------------------------------------------
# Gemma 3


def _gemma3_layers(model: Model) -> tuple[list[Attention], Attention, Attention]:
    """The attention of each block, and one with and one without a window, as far as there are such."""
    layers = [gear for _, gear in walk(model) if isinstance(gear, Attention)]
    local = next((gear for gear in layers if gear.window), layers[0])
    return layers, local, next((gear for gear in layers if not gear.window), layers[0])


def _gemma3_hf(model: Model) -> dict[str, Any]:
    layers, local, full = _gemma3_layers(model)
    config = _decoder_hf(
        model, "gemma3_text", "Gemma3ForCausalLM",
        hidden_activation="gelu_pytorch_tanh",
        attention_bias=local.query.bias,
        query_pre_attn_scalar=round(local.scale**-2),
        sliding_window=local.window or 4096,
        layer_types=["sliding_attention" if gear.window else "full_attention" for gear in layers],
        rope_local_base_freq=_theta(local if local.window else None, 10_000.0),
        attn_logit_softcapping=local.cap or None,
        final_logit_softcapping=(model.head.cap if model.head else 0.0) or None,
        **_rope_hf(Rope(full.head_dim, 1_000_000.0) if full.window else full.rope),
    )  # fmt: skip
    del config["hidden_act"]
    return config


def _gemma3_gguf(model: Model) -> dict[str, Any]:
    layers, local, full = _gemma3_layers(model)
    found = _decoder_gguf(model) | _rope_gguf(Rope(full.head_dim, 1_000_000.0) if full.window else full.rope)
    found |= {
        "attention.sliding_window": local.window,
        "rope.freq_base_swa": _theta(local if local.window else None, 10_000.0),
    }
    period = next((place for place, gear in enumerate(layers, start=1) if not gear.window), 0)
    if period not in (0, 6):  # six is what readers suppose
        found["attention.sliding_window_pattern"] = period
    if local.cap:
        found["attn_logit_softcapping"] = float(local.cap)
    if model.head and model.head.cap:
        found["final_logit_softcapping"] = float(model.head.cap)
    return found


def _theta(gear: Attention | None, default: float) -> float:
    return gear.rope.theta if gear is not None and gear.rope is not None else default


# --------------------------------------------------------------------------------------------
# GPT-2


def _gpt2_hf(model: Model) -> dict[str, Any]:
    attention, ffn = _first(model, Attention), _first(model, FFN)
    return {
        "architectures": ["GPT2LMHeadModel"], "model_type": "gpt2", "activation_function": "gelu_new",
        "n_embd": model.dim, "n_layer": len(model.blocks), "n_head": attention.heads,
        "n_inner": ffn.up.outputs, "n_positions": model.context, "vocab_size": model.vocab,
        "layer_norm_epsilon": _eps(model), "tie_word_embeddings": model.head is not None and model.head.tied,
    }  # fmt: skip


def _gpt2_gguf(model: Model) -> dict[str, Any]:
    attention, ffn = _first(model, Attention), _first(model, FFN)
    return {
        "block_count": len(model.blocks), "context_length": model.context, "embedding_length": model.dim,
        "feed_forward_length": ffn.up.outputs, "attention.head_count": attention.heads,
        "attention.layer_norm_epsilon": _eps(model), "vocab_size": model.vocab,
    }  # fmt: skip


# --------------------------------------------------------------------------------------------
# BERT

_ACTIVATIONS = {"gelu": "gelu", "gelu_tanh": "gelu_new", "relu": "relu", "silu": "silu"}


def _bert_hf(model: Model) -> dict[str, Any]:
    attention, ffn = _first(model, Attention), _first(model, FFN)
    return {
        "architectures": ["BertForMaskedLM" if model.head else "BertModel"], "model_type": "bert",
        "hidden_act": _ACTIVATIONS.get(ffn.activation, ffn.activation), "hidden_size": model.dim,
        "intermediate_size": ffn.up.outputs, "num_hidden_layers": len(model.blocks),
        "num_attention_heads": attention.heads, "max_position_embeddings": model.context,
        "type_vocab_size": model.token_types.count if model.token_types else 0,
        "layer_norm_eps": _eps(model), "vocab_size": model.vocab,
    }  # fmt: skip


def _bert_gguf(model: Model) -> dict[str, Any]:
    return _gpt2_gguf(model) | {"attention.causal": False}


WRITERS: Mapping[str, Writer] = {
    "llama": Writer(_llama_hf, _llama_gguf),
    "mistral": Writer(hf=_mistral_hf),
    "qwen2": Writer(_qwen2_hf, _decoder_gguf),
    "qwen3": Writer(_qwen3_hf, _decoder_gguf),
    "glm": Writer(_glm_hf("glm", "GlmForCausalLM"), _decoder_gguf),
    "glm4": Writer(_glm_hf("glm4", "Glm4ForCausalLM"), _decoder_gguf),
    "gemma3": Writer(_gemma3_hf, _gemma3_gguf),
    "gpt2": Writer(_gpt2_hf, _gpt2_gguf),
    "bert": Writer(_bert_hf, _bert_gguf),
}
"""Family -> its writer."""
