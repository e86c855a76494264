"""The share of the machine's rate: of the best rate that was seen, and never more than all of it."""

from __future__ import annotations

from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from glassgear.train import Trainer  # noqa: E402
from glassgear.train.journal import read_journal  # noqa: E402
from glassgear.train.speed import GemmRate  # noqa: E402
from tests.train.support import settings  # noqa: E402


class Measured(GemmRate):
    """One that finds the rates it is given, one a measurement."""

    def __init__(self, *rates: float) -> None:
        super().__init__(torch.device("cpu"), torch.float32)
        self.left = list(rates)

    def measure(self, seconds: float) -> None:
        self.best = max(self.best, self.left.pop(0) if len(self.left) > 1 else self.left[0])


def first(*rates: float) -> Measured:
    made = Measured(*rates)
    made.measure(0.3)
    return made


def test_a_measurement_is_a_rate_and_the_best_one_stays() -> None:
    gemm = GemmRate(torch.device("cpu"), torch.float32)
    gemm.measure(0.0)
    assert gemm.best > 1e8
    found, gemm.best = gemm.best, 1e18
    gemm.measure(0.0)
    assert gemm.best == 1e18 > found


def test_the_largest_rate_seen_counts() -> None:
    assert first(8e9, 4e9).share(4e9, 0.0) == 0.5


def test_steps_that_are_faster_than_products_have_these_measured_again() -> None:
    assert first(4e9, 3e9, 10e9).share(5e9, 0.0) == 0.5


def test_no_share_of_more_than_one_is_told() -> None:
    assert first(4e9).share(5e9, 0.0) is None
    assert first(5e9).share(5e9, 0.0) == 1


def test_later_measurements_are_made_where_they_are_cheap() -> None:
    cost = 2 * 1024**3 / 8e9  # seconds of a product
    assert first(8e9, 16e9).share(4e9, 49 * cost) == 0.5
    assert first(8e9, 16e9).share(4e9, 51 * cost) == 0.25


def test_a_run_whose_machine_was_busy_when_it_was_measured_never_says_more_than_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, calls = GemmRate.measure, [0]

    def busy(self: GemmRate, seconds: float) -> None:
        calls[0] += 1
        if calls[0] == 1:
            self.best = 1e3
        else:
            real(self, seconds)

    monkeypatch.setattr(GemmRate, "measure", busy)
    made = settings(tmp_path, steps=3)
    Trainer(made).run()
    shares = [event["share_of_gemm"] for event in read_journal(Path(made.out)) if event["event"] == "step"]
    assert len(shares) == 3 and all(0 < share <= 1 for share in shares)
