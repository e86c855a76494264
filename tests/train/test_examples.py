"""The examples for training can be read, and their models built."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch")

from glassgear.model.ledger import ledger
from glassgear.train import read_settings
from glassgear.train.model import model_of

FOLDER = Path(__file__).resolve().parents[2] / "examples"
CONFIGS = sorted(path for path in FOLDER.glob("train_*.toml") if not path.stem.endswith("_model"))


def test_there_are_some() -> None:
    assert len(CONFIGS) >= 2


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_every_example_describes_a_model(path: Path) -> None:
    made = read_settings(path)
    assert isinstance(made.data.tokenizer, int)
    model = model_of(made.model, made.data.tokenizer, made.context)
    assert model.vocab == made.data.tokenizer and model.context == made.context
    text = path.read_text(encoding="utf-8")
    commands = [line for line in text.splitlines() if line.startswith("#   glassgear train")]
    assert commands and all(f"examples/{path.name}" in line for line in commands)


def test_the_stories_have_as_many_parameters_as_is_said() -> None:
    made = read_settings(FOLDER / "train_stories.toml")
    assert isinstance(made.data.tokenizer, int)
    model = model_of(made.model, made.data.tokenizer, made.context)
    assert round(ledger(model).parameters / 1e6, 1) == 2.4
