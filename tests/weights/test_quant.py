"""Block formats against the decoders of the `gguf` package, and blocks worked out by hand."""

from __future__ import annotations

import tracemalloc

import gguf
import numpy as np
import pytest
from numpy.typing import NDArray

from glassgear.weights.quant import TYPES, NonFinite, decode, find_non_finite

HALVES = {"one": 0x3C00, "largest": 0x7BFF, "least": 0x0001, "minus zero": 0x8000, "negative": 0xC123}


def official(name: str, data: NDArray[np.uint8]) -> NDArray[np.uint32]:
    """What `gguf.quants.dequantize` makes of the same bytes, as bits."""
    with np.errstate(all="ignore"):
        values = gguf.quants.dequantize(data, gguf.GGMLQuantizationType[name])
    return np.asarray(values, np.float32).view(np.uint32).reshape(-1)


def random_blocks(name: str, count: int, seed: int = 0) -> NDArray[np.uint8]:
    return np.random.default_rng(seed).integers(0, 256, count * TYPES[name].nbytes, np.uint8)


def with_floats(name: str, data: NDArray[np.uint8], bits: int) -> NDArray[np.uint8]:
    """The same blocks with every scale (or value) replaced."""
    kind = TYPES[name]
    blocks = data.copy().view(kind.layout)
    for field, dtype in kind.floats.items():
        blocks[field] = np.array(bits, dtype.replace("f", "u")).view(dtype)
    return blocks.view(np.uint8)


def test_every_promised_type_is_there() -> None:
    assert list(TYPES) == [
        "F32", "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K",
        "IQ4_NL", "IQ4_XS",
    ]  # fmt: skip


@pytest.mark.parametrize("name", TYPES)
def test_numbers_and_sizes_are_those_of_ggml(name: str) -> None:
    official_type = gguf.GGMLQuantizationType[name]
    assert TYPES[name].number == official_type.value
    assert (TYPES[name].values, TYPES[name].nbytes) == gguf.GGML_QUANT_SIZES[official_type]


