"""What goes into an explained number: inputs and terms.

They are sequences whose members are made when they are looked at, from columns of numbers: a probability
has as many terms as the vocabulary has ids, and a page shows a few of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, overload

import numpy as np
from numpy.typing import NDArray

__all__ = ["Input", "Listed", "Term", "Terms", "total"]

T = TypeVar("T")
Doubles = NDArray[np.float64]
Places = NDArray[np.int64]


@dataclass(frozen=True)
class Input:
    """A traced number that the explained one is computed from.

    Attributes:
        path: of the value; ` + ` between the paths of a sum that has no path of its own; empty for a zero
            that stands where there is no token.
        token: its token.
        index: its place in the token's value.
        value: the number, a float32.
        name: what it is here: `channel 17`, `score of token 3`.
    """

    path: str
    token: int
    index: tuple[int, ...]
    value: float
    name: str


@dataclass(frozen=True)
class Term:
    """One addend.

    Attributes:
        name: what it comes from.
        inputs: numbers of the inputs in it.
        factors: what is multiplied, by name.
        value: what it adds to the result.
        running: what the backend holds when it has added this one, in its own order; None where it
            doesn't add term by term.
    """

    name: str
    inputs: tuple[int, ...]
    factors: tuple[tuple[str, float], ...]
    value: float
    running: float | None = None


class Listed(Sequence[T], Generic[T]):
    """So many things, each made when it is looked at.

    Args:
        count: how many.
        make: the one of a number, 0 to count - 1.
    """

    def __init__(self, count: int, make: Callable[[int], T]) -> None:
        self._count, self._make = count, make

    @staticmethod
    def of(things: Iterable[T]) -> Listed[T]:
        """Things that are there already."""
        there = tuple(things)
        return Listed(len(there), there.__getitem__)

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, at: int) -> T: ...

    @overload
    def __getitem__(self, at: slice) -> tuple[T, ...]: ...

    def __getitem__(self, at: int | slice) -> T | tuple[T, ...]:
        """One, or several as a tuple."""
        places = range(self._count)[at]
        return self._make(places) if isinstance(places, int) else tuple(map(self._make, places))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Listed) and tuple(self) == tuple(other)

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return f"<{self._count:,} of them>"

    def __add__(self, more: Listed[T]) -> Listed[T]:
        """These, and others behind them."""
        first = self._count
        return Listed(first + len(more), lambda i: self[i] if i < first else more[i - first])


class Terms(Listed[Term]):
    """What is added up.

    Args:
        values: what each term adds, float64 [terms].
        inputs: numbers of the inputs in each, int64 [terms, inputs of one]; -1 where there is none.
        make: the term of a number.
    """

    def __init__(self, values: Doubles, inputs: Places, make: Callable[[int], Term]) -> None:
        super().__init__(len(values), make)
        self.values, self.inputs = values, inputs

    @staticmethod
    def of(terms: Iterable[Term]) -> Terms:
        """Terms that are there already: a few."""
        made = tuple(terms)
        inputs = np.full((len(made), max((len(t.inputs) for t in made), default=0)), -1, np.int64)
        for row, term in zip(inputs, made, strict=True):
            row[: len(term.inputs)] = term.inputs
        return Terms(np.array([term.value for term in made], np.float64), inputs, made.__getitem__)

    @staticmethod
    def columns(
        name: Callable[[int], str],
        inputs: Places,
        factors: Sequence[tuple[str, NDArray[Any]]],
        values: NDArray[Any],
        running: NDArray[Any] | None = None,
    ) -> Terms:
        """Many terms.

        Args:
            name: what a term comes from, by its number.
            inputs: numbers of the inputs, int64 [terms] or [terms, inputs of one].
            factors: name and numbers [terms] of what is multiplied.
            values: what each term adds, [terms].
            running: what the backend holds after each, [terms].
        """
        used = inputs.reshape(len(values), -1)

        def make(i: int) -> Term:
            multiplied = tuple((what, float(numbers[i])) for what, numbers in factors)
            after = None if running is None else float(running[i])
            return Term(name(i), tuple(used[i].tolist()), multiplied, float(values[i]), after)

        return Terms(np.asarray(values, np.float64), used, make)

    def joined(self, more: Terms) -> Terms:
        """These, and others behind them."""
        wide = max(self.inputs.shape[1], more.inputs.shape[1])
        inputs = [
            np.pad(one.inputs, ((0, 0), (0, wide - one.inputs.shape[1])), constant_values=-1)
            for one in (self, more)
        ]
        values = np.concatenate([self.values, more.values])
        return Terms(values, np.concatenate(inputs), (self + more).__getitem__)

    def by_size(self) -> Places:
        """Numbers of the terms, the largest first; what is no number comes before all others."""
        sizes = np.where(np.isnan(self.values), np.inf, np.abs(self.values))
        return np.argsort(-sizes, kind="stable")


def total(values: Doubles) -> float:
    """The exact sum, rounded once; of infinities of both signs NaN."""
    if np.isfinite(values).all():
        return math.fsum(values.tolist())
    with np.errstate(invalid="ignore"):
        return float(values.sum())
