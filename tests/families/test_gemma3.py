"""Gemma 3: two ropes, layers with and without a window, norms that store their distance from 1."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from glassgear.errors import FormatError, GlassgearError, UnsupportedError
from glassgear.model.families import gemma3
from glassgear.model.gears import Attention, walk
from glassgear.model.ledger import ledger
from glassgear.weights.open import open_checkpoint
from tests.families.decoders import HF_TO_GGUF, LONG, SHORT_MODEL, SIZES, folder_case, gguf_case
from tests.families.support import Case, config_of, each_case, edit, logits_of, made, model_of, save

GEMMA3 = ("Gemma3ForCausalLM", "Gemma3TextConfig")
SMALL = {"sliding_window": 4, "tie_word_embeddings": True, "query_pre_attn_scalar": 20}
TYPES = {"layer_types": ["sliding_attention", "full_attention", "sliding_attention"]}
ROPES = {
    "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
    "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
}
LONG_CONFIG = SMALL | SHORT_MODEL | {
    "num_hidden_layers": 2, "layer_types": TYPES["layer_types"][:2], "rope_parameters": ROPES,
    "sliding_window": 512, "max_position_embeddings": 8192,
}  # fmt: skip
NAMES = HF_TO_GGUF | {
    "post_attention_layernorm": "post_attention_norm", "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
}  # fmt: skip


def shifted(config: Any) -> Any:
    """The converter adds the 1 that norms of this family lack."""
    return lambda name, values: values + 1 if name.endswith("norm.weight") else values


def keys(config: Any) -> dict[str, Any]:
    ropes = config.rope_parameters
    scaling = ropes["full_attention"]
    linear = {"rope.scaling.type": "linear", "rope.scaling.factor": scaling.get("factor")}
    return {
        "rope.freq_base": scaling["rope_theta"], "attention.sliding_window": config.sliding_window,
        **(linear if scaling["rope_type"] == "linear" else {}),
    }  # fmt: skip


def newer_keys(config: Any) -> dict[str, Any]:
    local = config.rope_parameters["sliding_attention"]["rope_theta"]
    return keys(config) | {"rope.freq_base_swa": local, "attention.sliding_window_pattern": 2}


def gguf(variant: str, values: dict[str, Any], own: Any = keys) -> Case:
    return gguf_case(
        "gemma3", variant, GEMMA3, SMALL | values, "gemma3", names=NAMES, change=shifted, keys=own
    )


def capped(model: Any, ids: Any) -> np.ndarray:
    """transformers' attention has the cap, but its Gemma 3 forgets to pass the config's value on."""
    model.set_attn_implementation("eager")
    return logits_of(model, ids, softcap=model.config.attn_logit_softcapping)


CASES = [
    folder_case("gemma3", "pattern of 6", GEMMA3, SMALL | {"num_hidden_layers": 7}),
    folder_case("gemma3", "layer types", GEMMA3, SMALL | TYPES),
    folder_case("gemma3", "stretched global rope", GEMMA3, SMALL | TYPES | {"rope_parameters": ROPES}),
    folder_case("gemma3", "biases, scale, untied", GEMMA3, SMALL | TYPES | {
        "attention_bias": True, "query_pre_attn_scalar": 7, "tie_word_embeddings": False,
    }),
    folder_case("gemma3", "soft cap of logits", GEMMA3, SMALL | TYPES | {"final_logit_softcapping": 3.0}),
    folder_case(
        "gemma3", "soft cap of scores", GEMMA3, SMALL | TYPES | {"attn_logit_softcapping": 0.5}, theirs=capped
    ),
    folder_case("gemma3", "bare model", ("Gemma3TextModel", GEMMA3[1]), SMALL),
    folder_case("gemma3", "linear rope, 4,200 tokens", GEMMA3, LONG_CONFIG, LONG),
    gguf("pattern of 6", {"num_hidden_layers": 7}),
    gguf("stretched global rope", {"num_hidden_layers": 7, "rope_parameters": ROPES}),
    gguf("pattern of 2", {"num_hidden_layers": 2, "layer_types": TYPES["layer_types"][:2]}, newer_keys),
    gguf("soft cap of logits", {"final_logit_softcapping": 3.0},
         lambda config: keys(config) | {"final_logit_softcapping": 3.0}),
]  # fmt: skip

# google/gemma-3-1b-it
GEMMA_3_1B: dict[str, Any] = {
    "architectures": ["Gemma3ForCausalLM"], "attention_bias": False, "attention_dropout": 0.0,
    "attn_logit_softcapping": None, "bos_token_id": 2, "cache_implementation": "hybrid",
    "eos_token_id": [1, 106], "final_logit_softcapping": None, "head_dim": 256,
    "hidden_activation": "gelu_pytorch_tanh", "hidden_size": 1152, "initializer_range": 0.02,
    "intermediate_size": 6912, "max_position_embeddings": 32768, "model_type": "gemma3_text",
    "num_attention_heads": 4, "num_hidden_layers": 26, "num_key_value_heads": 1, "pad_token_id": 0,
    "query_pre_attn_scalar": 256, "rms_norm_eps": 1e-06, "rope_local_base_freq": 10000,
    "rope_scaling": None, "rope_theta": 1000000, "sliding_window": 512, "sliding_window_pattern": 6,
    "torch_dtype": "bfloat16", "transformers_version": "4.50.0.dev0", "use_cache": True,
    "vocab_size": 262144,
}  # fmt: skip
# google/gemma-3-270m
GEMMA_3_270M = {
    **{k: v for k, v in GEMMA_3_1B.items() if k not in ("cache_implementation", "sliding_window_pattern")},
    "_sliding_window_pattern": 6, "eos_token_id": 1, "hidden_size": 640, "intermediate_size": 2048,
    "layer_types": [*["sliding_attention"] * 5, "full_attention"] * 3, "num_hidden_layers": 18,
    "rope_local_base_freq": 10000.0, "rope_theta": 1000000.0, "transformers_version": "4.55.0.dev0",
    "use_bidirectional_attention": False,
}  # fmt: skip
# google/gemma-3-4b-it, without what describes its image part
GEMMA_3_4B: dict[str, Any] = {
    "architectures": ["Gemma3ForConditionalGeneration"], "boi_token_index": 255999, "eoi_token_index": 256000,
    "eos_token_id": [1, 106], "image_token_index": 262144, "initializer_range": 0.02,
    "mm_tokens_per_image": 256, "model_type": "gemma3",
    "text_config": {
        "hidden_size": 2560, "intermediate_size": 10240, "model_type": "gemma3_text",
        "num_hidden_layers": 34, "rope_scaling": {"factor": 8.0, "rope_type": "linear"},
        "sliding_window": 1024,
    },
    "torch_dtype": "bfloat16", "transformers_version": "4.50.0.dev0",
    "vision_config": {"hidden_size": 1152, "image_size": 896, "model_type": "siglip_vision_model"},
}  # fmt: skip


@each_case(CASES)
def test_logits_are_those_of_transformers(case: Case, backend: str, tmp_path: Path) -> None:
    case.check(tmp_path, backend)


def test_totals_of_published_models_from_their_config_alone() -> None:
    assert ledger(model_of(gemma3.from_hf, GEMMA_3_270M)).parameters == 268_098_176
    assert ledger(model_of(gemma3.from_hf, GEMMA_3_1B)).parameters == 999_885_952
    # Published: 4,300,079,472 with the image part, of which a tower and a projector.
    text = 4_300_079_472 - 416_866_032 - 2_950_272
    assert ledger(model_of(gemma3.from_hf, GEMMA_3_4B)).parameters == text


def attentions(config: dict[str, Any]) -> list[Attention]:
    return [gear for _, gear in walk(model_of(gemma3.from_hf, config)) if isinstance(gear, Attention)]


@pytest.mark.parametrize("config", [GEMMA_3_270M, GEMMA_3_1B, GEMMA_3_4B], ids=["270m", "1b", "4b"])
def test_every_sixth_layer_sees_all_and_turns_by_the_global_rope(config: dict[str, Any]) -> None:
    found = attentions(config)
    width = config.get("text_config", config)["sliding_window"]
    assert [gear.window for gear in found] == [0 if i % 6 == 5 else width for i in range(len(found))]
    for gear in found:
        assert gear.rope is not None and gear.head_dim == 256 and gear.scale == 1 / 16
        assert gear.rope.theta == (1e4 if gear.window else 1e6)
        stretched = config is GEMMA_3_4B and not gear.window
        assert (gear.rope.scaling.factor if gear.rope.scaling else None) == (8.0 if stretched else None)


def test_the_text_part_of_a_multimodal_folder(tmp_path: Path) -> None:
    text = SIZES | SMALL | TYPES
    vision = {
        "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 1, "num_attention_heads": 2,
        "image_size": 28, "patch_size": 14,
    }  # fmt: skip
    config = config_of("Gemma3Config", text_config=text, vision_config=vision, mm_tokens_per_image=4)
    model = made("Gemma3ForConditionalGeneration", config)
    save(model, tmp_path)
    checkpoint = open_checkpoint(tmp_path)
    assert any("image part" in notice for notice in checkpoint.notices)
    Case("gemma3", "multimodal", "folder", lambda folder: (folder, model)).check(tmp_path, "reference")


def test_older_spellings_mean_the_same(tmp_path: Path) -> None:
    """`rope_theta`, `rope_local_base_freq` and `sliding_window_pattern` instead of sets for each kind."""
    values = SIZES | SMALL | {"num_hidden_layers": 7, "rope_parameters": ROPES}
    save(made(GEMMA3[0], config_of(GEMMA3[1], **values)), tmp_path)
    new = open_checkpoint(tmp_path).model
    assert "full_attention" in json.loads((tmp_path / "config.json").read_text())["rope_parameters"]
    edit(
        tmp_path, rope_parameters=None, layer_types=None, rope_theta=1e6, rope_local_base_freq=1e4,
        rope_scaling={"rope_type": "linear", "factor": 8.0}, sliding_window_pattern=6,
    )  # fmt: skip
    assert open_checkpoint(tmp_path).model == new


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"use_bidirectional_attention": True}, UnsupportedError, "`use_bidirectional_attention` is True"),
        ({"hidden_activation": "relu"}, UnsupportedError, "`hidden_activation` is 'relu'"),
        ({"layer_types": ["full_attention"] * 25}, FormatError, "`layer_types` names 25 layers"),
        ({"altup_num_inputs": 4}, UnsupportedError, "`altup_num_inputs`"),
        ({"rope_parameters": {"full_attention": {}, "odd": {}}}, UnsupportedError, r"`rope_parameters\.odd`"),
        ({"rope_local_base_freq": -1.0}, FormatError, "must be above 0"),
        ({"sliding_window": None}, FormatError, "no `sliding_window` is given"),
    ],
)
def test_what_cannot_be_run_is_named(
    change: dict[str, Any], error: type[GlassgearError], message: str
) -> None:
    with pytest.raises(error, match=message):
        model_of(gemma3.from_hf, GEMMA_3_1B | change)
