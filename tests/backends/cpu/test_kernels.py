"""Single kernels against their formulas in NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from glassgear.backends.cpu.fields import STEP_FIELDS, Frame, Step
from glassgear.backends.reference.activation import ACTIVATIONS

from .support import Floats, run


def activated(name: str, gate: Floats, up: Floats) -> Floats:
    rows, width = gate.shape
    both, out = np.concatenate([gate, up]), np.zeros((rows, width), np.float32)
    step, frame = np.zeros(STEP_FIELDS, np.int64), np.zeros(len(Frame), np.int64)
    frame[Frame.ROWS] = rows
    step[Step.INPUT], step[Step.INPUT_STRIDE], step[Step.A] = both.ctypes.data, 4 * width, gate.nbytes
    step[Step.OUTPUT], step[Step.OUTPUT_STRIDE] = out.ctypes.data, 4 * width
    step[Step.PANELS] = step[Step.UNITS] = width // 32
    step[Step.UNIT] = 1
    run(("rows", "activate", name), step, frame)
    return out


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations(name: str) -> None:
    rng = np.random.default_rng(0)
    gate = np.concatenate([rng.standard_normal(960) * 4, np.linspace(-120, 120, 64)]).astype(np.float32)
    gate = gate.reshape(4, 256)
    up = rng.standard_normal(gate.shape).astype(np.float32)
    want = ACTIVATIONS[name](gate) * up  # type: ignore[index]
    np.testing.assert_allclose(activated(name, gate, up), want, atol=2e-6, rtol=1e-6)


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations_of_values_that_are_not_finite(name: str) -> None:
    gate = np.ones((1, 32), np.float32)
    gate[0, :3] = np.nan, np.inf, -np.inf
    with np.errstate(invalid="ignore"):
        want = ACTIVATIONS[name](gate)  # type: ignore[index]
    got = activated(name, gate, np.ones_like(gate))
    assert np.isnan(got[0, 0])
    assert not np.isfinite(got[0, 1])
    assert np.array_equal(np.isfinite(got[0, 3:]), np.isfinite(want[0, 3:]))
