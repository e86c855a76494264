"""The expected ids are what llama2.c (run.c at 350e04f, gcc -O2, glibc 2.36) chose for the same logits."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from glassgear.errors import NonFiniteError, SettingError
from glassgear.llama2c_sampling import Llama2cSampler


def made_logits(rows: int, count: int) -> NDArray[np.float32]:
    """Numbers from a linear congruential generator that the C program used too, some of them equal."""
    state, out = (count * 7919 + 12345) & 0xFFFFFFFF, np.empty(rows * count, np.uint32)
    for i in range(rows * count):
        out[i] = state = (state * 1664525 + 1013904223) & 0xFFFFFFFF
    values = ((out >> 8).astype(np.float32) / np.float32(16777216) - np.float32(0.5)) * np.float32(12)
    values = values.reshape(rows, count)
    equal = np.flatnonzero(np.arange(count) & 7 == 3)
    values[:, equal] = values[:, equal - 1]
    return values


@pytest.mark.parametrize(
    ("count", "temperature", "top_p", "seed", "expected"),
    [
        (16, 1.0, 0.9, 133742, "8 10 0 7 11 4 8 2 0 14 4 9 13 11 0 14 13 3 1 10 4 5 4 2"),
        (512, 1.0, 0.9, 133742, "238 396 172 157 166 207 499 239 511 297 236 254 71 365 64 304 191"),
        (512, 0.8, 0.9, 42, "368 69 328 185 164 150 248 298 179 117 228 413 312 493 68 93 444 321"),
        (512, 1.0, 1.0, 7, "450 491 63 30 184 199 444 119 156 442 320 363 302 452 51 197 505 449"),
        (512, 1.0, 0.0, 7, "450 491 63 30 184 199 444 119 156 442 320 363 302 452 51 197 505 449"),
        (512, 0.0, 0.9, 7, "360 98 114 278 316 334 319 181 56 329 504 113 374 326 472 442 191 134"),
        (32000, 1.5, 0.5, -1, "21359 10498 3051 17028"),
        (5, 0.3, 0.1, 99, "4 0 1 2 1 0 2 2 2 0 2 4 1 1 1 2 2 1 0 1 4 1 4 0"),
    ],
)
def test_the_ids_of_the_c_program(
    count: int, temperature: float, top_p: float, seed: int, expected: str
) -> None:
    wanted = [int(one) for one in expected.split()]
    sampler = Llama2cSampler(temperature, top_p, seed)
    assert [sampler.next(row) for row in made_logits(len(wanted), count)] == wanted


def test_seeds_are_read_as_a_32_bit_int() -> None:
    row = made_logits(1, 512)[0]
    one, same = Llama2cSampler(seed=5), Llama2cSampler(seed=5 + (1 << 32))
    assert [one.next(row) for _ in range(20)] == [same.next(row) for _ in range(20)]


@pytest.mark.parametrize("seed", [None, 0])
def test_no_seed_means_the_clock(seed: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.time", lambda: 1234.5)
    assert Llama2cSampler(seed=seed).seed == 1234


def test_padding_beyond_the_vocabulary_is_left_out() -> None:
    assert Llama2cSampler(temperature=0, vocab_size=2).next(np.array([0, 1, 9], np.float32)) == 1


def test_logits_are_not_changed() -> None:
    row = made_logits(1, 64)[0]
    kept = row.copy()
    Llama2cSampler(seed=1).next(row)
    assert np.array_equal(row, kept)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_non_finite_logits_are_an_error(bad: float) -> None:
    row = np.zeros(8, np.float32)
    row[3] = bad
    for temperature in (0.0, 1.0):
        with pytest.raises(NonFiniteError):
            Llama2cSampler(temperature, seed=1).next(row)


@pytest.mark.parametrize(
    ("temperature", "top_p"), [(-1, 0.9), (float("nan"), 0.9), (1, 1.5), (1, -0.1), (1, float("nan"))]
)
def test_settings_out_of_range_are_refused(temperature: float, top_p: float) -> None:
    with pytest.raises(SettingError):
        Llama2cSampler(temperature, top_p)


def test_a_flat_distribution_with_a_tiny_top_p_still_gives_an_id() -> None:
    assert Llama2cSampler(1.0, 1e-4, seed=3).next(np.zeros(100, np.float32)) == 0
    assert Llama2cSampler(1.0, 0.5, seed=3).next(np.zeros(1, np.float32)) == 0
