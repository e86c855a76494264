"""Quantisers: never further off than the `gguf` package's, and nearer than llama.cpp's on the whole."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import gguf as official
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray

from glassgear.errors import SettingError
from glassgear.weights import gguf, quant
from glassgear.weights.block_encoders import pack
from glassgear.weights.quant import TYPES, decode
from glassgear.weights.quantize import FALLBACKS, WRITABLE, fitting_type, quantize

LEGACY = ("Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1")
K_TYPES = ("Q4_K", "Q5_K", "Q6_K")
BLOCKS = LEGACY + K_TYPES
Floats = NDArray[np.float32]


def there_and_back(kind: str, values: Floats) -> Floats:
    return decode(kind, quantize(kind, values).reshape(-1)).reshape(values.shape)


def of_gguf(kind: str, values: Floats) -> Floats:
    number = official.GGMLQuantizationType[kind]
    with np.errstate(all="ignore"):
        return official.quants.dequantize(official.quants.quantize(values, number), number)


def block_errors(values: Floats, decoded: Floats, size: int = 32) -> NDArray[np.float64]:
    return np.sqrt(((decoded.astype(np.float64) - values) ** 2).reshape(-1, size).sum(axis=1))


def relative_error(values: Floats, decoded: Floats) -> float:
    difference = decoded.astype(np.float64) - values
    return float(np.sqrt(np.mean(difference**2) / np.mean(values.astype(np.float64) ** 2)))


def normal(rows: int = 64, columns: int = 512, seed: int = 0) -> Floats:
    return np.random.default_rng(seed).standard_normal((rows, columns)).astype(np.float32)


# --------------------------------------------------------------------------------------------
# Against other programs


@pytest.mark.parametrize("kind", ["F32", "F16", "BF16"])
def test_floats_are_rounded_as_the_gguf_package_does(kind: str) -> None:
    bits = np.random.default_rng(0).integers(0, 2**32, (100, 64), np.uint32)
    values = bits.view(np.float32)
    values = np.where(np.abs(values) < 60000, values, np.float32(1.0009765))  # finite in all three
    ties = np.array(
        [1 + 2**-11, 1 + 3 * 2**-11, 1 + 2**-8, 1 + 3 * 2**-8, 2**-25, 3 * 2**-25, -0.0], np.float32
    )
    values[0, : len(ties)] = ties
    theirs = official.quants.quantize(values, official.GGMLQuantizationType[kind]).view(np.uint8)
    assert np.array_equal(quantize(kind, values), theirs.reshape(100, -1))


def alone(value: float) -> Floats:
    """One number that isn't 0. The scale of -47175 in Q4_1 lies between two numbers of float16."""
    values = np.zeros((3, 64), np.float32)
    values[0, 0] = value
    return values


@pytest.mark.parametrize("kind", LEGACY)
@example(values=alone(-47175), scale=1.0)
@example(values=alone(-41943), scale=1.0)
@given(
    values=arrays(
        np.float32, (3, 64), elements=st.floats(-6e4, 6e4, width=32), fill=st.floats(-1, 1, width=32)
    ),
    scale=st.sampled_from([1.0, 1e-3, 1e-6, 1e-9, 2.0**-140]),
)
def test_no_block_is_further_off_than_that_of_the_gguf_package(
    kind: str, values: Floats, scale: float
) -> None:
    values = (values * scale).astype(np.float32)
    ours, theirs = (block_errors(values, f(kind, values)) for f in (there_and_back, of_gguf))
    largest = np.abs(values).reshape(-1, 32).max(axis=1)
    assert (ours <= theirs * (1 + 1e-4) + largest * 1e-6).all()


