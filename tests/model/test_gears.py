"""The tree: paths, tensors, and sizes that can't be."""

from __future__ import annotations

import pytest

from glassgear.errors import SettingError
from glassgear.model.families.llama import llama
from glassgear.model.gears import Attention, Rope, tensors, walk
from tests.models import tiny_config


def test_paths_name_every_gear_in_the_order_in_which_a_token_meets_them() -> None:
    paths = [path for path, _ in walk(llama(tiny_config(layers=1)))]
    assert paths == [
        "", "embed", "blocks.0", "blocks.0.attention_norm", "blocks.0.attention",
        "blocks.0.attention.query", "blocks.0.attention.key", "blocks.0.attention.value",
        "blocks.0.attention.rope", "blocks.0.attention.output", "blocks.0.ffn_norm", "blocks.0.ffn",
        "blocks.0.ffn.gate", "blocks.0.ffn.up", "blocks.0.ffn.down", "norm", "head",
    ]  # fmt: skip


def test_tensor_shapes_follow_the_heads_not_the_width() -> None:
    shapes = tensors(llama(tiny_config(dim=640, heads=4, kv_heads=1, head_dim=256, rope=Rope(256, 1e4))))
    assert shapes["blocks.0.attention.query.weight"] == (1024, 640)
    assert shapes["blocks.0.attention.key.weight"] == (256, 640)
    assert shapes["blocks.0.attention.output.weight"] == (640, 1024)


def test_a_tied_head_has_no_tensor_of_its_own() -> None:
    assert "head.weight" not in tensors(llama(tiny_config(tied=True)))
    assert tensors(llama(tiny_config(tied=False)))["head.weight"] == (100, 64)


@pytest.mark.parametrize(("head_dim", "scale"), [(128, 128**-0.5), (256, 0.0625)])
def test_scores_are_scaled_by_the_head_width(head_dim: int, scale: float) -> None:
    assert Attention.build(2560, 32, 8, head_dim).scale == pytest.approx(scale)


def test_heads_that_cannot_share_are_refused() -> None:
    with pytest.raises(SettingError, match="8 query heads can't share 3"):
        Attention.build(64, 8, 3, 8)


@pytest.mark.parametrize("dim", [0, 7, -2])
def test_rotary_width_must_be_even(dim: int) -> None:
    with pytest.raises(SettingError, match="even and positive"):
        Rope(dim, 10000.0)


def test_rotary_width_must_fit_into_a_head() -> None:
    with pytest.raises(SettingError, match="more than a head's 8"):
        Attention.build(64, 8, 2, 8, rope=Rope(16, 10000.0))
