"""Mistral: a window in every layer, or none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from glassgear.backends.reference import Reference
from glassgear.errors import FormatError, UnsupportedError
from glassgear.model.families import mistral
from glassgear.model.gears import Attention, walk
from glassgear.model.ledger import ledger
from glassgear.weights.open import open_checkpoint
from tests.families.decoders import SIZES, folder_case, gguf_case, interleaved
from tests.families.support import IDS, Case, config_of, each_case, edit, made, model_of, run, save

CLASSES = ("MistralForCausalLM", "MistralConfig")
CASES = [
    folder_case("mistral", "window of 4", CLASSES, {"sliding_window": 4}),
    folder_case("mistral", "no window", CLASSES, {"sliding_window": None}),
    folder_case("mistral", "window of 1, tied", CLASSES, {"sliding_window": 1, "tie_word_embeddings": True}),
    gguf_case("mistral", "no window", CLASSES, {"sliding_window": None}, "llama", change=interleaved),
    gguf_case(
        "mistral", "window of 4", CLASSES, {"sliding_window": 4}, "llama", change=interleaved,
        keys=lambda config: {"attention.sliding_window": config.sliding_window},
    ),
]  # fmt: skip

# mistralai/Mistral-7B-v0.1
MISTRAL_7B: dict[str, Any] = {
    "architectures": ["MistralForCausalLM"], "bos_token_id": 1, "eos_token_id": 2, "hidden_act": "silu",
    "hidden_size": 4096, "initializer_range": 0.02, "intermediate_size": 14336,
    "max_position_embeddings": 32768, "model_type": "mistral", "num_attention_heads": 32,
    "num_hidden_layers": 32, "num_key_value_heads": 8, "rms_norm_eps": 1e-05, "rope_theta": 10000.0,
    "sliding_window": 4096, "tie_word_embeddings": False, "torch_dtype": "bfloat16",
    "transformers_version": "4.34.0.dev0", "use_cache": True, "vocab_size": 32000,
}  # fmt: skip


@each_case(CASES)
def test_logits_are_those_of_transformers(case: Case, backend: str, tmp_path: Path) -> None:
    case.check(tmp_path, backend)


def windows_of(config: dict[str, Any]) -> set[int]:
    return {g.window for _, g in walk(model_of(mistral.from_hf, config)) if isinstance(g, Attention)}


def test_the_published_config() -> None:
    assert ledger(model_of(mistral.from_hf, MISTRAL_7B)).parameters == 7_241_732_096
    assert windows_of(MISTRAL_7B) == {4096}
    assert windows_of(MISTRAL_7B | {"sliding_window": None}) == {0}
    absent = {key: value for key, value in MISTRAL_7B.items() if key != "sliding_window"}
    assert windows_of(absent) == {4096}  # the default of transformers' class


def test_a_window_of_null_gives_the_very_logits_of_no_window(tmp_path: Path) -> None:
    """Case B15: bit for bit, as nothing is masked; and a window that is wide enough masks nothing either."""
    save(made("MistralForCausalLM", config_of("MistralConfig", **SIZES, sliding_window=None)), tmp_path)
    rows = {}
    for window in (None, len(IDS), len(IDS) - 1):
        edit(tmp_path, sliding_window=0 if window is None else window)
        checkpoint = open_checkpoint(tmp_path)
        rows[window] = run(Reference(checkpoint.model, checkpoint.tensors), IDS)
    assert np.array_equal(rows[None], rows[len(IDS)])
    assert np.abs(rows[None] - rows[len(IDS) - 1])[:-1].max() == 0
    assert np.abs(rows[None] - rows[len(IDS) - 1])[-1].max() > 1e-3


def test_the_keys_that_a_query_sees(tmp_path: Path) -> None:
    """Case B15: with a window of 4, query 6 sees keys 3 to 6."""
    model = made("MistralForCausalLM", config_of("MistralConfig", **SIZES, sliding_window=4))
    checkpoint = open_checkpoint(save(model, tmp_path))
    weights: dict[str, np.ndarray] = {}
    backend = Reference(checkpoint.model, checkpoint.tensors)
    from glassgear.backends.base import Chunk

    backend.step([Chunk(backend.open(), IDS[:8])], lambda name, value: weights.update({name: value.copy()}))
    seen = weights["blocks.1.attention.weights"] > 0  # [heads, T, S]
    for position in range(8):
        keys = list(range(max(0, position - 3), position + 1))
        assert all(np.flatnonzero(head[position]).tolist() == keys for head in seen)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"sliding_window": -1}, FormatError, "`sliding_window` is -1"),
        ({"layer_types": ["full_attention"] * 32}, UnsupportedError, "`layer_types`"),
        ({"hidden_act": "relu"}, UnsupportedError, "`hidden_act` is 'relu'"),
    ],
)
def test_what_cannot_be_run_is_named(change: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        model_of(mistral.from_hf, MISTRAL_7B | change)
