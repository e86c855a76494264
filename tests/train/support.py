"""A small corpus, runs of a few steps on it, and what they leave behind."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

from glassgear.train import DataSettings, Trainer, TrainSettings
from glassgear.train.checkpoint import checkpoints
from glassgear.train.journal import read_journal
from glassgear.weights import safetensors

NAMES, THINGS = ("Lily", "Tim", "Sam", "Anna", "Ben", "Mia"), ("ball", "cat", "tree", "boat", "kite", "cake")
VERBS = ("found", "lost", "saw", "liked", "wanted", "drew")


def corpus(path: Path, documents: int = 400) -> Path:
    """Little stories, the same ones each time."""
    draw = random.Random(4)
    stories = []
    for _ in range(documents):
        name, thing, verb = draw.choice(NAMES), draw.choice(THINGS), draw.choice(VERBS)
        age = draw.randint(1, 99)
        stories.append(f"One day {name} {verb} a {thing}. {name} was happy. The {thing} was {age} years old.")
    path.write_text("\n<|endoftext|>\n".join(stories), encoding="utf-8")
    return path


def settings(folder: Path, **changes: Any) -> TrainSettings:
    """A run of seconds in `folder`."""
    text = folder / "stories.txt"
    if not text.exists():
        folder.mkdir(parents=True, exist_ok=True)
        corpus(text)
    made = TrainSettings(
        out=str(folder / "run"),
        data=DataSettings((str(text),), tokenizer=320, validation=0.1),
        model={"dim": 32, "layers": 2, "heads": 4, "kv_heads": 2},
        context=32, batch=4, accumulate=2, steps=12, warmup=3, log_every=1, evaluate_every=6, save_every=4,
        sample_every=0, evaluate_batches=2, threads=1, device="cpu",
    )  # fmt: skip
    return replace(made, **changes)


def losses(made: TrainSettings) -> list[float]:
    """Of each step, as its journal has them."""
    return [e["loss"] for e in read_journal(Path(made.out)) if e["event"] == "step"]


def weights(made: TrainSettings) -> dict[str, np.ndarray]:
    """Of its newest checkpoint."""
    found = safetensors.read(checkpoints(Path(made.out))[-1] / "model.safetensors")
    return {name: tensor.float32() for name, tensor in found.items()}


def stop_at(trainer: Trainer, event: dict[str, Any], step: int) -> None:
    """What a signal does, after a step that is known."""
    if event["event"] == "step" and event["step"] == step:
        trainer._stop = "SIGTERM"


def damage(path: Path, how: str) -> None:
    """Let a file be `missing`, `empty`, `cut` in half, or have one bit `flipped`."""
    data = path.read_bytes()
    middle = len(data) // 2
    flipped = data[:middle] + bytes([data[middle] ^ 4]) + data[middle + 1 :]
    if how == "missing":
        path.unlink()
    else:
        path.write_bytes({"cut": data[:middle], "flipped": flipped, "empty": b""}[how])
