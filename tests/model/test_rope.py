"""Rotary frequencies against transformers' formulas, and YaRN's factors as recomputed by hand."""

from __future__ import annotations

import math

import pytest

from glassgear.model.gears import Rope, RopeScaling
from glassgear.model.rope import (
    attention_factor,
    inverse_frequencies,
    yarn_attention_factor,
    yarn_magnitude,
)
from glassgear.model.settings import Settings


def test_unscaled_frequencies_fall_from_one_by_the_paper() -> None:
    assert inverse_frequencies(Rope(8, 10000.0)) == pytest.approx((1.0, 0.1, 0.01, 0.001))


def test_linear_scaling_divides_all() -> None:
    scaled = inverse_frequencies(Rope(8, 10000.0, scaling=RopeScaling("linear", 4.0)))
    assert scaled == pytest.approx((0.25, 0.025, 0.0025, 0.00025))


def test_file_factors_divide_one_by_one() -> None:
    scaled = inverse_frequencies(Rope(4, 10000.0, scaling=RopeScaling("factors", factors=(1.0, 8.0))))
    assert scaled == pytest.approx((1.0, 0.01 / 8))


SCALINGS = [
    {"rope_type": "linear", "factor": 2.5},
    {
        "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 512,
    },
    {"rope_type": "yarn", "factor": 16.0, "original_max_position_embeddings": 256},
    {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 1024, "beta_fast": 16,
     "beta_slow": 2},
    {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 512, "truncate": False},
    {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 512, "attention_factor": 1.0},
    {
        "rope_type": "yarn", "factor": 40.0, "original_max_position_embeddings": 128, "mscale": 0.707,
        "mscale_all_dim": 1.0,
    },
]  # fmt: skip


@pytest.mark.parametrize("scaling", SCALINGS, ids=lambda s: "-".join(str(v) for v in s.values()))
@pytest.mark.parametrize("theta", [10000.0, 500000.0])
def test_scaled_frequencies_equal_transformers(scaling: dict[str, object], theta: float) -> None:
    transformers = pytest.importorskip("transformers")
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    from glassgear.model.families.llama import config_from_hf

    config = transformers.LlamaConfig(
        hidden_size=256, num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=4096,
        intermediate_size=64, num_hidden_layers=1, vocab_size=32,
        rope_parameters={**scaling, "rope_theta": theta},
    )  # fmt: skip
    frequencies, factor = ROPE_INIT_FUNCTIONS[str(scaling["rope_type"])](config, "cpu")
    rope = config_from_hf(Settings(config.to_dict(), "config.json")).rope
    assert inverse_frequencies(rope) == pytest.approx(frequencies.tolist(), rel=2e-6)
    assert attention_factor(rope) == pytest.approx(factor)


def test_yarn_without_keys_sharpens_by_a_tenth_of_the_logarithm() -> None:
    assert yarn_attention_factor(16.0) == pytest.approx(1.2772589, abs=1e-7)


def test_an_explicit_attention_factor_is_taken_as_it_stands() -> None:
    assert yarn_attention_factor(16.0, explicit=1.0) == 1.0


@pytest.mark.parametrize(("mscale", "softmax_scale"), [(1.0, 0.1352338), (0.707, 0.1147214)])
def test_deepseek_scales_softmax_by_the_square_and_leaves_the_rotation_alone(
    mscale: float, softmax_scale: float
) -> None:
    assert yarn_attention_factor(40.0, mscale=mscale, mscale_all_dim=mscale) == 1.0
    assert yarn_magnitude(40.0, mscale) ** 2 / math.sqrt(192) == pytest.approx(softmax_scale, abs=1e-7)


def test_yarn_magnitude_is_one_without_a_stretch() -> None:
    assert yarn_magnitude(1.0) == yarn_magnitude(0.5) == 1.0
