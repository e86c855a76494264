"""Looks at a model between steps: its loss on held-out text, and what it says."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from glassgear.backends.torch import ModelModule
from glassgear.train.data import Corpus, Ids
from glassgear.train.ranks import Ranks
from glassgear.train.settings import TrainSettings

__all__ = ["DTYPES", "HeldOut", "evaluate", "held_out_loss", "sample"]

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


@dataclass(frozen=True)
class HeldOut:
    """Loss on whole held-out documents.

    Attributes:
        per_token: nats, the mean over all targets: every id but the very first.
        per_byte: nats, the same sum by the UTF-8 bytes of the same documents.
        documents: how many.
    """

    per_token: float
    per_byte: float
    documents: int


@torch.no_grad()
def evaluate(module: ModelModule, settings: TrainSettings, corpus: Corpus, ranks: Ranks) -> HeldOut:
    """The loss on the first whole documents that fill `evaluate_batches` micro-batches, or on all.

    All processes must call it.
    """
    least = settings.evaluate_batches * settings.batch * settings.context
    tokens = np.cumsum(corpus.validation_sizes[:, 0])
    last = len(tokens) - 1
    if least:
        last = min(last, int(np.searchsorted(tokens, least)))
    size = int(corpus.validation_sizes[: last + 1, 1].sum())
    summed, count = held_out_loss(module, settings, corpus.validation[: int(tokens[last])], ranks)
    return HeldOut(summed / count, summed / size, last + 1)


def held_out_loss(
    module: ModelModule, settings: TrainSettings, ids: Ids, ranks: Ranks
) -> tuple[float, float]:
    """Summed loss in nats over all targets of a text, and how many there are.

    The text is cut into sequences of `context`; each begins anew, so that its first tokens are judged
    with little before them.
    """
    s = settings
    starts = list(range(0, len(ids) - 1, s.context))
    mine = starts[ranks.rank :: ranks.world]
    # As many passes in every process: with FSDP each of them is one of all processes together.
    passes = math.ceil(math.ceil(len(starts) / ranks.world) / s.batch)
    summed, count = 0.0, 0
    was = module.training
    module.eval()
    for i in range(passes):
        rows = [
            torch.from_numpy(ids[a : a + s.context + 1].astype("int64"))
            for a in mine[i * s.batch : (i + 1) * s.batch]
        ]
        rows = rows or [torch.full((2,), -100)]
        padded = nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=-100).to(ranks.device)
        inputs, targets = padded[:, :-1].clamp_min(0), padded[:, 1:]
        with torch.autocast(ranks.device.type, DTYPES[s.dtype], s.dtype != "float32"):
            logits = module(inputs)
        loss = functional.cross_entropy(logits.flatten(0, 1).float(), targets.flatten(), reduction="sum")
        summed, count = summed + loss.item(), count + int((targets >= 0).sum())
    module.train(was)
    both = ranks.total(summed, count)
    return both[0], both[1]


@torch.no_grad()
def sample(
    module: ModelModule, settings: TrainSettings, corpus: Corpus, ranks: Ranks,
    length: int = 64, temperature: float = 0.8,
) -> str:  # fmt: skip
    """What the model says now, always with the same random numbers. All processes must call it."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(corpus.tokenizer))
    begun: list[int] = tokenizer.encode(settings.sample_prompt).ids or [0]
    ids = begun[: settings.context - 1]
    random = torch.Generator().manual_seed(settings.seed)
    was = module.training
    module.eval()
    for _ in range(min(length, settings.context - len(ids))):
        logits = module(torch.tensor([ids], device=ranks.device))[0, -1].float().cpu()
        ids.append(int(torch.multinomial((logits / temperature).softmax(0), 1, generator=random)))
        if ids[-1] in corpus.ends:
            break
    module.train(was)
    text: str = tokenizer.decode(ids)
    return text