# Relative errors of llama.cpp (llama-cpp-python 0.3.36, `pure`, no importance matrix) on the same two
# matrices, as `benchmarks/quantization.py` prints them.
LLAMA_CPP = {
    "normal": {"Q8_0": 0.005353, "Q4_0": 0.086009, "Q4_1": 0.078275, "Q5_0": 0.042685, "Q5_1": 0.037864,
               "Q4_K": 0.071366, "Q5_K": 0.036131, "Q6_K": 0.017746},
    "heavy tails": {"Q8_0": 0.008589, "Q4_0": 0.127347, "Q4_1": 0.099812, "Q5_0": 0.065696, "Q5_1": 0.048454,
                    "Q4_K": 0.092005, "Q5_K": 0.046772, "Q6_K": 0.025616},
}  # fmt: skip


@pytest.fixture(scope="module")
def measured() -> dict[str, Floats]:
    rng = np.random.default_rng(1)
    shape = (1024, 2048)
    return {
        "normal": rng.standard_normal(shape).astype(np.float32),
        "heavy tails": rng.standard_t(3, shape).astype(np.float32),
    }


@pytest.mark.parametrize("kind", BLOCKS)
@pytest.mark.parametrize("matrix", LLAMA_CPP)
def test_errors_are_below_those_of_llama_cpp(kind: str, matrix: str, measured: dict[str, Floats]) -> None:
    values = measured[matrix]
    assert relative_error(values, there_and_back(kind, values)) < LLAMA_CPP[matrix][kind]


@pytest.mark.parametrize("kind", LEGACY)
def test_errors_on_a_model_s_own_rows_are_at_most_those_of_the_gguf_package(kind: str, smollm2: Path) -> None:
    values = gguf.read(smollm2).tensors["blk.3.attn_q.weight"].float32()
    ours, theirs = there_and_back(kind, values), of_gguf(kind, values)
    assert relative_error(values, ours) <= relative_error(values, theirs)


# --------------------------------------------------------------------------------------------
# Rows that ask for care


@pytest.mark.parametrize("kind", WRITABLE)
def test_zeros_stay_zeros(kind: str) -> None:
    values = normal(8, 512)
    values[3] = 0
    values[5, :256] = 0
    decoded = there_and_back(kind, values)
    assert not decoded[3].any()
    assert not decoded[5, :256].any()


@pytest.mark.parametrize("kind", BLOCKS)
def test_an_all_zero_group_has_the_scale_0(kind: str) -> None:
    blocks = quantize(kind, np.zeros((2, 256), np.float32)).reshape(-1).view(TYPES[kind].layout)
    assert not blocks["scale"].any()
    if "minimum" in blocks.dtype.names:
        assert not blocks["minimum"].any()


@pytest.mark.parametrize("kind", BLOCKS)
@pytest.mark.parametrize("value", [1.0, -1.0, 0.3, -0.3, 1e4, -1e4])
def test_constant_rows_keep_their_value(kind: str, value: float) -> None:
    decoded = there_and_back(kind, np.full((2, 256), value, np.float32))
    assert np.abs(decoded / value - 1).max() < 2e-3


