"""Runs that several processes share."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from glassgear.errors import SettingError

torch = pytest.importorskip("torch")

from glassgear.train import Trainer, TrainSettings  # noqa: E402
from glassgear.train.checkpoint import checkpoints  # noqa: E402
from glassgear.train.journal import read_journal  # noqa: E402
from glassgear.train.ranks import check_share  # noqa: E402
from tests.train.support import losses, settings, weights  # noqa: E402

TRAINING = Path(__file__).resolve().parents[2] / "docs" / "training.md"


def shared_run(folder: Path, **changes: Any) -> TrainSettings:
    """A run by two processes over gloo, which leave a file each about what they did."""
    if not torch.distributed.is_available():
        pytest.skip("this build of PyTorch has no torch.distributed")
    made = settings(folder, steps=6, **changes)
    program = folder / "program.py"
    program.write_text(SHARED, encoding="utf-8")
    torchrun = ["-m", "torch.distributed.run", "--nproc-per-node=2", "--master-port=0", "--standalone"]
    done = subprocess.run(
        [sys.executable, *torchrun, str(program), str(folder), json.dumps(changes)],
        capture_output=True, text=True, timeout=300, check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.getcwd()},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return made


SHARED = """
import hashlib, json, os, sys
from pathlib import Path
from glassgear.train import Trainer
from glassgear.train.ranks import whole
from tests.train.support import settings

folder = Path(sys.argv[1])
trainer = Trainer(settings(folder, steps=6, **json.loads(sys.argv[2])))
prepare, starts = trainer._prepare, []

def prepared():
    prepare()
    values = b"".join(whole(p.detach()).numpy().tobytes() for p in trainer.plain.parameters())
    trainer.first_weights = hashlib.sha256(values).hexdigest()
    read = type(trainer.windows).__getitem__
    type(trainer.windows).__getitem__ = lambda self, n: (starts.append(n), read(self, n))[1]

trainer._prepare = prepared
trainer.run()
about = {"weights": trainer.first_weights, "windows": starts}
(folder / f"rank{os.environ['RANK']}.json").write_text(json.dumps(about))
os._exit(0)  # gloo's threads now and then abort a process that is taken down in order
"""


@pytest.mark.parametrize("strategy", ["ddp", "fsdp"])
def test_two_processes_give_the_losses_of_one(tmp_path: Path, strategy: str) -> None:
    alone = settings(tmp_path / "a", steps=6)
    Trainer(alone).run()
    shared = shared_run(tmp_path / "b", strategy=strategy)
    assert losses(shared) == pytest.approx(losses(alone), abs=1e-4)
    held_out = [
        [e["loss"] for e in read_journal(Path(made.out)) if e["event"] == "validation"]
        for made in (shared, alone)
    ]
    assert held_out[0] == pytest.approx(held_out[1], abs=1e-4)
    ours, theirs = weights(shared), weights(alone)
    assert all(np.abs(ours[n] - theirs[n]).max() < 1e-4 for n in theirs)
    assert (Path(shared.out) / "model" / "config.json").is_file()
    ranks = [json.loads((tmp_path / "b" / f"rank{i}.json").read_text()) for i in range(2)]
    assert ranks[0]["weights"] == ranks[1]["weights"], "all begin alike"
    first, second = (set(rank["windows"]) for rank in ranks)
    assert not first & second
    assert first | second == set(range(6 * shared.batch * shared.accumulate))


@pytest.mark.parametrize("strategy", ["ddp", "fsdp"])
def test_two_processes_go_on_where_they_were(tmp_path: Path, strategy: str) -> None:
    shared = shared_run(tmp_path, strategy=strategy)
    whole, at_the_end = losses(shared), weights(shared)
    shutil.rmtree(checkpoints(Path(shared.out))[-1])
    shared_run(tmp_path, strategy=strategy)
    assert losses(shared) == whole
    ours = weights(shared)
    assert all(np.array_equal(ours[name], at_the_end[name]) for name in at_the_end)


def test_a_run_by_two_processes_goes_on_in_one(tmp_path: Path) -> None:
    alone = settings(tmp_path / "a", steps=10)
    Trainer(alone).run()
    shared = shared_run(tmp_path / "b", strategy="fsdp")
    Trainer(replace(shared, steps=10)).run()
    # The rate of the first six steps fell faster, since they were to be all.
    assert losses(shared)[:2] == pytest.approx(losses(alone)[:2], abs=1e-3)
    assert len(losses(shared)) == 10 and losses(shared)[-1] < losses(shared)[0]


@pytest.mark.parametrize(
    ("accumulate", "world", "least"), [(1, 2, 2), (3, 2, 4), (4, 3, 6), (16, 32, 32), (10, 4, 12)]
)
def test_micro_batches_that_cannot_be_shared_are_said_with_the_least_that_can(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, accumulate: int, world: int, least: int
) -> None:
    monkeypatch.setenv("WORLD_SIZE", str(world))
    wanted = f"accumulate is {accumulate}: {world} processes .* --set train.accumulate={least} gives"
    with pytest.raises(SettingError, match=wanted):
        Trainer(settings(tmp_path, accumulate=accumulate))
    check_share(least)


def test_every_command_for_several_processes_gives_each_as_much() -> None:
    from glassgear.cli.train import EXAMPLES

    root = Path(__file__).resolve().parents[2]
    texts = [EXAMPLES, *(path.read_text(encoding="utf-8") for path in (root / "README.md", TRAINING))]
    lines = [
        line.removeprefix("$ ")
        for text in texts
        for line in text.replace("\\\n", "").splitlines()
        if "torchrun" in line and "-m glassgear train" in line
    ]
    assert len(lines) == 4
    for line in lines:
        words = shlex.split(line)
        given = dict(pairwise(words))
        world = int(given.get("--nnodes", "1")) * int(given["--nproc-per-node"])
        assert given["--set"] == f"train.accumulate={world}", line


def test_processes_that_see_different_checkpoints_are_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = settings(tmp_path, steps=4)
    Trainer(made).run()
    monkeypatch.setattr("glassgear.train.ranks.Ranks.total", lambda self, *values: [v * 1.5 for v in values])
    with pytest.raises(SettingError, match="see the same checkpoints"):
        Trainer(made).run()


def test_ranks_share_every_window_of_an_epoch_without_overlap(tmp_path: Path) -> None:
    made = settings(tmp_path, batch=5, accumulate=2, context=16)
    trainer = Trainer(made)
    trainer._prepare()
    steps, seen = trainer.windows.epoch // 10, []
    for rank in (0, 1, 0):
        trainer.ranks = replace(trainer.ranks, rank=rank, world=2)
        seen.append([trainer._batch(step, i) for step in range(steps) for i in trainer._mine()])
    firsts = [{tuple(row.tolist()[:8]) for batch in batches for row in batch} for batches in seen]
    rows = [row for batch in [*seen[0], *seen[1]] for row in batch.tolist()]
    every = [trainer.windows[i].tolist() for i in range(10 * steps)]
    assert sorted(rows) == sorted(every) and firsts[0] != firsts[1]
    assert all(torch.equal(a, b) for a, b in zip(seen[0], seen[2], strict=True)), "the same on a rerun"
