"""A gear's place in the running model: its path, and through it weights, step, cache and hook."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glassgear.backends.base import Hook
from glassgear.backends.reference.cache import KVCache
from glassgear.model.gears import Gear
from glassgear.weights.tensor import StoredTensor

__all__ = ["Run", "Scope", "Span", "Step", "Weights"]

Floats = NDArray[np.float32]
KEEP = 8 << 30  # bytes of decoded weights kept; past it matrices are decoded each time they are used


class Weights:
    """Float32 weights by gear path, decoded when first used."""

    def __init__(self, stored: Mapping[str, StoredTensor]) -> None:
        self._stored = stored
        self._decoded: dict[str, Floats] = {}
        self._kept = 0

    def __getitem__(self, path: str) -> Floats:
        """A whole tensor, float32, in its shape."""
        found = self._decoded.get(path)
        if found is None:
            found = self._stored[path].float32()
            if self._kept + found.nbytes <= KEEP:
                self._decoded[path] = found
                self._kept += found.nbytes
        return found

    def rows(self, path: str, index: NDArray[np.integer]) -> Floats:
        """Some rows of a matrix; the rest of it isn't read."""
        found = self._decoded.get(path)
        return self._stored[path].rows(index) if found is None else found[index]


@dataclass(frozen=True, eq=False)
class Span:
    """Rows `start` to `stop` of a step belong to one sequence, whose cache pages these are."""

    start: int
    stop: int
    pages: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Step:
    """One batch step: ids and positions [T] of all its sequences, and whose rows are whose."""

    ids: NDArray[np.int64]
    positions: NDArray[np.int64]
    types: NDArray[np.int64]  # token types
    spans: tuple[Span, ...]
    wanted: NDArray[np.int64]  # rows whose output is asked for


Run = Callable[..., Floats]  # (gear, x, scope) -> y


@dataclass(frozen=True, eq=False)
class Scope:
    """What a gear needs beside its input. `scope("query")` is the place of a part."""

    path: str
    weights: Weights
    step: Step
    cache: KVCache
    table: Mapping[type[Gear], Run]
    hook: Hook | None = None

    def __call__(self, part: str) -> Scope:
        """The place of a part of this gear."""
        path = f"{self.path}.{part}" if self.path else part
        return Scope(path, self.weights, self.step, self.cache, self.table, self.hook)

    def weight(self, name: str = "weight") -> Floats:
        """A parameter tensor of this gear."""
        return self.weights[f"{self.path}.{name}"]

    def run(self, part: str, gear: Gear, x: NDArray[Any], **more: Any) -> Floats:
        """Run a part of this gear on `x`; its output is seen under the part's path.

        Args:
            part: its name.
            gear: what it is.
            x: its input: rows of floats, or ids and the like for tables.
            **more: what some gears take beside these.
        """
        at = self(part)
        return at.see("", self.table[type(gear)](gear, x, at, **more))

    def see(self, name: str, value: Floats) -> Floats:
        """Show a value to the hook; the hook's answer, if any, takes its place."""
        if self.hook is None:
            return value
        changed = self.hook(f"{self.path}.{name}" if name else self.path, value)
        return value if changed is None else changed

    def see_all(self, values: Iterable[tuple[str, Floats]]) -> list[Floats]:
        """`see` for several values."""
        return [self.see(name, value) for name, value in values]
