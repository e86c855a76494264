"""Qwen2, Qwen2.5 and Qwen3: biases, norms over heads, and windows that mostly don't apply."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from glassgear.backends.reference import Reference
from glassgear.errors import FormatError, UnsupportedError
from glassgear.model.families import qwen2, qwen3
from glassgear.model.gears import Attention, walk
from glassgear.model.ledger import ledger
from glassgear.weights.open import open_checkpoint
from tests.families.decoders import LONG, SHORT_MODEL, SIZES, YARN, folder_case, gguf_case
from tests.families.support import IDS, Case, config_of, each_case, edit, made, model_of, run, save

QWEN2, QWEN3 = ("Qwen2ForCausalLM", "Qwen2Config"), ("Qwen3ForCausalLM", "Qwen3Config")
WINDOWED = {"use_sliding_window": True, "sliding_window": 4, "max_window_layers": 1}
LAYERS = {
    "use_sliding_window": True, "sliding_window": 3,
    "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
}  # fmt: skip
YARN_GGUF = {
    "rope.scaling.type": "yarn", "rope.scaling.factor": YARN["factor"],
    "rope.scaling.original_context_length": YARN["original_max_position_embeddings"],
}  # fmt: skip
LONG_CONFIG = SHORT_MODEL | {"rope_parameters": YARN, "max_position_embeddings": 4096}
CASES = [
    folder_case("qwen2", "window off", QWEN2, {"use_sliding_window": False, "sliding_window": 4}),
    folder_case("qwen2", "window from layer 1", QWEN2, WINDOWED),
    folder_case("qwen2", "window in no layer", QWEN2, WINDOWED | {"max_window_layers": 3}),
    folder_case("qwen2", "layer types", QWEN2, LAYERS),
    folder_case("qwen2", "tied, narrow heads", QWEN2, {"tie_word_embeddings": True, "head_dim": 12}),
    folder_case("qwen2", "yarn, 4,200 tokens", QWEN2, LONG_CONFIG, LONG),
    gguf_case("qwen2", "plain", QWEN2, {}, "qwen2"),
    gguf_case("qwen2", "tied, narrow heads", QWEN2, {"tie_word_embeddings": True, "head_dim": 12}, "qwen2"),
    gguf_case(
        "qwen2",
        "yarn",
        QWEN2,
        {"rope_parameters": YARN, "head_dim": 12},
        "qwen2",
        keys=lambda config: YARN_GGUF,
    ),
    folder_case("qwen3", "plain", QWEN3, {}),
    folder_case("qwen3", "tied, biases", QWEN3, {"tie_word_embeddings": True, "attention_bias": True}),
    folder_case("qwen3", "window from layer 1", QWEN3, WINDOWED),
    folder_case("qwen3", "layer types", QWEN3, LAYERS),
    folder_case("qwen3", "bare model", ("Qwen3Model", "Qwen3Config"), {}),
    gguf_case("qwen3", "plain", QWEN3, {}, "qwen3"),
    gguf_case("qwen3", "tied", QWEN3, {"tie_word_embeddings": True}, "qwen3"),
]

# As published; Qwen2.5-7B.
QWEN25_7B: dict[str, Any] = {
    "architectures": ["Qwen2ForCausalLM"], "attention_dropout": 0.0, "bos_token_id": 151643,
    "eos_token_id": 151643, "hidden_act": "silu", "hidden_size": 3584, "initializer_range": 0.02,
    "intermediate_size": 18944, "max_position_embeddings": 131072, "max_window_layers": 28,
    "model_type": "qwen2", "num_attention_heads": 28, "num_hidden_layers": 28, "num_key_value_heads": 4,
    "rms_norm_eps": 1e-06, "rope_theta": 1000000.0, "sliding_window": 131072,
    "tie_word_embeddings": False, "torch_dtype": "bfloat16", "transformers_version": "4.40.1",
    "use_cache": True, "use_mrope": False, "use_sliding_window": False, "vocab_size": 152064,
}  # fmt: skip
QWEN25_05B = QWEN25_7B | {
    "hidden_size": 896, "intermediate_size": 4864, "max_position_embeddings": 32768, "max_window_layers": 24,
    "num_attention_heads": 14, "num_hidden_layers": 24, "num_key_value_heads": 2, "sliding_window": 32768,
    "tie_word_embeddings": True, "vocab_size": 151936,
}  # fmt: skip
QWEN25_72B = QWEN25_7B | {
    "hidden_size": 8192, "intermediate_size": 29568, "max_window_layers": 80, "num_attention_heads": 64,
    "num_hidden_layers": 80, "num_key_value_heads": 8,
}  # fmt: skip
QWEN3_06B: dict[str, Any] = {
    "architectures": ["Qwen3ForCausalLM"], "attention_bias": False, "attention_dropout": 0.0,
    "bos_token_id": 151643, "eos_token_id": 151645, "head_dim": 128, "hidden_act": "silu",
    "hidden_size": 1024, "initializer_range": 0.02, "intermediate_size": 3072,
    "max_position_embeddings": 40960, "max_window_layers": 28, "model_type": "qwen3",
    "num_attention_heads": 16, "num_hidden_layers": 28, "num_key_value_heads": 8, "rms_norm_eps": 1e-06,
    "rope_scaling": None, "rope_theta": 1000000, "sliding_window": None, "tie_word_embeddings": True,
    "torch_dtype": "bfloat16", "transformers_version": "4.51.0", "use_cache": True,
    "use_sliding_window": False, "vocab_size": 151936,
}  # fmt: skip


@each_case(CASES)
def test_logits_are_those_of_transformers(case: Case, backend: str, tmp_path: Path) -> None:
    case.check(tmp_path, backend)


@pytest.mark.parametrize(
    ("config", "total"),
    [
        (QWEN25_7B, 7_615_616_512),
        (QWEN25_05B, 494_032_768),
        (QWEN25_72B, 72_706_203_648),
        (QWEN3_06B, 596_049_920),
    ],
    ids=["qwen2.5-7b", "qwen2.5-0.5b", "qwen2.5-72b", "qwen3-0.6b"],
)
def test_totals_of_published_models_from_their_config_alone(config: dict[str, Any], total: int) -> None:
    family = {"qwen2": qwen2, "qwen3": qwen3}[config["model_type"]]
    assert ledger(model_of(family.from_hf, config)).parameters == total


def windows_of(config: dict[str, Any]) -> list[int]:
    model = model_of(qwen2.from_hf, config)
    return [gear.window for _, gear in walk(model) if isinstance(gear, Attention)]


ON = {"use_sliding_window": True, "sliding_window": 4}


@pytest.mark.parametrize(
    ("change", "windows"),
    [
        ({"sliding_window": 4}, [0] * 28),
        (ON, [0] * 28),  # max_window_layers is the number of layers
        (ON | {"max_window_layers": 14}, [0] * 14 + [4] * 14),
        (ON | {"max_window_layers": 0}, [4] * 28),
        (ON | {"sliding_window": None, "max_window_layers": 0}, [0] * 28),
        (ON | {"layer_types": ["full_attention", "sliding_attention"] * 14}, [0, 4] * 14),
        ({"sliding_window": 4, "layer_types": ["full_attention"] * 28}, [0] * 28),
    ],
)
def test_which_layers_have_a_window(change: dict[str, Any], windows: list[int]) -> None:
    """Case B15; the layers as transformers' code, not its documentation, chooses them."""
    assert windows_of(QWEN25_7B | change) == windows


