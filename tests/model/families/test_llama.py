"""Configs, old spellings and new, and keys that nobody knows."""

from __future__ import annotations

from typing import Any

import pytest

from glassgear.errors import FormatError, UnsupportedError
from glassgear.model.families.base import Found
from glassgear.model.families.llama import LlamaConfig, config_from_gguf, config_from_hf
from glassgear.model.gears import RopeScaling
from glassgear.model.settings import Settings
from tests.model.test_ledger import LLAMA_3_8B

LLAMA3 = {
    "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}  # fmt: skip
GGUF: dict[str, Any] = {
    "general.architecture": "llama", "llama.embedding_length": 64, "llama.block_count": 2,
    "llama.feed_forward_length": 96, "llama.attention.head_count": 8, "llama.attention.head_count_kv": 2,
    "llama.context_length": 512, "llama.attention.layer_norm_rms_epsilon": 1e-5,
}  # fmt: skip


def from_hf(config: dict[str, Any], path: str) -> LlamaConfig:
    return config_from_hf(Settings(config, path))


def from_gguf(
    metadata: dict[str, Any], path: str, vocab: int, rope_factors: tuple[float, ...] | None = None
) -> LlamaConfig:
    settings = {k.removeprefix("llama."): v for k, v in metadata.items() if k.startswith("llama.")}
    found = Found({"token_embd.weight": (vocab, 64)}, rope_factors)
    return config_from_gguf(Settings(settings, path, "llama."), found)


@pytest.mark.parametrize(
    "spelling",
    [
        {"rope_theta": 500000.0, "rope_scaling": {"rope_type": "llama3", **LLAMA3}},
        {"rope_theta": 500000.0, "rope_scaling": {"type": "llama3", **LLAMA3}},
        {"rope_theta": None, "rope_parameters": {"rope_type": "llama3", "rope_theta": 500000.0, **LLAMA3}},
    ],
    ids=["rope_type", "type", "rope_parameters"],
)
def test_rope_settings_old_and_new_mean_the_same(spelling: dict[str, Any]) -> None:
    rope = from_hf(LLAMA_3_8B | spelling, "c").rope
    assert rope.theta == 500000.0
    assert rope.scaling == RopeScaling("llama3", 8.0, 8192, 1.0, 4.0)


@pytest.mark.parametrize("scaling", [None, {"rope_type": "default"}, {"type": "default"}])
def test_no_scaling_is_no_scaling(scaling: Any) -> None:
    assert from_hf(LLAMA_3_8B | {"rope_scaling": scaling}, "c").rope.scaling is None


@pytest.mark.parametrize(("given", "width"), [(None, 128), (64, 64), (256, 256)])
def test_an_explicit_head_width_wins_and_null_means_the_quotient(given: int | None, width: int) -> None:
    assert from_hf(LLAMA_3_8B | {"head_dim": given}, "c").head_dim == width


def test_absent_kv_heads_mean_plain_multi_head_attention() -> None:
    config = {k: v for k, v in LLAMA_3_8B.items() if k != "num_key_value_heads"}
    assert from_hf(config, "c").kv_heads == 32


def test_an_unknown_key_is_named() -> None:
    with pytest.raises(UnsupportedError, match="`attn_logit_softcapping`"):
        from_hf(LLAMA_3_8B | {"attn_logit_softcapping": 50.0}, "c")


def test_an_unknown_rope_key_is_named() -> None:
    with pytest.raises(UnsupportedError, match=r"`rope_scaling\.short_factor`"):
        from_hf(LLAMA_3_8B | {"rope_scaling": {"type": "linear", "factor": 2.0, "short_factor": [1]}}, "c")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"hidden_size": None}, "`hidden_size` is missing"),
        ({"hidden_size": "big"}, "should be a int, found 'big'"),
        ({"hidden_size": True}, "should be a int, found True"),
        ({"hidden_size": 0}, "outside 1"),
        ({"num_hidden_layers": 10**9}, "outside 1 to 10000"),
        ({"num_attention_heads": 33}, "doesn't divide by 33 heads"),
        ({"rms_norm_eps": float("nan")}, "should be a float"),
        ({"rope_scaling": [1]}, "should be an object"),
        ({"rope_scaling": {"type": "llama3", "factor": 8.0}}, "`rope_scaling.low_freq_factor` is missing"),
        ({"rope_scaling": {"type": "linear"}}, "needs one above 0"),
        ({"rope_theta": -1.0}, "must be above 0"),
        ({"rms_norm_eps": -1.0}, "`rms_norm_eps` is -1, outside 0 to 1"),
        ({"rms_norm_eps": 1e300}, "outside 0 to 1"),
        ({"num_key_value_heads": 3}, "^c: 32 query heads can't share 3"),
        ({"head_dim": 7}, "^c: the rotary width is 7"),
    ],
)
def test_impossible_values_are_named(change: dict[str, Any], message: str) -> None:
    with pytest.raises(FormatError, match=message):
        from_hf(LLAMA_3_8B | change, "c")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"rope_scaling": {"type": "default", "partial_rotary_factor": 0.5}},
            "`partial_rotary_factor` is 0.5",
        ),
        ({"partial_rotary_factor": 0.5}, "`partial_rotary_factor` is 0.5"),
        ({"sliding_window": 4}, "`sliding_window`"),
        ({"sliding_window": 4, "use_sliding_window": True}, "`use_sliding_window` is True"),
        ({"hidden_act": "gelu_new"}, "`hidden_act` is 'gelu_new'"),
        ({"hidden_act": "gelu"}, "`hidden_act` is 'gelu'; only 'silu'"),
        ({"rope_scaling": {"type": "longrope", "factor": 2.0}}, "RoPE scaling `longrope`"),
        ({"rope_scaling": {"type": "dynamic", "factor": 2.0}}, "RoPE scaling `dynamic`"),
    ],
)
def test_what_this_version_cannot_run_is_named(change: dict[str, Any], message: str) -> None:
    with pytest.raises(UnsupportedError, match=message):
        from_hf(LLAMA_3_8B | change, "c")


