"""Hidden units: which a text moves, which were pushed down, and which come back."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from glassgear.lab import experiment
from glassgear.lab.experiments.activations import GATED, KINDS, design_of
from glassgear.lab.models import random_model
from glassgear.model.designs import design as designed
from glassgear.model.ledger import ledger

torch = pytest.importorskip("torch")

from glassgear.backends.torch import ModelModule, module_of  # noqa: E402
from glassgear.lab.units import STEP, kill, units_of  # noqa: E402

IDS = np.random.default_rng(0).integers(0, 32, 64).astype(np.uint8)


def module(name: str, kind: Any) -> ModelModule:
    model = random_model({"vocab": 32, "context": 16, **design_of(name, kind, 16, 2)}, 0, "reference")
    return module_of(model.gears, model.checkpoint.tensors)


@pytest.mark.parametrize(("name", "kind"), [*KINDS, (GATED, "silu")])
def test_half_of_the_units_are_pushed_down(name: str, kind: Any) -> None:
    made = module(name, kind)
    before = units_of(made, IDS)
    which = kill(made, 0.5, 20)
    after = units_of(made, IDS)
    assert not before.flat.any() and 0.45 <= which.mean() <= 0.55
    np.testing.assert_array_equal(after.shut & ~before.shut, which & ~before.shut)
    np.testing.assert_array_equal(after.flat, which)


def test_a_unit_is_shut_where_numpy_says_so() -> None:
    made = module("ReLU", "relu")
    kill(made, 0.5, 1.5)
    held = {name: value.detach().numpy().astype(np.float64) for name, value in made.named_parameters()}
    seen: dict[str, list[Any]] = {}
    for first in range(0, 64, 16):
        made(torch.from_numpy(IDS[None, first : first + 16].astype(np.int64)),
             hook=lambda path, value: seen.setdefault(path, []).append(value.copy()))  # fmt: skip
    found = units_of(made, IDS)
    shut, flat = [], []
    for i in range(2):
        x = np.concatenate(seen[f"blocks.{i}.ffn_norm"]).astype(np.float64)
        z = x @ held[f"blocks.{i}.ffn.up.weight"].T + held[f"blocks.{i}.ffn.up.bias"]
        shut.append(z.max(0) <= 0)
        flat.append(z.max(0) <= -STEP)
    assert 0.05 < found.shut.mean() < 0.5
    np.testing.assert_array_equal(found.shut, np.concatenate(shut))
    np.testing.assert_array_equal(
        found.flat, np.concatenate(flat)
    )  # slopes are taken between x - STEP and x + STEP


@pytest.mark.parametrize("dim", [32, 48, 64])
def test_gated_and_plain_networks_have_as_many_parameters(dim: int) -> None:
    counts = [
        ledger(designed({"vocab": 45, **design_of(name, kind, dim, 2)}, "design")).parameters
        for name, kind in (KINDS[0], (GATED, KINDS[3][1]))
    ]
    assert abs(counts[0] / counts[1] - 1) < 0.01


def test_units_come_back_where_there_is_a_slope() -> None:
    one = experiment("activations")
    facts: Any = one.run(one.with_options(small=True)).facts
    assert facts["back_3_ReLU"] == facts["back_6_ReLU"] == 0
    assert min(facts["back_3_GELU"], facts["back_3_SiLU"], facts["back_3_SwiGLU"]) > 0.02
    assert facts["flat_ReLU"] == 0  # nothing dies by itself here
