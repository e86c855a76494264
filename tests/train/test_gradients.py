"""Gradients of every norm with every activation that can be trained, against central differences."""

from __future__ import annotations

from typing import get_args

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch.nn import functional  # noqa: E402

from glassgear.backends.torch import ModelModule  # noqa: E402
from glassgear.model.designs import design  # noqa: E402
from glassgear.model.gears import Activation  # noqa: E402
from glassgear.train.optimizer import initialise  # noqa: E402

NORMS = ("rmsnorm", "layernorm", "scalenorm", "batchnorm", "affine", "none")
VOCAB, STEP = 40, 1e-7  # in float64, so that a step is small enough to meet no bend of ReLU
IDS = torch.from_numpy(np.random.default_rng(3).integers(0, VOCAB, (4, 17)))


@pytest.mark.parametrize("kind", ["plain", "gated"])
@pytest.mark.parametrize("activation", get_args(Activation))
@pytest.mark.parametrize("norm", NORMS)
def test_the_slope_along_a_direction_is_that_of_central_differences(
    norm: str, activation: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.Tensor, "float", torch.Tensor.double)  # which norms compute in, in training
    module = ModelModule(
        design(
            {
                "dim": 16, "vocab": VOCAB, "layers": 2, "norm": norm, "attention": {"heads": 2},
                "ffn": {"kind": kind, "hidden": 24, "activation": activation},
            },
            "made here",
        )
    ).double().train()  # fmt: skip
    initialise(module, 2)
    random = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for value in module.parameters():  # no gain of exactly one, no bias of nothing, no tiny table
            value.add_(0.3 * torch.randn(value.shape, generator=random))
    direction = [torch.randn(p.shape, generator=random) for p in module.parameters()]
    targets = IDS[:, 1:].flatten()

    def loss() -> torch.Tensor:
        return functional.cross_entropy(module(IDS[:, :-1]).flatten(0, 1), targets)

    loss().backward()
    slope = sum(float((p.grad * d).sum()) for p, d in zip(module.parameters(), direction, strict=True))
    step, ends = STEP, []
    with torch.no_grad():
        for times in (1, -2):
            for p, d in zip(module.parameters(), direction, strict=True):
                p.add_(d, alpha=times * step)
            ends.append(float(loss()))
    assert slope == pytest.approx((ends[0] - ends[1]) / (2 * step), rel=1e-4)
    assert abs(slope) > 1e-3, "a slope that a wrong gradient would miss"