def test_a_window_that_is_off_gives_the_very_logits_of_none(tmp_path: Path) -> None:
    save(made(QWEN2[0], config_of(QWEN2[1], **SIZES)), tmp_path)
    rows = []
    for window in (None, 4):
        edit(tmp_path, use_sliding_window=False, sliding_window=window, layer_types=None)
        checkpoint = open_checkpoint(tmp_path)
        rows.append(run(Reference(checkpoint.model, checkpoint.tensors), IDS))
    assert np.array_equal(*rows)


@pytest.mark.parametrize(
    ("sizes", "given", "width", "rows"),
    [
        ((1024, 16), 128, 128, 2048),
        ((2560, 32), 128, 128, 4096),
        ((640, 4), 256, 256, 1024),
        ((1024, 16), None, 64, 1024),
        ((1024, 16), ..., 128, 2048),
    ],
)
def test_the_width_of_heads(sizes: tuple[int, int], given: Any, width: int, rows: int) -> None:
    """Case B27: as given; null is the quotient; absent is what the class takes."""
    config = QWEN3_06B | {"hidden_size": sizes[0], "num_attention_heads": sizes[1], "num_key_value_heads": 4}
    config = {k: v for k, v in config.items() if k != "head_dim" or given is not ...}
    config |= {} if given is ... else {"head_dim": given}
    attention = next(g for _, g in walk(model_of(qwen3.from_hf, config)) if isinstance(g, Attention))
    assert (attention.head_dim, attention.query.outputs) == (width, rows)
    assert attention.scale == pytest.approx(width**-0.5)
    assert attention.query_norm is not None and attention.query_norm.dim == width


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"use_mrope": True}, UnsupportedError, "`use_mrope` is True"),
        ({"layer_types": ["full_attention"]}, FormatError, "`layer_types` names 1 layers, the model has 28"),
        ({"layer_types": ["chunked_attention"] * 28}, UnsupportedError, "has 'chunked_attention'"),
        ({"layer_types": 3}, FormatError, "`layer_types` should be a list of names"),
        ({"layer_types": ["sliding_attention"] * 28}, FormatError, "no `sliding_window` is given"),
        ({"num_experts": 60}, UnsupportedError, "`num_experts`"),
        ({"rope_scaling": {"type": "mrope", "factor": 2.0}}, UnsupportedError, "RoPE scaling `mrope`"),
    ],
)  # fmt: skip
def test_what_cannot_be_run_is_named(change: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        model_of(qwen2.from_hf, QWEN25_7B | change)
