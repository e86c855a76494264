"""How fast training is, and how fast it could be on this machine."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from glassgear.model.gears import Model
from glassgear.model.ledger import ledger

__all__ = ["Clock", "flops_per_token", "gemm_rate"]


class Clock:
    """Adds up the time of steps alone: looks, samples and checkpoints don't count."""

    def __init__(self) -> None:
        self._seconds, self._tokens = 0.0, 0

    @contextmanager
    def step(self, tokens: int) -> Iterator[None]:
        """Time a step."""
        start = time.perf_counter()
        yield
        self._seconds += time.perf_counter() - start
        self._tokens += tokens

    def rate(self) -> float:
        """Tokens a second since the last call."""
        found = self._tokens / max(self._seconds, 1e-9)
        self._seconds, self._tokens = 0.0, 0
        return found


def flops_per_token(model: Model, context: int) -> float:
    """Operations of training for one token: forward, and twice as many backward."""
    return 3.0 * ledger(model).flops_per_token(context // 2)


def gemm_rate(device: torch.device, dtype: torch.dtype, seconds: float = 0.3) -> float:
    """Floating-point operations a second of a large matrix product, the best of some."""
    size = 1024 if device.type == "cpu" else 8192
    a, b = (torch.randn(size, size, device=device, dtype=torch.float32).to(dtype) for _ in range(2))
    best, until = math.inf, time.perf_counter() + seconds
    while time.perf_counter() < until or best == math.inf:
        start = time.perf_counter()
        (a @ b)[0, 0].item()
        best = min(best, time.perf_counter() - start)
    return 2 * size**3 / best
