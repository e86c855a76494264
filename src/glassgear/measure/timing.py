"""Time the steps of a backend: prompts, and tokens after them.

What is timed is `backend.step` and, when decoding, the choice of the likeliest id; no text is
made. Ids are random: what they are doesn't change the work.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import perf_counter
from typing import TYPE_CHECKING

import numpy as np

from glassgear.backends.base import Backend, Chunk

if TYPE_CHECKING:
    from glassgear.language_model import LanguageModel

__all__ = ["decoding", "prompt_seconds", "random_ids", "warm_up", "weight_bytes"]


def random_ids(vocab: int, count: int, seed: int) -> list[int]:
    """Ids that stand for a text of `count` tokens."""
    return [int(i) for i in np.random.default_rng(seed).integers(0, vocab, count)]


def prompt_seconds(backend: Backend, length: int, *, batch: int = 1, seed: int = 0) -> float:
    """Seconds for one step over `batch` prompts of `length` tokens, logits of the last of each."""
    prompts = _prompts(backend, length, batch, seed)
    tracks = [backend.open() for _ in prompts]
    try:
        chunks = [Chunk(track, ids) for track, ids in zip(tracks, prompts, strict=True)]
        start = perf_counter()
        backend.step(chunks)
        return perf_counter() - start
    finally:
        for track in tracks:
            backend.close(track)


@contextmanager
def decoding(
    backend: Backend, length: int, *, batch: int = 1, seed: int = 0
) -> Iterator[Callable[[int], float]]:
    """Run prompts once, then time the tokens after them as often as wanted.

    Args:
        backend: runs the model.
        length: tokens of each prompt.
        batch: how many sequences are decoded together.
        seed: of the prompts.

    Yields:
        A function: steps -> seconds for that many tokens of each sequence, the likeliest id
        taken each time. Afterwards the cache holds the prompts again and nothing more.
    """
    prompts = _prompts(backend, length, batch, seed)
    tracks = [backend.open() for _ in prompts]
    try:
        rows = backend.step([Chunk(track, ids) for track, ids in zip(tracks, prompts, strict=True)])
        first = [int(row[0].argmax()) for row in rows]

        def seconds(steps: int) -> float:
            ids = first
            start = perf_counter()
            for _ in range(steps):
                rows = backend.step([Chunk(track, [i]) for track, i in zip(tracks, ids, strict=True)])
                ids = [int(row[0].argmax()) for row in rows]
            taken = perf_counter() - start
            for track in tracks:
                backend.truncate(track, length)
            return taken

        yield seconds
    finally:
        for track in tracks:
            backend.close(track)


def _prompts(backend: Backend, length: int, batch: int, seed: int) -> list[list[int]]:
    return [random_ids(backend.model.vocab, length, seed + row) for row in range(batch)]


def weight_bytes(model: LanguageModel) -> int:
    """Bytes of weights that one token needs: every tensor, but of an untied embedding one row.

    A backend that packs weights its own way says what it holds in `weight_nbytes`; else the bytes
    are those of the file.
    """
    packed: int | None = getattr(model.backend, "weight_nbytes", None)
    if packed is not None:
        return packed
    total = sum(tensor.nbytes for tensor in model.checkpoint.tensors.values())
    head = model.gears.head
    if head is None or not head.tied:
        table = model.checkpoint.tensors["embed.weight"]
        total -= table.nbytes - table.nbytes // table.shape[0]
    return total


# Prompts of 1, few and many tokens, alone and together: what a run can ask a backend for.
_KINDS_OF_STEP = ((1, 1), (2, 1), (17, 1), (150, 1), (3, 4))


def warm_up(model: LanguageModel) -> None:
    """Run a step of each kind, so that whatever is compiled on first use is compiled."""
    for length, batch in _KINDS_OF_STEP:
        if length < model.context:
            with decoding(model.backend, length, batch=batch) as seconds:
                seconds(1)
