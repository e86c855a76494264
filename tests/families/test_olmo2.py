"""OLMo 2: norms behind the sublayers, and over all heads together."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from glassgear.errors import UnsupportedError
from glassgear.model.families import olmo2
from glassgear.model.gears import Attention, RMSNorm
from glassgear.model.ledger import ledger
from glassgear.weights.open import open_checkpoint
from tests.families.decoders import HF_TO_GGUF, LONG, SHORT_MODEL, YARN, folder_case, gguf_case
from tests.families.support import Case, each_case, model_of

CLASSES = ("Olmo2ForCausalLM", "Olmo2Config")
NAMES = HF_TO_GGUF | {
    "post_attention_layernorm": "post_attention_norm", "post_feedforward_layernorm": "post_ffw_norm",
}  # fmt: skip
CASES = [
    folder_case("olmo2", "as published", CLASSES, {}),
    folder_case("olmo2", "tied, biases", CLASSES, {"tie_word_embeddings": True, "attention_bias": True}),
    folder_case("olmo2", "yarn to position 4,200", CLASSES, {"rope_parameters": YARN} | SHORT_MODEL, LONG),
    gguf_case("olmo2", "as published", CLASSES, {}, "olmo2", names=NAMES),
    gguf_case("olmo2", "tied", CLASSES, {"tie_word_embeddings": True}, "olmo2", names=NAMES),
]

# allenai/OLMo-2-1124-7B
OLMO_2_7B: dict[str, Any] = {
    "architectures": ["Olmo2ForCausalLM"], "attention_bias": False, "attention_dropout": 0.0,
    "eos_token_id": 100257, "hidden_act": "silu", "hidden_size": 4096, "initializer_range": 0.02,
    "intermediate_size": 11008, "max_position_embeddings": 4096, "model_type": "olmo2",
    "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 32, "pad_token_id": 100277,
    "rms_norm_eps": 1e-06, "rope_scaling": None, "rope_theta": 500000, "tie_word_embeddings": False,
    "torch_dtype": "float32", "transformers_version": "4.47.0", "use_cache": True, "vocab_size": 100352,
}  # fmt: skip


@each_case(CASES)
def test_logits_are_those_of_transformers(case: Case, backend: str, tmp_path: Path) -> None:
    case.check(tmp_path, backend)


def test_the_published_config() -> None:
    model = model_of(olmo2.from_hf, OLMO_2_7B)
    assert ledger(model).parameters == 7_298_617_344  # the model card's 7.3 billion
    attention, ffn = model.blocks[0].steps
    assert attention.norm is ffn.norm is None
    assert attention.post_norm == ffn.post_norm == RMSNorm(4096, 1e-6)
    assert isinstance(attention.gear, Attention)
    assert attention.gear.query_norm == RMSNorm(32 * 128, 1e-6)


@pytest.mark.parametrize("change", [{"hidden_act": "gelu"}, {"clip_qkv": 8.0}, {"sliding_window": 4096}])
def test_what_cannot_be_run_is_named(change: dict[str, Any]) -> None:
    with pytest.raises(UnsupportedError, match=f"`{next(iter(change))}`"):
        model_of(olmo2.from_hf, OLMO_2_7B | change)


def test_olmo_3_is_refused_by_its_window(tmp_path: Path) -> None:
    """Both have the same architecture in GGUF."""
    keys = {"attention.sliding_window": 4}
    case = gguf_case("olmo2", "window", CLASSES, {}, "olmo2", names=NAMES, keys=lambda config: keys)
    path, _ = case.write(tmp_path)
    with pytest.raises(UnsupportedError, match=r"`olmo2\.attention\.sliding_window` is 4"):
        open_checkpoint(path)
