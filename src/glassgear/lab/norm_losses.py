"""What norms do to training: losses at equal settings, and what a text gets beside others. Needs PyTorch."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from glassgear.lab.training import Recipe, Text, train

if TYPE_CHECKING:
    from torch import Tensor

    from glassgear.backends.torch import ModelModule

__all__ = ["Beside", "Trained", "beside", "trained"]

RATE = 5e-3
FASTER = 4.0  # the rate at which a sensitive norm should suffer
CONTEXT = 32
ROWS = 8


@dataclass(frozen=True)
class Trained:
    """Networks that differ in their norm and seed alone.

    Attributes:
        losses: of held-out text, nats a byte, one for each seed.
        faster: the same at four times the rate.
        module: of the first seed.
    """

    losses: tuple[float, ...]
    faster: tuple[float, ...]
    module: ModelModule


@dataclass(frozen=True)
class Beside:
    """What eight pieces of 4 to 32 bytes get, together and alone.

    Attributes:
        padded: nats a byte where they are one batch, the short ones filled up.
        alone: nats a byte, one at a time.
        neighbours: how far the longest one's logits move when the others are exchanged, as a share of
            their deviation.
        later: how far the logits of its first half move when its second half is another one.
    """

    padded: float
    alone: float
    neighbours: float
    later: float


def trained(kind: str, text: Text, steps: int, seeds: range) -> Trained:
    """Two pre-norm blocks of width 32 with this norm, from each seed and at both rates."""
    design = {
        "dim": 32, "layers": 2, "norm": kind, "positions": "learned", "head": "own", "embedding_scale": 50,
        "attention": {"heads": 2}, "ffn": {"kind": "gated"},
    }  # fmt: skip
    losses: list[list[float]] = []
    modules = []
    for rate in (RATE, FASTER * RATE):
        recipe = Recipe(steps=steps, rate=rate, warmup=steps // 10, context=CONTEXT, batch=4)
        runs = [train(design, text, recipe, seed) for seed in seeds]
        losses.append([course.held_out for course, _ in runs])
        modules.append(runs[0][1])
    return Trained(tuple(losses[0]), tuple(losses[1]), modules[0])


def beside(module: ModelModule, text: Text, *, own_batch: bool) -> Beside:
    """Show a trained module the same pieces in different company; it stays as it is.

    Args:
        module: it.
        text: that it has learnt; the pieces are of its held-out part.
        own_batch: in training mode, where BatchNorm takes the batch's own statistics.
    """
    import torch

    module = copy.deepcopy(module).train(own_batch)
    ids = torch.from_numpy(text.held_out[: 2 * ROWS * (CONTEXT + 1)].astype(np.int64))
    ours, others = ids.reshape(2, ROWS, CONTEXT + 1)
    lengths = [CONTEXT * (i + 1) // ROWS for i in range(ROWS)]
    with torch.no_grad():
        alone = [
            _nats(module(row[None, :n])[0], row[1 : n + 1]) for row, n in zip(ours, lengths, strict=True)
        ]
        filled = ours[:, :-1].clone()
        for row, n in zip(filled, lengths, strict=True):
            row[n:] = 0
        logits = module(filled)
        padded = [_nats(logits[i, :n], ours[i, 1 : n + 1]) for i, n in enumerate(lengths)]
        whole = module(ours[:, :-1])[-1]
        exchanged = module(torch.cat([others[:-1, :-1], ours[-1:, :-1]]))[-1]
        half = CONTEXT // 2
        changed = ours[:, :-1].clone()
        changed[-1, half:] = others[-1, half:-1]
        early = module(changed)[-1, :half]
    count = sum(lengths)
    return Beside(
        sum(padded) / count, sum(alone) / count, _moved(whole, exchanged), _moved(whole[:half], early)
    )


def _nats(logits: Tensor, targets: Tensor) -> float:
    """Summed over the targets."""
    import torch

    return float(torch.nn.functional.cross_entropy(logits, targets, reduction="sum"))


def _moved(before: Tensor, after: Tensor) -> float:
    """Root mean square of the difference, as a share of the logits' deviation from their row's mean."""
    centred: Any = before - before.mean(-1, keepdim=True)
    return float((after - before).square().mean().sqrt() / centred.square().mean().sqrt())