@pytest.mark.parametrize("name", TYPES)
@pytest.mark.parametrize("seed", range(3))
def test_random_blocks_decode_to_the_same_bits(name: str, seed: int) -> None:
    # Scales are random bits too: NaN, infinity and subnormals among them. The count crosses slices.
    data = random_blocks(name, 70_001 // TYPES[name].values + 3, seed)
    assert np.array_equal(decode(name, data).view(np.uint32), official(name, data))


@pytest.mark.parametrize("name", TYPES)
@pytest.mark.parametrize("bits", HALVES.values(), ids=HALVES.keys())
def test_extreme_scales_decode_to_the_same_bits(name: str, bits: int) -> None:
    data = with_floats(name, random_blocks(name, 64), bits)
    assert np.array_equal(decode(name, data).view(np.uint32), official(name, data))


@pytest.mark.parametrize("name", TYPES)
@pytest.mark.parametrize("byte", [0x00, 0x0F, 0x3F, 0x40, 0x7F, 0x80, 0xC0, 0xF0, 0xFF])
def test_extreme_codes_decode_to_the_same_bits(name: str, byte: int) -> None:
    data = with_floats(name, np.full(5 * TYPES[name].nbytes, byte, np.uint8), 0x3C01)
    assert np.array_equal(decode(name, data).view(np.uint32), official(name, data))


@pytest.mark.parametrize("name", TYPES)
def test_nothing_decodes_to_nothing(name: str) -> None:
    assert decode(name, np.zeros(0, np.uint8)).shape == (0,)
    assert find_non_finite(name, np.zeros(0, np.uint8)) is None


def test_q4_0_by_hand() -> None:
    # Scale 0.5; byte i holds code i below and code 15 - i above; a code means code - 8.
    codes = bytes(i | (15 - i) << 4 for i in range(16))
    block = np.frombuffer(np.float16(0.5).tobytes() + codes, np.uint8)
    low = [(i - 8) * 0.5 for i in range(16)]
    assert decode("Q4_0", block).tolist() == low + [(7 - i) * 0.5 for i in range(16)]


def test_q8_0_by_hand() -> None:
    codes = np.arange(-16, 16, dtype=np.int8)
    block = np.frombuffer(np.float16(-0.25).tobytes() + codes.tobytes(), np.uint8)
    assert decode("Q8_0", block).tolist() == (codes * -0.25).tolist()


def test_q4_k_by_hand() -> None:
    # Scales 1, 2, 3, 60 and 33, 34, 35, 63, minima 4, 5, 6, 7 and 62, 61, 18, 17, all codes 1.
    scales, minima = [1, 2, 3, 60, 33, 34, 35, 63], [4, 5, 6, 7, 62, 61, 18, 17]
    packed = [scales[i] | (scales[i + 4] >> 4) << 6 for i in range(4)]
    packed += [minima[i] | (minima[i + 4] >> 4) << 6 for i in range(4)]
    packed += [(scales[i + 4] & 15) | (minima[i + 4] & 15) << 4 for i in range(4)]
    halves = np.array([2.0, 0.5], np.float16).tobytes()
    block = np.frombuffer(halves + bytes(packed) + b"\x11" * 128, np.uint8)
    expected = [[2.0 * s - 0.5 * m] * 32 for s, m in zip(scales, minima, strict=True)]
    assert decode("Q4_K", block).reshape(8, 32).tolist() == expected


def test_bf16_is_the_upper_half_of_a_float32() -> None:
    values = decode("BF16", np.frombuffer(b"\x80\x3f\x00\xc0\xc0\x7f", np.uint8))
    assert values[:2].tolist() == [1.0, -2.0]
    assert np.isnan(values[2])


def test_f32_is_not_copied() -> None:
    data = np.arange(8, dtype=np.float32).view(np.uint8)
    assert np.shares_memory(decode("F32", data), data)


@pytest.mark.parametrize("name", [name for name in TYPES if name != "F32"])
def test_decoding_holds_little_beside_the_result(name: str) -> None:
    count = 4_000_000 // TYPES[name].values
    data = np.zeros(count * TYPES[name].nbytes, np.uint8)
    tracemalloc.start()
    try:
        result = decode(name, data)
        assert tracemalloc.get_traced_memory()[1] < result.nbytes + 2_000_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("name", TYPES)
def test_largest_scales_and_codes_stay_finite(name: str) -> None:
    data = random_blocks(name, 500)
    largest = {"F32": 0x7F7F_FFFF, "BF16": 0x7F7F}.get(name, 0x7BFF)
    for codes in (data, np.full_like(data, 0xFF), np.zeros_like(data)):
        finite = with_floats(name, codes, largest)
        assert find_non_finite(name, finite) is None
        assert np.isfinite(decode(name, finite)).all()


BROKEN = {"NaN": (0x7E00, np.nan), "infinity": (0x7C00, np.inf), "minus infinity": (0xFC00, -np.inf)}


@pytest.mark.parametrize("name", TYPES)
@pytest.mark.parametrize(("bits", "value"), BROKEN.values(), ids=BROKEN.keys())
@pytest.mark.parametrize("place", [0, 777, 39_999])
def test_the_block_with_a_broken_scale_is_found(name: str, bits: int, value: float, place: int) -> None:
    kind = TYPES[name]
    if kind.floats == {"value": "<f4"} or name == "BF16":
        bits = int(np.array(value, np.float32).view(np.uint32)) >> (16 if name == "BF16" else 0)
    for field, dtype in kind.floats.items():
        data = np.zeros(40_000 * kind.nbytes, np.uint8)
        blocks = data.view(kind.layout)
        blocks[field][place] = np.array(bits, dtype.replace("f", "u")).view(dtype)
        found = find_non_finite(name, data)
        assert found is not None
        assert found[:2] == (place, field)
        assert np.array_equal(found.value, value, equal_nan=True)


def test_the_first_of_several_broken_blocks_is_named() -> None:
    data = np.zeros(10 * TYPES["Q4_1"].nbytes, np.uint8)
    blocks = data.view(TYPES["Q4_1"].layout)
    blocks["minimum"][3], blocks["scale"][7] = np.inf, np.inf
    assert find_non_finite("Q4_1", data) == NonFinite(3, "minimum", np.inf)
