"""The learning rate at its corners, and which weights decay."""

from __future__ import annotations

import pytest

from glassgear.train.schedule import learning_rate


def rate(step: int, warmup: int = 2000, decay: int = 600_000) -> float:
    return learning_rate(step, peak=6e-4, floor=6e-5, warmup=warmup, decay=decay)


def test_the_first_step_already_moves_and_the_peak_comes_with_the_warm_up_s_end() -> None:
    assert rate(0) == pytest.approx(2.9985e-07, rel=1e-4)
    assert rate(2000) == 6e-4
    assert all(rate(i) < rate(i + 1) for i in range(0, 2000, 97))


def test_after_the_decay_there_is_the_floor_and_not_before() -> None:
    assert rate(600_000) == rate(900_000) == 6e-5
    assert rate(599_999) > 6e-5
    assert all(rate(i) > rate(i + 5000) for i in range(2000, 590_000, 5000))


def test_warm_up_as_long_as_the_decay_divides_by_nothing() -> None:
    assert rate(100, warmup=100, decay=100) == 6e-4
    assert rate(101, warmup=100, decay=100) == 6e-5


def test_no_warm_up_starts_at_the_peak() -> None:
    assert rate(0, warmup=0) == 6e-4
