"""Which values a model shows, found by running one token."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from math import ceil
from types import MappingProxyType
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from glassgear.backends.base import Backend, Chunk, Output
from glassgear.model.gears import Experts, Model, walk

__all__ = ["SEEN", "Shown", "axes_of", "output_of", "shown_by", "size_of_all"]

SEEN = ("scores", "weights")  # values [head, token, seen]


@dataclass(frozen=True)
class Shown:
    """A value that a model shows.

    Attributes:
        axes: their names.
        nbytes: of one token; of scores and weights for each token that it sees.
        share: of the tokens that have this value, on average: less than 1 for an expert's.
    """

    axes: tuple[str, ...]
    nbytes: int
    share: float = 1.0

    @property
    def quadratic(self) -> bool:
        """Whether it grows with the square of the text."""
        return self.axes[-1] == "seen"


def shown_by(backend: Backend) -> Mapping[str, Shown]:
    """Every value by path, in the order of use. The token is run once for each backend."""
    if backend not in _KNOWN:
        _KNOWN[backend] = MappingProxyType(_look(backend))
    return _KNOWN[backend]


def size_of_all(backend: Backend, tokens: int) -> int:
    """Bytes that all values together would take for so many tokens, a few more perhaps."""
    if backend not in _SIZES:
        sums = [0, 0]
        for shown in shown_by(backend).values():
            sums[shown.quadratic] += ceil(shown.nbytes * shown.share)
        _SIZES[backend] = sums[0], sums[1]
    linear, quadratic = _SIZES[backend]
    return linear * tokens + quadratic * tokens * tokens


_SIZES: WeakKeyDictionary[Backend, tuple[int, int]] = WeakKeyDictionary()
_KNOWN: WeakKeyDictionary[Backend, Mapping[str, Shown]] = WeakKeyDictionary()


def _look(backend: Backend) -> dict[str, Shown]:
    found: dict[str, Shown] = {}

    def look(path: str, value: NDArray[np.float32]) -> None:
        if value.ndim == 3 and path.rpartition(".")[2] in SEEN:
            found[path] = Shown(axes_of(path, 3), value.nbytes)
        else:
            found[path] = Shown(axes_of(path, value.ndim), value.nbytes // max(1, len(value)))

    track = backend.open()
    try:
        backend.step([Chunk(track, [0])], look, output_of(backend.model))
    finally:
        backend.close(track)
    return _with_all_experts(backend.model, found)


def _with_all_experts(model: Model, found: dict[str, Shown]) -> dict[str, Shown]:
    """Experts that the token didn't choose show the same values as those that it chose."""
    routers = {path: gear.router for path, gear in walk(model) if isinstance(gear, Experts)}
    out: dict[str, Shown] = {}
    for path, shown in found.items():
        before, inside, after = path.partition(".experts.")
        if inside and before in routers:
            _, _, rest = after.partition(".")
            tail = f".{rest}" if rest else ""
            router = routers[before]
            share = replace(shown, share=router.used / router.count)
            out |= {f"{before}.experts.{i}{tail}": share for i in range(router.count)}
        else:
            out[path] = shown
    return out


def output_of(model: Model) -> Output:
    """What a model is run for, so that it shows all its values."""
    if model.head is not None:
        return "logits"
    return "hidden" if model.pooler is None else "pooled"


@lru_cache(4096)
def axes_of(path: str, count: int) -> tuple[str, ...]:
    """Names of the axes of a value."""
    name = path.rpartition(".")[2]
    if count == 3:
        return ("head", "token", "seen") if name in SEEN else ("token", "head", "channel")
    if path == "head":
        return "token", "entry"
    if name == "router" or ".router." in path:
        return "token", "expert"
    return "token", "channel"
