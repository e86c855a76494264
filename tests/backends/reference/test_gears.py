"""Each formula against values recomputed by hand, and PyTorch where it has the same gear."""

from __future__ import annotations

import numpy as np
import pytest

from glassgear.backends.reference.activation import ACTIVATIONS, gelu, gelu_tanh, sigmoid
from glassgear.backends.reference.attention import causal_mask
from glassgear.backends.reference.rope import rotate, rotation
from glassgear.backends.reference.softmax import softmax
from glassgear.model.gears import RMSNorm, Rope
from tests.backends.reference.support import run_gear


def floats(*values: float) -> np.ndarray:
    return np.array(values, np.float32)


def rms_norm(x: np.ndarray, weight: np.ndarray, eps: float) -> np.ndarray:
    return run_gear(RMSNorm(x.shape[-1], eps), x, {"weight": weight})


@pytest.mark.parametrize(("eps", "out"), [(1e-5, 0.3015113), (1e-6, 0.7071068)])
def test_epsilon_stands_inside_the_root(eps: float, out: float) -> None:
    row = rms_norm(np.full((1, 8), 0.001, np.float32), np.ones(8, np.float32), eps)
    assert row == pytest.approx(np.full((1, 8), out), abs=1e-6)


def test_each_row_is_normed_alone() -> None:
    x = np.random.default_rng(0).standard_normal((3, 16)).astype(np.float32)
    w = np.arange(16, dtype=np.float32)
    whole = rms_norm(x, w, 1e-5)
    assert all(np.array_equal(whole[i], rms_norm(x[i : i + 1], w, 1e-5)[0]) for i in range(3))


@pytest.mark.parametrize(("x", "exact", "tanh"), [(1.0, 0.8413447, 0.8411920), (3.0, 2.9959503, 2.9963626)])
def test_the_two_forms_of_gelu_differ(x: float, exact: float, tanh: float) -> None:
    assert gelu(floats(x))[0] == pytest.approx(exact, abs=1e-6)
    assert gelu_tanh(floats(x))[0] == pytest.approx(tanh, abs=1e-6)


def test_silu_table() -> None:
    x = floats(4, 1, 0.4, -0.3, -1, -4)
    assert ACTIVATIONS["silu"](x) == pytest.approx(
        [3.9280552, 0.7310586, 0.2394751, -0.1276673, -0.2689414, -0.0719448], abs=1e-6
    )


def test_activations_equal_pytorch() -> None:
    torch = pytest.importorskip("torch")
    x = np.linspace(-9, 9, 501, dtype=np.float32)
    t, f = torch.from_numpy(x), torch.nn.functional
    want = {
        "silu": f.silu(t), "gelu": f.gelu(t), "gelu_tanh": f.gelu(t, approximate="tanh"), "relu": f.relu(t),
        "identity": t,
    }  # fmt: skip
    for name, values in want.items():
        assert ACTIVATIONS[name](x) == pytest.approx(values.numpy(), abs=2e-6), name  # type: ignore[index]


def test_sigmoid_never_overflows() -> None:
    with np.errstate(all="raise", under="ignore"):
        assert sigmoid(floats(-1e4, 0, 1e4)) == pytest.approx([0, 0.5, 1])


def test_softmax_of_scores_beyond_half_precision_stays_finite() -> None:
    assert softmax(floats(70000, 0)) == pytest.approx([1, 0])


def test_queries_see_the_past_and_themselves() -> None:
    assert causal_mask(np.array([3, 4]), 5).astype(int).tolist() == [[1, 1, 1, 1, 0], [1, 1, 1, 1, 1]]


def test_position_zero_is_not_turned() -> None:
    x = np.random.default_rng(1).standard_normal((1, 2, 8)).astype(np.float32)
    assert np.array_equal(rotate(Rope(8, 10000.0), x, np.array([0])), x)


def test_pairings_are_the_same_rotation_of_reordered_channels() -> None:
    x = np.random.default_rng(2).standard_normal((5, 3, 8)).astype(np.float32)
    positions = np.arange(5)
    order = np.arange(8).reshape(2, 4).T.reshape(-1)  # 0 4 1 5 2 6 3 7
    half = rotate(Rope(8, 10000.0, "half"), x, positions)
    interleaved = rotate(Rope(8, 10000.0, "interleaved"), x[..., order], positions)
    assert np.array_equal(half[..., order], interleaved)


def test_channels_past_the_rotary_width_pass_through() -> None:
    x = np.random.default_rng(3).standard_normal((4, 2, 16)).astype(np.float32)
    turned = rotate(Rope(8, 10000.0), x, np.arange(4) + 3)
    assert np.array_equal(turned[..., 8:], x[..., 8:]) and not np.array_equal(turned[..., :8], x[..., :8])


def test_dot_products_depend_on_the_distance_alone() -> None:
    rng = np.random.default_rng(4)
    q, k = rng.standard_normal((2, 1, 1, 8)).astype(np.float32)
    rope = Rope(8, 10000.0)

    def score(i: int, j: int) -> float:
        return float((rotate(rope, q, np.array([i])) * rotate(rope, k, np.array([j]))).sum())

    assert score(7, 3) == pytest.approx(score(107, 103), abs=1e-4)


def test_tables_are_exact_where_half_precision_is_not() -> None:
    cos, _ = rotation(Rope(2, 10000.0), np.array([257, 15962]))
    assert cos[:, 0] == pytest.approx(np.cos([257.0, 15962.0]), abs=1e-5)
    assert cos[1, 0] == pytest.approx(-0.908, abs=1e-3)  # bfloat16 would make it cos(15936) = -0.268
