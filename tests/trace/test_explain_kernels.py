"""The arithmetic of the kernels in NumPy: right by itself, apart from any kernel."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from glassgear.trace.explain import kernels, mixing

FLOAT32 = st.floats(width=32, allow_nan=False, allow_infinity=False, min_value=-(2.0**40), max_value=2.0**40)


@given(FLOAT32, FLOAT32, FLOAT32)
def test_multiply_and_add_rounds_once(x: float, y: float, z: float) -> None:
    exact = Fraction(x) * Fraction(y) + Fraction(z)
    got = Fraction(float(kernels.fma(np.float32(x), np.float32(y), np.float32(z))))
    below, above = (np.nextafter(np.float32(float(got)), np.float32(s * np.inf)) for s in (-1, 1))
    for other in (below, above):
        if np.isfinite(other):
            assert abs(got - exact) <= abs(Fraction(float(other)) - exact)


def test_two_roundings_would_give_another_number() -> None:
    # A hair below half way between two float32, which float64 takes for half way.
    x, y, z = (np.float32(v) for v in (2.0**-24 * (1 + 2.0**-23), 1 - 2.0**-23, 1 + 2.0**-23))
    assert np.float32(np.float64(x) * np.float64(y) + np.float64(z)) == np.float32(1 + 2.0**-22)
    assert kernels.fma(x, y, z) == z


@pytest.mark.parametrize(
    ("mine", "exact", "error"),
    [(kernels.exp, np.exp, 2e-7), (kernels.tanh, np.tanh, 3e-7),
     (kernels.sigmoid, lambda x: 1 / (1 + np.exp(-x)), 3e-7)],
)  # fmt: skip
def test_curves_are_those_that_they_are_called(mine: object, exact: object, error: float) -> None:
    x = np.linspace(-20, 20, 999, dtype=np.float32)
    np.testing.assert_allclose(mine(x), exact(x.astype(np.float64)), rtol=error)  # type: ignore[operator]


def test_the_exponential_of_nothing_is_0() -> None:
    assert kernels.exp(np.float32(-np.inf)) == 0 and kernels.exp(np.float32(-100)) == 0


@pytest.mark.parametrize("length", [1, 16, 33, 100])
def test_moments_of_a_row(length: int) -> None:
    x = np.random.default_rng(length).standard_normal(length).astype(np.float32)
    _, middle, scale = kernels.moments(kernels.NormKind.LAYER, x, 1e-5)
    assert middle == pytest.approx(float(x.mean(dtype=np.float64)), abs=1e-6)
    assert scale == pytest.approx(1 / math.sqrt(float(x.var(dtype=np.float64)) + 1e-5), rel=1e-5)


@pytest.mark.parametrize(("first", "last"), [(0, 0), (0, 63), (3, 130), (60, 1100), (600, 1030)])
def test_pages_and_segments_make_one_softmax(first: int, last: int) -> None:
    rng = np.random.default_rng(last)
    scores = (3 * rng.standard_normal(last + 1)).astype(np.float32)
    values = rng.standard_normal((last + 1, 5)).astype(np.float32)
    weights = np.exp(scores[first:].astype(np.float64) - scores[first:].max())
    weights /= weights.sum()
    found = mixing.attend(scores, first, last, values)
    np.testing.assert_allclose(found.mixed, weights @ values[first:], atol=3e-6)
    np.testing.assert_allclose(found.shares[first:], weights, rtol=2e-5)
    assert not found.shares[:first].any()


@pytest.mark.parametrize("cap", [0.0, 5.0])
def test_int16_codes_are_a_close_attention(cap: float) -> None:
    rng, width = np.random.default_rng(2), 24
    q, k, v = (rng.standard_normal(shape).astype(np.float32) for shape in ((width,), (700, width), (700, 8)))
    query, scale = mixing.coded_query(q, np.float32(0.3)), 0.3
    products = mixing.code_scores(query, mixing.coded_by_length(k))
    scores = (k.astype(np.float64) @ q) * scale
    scores = cap * np.tanh(scores / cap) if cap else scores
    np.testing.assert_allclose(mixing.shown_scores(products, query.unit, cap), scores, atol=2e-3)
    weights = np.exp(scores - scores.max())
    weights /= weights.sum()
    found = mixing.attend_codes(products, query.unit, cap, 0, 699, mixing.coded_by_size(v))
    np.testing.assert_allclose(found.mixed, weights @ v, atol=2e-3)


def test_activations_are_rounded_to_int8_by_blocks() -> None:
    x = np.random.default_rng(0).standard_normal(96).astype(np.float32)
    x[32:64] = 0
    codes, units = kernels.encode(x)
    assert np.abs(codes).max() == 127 and units[1] == 0 and not codes[32:64].any()
    np.testing.assert_allclose(codes * np.repeat(units, 32), x, atol=float(units.max()) / 2 * 1.001)
