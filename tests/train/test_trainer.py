"""Runs of a few steps: the loss falls, and a run that is taken up repeats the unbroken one bit by bit."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")

from glassgear.train import Trainer
from glassgear.train.checkpoint import checkpoints
from tests.train.support import losses, settings, stop_at, weights


def test_the_loss_falls(tmp_path: Path) -> None:
    made = settings(tmp_path, steps=60, learning_rate=5e-3, save_every=60)
    outcome = Trainer(made).run()
    assert outcome.reason == "done" and outcome.step == 60
    assert losses(made)[-1] < 0.6 * losses(made)[0]
    assert outcome.validation is not None and outcome.validation < losses(made)[0]


def test_a_resumed_run_repeats_the_unbroken_one_bit_by_bit(tmp_path: Path) -> None:
    whole, broken = settings(tmp_path / "a"), settings(tmp_path / "b")
    Trainer(whole).run()
    trainer = Trainer(broken, lambda event: stop_at(trainer, event, 5))
    assert trainer.run().reason == "interrupted"
    assert [p.name for p in checkpoints(Path(broken.out))][-1] == "step-00000005"
    assert Trainer(broken).run().reason == "done"
    assert losses(broken) == losses(whole)
    ours, theirs = weights(broken), weights(whole)
    assert all(np.array_equal(ours[name], theirs[name]) for name in theirs)


def test_a_paused_run_goes_on_as_if_it_had_not_been(tmp_path: Path) -> None:
    whole, broken = settings(tmp_path / "a"), settings(tmp_path / "b")
    Trainer(whole).run()
    outcome = Trainer(broken, until=5).run()
    assert (outcome.reason, outcome.step, outcome.model) == ("paused", 5, None)
    assert Trainer(broken, until=3).run().step == 5
    assert Trainer(broken, until=99).run().reason == "done"
    assert losses(broken) == losses(whole)


def test_float16_goes_on_with_the_scale_it_had(tmp_path: Path) -> None:
    whole, broken = (settings(tmp_path / n, dtype="float16", steps=6, save_every=3) for n in "ab")
    Trainer(whole).run()
    trainer = Trainer(broken, lambda event: stop_at(trainer, event, 3))
    assert trainer.run().reason == "interrupted"
    assert trainer.state.scaler["scale"] > 0
    Trainer(broken).run()
    assert losses(broken) == losses(whole)
