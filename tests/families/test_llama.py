"""Llama beside what tests/weights/test_open.py holds it to: long texts, and folders without a head."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import glassgear
from glassgear.errors import SettingError
from glassgear.model.families import llama
from glassgear.model.ledger import ledger
from glassgear.weights.open import open_checkpoint
from tests.families.decoders import LONG, SHORT_MODEL, SIZES, folder_case, gguf_case, interleaved
from tests.families.support import IDS, Case, config_of, each_case, edit, logits_of, made, model_of, save

CLASSES = ("LlamaForCausalLM", "LlamaConfig")
LLAMA3 = {
    "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 512, "rope_theta": 500000.0,
}  # fmt: skip
CASES = [
    folder_case("llama", "wide heads", CLASSES, {}),
    folder_case("llama", "biases", CLASSES, {"attention_bias": True, "mlp_bias": True}),
    folder_case("llama", "tied", CLASSES, {"tie_word_embeddings": True}),
    folder_case("llama", "bare model", ("LlamaModel", "LlamaConfig"), {}),
    folder_case(
        "llama", "llama3 rope, 4,200 tokens", CLASSES,
        SHORT_MODEL | {"rope_parameters": LLAMA3, "max_position_embeddings": 8192}, LONG,
    ),
    gguf_case("llama", "wide heads", CLASSES, {}, "llama", change=interleaved),
    gguf_case("llama", "tied", CLASSES, {"tie_word_embeddings": True}, "llama", change=interleaved),
]  # fmt: skip

# As published: meta-llama/Llama-2-13b-hf, and what differs in the others.
LLAMA_2_13B: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"], "bos_token_id": 1, "eos_token_id": 2, "hidden_act": "silu",
    "hidden_size": 5120, "initializer_range": 0.02, "intermediate_size": 13824,
    "max_position_embeddings": 4096, "model_type": "llama", "num_attention_heads": 40,
    "num_hidden_layers": 40, "num_key_value_heads": 40, "pretraining_tp": 1, "rms_norm_eps": 1e-05,
    "rope_scaling": None, "tie_word_embeddings": False, "torch_dtype": "float16",
    "transformers_version": "4.32.0.dev0", "use_cache": True, "vocab_size": 32000,
}  # fmt: skip
LLAMA_2_70B = LLAMA_2_13B | {
    "hidden_size": 8192, "intermediate_size": 28672, "num_attention_heads": 64, "num_hidden_layers": 80,
    "num_key_value_heads": 8,
}  # fmt: skip
LLAMA_3_70B = LLAMA_2_70B | {
    "attention_bias": False, "attention_dropout": 0.0, "max_position_embeddings": 8192,
    "rope_theta": 500000.0, "vocab_size": 128256,
}  # fmt: skip
LLAMA_32_1B = LLAMA_3_70B | {
    "head_dim": 64, "hidden_size": 2048, "intermediate_size": 8192, "max_position_embeddings": 131072,
    "mlp_bias": False, "num_attention_heads": 32, "num_hidden_layers": 16, "tie_word_embeddings": True,
    "rope_scaling": LLAMA3 | {"factor": 32.0, "original_max_position_embeddings": 8192, "rope_theta": None},
}  # fmt: skip


@pytest.mark.parametrize(
    ("config", "total"),
    [
        (LLAMA_2_13B, 13_015_864_320),
        (LLAMA_2_70B, 68_976_648_192),
        (LLAMA_3_70B, 70_553_706_496),
        (LLAMA_32_1B, 1_235_814_400),
    ],
    ids=["llama-2-13b", "llama-2-70b", "llama-3-70b", "llama-3.2-1b"],
)
def test_totals_of_published_models_from_their_config_alone(config: dict[str, Any], total: int) -> None:
    assert ledger(model_of(llama.from_hf, config)).parameters == total


@each_case(CASES)
def test_logits_are_those_of_transformers(case: Case, backend: str, tmp_path: Path) -> None:
    case.check(tmp_path, backend)


@pytest.mark.parametrize("backend", ["reference", "cpu"])
def test_a_bare_model_gives_hidden_states_and_says_that_it_has_no_head(tmp_path: Path, backend: Any) -> None:
    model = made("LlamaModel", config_of("LlamaConfig", **SIZES))
    loaded = glassgear.load(save(model, tmp_path), backend=backend)
    assert loaded.gears.head is None
    assert np.abs(loaded.hidden(list(IDS)) - logits_of(model, IDS)).max() < 1e-4
    with pytest.raises(SettingError, match="no head"):
        loaded.logits(list(IDS))


def test_a_bare_class_with_a_head_among_its_tensors_keeps_it(tmp_path: Path) -> None:
    made_ = made("LlamaForCausalLM", config_of("LlamaConfig", **SIZES))
    save(made_, tmp_path)
    edit(tmp_path, architectures=["LlamaModel"])
    assert open_checkpoint(tmp_path).model.head is not None
