"""Signals: the step that is running ends, its state is saved, and the run goes on later."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

from glassgear.train import Trainer
from glassgear.train.checkpoint import checkpoints
from glassgear.train.journal import read_journal
from tests.train.support import losses, settings


def test_a_run_that_is_interrupted_before_its_first_step_goes_on_too(tmp_path: Path) -> None:
    whole, broken = settings(tmp_path / "a"), settings(tmp_path / "b")
    Trainer(whole).run()
    trainer = Trainer(broken)
    trainer._stop = "SIGTERM"
    outcome = trainer.run()
    assert (outcome.reason, outcome.signal, outcome.step, outcome.model) == (
        "interrupted",
        "SIGTERM",
        0,
        None,
    )
    Trainer(broken).run()
    assert losses(broken) == losses(whole)


def test_sigterm_saves_and_the_run_goes_on_later(tmp_path: Path) -> None:
    made = settings(tmp_path, steps=100_000, save_every=100_000)
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    journal = Path(made.out) / "metrics.jsonl"
    until = time.monotonic() + 120
    while time.monotonic() < until and (not journal.exists() or len(journal.read_text().splitlines()) < 3):
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    out, _ = process.communicate(timeout=60)
    assert out.strip() == "interrupted"
    (saved,) = checkpoints(Path(made.out))
    step = json.loads((saved / "state.json").read_text())["step"]
    assert step == read_journal(Path(made.out))[-1]["step"] >= 3


@pytest.mark.skipif(not hasattr(signal, "SIGHUP"), reason="this system has no SIGHUP")
@pytest.mark.parametrize(
    ("handler", "reason", "step"), [(signal.SIG_DFL, "interrupted", 2), (signal.SIG_IGN, "done", 4)]
)
def test_a_hang_up_saves_unless_it_is_ignored(tmp_path: Path, handler: Any, reason: str, step: int) -> None:
    def hang_up(event: dict[str, Any]) -> None:
        if event["event"] == "step" and event["step"] == 2:
            os.kill(os.getpid(), signal.SIGHUP)

    made = settings(tmp_path, steps=4)
    before = signal.signal(signal.SIGHUP, handler)
    try:
        outcome = Trainer(made, hang_up).run()
        assert signal.getsignal(signal.SIGHUP) is handler, "put back"
    finally:
        signal.signal(signal.SIGHUP, before)
    assert (outcome.reason, outcome.step) == (reason, step)
    assert outcome.signal == ("SIGHUP" if reason == "interrupted" else "")
    assert int(checkpoints(Path(made.out))[-1].name[5:]) == step


PROGRAM = """
import sys
from pathlib import Path
from glassgear.train import Trainer
from tests.train.support import settings
made = settings(Path(sys.argv[1]), steps=100_000, save_every=100_000)
print(Trainer(made).run().reason)
"""
