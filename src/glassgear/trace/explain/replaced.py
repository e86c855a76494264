"""A change that is a function: which values of a run it replaced, seen while the run goes."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from glassgear.backends.base import Hook

__all__ = ["Replacing"]


@dataclass(eq=False)
class Replacing:
    """A hook that hands every value to another one, and remembers where that gave a value of its own.

    Attributes:
        change: sees each value under its path, and may return another.
        paths: of the values for which it did, in any pass so far.
    """

    change: Hook
    paths: set[str] = field(default_factory=set)

    def __call__(self, path: str, value: NDArray[np.float32]) -> NDArray[np.float32] | None:
        """What `change` makes of a value."""
        out = self.change(path, value)
        if out is not None:
            self.paths.add(path)
        return out

    def changes(self, path: str) -> bool:
        """Whether anything of a value may be another than its gear computes."""
        return path in self.paths
