"""Losses on held-out text count tokens and bytes of the same documents."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch.nn import functional  # noqa: E402

from glassgear.train import Trainer  # noqa: E402
from glassgear.train.data import documents, held_out  # noqa: E402
from glassgear.train.looks import evaluate, held_out_loss, sample  # noqa: E402
from tests.train.support import settings  # noqa: E402


@pytest.fixture
def trainer(tmp_path: Path) -> Trainer:
    made = Trainer(settings(tmp_path))
    made._prepare()
    return made


def by_hand(trainer: Trainer, count: int) -> tuple[float, int, int]:
    """Loss, targets and bytes of the first held-out documents, from texts and a tokenizer."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(trainer.corpus.tokenizer))
    data = trainer.settings.data
    texts = [t for t in documents(data) if held_out(t, data.validation)][:count]
    ids = [i for t in texts for i in (1, *tokenizer.encode(t, add_special_tokens=False).ids, 2)]
    length, summed = trainer.settings.context, 0.0
    for start in range(0, len(ids) - 1, length):
        row = torch.tensor(ids[start : start + length + 1])
        logits = trainer.plain(row[None, :-1])[0]
        summed += float(functional.cross_entropy(logits, row[1:], reduction="sum"))
    return summed, len(ids) - 1, sum(len(t.encode()) for t in texts)


@torch.no_grad()
@pytest.mark.parametrize("batches", [1, 2, 0])
def test_losses_per_token_and_per_byte_are_of_the_same_whole_documents(
    trainer: Trainer, batches: int
) -> None:
    made = replace(trainer.settings, evaluate_batches=batches)
    found = evaluate(trainer.plain, made, trainer.corpus, trainer.ranks)
    summed, targets, size = by_hand(trainer, found.documents)
    assert found.per_token == pytest.approx(summed / targets, rel=1e-5)
    assert found.per_byte == pytest.approx(summed / size, rel=1e-5)
    every = len(trainer.corpus.validation_sizes)
    least = batches * made.batch * made.context
    assert found.documents == every if not batches else targets + 1 >= least and found.documents < every


def test_sizes_add_up_to_the_ids(trainer: Trainer) -> None:
    sizes = trainer.corpus.validation_sizes
    assert sizes[:, 0].sum() == len(trainer.corpus.validation)
    starts = np.cumsum(sizes[:, 0]) - sizes[:, 0]
    assert (trainer.corpus.validation[starts] == 1).all()


def test_processes_together_count_what_one_counts(trainer: Trainer) -> None:
    ids = trainer.corpus.validation[:333]
    whole = held_out_loss(trainer.plain, trainer.settings, ids, trainer.ranks)
    for world in (2, 3, 20):
        shares = []
        for rank in range(world):
            ranks = replace(trainer.ranks, rank=rank, world=world)
            ranks.total = lambda *values: list(values)  # type: ignore[method-assign]
            shares.append(held_out_loss(trainer.plain, trainer.settings, ids, ranks))
        assert np.sum(shares, axis=0) == pytest.approx(whole, rel=1e-5)


def test_looking_leaves_the_mode_as_it_was(trainer: Trainer) -> None:
    evaluate(trainer.plain, trainer.settings, trainer.corpus, trainer.ranks)
    first = sample(trainer.plain, trainer.settings, trainer.corpus, trainer.ranks)
    assert trainer.plain.training
    assert sample(trainer.plain, trainer.settings, trainer.corpus, trainer.ranks) == first
    long = replace(trainer.settings, sample_prompt="One day Lily saw a cat. " * 30)
    assert sample(trainer.plain, long, trainer.corpus, trainer.ranks).startswith("One day Lily")
