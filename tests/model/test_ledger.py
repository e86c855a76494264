"""Totals that the papers' authors and the published files give."""

from __future__ import annotations

from typing import Any

import pytest

from glassgear.model.families.llama import config_from_hf, llama
from glassgear.model.ledger import ledger
from glassgear.model.settings import Settings
from tests.models import tiny_config

LLAMA_2_7B: dict[str, Any] = {
    "model_type": "llama", "hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32,
    "num_attention_heads": 32, "num_key_value_heads": 32, "vocab_size": 32000, "rms_norm_eps": 1e-5,
    "max_position_embeddings": 4096, "hidden_act": "silu", "tie_word_embeddings": False,
    "rope_scaling": None, "pretraining_tp": 1,
}  # fmt: skip
LLAMA_3_8B = LLAMA_2_7B | {
    "intermediate_size": 14336, "num_key_value_heads": 8, "vocab_size": 128256, "rope_theta": 500000.0,
    "max_position_embeddings": 8192,
}  # fmt: skip
SMOLLM2_135M = LLAMA_2_7B | {
    "hidden_size": 576, "intermediate_size": 1536, "num_hidden_layers": 30, "num_attention_heads": 9,
    "num_key_value_heads": 3, "vocab_size": 49152, "tie_word_embeddings": True,
}  # fmt: skip


@pytest.mark.parametrize(
    ("config", "total"),
    [(LLAMA_2_7B, 6_738_415_616), (LLAMA_3_8B, 8_030_261_248), (SMOLLM2_135M, 134_515_008)],
    ids=["llama-2-7b", "llama-3-8b", "smollm2-135m"],
)
def test_totals_of_published_models_from_their_config_alone(config: dict[str, Any], total: int) -> None:
    assert ledger(llama(config_from_hf(Settings(config, "config.json")))).parameters == total


def test_rows_add_up_and_name_their_gear() -> None:
    counted = ledger(llama(tiny_config(layers=1)))
    assert sum(row.parameters for row in counted.rows) == counted.parameters
    assert {row.gear for row in counted.rows} == {"Embed", "RMSNorm", "Linear", "Head"}
    assert counted.nbytes == 4 * counted.parameters


def test_cache_holds_a_key_and_a_value_for_each_shared_head() -> None:
    counted = ledger(llama(config_from_hf(Settings(LLAMA_3_8B, "config.json"))), cache_bytes=2)
    assert counted.kv_bytes_per_token == 2 * 32 * 8 * 128 * 2  # 131,072 bytes: 128 KiB a token


def test_operations_are_two_a_weight_and_grow_with_position() -> None:
    counted = ledger(llama(tiny_config(layers=1, tied=True)))
    matrices = 2 * 64 * 64 + 2 * 64 * 16 + 3 * 64 * 96 + 64 * 100
    assert counted.flops_per_token(0) == 2 * matrices + 4 * 64
    assert counted.flops_per_token(9) - counted.flops_per_token(0) == 9 * 4 * 64


def test_a_tied_head_costs_operations_but_no_parameters() -> None:
    tied, untied = (ledger(llama(tiny_config(tied=t))) for t in (True, False))
    assert untied.parameters - tied.parameters == 100 * 64
    assert untied.matrix_flops == tied.matrix_flops
