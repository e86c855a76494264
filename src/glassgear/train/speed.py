"""How fast training is, and how fast it could be on this machine."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from glassgear.model.gears import Model
from glassgear.model.ledger import ledger

__all__ = ["Clock", "GemmRate", "flops_per_token"]

OFTEN = 0.02  # of the time of steps that measuring between them may take
MOST_AGAIN = 5


class Clock:
    """Adds up the time of steps alone: looks, samples and checkpoints don't count."""

    def __init__(self) -> None:
        self.seconds, self._tokens = 0.0, 0

    @contextmanager
    def step(self, tokens: int) -> Iterator[None]:
        """Time a step."""
        start = time.perf_counter()
        yield
        self.seconds += time.perf_counter() - start
        self._tokens += tokens

    def rate(self) -> float:
        """Tokens a second since the last call."""
        found = self._tokens / max(self.seconds, 1e-9)
        self.seconds, self._tokens = 0.0, 0
        return found


def flops_per_token(model: Model, context: int) -> float:
    """Operations of training for one token: forward, and twice as many backward."""
    return 3.0 * ledger(model).flops_per_token(context // 2)


class GemmRate:
    """The best rate of large matrix products that was seen: whatever else the machine does lowers it.

    Args:
        device: where they are done.
        dtype: of what.

    Attributes:
        best: floating-point operations a second; 0 before the first measurement.
    """

    def __init__(self, device: torch.device, dtype: torch.dtype) -> None:
        self._device, self._dtype = device, dtype
        self._size = 1024 if device.type == "cpu" else 8192
        self.best = 0.0

    def measure(self, seconds: float) -> None:
        """Multiply for so long, once at least."""
        size = self._size
        values = torch.linspace(-1, 1, size * size, device=self._device).reshape(size, size).to(self._dtype)
        until = time.perf_counter() + seconds
        while True:
            start = time.perf_counter()
            (values @ values)[0, 0].item()
            now = time.perf_counter()
            self.best = max(self.best, 2 * size**3 / max(now - start, 1e-9))
            if now >= until:
                return

    def share(self, rate: float, spent: float) -> float | None:
        """How much of the best rate another one is.

        It is measured again if that is cheap, or needed: steps that seem faster than matrix products show
        that these were measured while the machine was busy.

        Args:
            rate: floating-point operations a second.
            spent: seconds since the last time.

        Returns:
            A share of 1; None if the machine is too busy to tell.
        """
        if 2 * self._size**3 / self.best < OFTEN * spent:
            self.measure(OFTEN * spent / 2)
        for _ in range(MOST_AGAIN):
            if rate <= self.best:
                break
            self.measure(0.02)
        return rate / self.best if rate <= self.best else None