@pytest.mark.parametrize("kind", BLOCKS)
def test_one_outlier_costs_its_own_block_only(kind: str) -> None:
    values = normal(4, 512) * np.float32(0.01)
    clean = there_and_back(kind, values)
    values[1, 300] = 50
    decoded = there_and_back(kind, values)
    size = TYPES[kind].values
    spoilt = np.zeros(values.shape, bool)
    spoilt[1, 300 // size * size : (300 // size + 1) * size] = True
    assert np.array_equal(decoded[~spoilt], clean[~spoilt])
    assert abs(decoded[1, 300] - 50) < 2


@pytest.mark.parametrize("kind", BLOCKS)
@pytest.mark.parametrize("scale", [1e-5, 1e-6, 2e-7, 1e-9, 1e-30, 1e-44])
def test_small_values_are_never_made_worse_than_0(kind: str, scale: float) -> None:
    values = normal(4, 256) * np.float32(scale)
    decoded = there_and_back(kind, values)
    lost = block_errors(values, np.zeros_like(values), TYPES[kind].values)
    assert (block_errors(values, decoded, TYPES[kind].values) <= lost * (1 + 1e-6)).all()


@pytest.mark.parametrize("kind", BLOCKS)
def test_values_on_the_grid_stay_there(kind: str) -> None:
    values = there_and_back(kind, normal())
    first = relative_error(normal(), values)
    assert relative_error(values, there_and_back(kind, values)) < 0.1 * first


@pytest.mark.parametrize("kind", WRITABLE)
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_is_refused_by_name(kind: str, value: float) -> None:
    values = normal(7, 256)
    values[5, 17] = value
    with pytest.raises(SettingError, match=r"'blk\.0\.ffn_up', row 105, column 17: holds (nan|inf|-inf)"):
        quantize(kind, values, name="blk.0.ffn_up", first_row=100)


@pytest.mark.parametrize("kind", [kind for kind in WRITABLE if kind != "F32"])
def test_values_too_large_are_refused_and_the_largest_are_not(kind: str) -> None:
    values = np.full((2, 256), 65504, np.float32)
    values[1] *= -1
    assert np.abs(there_and_back(kind, values) / values - 1).max() < 1e-2
    values[1, 3] = 3.4e38
    with pytest.raises(SettingError, match=rf"row 1, column 3: holds 3\.4e\+38, too large for {kind}"):
        quantize(kind, values)


@pytest.mark.parametrize(("kind", "columns"), [("Q8_0", 33), ("Q6_K", 64), ("Q4_0", 16), ("Q4_K", 255)])
def test_rows_that_the_block_does_not_divide_are_refused(kind: str, columns: int) -> None:
    with pytest.raises(SettingError, match=f"rows of {columns} values, not a multiple of the"):
        quantize(kind, np.zeros((8, columns), np.float32))


def test_types_that_cannot_be_written_are_refused() -> None:
    with pytest.raises(SettingError, match="can't be written as Q2_K; choose F32, F16"):
        quantize("Q2_K", np.zeros((1, 256), np.float32))


# --------------------------------------------------------------------------------------------
# Mechanics


@pytest.mark.parametrize(("bits", "run"), [(4, 16), (4, 32), (4, 64), (2, 32), (1, 32)])
def test_packing_undoes_unpacking(bits: int, run: int) -> None:
    data = np.random.default_rng(0).integers(0, 256, (5, 128), np.uint8)
    assert np.array_equal(pack(quant._unpack(data, bits, run), bits, run), data)


@pytest.mark.parametrize("kind", WRITABLE)
def test_rows_in_pieces_and_threads_change_nothing(kind: str) -> None:
    values = normal(300, 512)
    whole = quantize(kind, values, threads=2)
    pieces = [quantize(kind, values[start : start + 7], threads=1) for start in range(0, 300, 7)]
    assert np.array_equal(whole, np.concatenate(pieces))


@pytest.mark.parametrize("kind", WRITABLE)
def test_nothing_becomes_nothing(kind: str) -> None:
    assert quantize(kind, np.zeros((0, 256), np.float32)).shape[0] == 0


@pytest.mark.parametrize("kind", BLOCKS)
def test_little_is_held_beside_values_and_result(kind: str) -> None:
    values = np.ones((2000, 1024), np.float32)
    tracemalloc.start()
    try:
        result = quantize(kind, values, threads=1)
        assert tracemalloc.get_traced_memory()[1] < result.nbytes + 4_000_000
    finally:
        tracemalloc.stop()


def test_the_fallback_is_the_nearest_type_that_divides_the_rows() -> None:
    assert FALLBACKS == {"Q4_K": "Q5_0", "Q5_K": "Q5_1", "Q6_K": "Q8_0"}
    assert [fitting_type(kind, 576) for kind in K_TYPES] == ["Q5_0", "Q5_1", "Q8_0"]
    assert {fitting_type(kind, 512) for kind in WRITABLE} == set(WRITABLE)
    assert {fitting_type(kind, 40) for kind in BLOCKS} == {"F16"}
    assert fitting_type("BF16", 7) == "BF16"
