"""A step: some micro-batches, one gradient, one move of the weights. No files, no folders.

`trainer.py` makes a run of it; experiments that train small models use it as it is.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from glassgear.backends.torch import ModelModule
from glassgear.model.gears import Model
from glassgear.train.checkpoint import begin_with
from glassgear.train.data import Ids, Windows
from glassgear.train.looks import DTYPES
from glassgear.train.optimizer import adamw, initialise
from glassgear.train.ranks import Ranks, whole
from glassgear.train.schedule import learning_rate
from glassgear.train.settings import TrainSettings

__all__ = ["Steps"]


class Steps:
    """The steps of a run.

    Args:
        settings: of the run.
        ranks: who takes part.

    Attributes:
        model: the tree; this and the following from `begin` on.
        windows: the text.
        plain: the module.
        module: the same, shared and compiled as the settings say.
        optimizer: AdamW.
        scaler: of float16 gradients.
    """

    def __init__(self, settings: TrainSettings, ranks: Ranks) -> None:
        self.settings = settings
        self.ranks = ranks

    def begin(self, model: Model, ids: Ids, *, by_depth: bool = True) -> None:
        """Make module and optimizer, with fresh weights or those that the settings name.

        Args:
            model: the tree.
            ids: the text.
            by_depth: see `optimizer.initialise`.

        Raises:
            SettingError: the text is too short for the context.
        """
        s, ranks = self.settings, self.ranks
        self.model = model
        self.windows = Windows(ids, s.context, s.seed)
        self.plain = ModelModule(model)
        initialise(self.plain, s.seed, by_depth=by_depth)
        if s.start:
            begin_with(s.start, self.plain, model)
        self.plain.to(ranks.device).train()
        self.module: nn.Module = ranks.share(self.plain, s.strategy)
        if s.compiled:
            self.module = torch.compile(self.module)  # type: ignore[assignment]
        fused = ranks.device.type == "cuda" or s.strategy != "fsdp"
        self.optimizer = adamw(
            self.module, rate=s.learning_rate, betas=s.betas, eps=s.eps, decay=s.weight_decay, fused=fused
        )
        self.scaler = torch.amp.GradScaler(ranks.device.type, enabled=s.dtype == "float16")

    def step(self, number: int) -> tuple[float, float, bool]:
        """Step `number`, from 0: loss in nats per token, norm of the gradient, whether weights moved.

        Weights stay as they are where the loss or the gradient isn't finite.
        """
        return self._step(number, self._rate(number))

    def _rate(self, step: int) -> float:
        s = self.settings
        return learning_rate(
            step, peak=s.learning_rate, floor=s.learning_rate * s.final_rate, warmup=s.warmup, decay=s.steps
        )

    def _step(self, step: int, rate: float) -> tuple[float, float, bool]:
        """Loss in nats per token, norm of the gradient, and whether the weights were moved."""
        ranks = self.ranks
        batches = [self._batch(step, i) for i in self._mine()]
        (count,) = ranks.total(sum(int((b[:, 1:] >= 0).sum()) for b in batches))
        self.optimizer.zero_grad(set_to_none=True)
        losses = []
        for i, ids in enumerate(batches):
            with self._apart(last=i == len(batches) - 1):
                loss = self._loss_of(ids)
                losses.append(loss.detach())
                # Divided by the tokens of the whole step; DDP and FSDP take the mean over processes.
                scaled: Any = self.scaler.scale(loss * (ranks.world / max(count, 1)))
                scaled.backward()
        (summed,) = ranks.total(float(torch.stack(losses).sum()))
        mean = summed / count if count else math.nan
        norm = self._clipped()
        if not (math.isfinite(mean) and math.isfinite(norm)):
            self.scaler.update()
            return mean, norm, False
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.scaler.step(self.optimizer)
        self.scaler.update()
        return mean, norm, True

    def _mine(self) -> range:
        """The micro-batches of a step that this process takes."""
        return range(self.ranks.rank, self.settings.accumulate, self.ranks.world)

    def _batch(self, step: int, micro: int) -> Tensor:
        s = self.settings
        number = (step * s.accumulate + micro) * s.batch
        return torch.from_numpy(self.windows.batch(number, s.batch)).to(self.ranks.device)

    def _loss_of(self, ids: Tensor) -> Tensor:
        """Sum over all targets, nats."""
        with torch.autocast(
            self.ranks.device.type, DTYPES[self.settings.dtype], self.settings.dtype != "float32"
        ):
            logits = self.module(ids[:, :-1])
        return functional.cross_entropy(logits.flatten(0, 1).float(), ids[:, 1:].flatten(), reduction="sum")

    @contextmanager
    def _apart(self, last: bool) -> Iterator[None]:
        """Gradients are exchanged between processes with the last micro-batch alone."""
        wrapped: Any = self.module
        if self.ranks.world > 1 and hasattr(wrapped, "set_requires_gradient_sync"):
            wrapped.set_requires_gradient_sync(last)
            yield
        elif self.ranks.world > 1 and not last and hasattr(wrapped, "no_sync"):
            with wrapped.no_sync():
                yield
        else:
            yield

    def _clipped(self) -> float:
        """The norm of the true gradient, which is then no longer than `clip`."""
        self.scaler.unscale_(self.optimizer)
        most = self.settings.clip or math.inf
        norm = nn.utils.clip_grad_norm_(self.module.parameters(), most)
        return float(whole(norm))
