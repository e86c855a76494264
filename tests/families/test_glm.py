"""GLM-4: half of each head turns, in neighbouring pairs; the 0414 models norm what sublayers give."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from glassgear.errors import FormatError, GlassgearError, UnsupportedError
from glassgear.model.families import glm
from glassgear.model.gears import Attention, walk
from glassgear.model.ledger import ledger
from tests.families.decoders import (
    HF_TO_GGUF,
    LONG,
    SHORT_MODEL,
    SIZES,
    YARN,
    folder_case,
    gguf_case,
    metadata,
)
from tests.families.support import Case, config_of, each_case, made, model_of, write_gguf

GLM, GLM4 = ("GlmForCausalLM", "GlmConfig"), ("Glm4ForCausalLM", "Glm4Config")
NAMES = {
    "post_self_attn_layernorm": "post_attention_norm", "post_mlp_layernorm": "post_ffw_norm",
    "mlp.gate_up_proj": "ffn_up", **HF_TO_GGUF,
}  # fmt: skip
# transformers keeps the share of a head that turns among the rotary settings.
WHOLE = {"rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 1.0}}
QUARTER = {"rope_parameters": {"rope_type": "default", "rope_theta": 5e6, "partial_rotary_factor": 0.2}}
STRETCHED = {"rope_parameters": YARN | {"partial_rotary_factor": 0.5}, "max_position_embeddings": 4096}


def rope_keys(config: Any) -> dict[str, Any]:
    return {"rope.dimension_count": int(config.head_dim * config.rope_parameters["partial_rotary_factor"])}


def fused(folder: Path) -> tuple[Path, Any]:
    """As the converter writes the older checkpoints: one matrix for q, k and v, and no head width."""
    torch = pytest.importorskip("torch")
    model = made(GLM[0], config_of(GLM[1], **(SIZES | {"head_dim": 12})))
    weights = model.state_dict()
    for name in [name for name in weights if ".q_proj." in name]:
        parts = [weights.pop(name.replace("q_proj", part)) for part in ("q_proj", "k_proj", "v_proj")]
        weights[name.replace("self_attn.q_proj", "attn_qkv")] = torch.cat(parts)
    keys = metadata("chatglm", model.config, **rope_keys(model.config))
    keys = {k: v for k, v in keys.items() if not k.endswith(("key_length", "value_length"))}
    return write_gguf(folder / "m.gguf", SimpleNamespace(state_dict=lambda: weights), NAMES, keys), model


CASES = [
    folder_case("glm", "plain", GLM, {}),
    folder_case("glm", "no biases, tied", GLM, {"attention_bias": False, "tie_word_embeddings": True}),
    folder_case("glm", "whole heads turn", GLM, WHOLE),
    folder_case("glm", "a fifth of heads turns", GLM, QUARTER),
    folder_case("glm", "yarn, 4,200 tokens", GLM, SHORT_MODEL | STRETCHED, LONG),
    gguf_case("glm", "separate q, k, v", GLM, {"head_dim": 12}, "chatglm", names=NAMES, keys=rope_keys),
    Case("glm", "one matrix for q, k, v", "gguf", fused),
    folder_case("glm4", "plain", GLM4, {}),
    folder_case("glm4", "no biases", GLM4, {"attention_bias": False}),
    gguf_case("glm4", "plain", GLM4, {}, "glm4", names=NAMES, keys=rope_keys),
    gguf_case("glm4", "no biases", GLM4, {"attention_bias": False}, "glm4", names=NAMES, keys=rope_keys),
]

# THUDM/glm-4-9b-chat-hf
GLM_4_9B: dict[str, Any] = {
    "architectures": ["GlmForCausalLM"], "attention_bias": True, "attention_dropout": 0.0,
    "eos_token_id": [151329, 151336, 151338], "head_dim": 128, "hidden_act": "silu", "hidden_size": 4096,
    "initializer_range": 0.02, "intermediate_size": 13696, "max_position_embeddings": 131072,
    "model_type": "glm", "num_attention_heads": 32, "num_hidden_layers": 40, "num_key_value_heads": 2,
    "pad_token_id": 151329, "rms_norm_eps": 1.5625e-07, "rope_theta": 10000.0,
    "tie_word_embeddings": False, "torch_dtype": "bfloat16", "transformers_version": "4.47.0.dev0",
    "use_cache": True, "vocab_size": 151552,
}  # fmt: skip
# THUDM/GLM-4-9B-0414
GLM_4_9B_0414 = GLM_4_9B | {
    "architectures": ["Glm4ForCausalLM"], "max_position_embeddings": 32768, "model_type": "glm4",
    "partial_rotary_factor": 0.5, "rms_norm_eps": 1e-05,
}  # fmt: skip


@each_case(CASES)
def test_logits_are_those_of_transformers(case: Case, backend: str, tmp_path: Path) -> None:
    case.check(tmp_path, backend)


def test_totals_of_published_models_from_their_config_alone() -> None:
    assert ledger(model_of(glm.glm_from_hf, GLM_4_9B)).parameters == 9_399_951_360
    assert ledger(model_of(glm.glm4_from_hf, GLM_4_9B_0414)).parameters == 9_400_279_040


@pytest.mark.parametrize(("factor", "turned"), [(0.5, 64), (..., 64), (None, 64), (1.0, 128)])
def test_how_much_of_a_head_turns(factor: Any, turned: int) -> None:
    """Case B27; the factor stands by itself, without other rotary settings."""
    config = GLM_4_9B if factor is ... else GLM_4_9B | {"partial_rotary_factor": factor}
    attention = next(g for _, g in walk(model_of(glm.glm_from_hf, config)) if isinstance(g, Attention))
    assert attention.rope is not None
    assert (attention.rope.dim, attention.rope.pairing) == (turned, "interleaved")
    assert (attention.head_dim, attention.query.bias, attention.output.bias) == (128, True, False)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"partial_rotary_factor": 1.5}, FormatError, "`partial_rotary_factor` is 1.5"),
        ({"partial_rotary_factor": 0.01}, FormatError, "rotary width is 1"),
        ({"num_nextn_predict_layers": 1}, UnsupportedError, "`num_nextn_predict_layers`"),
        ({"num_attention_heads": 3}, FormatError, "3 query heads can't share 2"),
    ],
)
def test_what_cannot_be_run_is_named(
    change: dict[str, Any], error: type[GlassgearError], message: str
) -> None:
    with pytest.raises(error, match=message):
        model_of(glm.glm_from_hf, GLM_4_9B | change)
