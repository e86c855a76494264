"""Published totals, from the published configs alone."""

from __future__ import annotations

from typing import Any

import pytest

from glassgear.errors import NotFoundError
from glassgear.model import presets
from glassgear.model.gears import Attention
from glassgear.model.ledger import ledger, purposes

# Unique tensors of the published files; DeepSeek-V3 without its routing corrections (14,848), its
# multi-token-prediction layer and its FP8 scales.
TOTALS = {
    "llama-2-7b": 6_738_415_616,
    "llama-2-13b": 13_015_864_320,
    "llama-2-70b": 68_976_648_192,
    "llama-3-8b": 8_030_261_248,
    "llama-3-70b": 70_553_706_496,
    "mistral-7b": 7_241_732_096,
    "qwen2.5-0.5b": 494_032_768,
    "qwen2.5-7b": 7_615_616_512,
    "qwen2.5-72b": 72_706_203_648,
    "glm-4-9b": 9_399_951_360,
    "glm-4-9b-0414": 9_400_279_040,
    "deepseek-v3": 671_026_404_352,
    "gemma-3-270m": 268_098_176,
    "gemma-3-1b": 999_885_952,
    "gpt2": 124_439_808,
    "gpt-3-175b": 174_604_259_328,
    "bert-base": 109_482_240,
    "mobilebert": 24_581_888,
    "stories260k": 260_032,
    "stories15m": 15_191_712,
    "stories42m": 41_689_600,
    "stories110m": 109_529_856,
    "smollm2-135m": 134_515_008,
}


def test_every_preset_has_a_published_total() -> None:
    assert set(presets.PRESETS) == set(TOTALS)


@pytest.mark.parametrize("name", TOTALS)
def test_totals_are_those_of_the_published_files(name: str) -> None:
    assert ledger(presets.model(name)).parameters == TOTALS[name]


@pytest.mark.parametrize("name", [name for name in TOTALS if name != "gpt-3-175b"])
def test_totals_agree_with_the_models_that_transformers_makes_of_the_same_configs(name: str) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch isn't installed")
    transformers = pytest.importorskip("transformers", reason="transformers isn't installed")
    preset = presets.PRESETS[name]
    config = transformers.AutoConfig.for_model(**preset.config)
    headless = "bert" in preset.config["model_type"]
    auto = transformers.AutoModel if headless else transformers.AutoModelForCausalLM
    with torch.device("meta"):  # shapes alone: no memory is taken
        theirs = auto.from_config(config)
    unique = {id(p): p for n, p in theirs.named_parameters() if "pooler" not in n or preset.tensors}
    assert sum(p.numel() for p in unique.values()) == TOTALS[name]


def test_llama_3_8b_holds_what_is_told_of_it() -> None:
    model = presets.model("llama-3-8b")
    split = purposes(model.blocks[0])
    assert split == {"attention": 41_943_040, "ffn": 176_160_768, "norms": 8_192}
    assert round(split["ffn"] / split["attention"], 1) == 4.2
    gear = model.blocks[0].steps[0].gear
    assert isinstance(gear, Attention)
    assert (gear.query.outputs, gear.query.inputs, gear.key.outputs) == (4096, 4096, 1024)
    assert model.vocab == 128_256 and ledger(model).parameters // 1_000_000 == 8_030


@pytest.mark.parametrize(
    ("name", "expected"),
    [("llama-2-7b", 11008), ("qwen2.5-7b", 18944), ("glm-4-9b", 13696), ("mistral-7b", 14336)],
)
def test_widths_of_networks_are_the_published_ones(name: str, expected: int) -> None:
    gear: Any = presets.model(name).blocks[0].steps[1].gear
    assert gear.up.outputs == expected


def test_an_unknown_name_is_refused_with_those_there_are() -> None:
    with pytest.raises(NotFoundError, match=r"no published config has this name: llama-2-7b, .*smollm2-135m"):
        presets.model("llama-4")
