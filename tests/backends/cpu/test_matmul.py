"""Matrix products against NumPy, for every stored type."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from glassgear.weights.tensor import StoredTensor

from .support import QUANTISED, multiply, quantized, stored

TYPES = (*QUANTISED, "F32", "F16", "BF16")
# K-quants keep products of two scales as one float16: half a unit in its last place.
SCALE_ERROR = {"Q2_K": 6e-4, "Q3_K": 6e-4, "Q4_K": 6e-4, "Q5_K": 6e-4, "Q6_K": 6e-4, "IQ4_XS": 6e-4}


@pytest.mark.parametrize("type_name", TYPES)
def test_products_equal_numpy(type_name: str) -> None:
    rng = np.random.default_rng(1)
    tensor = stored(rng, type_name, 70, 512)  # 70: the last panel is not full
    x = rng.standard_normal((100, 512)).astype(np.float32)
    got, seen = multiply(tensor, x)
    want = seen.astype(np.float64) @ tensor.float32().astype(np.float64).T
    assert np.abs(got - want).max() <= SCALE_ERROR.get(type_name, 2e-6) * np.abs(want).max()


@pytest.mark.parametrize("type_name", TYPES)
@given(first=st.integers(0, 30), count=st.integers(1, 40), threads=st.integers(1, 5))
@settings(max_examples=12)
def test_a_row_is_bit_equal_in_any_company(type_name: str, first: int, count: int, threads: int) -> None:
    rng = np.random.default_rng(2)
    tensor = stored(rng, type_name, 35, 256)
    x = rng.standard_normal((110, 256)).astype(np.float32)
    whole, _ = multiply(tensor, x)
    part, _ = multiply(tensor, x[first : first + count], threads)
    assert np.array_equal(part, whole[first : first + count])


@pytest.mark.parametrize("type_name", ["Q4_1", "Q5_0", "Q6_K", "Q2_K", "IQ4_NL", "F16"])
def test_wide_matrices_are_done_in_parts_with_the_same_bits(type_name: str) -> None:
    """8,448 inputs: more blocks than are spread at a time, and more rows than stay near at a time."""
    rng = np.random.default_rng(9)
    tensor = stored(rng, type_name, 16, 8448)
    x = rng.standard_normal((250, 8448)).astype(np.float32)
    got, seen = multiply(tensor, x)
    want = seen.astype(np.float64) @ tensor.float32().astype(np.float64).T
    assert np.abs(got - want).max() <= SCALE_ERROR.get(type_name, 1e-5) * np.abs(want).max()
    for rows in (slice(0, 1), slice(60, 63), slice(93, 190), slice(249, 250)):
        assert np.array_equal(multiply(tensor, x[rows])[0], got[rows])


@pytest.mark.parametrize("type_name", ["Q4_1", "Q6_K", "F16"])
@pytest.mark.parametrize("tokens", [1, 30, 100])
def test_products_can_be_added_to_what_is_there(type_name: str, tokens: int) -> None:
    rng = np.random.default_rng(10)
    tensor = stored(rng, type_name, 40, 768)
    x = rng.standard_normal((tokens, 768)).astype(np.float32)
    there = rng.standard_normal((tokens, 40)).astype(np.float32)
    alone, _ = multiply(tensor, x)
    both, _ = multiply(tensor, x, there=there)
    assert np.array_equal(both, there + alone)


@given(rows=st.integers(1, 50), columns=st.integers(1, 70), tokens=st.integers(1, 40))
@settings(max_examples=30)
def test_float_matrices_of_any_size(rows: int, columns: int, tokens: int) -> None:
    rng = np.random.default_rng(rows)
    tensor = stored(rng, "F32", rows, columns)
    x = rng.standard_normal((tokens, columns)).astype(np.float32)
    got, _ = multiply(tensor, x)
    np.testing.assert_allclose(got, x.astype(np.float64) @ tensor.float32().T, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("group", [4, 32, 64, 96])
def test_int8_groups_of_llama2c(group: int) -> None:
    """Groups that fill blocks stay int8; others become floats."""
    rng = np.random.default_rng(3)
    codes = rng.integers(-127, 128, 20 * 192).astype(np.int8)
    scales = rng.random(codes.size // group).astype(np.float32) * 1e-3
    tensor = StoredTensor("w", "INT8_GROUPS", (20, 192), codes.view(np.uint8), "random", scales=scales)
    x = rng.standard_normal((3, 192)).astype(np.float32)
    got, seen = multiply(tensor, x)
    np.testing.assert_allclose(got, seen @ tensor.float32().T, rtol=1e-4, atol=1e-4)
    assert (group % 32 == 0) == (not np.array_equal(seen, x))


@pytest.mark.parametrize("type_name", ["Q4_1", "Q8_0", "Q6_K", "F16", "F32"])
def test_row_order_is_honoured(type_name: str) -> None:
    rng = np.random.default_rng(4)
    order = rng.permutation(40)
    tensor = stored(rng, type_name, 40, 256).reordered(order)
    x = rng.standard_normal((2, 256)).astype(np.float32)
    got, seen = multiply(tensor, x)
    want = seen @ tensor.float32().T
    assert np.abs(got - want).max() <= 6e-4 * np.abs(want).max()


def test_codes_are_within_half_a_step() -> None:
    rng = np.random.default_rng(5)
    x = (rng.standard_normal((33, 96)) * 10.0 ** rng.integers(-6, 6, (33, 1))).astype(np.float32)
    _, worth = quantized(x)
    blocks, steps = x.reshape(-1, 32), np.abs(x.reshape(-1, 32)).max(axis=1, keepdims=True) / 127
    assert (np.abs(worth.reshape(-1, 32) - blocks) <= steps * 0.5001).all()


def test_zeros_stay_zeros_and_the_smallest_numbers_do_no_harm() -> None:
    tensor = stored(np.random.default_rng(6), "Q4_1", 16, 64)
    x = np.zeros((2, 64), np.float32)
    x[1] = 1e-40
    got, _ = multiply(tensor, x)
    assert np.array_equal(got, np.zeros((2, 16)))


@pytest.mark.parametrize("type_name", ["Q4_1", "Q8_0", "F32"])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_row_that_is_not_finite_stays_so_and_alone(type_name: str, bad: float) -> None:
    tensor = stored(np.random.default_rng(7), type_name, 16, 64)
    x = np.random.default_rng(8).standard_normal((5, 64)).astype(np.float32)
    clean, _ = multiply(tensor, x)
    x[2, 40] = bad
    with np.errstate(invalid="ignore"):
        got, _ = multiply(tensor, x)
    assert not np.isfinite(got[2]).any()
    assert np.array_equal(np.delete(got, 2, 0), np.delete(clean, 2, 0))
