"""What a run has recorded, in pieces: it grows with every step, and shrinks when tokens are taken back.

A piece holds a value for some neighbouring tokens. Scores and weights are kept in pieces of a few
tokens, each as wide as its last token sees, so that the half that nobody sees isn't kept. A value that
is the same as the one before (a sublayer's and its last matrix's) is kept once.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from glassgear.errors import SettingError
from glassgear.trace.record import Kept, joined
from glassgear.trace.shown import SEEN, axes_of
from glassgear.trace.trace import Value

__all__ = ["Found", "Pieces", "Recorder", "Store", "has"]

Floats = NDArray[np.float32]
Positions = NDArray[np.int64]
Piece = tuple[Floats, Positions]
ROWS = 64  # tokens in a piece of scores or weights


@dataclass(eq=False)
class Recorder(Kept):
    """Keeps what a backend's hook sees in one step, for `Store.add`.

    Attributes:
        causal: whether no token sees later ones.
    """

    causal: bool = True
    last: Floats | None = None  # what was kept before

    def keep(self, path: str, array: Floats, positions: Positions) -> None:
        """Put a piece of a value beside those that are there."""
        if path.rpartition(".")[2] in SEEN and array.ndim == 3:
            self.parts.setdefault(path, []).extend(self._split(array, positions))
            return
        if self.last is not None and array.shape == self.last.shape and np.array_equal(array, self.last):
            array = self.last
        self.last = array
        super().keep(path, array, positions)

    def _split(self, array: Floats, positions: Positions) -> Iterator[Piece]:
        for first in range(0, len(positions), ROWS):
            here = positions[first : first + ROWS]
            wide = int(here[-1]) + 1 if self.causal else array.shape[2]
            yield np.ascontiguousarray(array[:, first : first + ROWS, :wide]), here


@dataclass(eq=False)
class Pieces:
    """One value, for the tokens that were run."""

    path: str
    parts: tuple[Piece, ...]

    @property
    def axes(self) -> tuple[str, ...]:
        """Names of the axes, as `Value.axes` has them."""
        return axes_of(self.path, self.parts[0][0].ndim)

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the whole value."""
        shape = list(self.parts[0][0].shape)
        shape[self.axes.index("token")] = sum(len(positions) for _, positions in self.parts)
        if self.axes[-1] == "seen":
            shape[-1] = max(array.shape[-1] for array, _ in self.parts)
        return tuple(shape)

    def between(self, first: int, last: int) -> Value:
        """The value of tokens `first` to `last` - 1.

        Raises:
            SettingError: there is none of these.
        """
        axis, found = self.axes.index("token"), []
        for array, positions in self.parts:
            if positions[-1] < first or positions[0] >= last:  # quicker than a search
                continue
            low, high = np.searchsorted(positions, (first, last))
            if high > low:
                rows = (slice(None),) * axis + (slice(low, high),)
                found.append((array[rows], positions[low:high]))
        if not found:
            here = [int(p) for _, positions in self.parts for p in positions]
            where = f"tokens {here[0]} to {here[-1]}" if here else "no token"
            asked = f"token {first}" if last == first + 1 else f"tokens {first} to {last - 1}"
            raise SettingError(f"{self.path} has no value for {asked}: it was computed for {where}")
        return joined(self.path, found)

    def value(self) -> Value:
        """All of it."""
        return joined(self.path, self.parts)

    def stretches(self) -> Iterator[Value]:
        """All of it in parts of at most ROWS tokens, or of one step's more: what is seen isn't filled up."""
        some: list[Piece] = []
        for piece in self.parts:
            if some and sum(len(positions) for _, positions in [*some, piece]) > ROWS:
                yield joined(self.path, some)
                some = []
            some.append(piece)
        yield joined(self.path, some)


@dataclass(eq=False)
class Store(Mapping[str, Value]):
    """Recorded values by path. Readers never wait for a step: each sees the pieces that are there.

    Attributes:
        whole: whether it is meant to hold all values of a run.
    """

    whole: bool = True
    pieces: dict[str, Pieces] = field(default_factory=dict)
    nbytes: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def __getitem__(self, path: str) -> Value:
        return self.of(path).value()

    def __iter__(self) -> Iterator[str]:
        return iter(list(self.pieces))

    def __len__(self) -> int:
        return len(self.pieces)

    def of(self, path: str) -> Pieces:
        """The pieces of a value, put together where they have become many."""
        found = self.pieces[path]
        if len(found.parts) > 1 and found.axes[-1] != "seen":
            with self.lock:
                found = self.pieces[path]
                whole = found.value()
                for other in self._same(found):
                    self.pieces[other] = Pieces(other, ((whole.array, whole.positions),))
                found = self.pieces[path]
        return found

    def _same(self, pieces: Pieces) -> list[str]:
        """The paths that have the very same pieces."""
        first, count = pieces.parts[0][0], len(pieces.parts)
        near = [p for p in self.pieces.values() if len(p.parts) == count and p.parts[0][0] is first]
        return [
            p.path for p in near if all(a is b for (a, _), (b, _) in zip(p.parts, pieces.parts, strict=True))
        ]

    def add(self, parts: Mapping[str, Sequence[Piece]]) -> None:
        """Take in what a step recorded."""
        with self.lock:
            self.nbytes += _bytes(parts.values())
            for path, more in parts.items():
                before = self.pieces[path].parts if path in self.pieces else ()
                self.pieces[path] = Pieces(path, (*before, *more))

    def truncate(self, length: int) -> None:
        """Forget all tokens from position `length` on."""
        with self.lock:
            kept = {path: _before(found, length) for path, found in self.pieces.items()}
            self.pieces = {path: Pieces(path, parts) for path, parts in kept.items() if parts}
            self.nbytes = _bytes(found.parts for found in self.pieces.values())


def _before(pieces: Pieces, length: int) -> tuple[Piece, ...]:
    axis, kept = pieces.axes.index("token"), []
    for array, positions in pieces.parts:
        count = int(np.searchsorted(positions, length))
        if count == len(positions):
            kept.append((array, positions))
        elif count:
            rows = (slice(None),) * axis + (slice(0, count),)
            kept.append((array[rows].copy(), positions[:count]))
    return tuple(kept)


def _bytes(values: Iterable[Sequence[Piece]]) -> int:
    """Bytes of arrays, those that are there twice counted once."""
    arrays = {id(array): array.nbytes for parts in values for array, _ in parts}
    return sum(arrays.values())


class Found(Mapping[str, Value]):
    """Recorded values from several stores, looked up only when they are asked for."""

    def __init__(self, stores: Sequence[Store], again: float = 0.0) -> None:
        self._stores = stores
        self.again = again  # milliseconds that recording again took

    def of(self, path: str, *, together: bool = True) -> Pieces:
        """The pieces of a value, put together where that makes reading quicker."""
        for store in self._stores:
            if path in store.pieces:
                return store.of(path) if together else store.pieces[path]
        raise KeyError(path)

    def __contains__(self, path: object) -> bool:
        return any(path in store.pieces for store in self._stores)

    def __getitem__(self, path: str) -> Value:
        return self.of(path).value()

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys(path for store in self._stores for path in list(store.pieces)))

    def __len__(self) -> int:
        return sum(1 for _ in self)


def has(stores: Sequence[Store], path: str, first: int) -> bool:
    """Whether a value is there from a token on: of logits, those of the prompt may be missing."""
    found = [store.pieces[path] for store in stores if path in store.pieces]
    return any(path != "head" or pieces.parts[0][1][0] <= first for pieces in found)
