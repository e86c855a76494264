"""Every norm against PyTorch, and residual steps against their formula written out."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from glassgear.backends.reference.block import residual
from glassgear.model.gears import (
    FFN,
    Affine,
    BatchNorm,
    Gear,
    Head,
    LayerNorm,
    Linear,
    Neighbours,
    Residual,
    RMSNorm,
    ScaleNorm,
)
from tests.backends.reference.support import place, run_gear

Floats = NDArray[np.float32]
RANDOM = np.random.default_rng(7)


def random(*shape: int) -> Floats:
    return RANDOM.standard_normal(shape).astype(np.float32)


X = random(5, 24)
W, B = random(24), random(24)


def test_layer_norm_equals_pytorch() -> None:
    torch = pytest.importorskip("torch")
    want = torch.nn.functional.layer_norm(
        *(torch.from_numpy(v) for v in (X,)), (24,), *map(torch.from_numpy, (W, B)), 1e-5
    )
    assert run_gear(LayerNorm(24, 1e-5), X, {"weight": W, "bias": B}) == pytest.approx(want.numpy(), abs=1e-5)
    plain = torch.nn.functional.layer_norm(torch.from_numpy(X), (24,), torch.from_numpy(W), None, 1e-5)
    assert run_gear(LayerNorm(24, 1e-5, bias=False), X, {"weight": W}) == pytest.approx(
        plain.numpy(), abs=1e-5
    )


@pytest.mark.parametrize("offset", [0.0, 1.0])
def test_rms_norm_equals_pytorch(offset: float) -> None:
    torch = pytest.importorskip("torch")
    weight = torch.from_numpy(W) + offset
    want = torch.nn.functional.rms_norm(torch.from_numpy(X), (24,), weight, 1e-5)
    assert run_gear(RMSNorm(24, 1e-5, offset), X, {"weight": W}) == pytest.approx(want.numpy(), abs=1e-5)


def test_batch_norm_equals_pytorch() -> None:
    torch = pytest.importorskip("torch")
    mean, variance = random(24), np.abs(random(24))
    want = torch.nn.functional.batch_norm(*map(torch.from_numpy, (X, mean, variance, W, B)), False, 0.1, 1e-5)
    weights = {"weight": W, "bias": B, "mean": mean, "variance": variance}
    assert run_gear(BatchNorm(24, 1e-5), X, weights) == pytest.approx(want.numpy(), abs=1e-5)


def test_scale_norm_gives_every_row_one_length() -> None:
    y = run_gear(ScaleNorm(24, 1e-5), X, {"weight": np.array([3.0], np.float32)})
    assert np.linalg.norm(y, axis=1) == pytest.approx(np.full(5, 3.0), rel=1e-5)
    zeros = np.zeros((1, 24), np.float32)
    assert np.array_equal(run_gear(ScaleNorm(24, 1e-5), zeros, {"weight": np.ones(1, np.float32)}), zeros)


def test_affine_is_a_product_and_a_sum() -> None:
    assert np.array_equal(run_gear(Affine(24), X, {"weight": W, "bias": B}), X * W + B)


NORMS: list[Gear | None] = [None, Affine(24)]


@pytest.mark.parametrize("skip", [True, False])
@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("post", NORMS)
@pytest.mark.parametrize("total", NORMS)
def test_a_residual_step_is_its_formula(
    norm: Affine | None, post: Affine | None, total: Affine | None, skip: bool
) -> None:
    weights = {"ffn.up.weight": random(40, 24), "ffn.down.weight": random(24, 40)}
    for name in ("ffn_norm", "ffn_post_norm", "ffn_sum_norm"):
        weights |= {f"{name}.weight": random(24), f"{name}.bias": random(24)}
    gear = FFN(Linear(24, 40), Linear(40, 24), "relu")

    def normed(x: Floats, name: str, there: object) -> Floats:
        return x * weights[f"{name}.weight"] + weights[f"{name}.bias"] if there else x

    hidden = np.maximum(normed(X, "ffn_norm", norm) @ weights["ffn.up.weight"].T, 0)
    want = normed(hidden @ weights["ffn.down.weight"].T, "ffn_post_norm", post)
    want = normed(X + want if skip else want, "ffn_sum_norm", total)
    seen: dict[str, Floats] = {}
    at = place(weights, len(X), hook=lambda path, value: seen.update({path: value}))
    got = residual(Residual(norm, gear, post, total, skip), X, at)
    assert got == pytest.approx(want, abs=1e-4)
    assert ("gear.ffn_residual" in seen) == skip
    assert ("gear.ffn_sum_norm" in seen) == (total is not None)


def test_neighbours_are_the_next_and_the_previous_token() -> None:
    mix = np.concatenate([np.eye(24), 10 * np.eye(24), 100 * np.eye(24)], axis=1).astype(np.float32)
    y = run_gear(Neighbours(Linear(72, 24)), X, {"mix.weight": mix})
    padded = np.pad(X, ((1, 1), (0, 0)))
    assert y == pytest.approx(padded[2:] + 10 * X + 100 * padded[:-2], rel=1e-4, abs=1e-4)


def test_a_capped_head_stays_below_its_cap_and_keeps_small_logits() -> None:
    weight = 100 * random(50, 24)
    y = run_gear(Head(24, 50, False, bias=True, cap=30.0), X, {"weight": weight, "bias": random(50)})
    assert np.abs(y).max() <= 30
    small = run_gear(Head(24, 50, False, cap=30.0), X, {"weight": weight * 1e-5})
    assert small == pytest.approx(X @ weight.T * 1e-5, abs=1e-3)
