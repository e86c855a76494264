"""How much a server holds."""

from __future__ import annotations

from dataclasses import dataclass

from glassgear.measure.machine import free_memory

__all__ = ["Limits", "default_bytes"]


@dataclass(frozen=True)
class Limits:
    """How much there may be of everything.

    Attributes:
        tokens: of a run.
        nbytes: of the recorded values of all runs together.
    """

    tokens: int = 2048
    nbytes: int = 512 << 20


def default_bytes() -> int:
    """A quarter of the memory that is free, at least 512 MB and at most 4 GB."""
    free = free_memory() or 0
    return min(max(free // 4, 512 << 20), 4 << 30)