def test_gguf_sizes_and_defaults() -> None:
    config = from_gguf(GGUF, "m.gguf", vocab=100)
    assert (config.dim, config.heads, config.kv_heads, config.head_dim) == (64, 8, 2, 8)
    assert config.rope.theta == 10000.0 and config.rope.pairing == "half" and config.tied


def test_gguf_factors_become_scaling() -> None:
    config = from_gguf(GGUF, "m.gguf", vocab=100, rope_factors=(1.0, 1.0, 2.0, 8.0))
    assert config.rope.scaling == RopeScaling("factors", factors=(1.0, 1.0, 2.0, 8.0))


@pytest.mark.parametrize("factors", [(1.0,), (1.0, 0.0, 1.0, 1.0)])
def test_gguf_factors_that_do_not_fit_are_refused(factors: tuple[float, ...]) -> None:
    with pytest.raises(FormatError, match="rope_freqs"):
        from_gguf(GGUF, "m.gguf", vocab=100, rope_factors=factors)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"llama.expert_count": 8}, "`llama.expert_count` is 8"),
        ({"llama.attention.value_length": 4}, "`llama.attention.value_length` is 4"),
        ({"llama.brand_new": 1}, "`llama.brand_new`"),
        ({"llama.rope.scaling.type": "longrope"}, "`longrope`"),
    ],
)
def test_gguf_settings_that_cannot_be_run_are_named(change: dict[str, Any], message: str) -> None:
    with pytest.raises(UnsupportedError, match=message):
        from_gguf(GGUF | change, "m.gguf", vocab=100)


def test_gguf_yarn_keeps_llama_cpp_s_magnitude() -> None:
    change = {
        "llama.rope.scaling.type": "yarn", "llama.rope.scaling.factor": 16.0,
        "llama.rope.scaling.original_context_length": 32,
    }  # fmt: skip
    scaling = from_gguf(GGUF | change, "m.gguf", vocab=100).rope.scaling
    assert scaling is not None
    assert scaling.attention_factor == pytest.approx(1.2772589)


@pytest.mark.parametrize(
    "change",
    [
        {"sliding_window": None},
        {"sliding_window": 4, "use_sliding_window": False, "max_window_layers": 21},
        {"partial_rotary_factor": 1.0},
    ],
)
def test_a_window_that_is_off_changes_nothing(change: dict[str, Any]) -> None:
    assert from_hf(LLAMA_3_8B | change, "c") == from_hf(LLAMA_3_8B, "c")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"llama.attention.head_count_kv": 3}, r"^m\.gguf: 8 query heads can't share 3"),
        ({"llama.rope.dimension_count": 7}, r"^m\.gguf: the rotary width is 7"),
        ({"llama.rope.dimension_count": 16}, r"^m\.gguf: the rotary width 16 is more than a head's 8"),
        ({"llama.attention.layer_norm_rms_epsilon": 0.0}, "outside 0 to 1"),
    ],
)
def test_gguf_sizes_that_do_not_fit_are_refused_with_the_file(change: dict[str, Any], message: str) -> None:
    with pytest.raises(FormatError, match=message):
        from_gguf(GGUF | change, "m.gguf", vocab=100)
