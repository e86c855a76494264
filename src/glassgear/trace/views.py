"""What a trace shows at a glance: figures of values, the stream's growth, where heads look, the logit lens.

In: recorded values. Out: plain data (`to_json` where it isn't JSON already), for terminals and the page
alike. Nothing here runs a model. The logit lens alone computes: it puts the last norm and the head
behind every layer, which the model itself does behind the last layer only.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glassgear.backends.reference.cache import KVCache
from glassgear.backends.reference.machine import TABLE
from glassgear.backends.reference.scope import Scope, Step, Weights
from glassgear.backends.reference.softmax import softmax
from glassgear.errors import SettingError
from glassgear.model.gears import Head, Model
from glassgear.sampling import top_k
from glassgear.trace.trace import Value
from glassgear.weights.tensor import StoredTensor

__all__ = [
    "COMPUTED_BY",
    "Growth",
    "Layer",
    "Lens",
    "Look",
    "Summary",
    "growth",
    "heads",
    "lens",
    "summary",
    "summary_of_all",
]

Floats = NDArray[np.float32]
Values = Mapping[str, Value]
BLOCK = re.compile(r"blocks\.(\d+)")
KEPT = 512 << 20  # bytes of a decoded head that stay in memory; a larger one is decoded anew, in stretches
STRETCH = 8192  # rows of such a head at a time
ROWS, HEADS = 64, 3  # tokens, and heads, whose scores are looked at together, and
SHORT = 1 << 18  # other numbers: so few stay near the processor
ROW = 512  # numbers that are added up in float32
CLOSE = 1e-3  # variance by the square of the mean, below which float32 loses too many of its digits
SQUARED = 1e-12, 1e15  # sizes of the largest number with which float32 holds the sum of a row's squares
COMPUTED_BY = (
    "last norm and head of the reference backend in float32 behind each layer but the last, "
    "whose row holds the logits that the model gave"
)


@dataclass(frozen=True)
class Summary:
    """Figures of a value over all its tokens.

    `nan` and `inf` count numbers that shouldn't be there; the other figures are of finite ones. What a
    token can't see (the -inf of its scores, the 0 of its weights) isn't part of the value.

    Attributes:
        path: of the value.
        shape: with masked places.
        axes: their names.
        mean: and `std`, `min`, `max`, `norm` (Euclidean): NaN where there is no finite number.
        zeros: share of zeros, 0 to 1.
        nan: how many are no number.
        inf: how many are infinite.
    """

    path: str
    shape: tuple[int, ...]
    axes: tuple[str, ...]
    mean: float
    std: float
    min: float
    max: float
    norm: float
    zeros: float
    nan: int
    inf: int

    def to_json(self) -> dict[str, Any]:
        """As JSON has it: None for what isn't a number."""
        return {
            name: None if isinstance(value, float) and not np.isfinite(value) else value
            for name, value in vars(self).items()
        }


def summary(value: Value) -> Summary:
    """Figures of a value. Sums of 512 numbers are float32, sums of those float64."""
    return summary_of_all(value.path, [value])


def summary_of_all(path: str, values: Sequence[Value]) -> Summary:
    """Figures of several values together, such as one gear's in every block; at least one.

    Args:
        path: what they are called together.
        values: the shape and the axes are those of the first.
    """
    figures = _Figures()
    for value in values:
        masked = value.path.endswith(".scores")  # a window hides early tokens, too
        for numbers in _visible(value):
            figures.add(numbers, masked)
    told = (path, values[0].array.shape, values[0].axes)
    if not figures.count:
        nothing = float("nan")
        return Summary(*told, nothing, nothing, nothing, nothing, nothing, 0.0, figures.nan, figures.inf)
    mean = figures.total / figures.count
    spread = float(np.sqrt(max(0.0, figures.squares / figures.count - mean * mean)))
    return Summary(
        *told, mean, spread, figures.low, figures.high, float(np.sqrt(figures.squares)),
        figures.zeros / figures.count, figures.nan, figures.inf,
    )  # fmt: skip


@dataclass(eq=False)
class _Figures:
    """Sums of finite numbers, and counts of others."""

    count: int = 0
    total: float = 0.0
    squares: float = 0.0
    zeros: int = 0
    low: float = np.inf
    high: float = -np.inf
    nan: int = 0
    inf: int = 0

    def add(self, numbers: Floats, masked: bool = False) -> None:
        """Take in a stretch of numbers; where some are `masked`, -inf is none of them."""
        if not numbers.size:
            return
        low, high = float(numbers.min()), float(numbers.max())
        if not (np.isfinite(low) and np.isfinite(high)):  # NaN goes through both
            there = numbers[numbers != -np.inf] if masked else numbers
            self.nan += int(np.isnan(there).sum())
            self.inf += int(np.isinf(there).sum())
            self.add(there[np.isfinite(there)])
            return
        total, squares = _sums(numbers, max(-low, high))
        self.count += numbers.size
        self.total += total
        self.squares += squares
        if low <= 0 <= high:
            self.zeros += int(np.count_nonzero(numbers == 0))
        self.low, self.high = min(self.low, low), max(self.high, high)


def _sums(numbers: Floats, largest: float) -> tuple[float, float]:
    """The sum of some numbers and that of their squares; `largest` is the size of the largest."""
    if not SQUARED[0] <= largest <= SQUARED[1]:
        return _wide_sums(numbers)
    whole = numbers.size - numbers.size % ROW
    total = squares = 0.0
    for rows in (numbers[:whole].reshape(-1, ROW), numbers[None, whole:]):
        total += float(rows.sum(axis=1).sum(dtype=np.float64))
        # No matrix library, whose threads would wait.
        squares += float(np.einsum("ij,ij->i", rows, rows).sum(dtype=np.float64))
    if squares * numbers.size - total * total < CLOSE * total * total:
        return _wide_sums(numbers)
    return total, squares


def _wide_sums(numbers: Floats) -> tuple[float, float]:
    wide = numbers.astype(np.float64)
    return float(wide.sum()), float(np.einsum("i,i->", wide, wide))


def _visible(value: Value) -> Iterator[Floats]:
    """The numbers of a value in short rows, those aside that stand where a token sees nothing."""
    if value.axes[-1] == "seen" and all(_unseen(value, first) for first in _stretches(value)):
        for first in _stretches(value):
            yield from _seen(value, first)
        return
    flat = value.array.reshape(-1)
    for first in range(0, flat.size, SHORT):
        yield flat[first : first + SHORT]


def _stretches(value: Value) -> range:
    """First rows of some that follow each other."""
    return range(0, len(value.positions), ROWS)


def _unseen(value: Value, first: int) -> bool:
    """Whether nothing stands where some tokens can't look: later ones."""
    rows, at = value.array[:, first : first + ROWS], value.positions[first : first + ROWS]
    start, stop = int(at[0]) + 1, int(at[-1]) + 1
    nothing = np.float32(-np.inf if value.path.endswith(".scores") else 0)
    some = rows[:, :, start:stop]
    hidden = np.arange(start, start + some.shape[2]) > at[:, None]
    return bool((rows[:, :, stop:] == nothing).all() and ((some == nothing) | ~hidden).all())


def _seen(value: Value, first: int) -> Iterator[Floats]:
    """What some tokens see: the tokens up to the first of these, and from there the triangle."""
    at = value.positions[first : first + ROWS]
    start, stop = int(at[0]) + 1, int(at[-1]) + 1
    inside = np.arange(start, min(stop, value.array.shape[2])) <= at[:, None]
    triangle = np.flatnonzero(inside)  # places in the rows from `start` on, one behind the other
    for head in range(0, len(value.array), HEADS):
        rows = value.array[head : head + HEADS, first : first + ROWS]
        yield rows[:, :, :start].reshape(-1)
        yield rows[:, :, start:stop].reshape(len(rows), inside.size).take(triangle, axis=1).reshape(-1)


@dataclass(frozen=True)
class Growth:
    """How long the residual stream is behind a block, and what its steps added: one number a token.

    Attributes:
        path: of the block.
        tokens: positions of the numbers.
        steps: step (`attention`, `ffn`, ...) -> Euclidean norms of what it added.
        stream: norms of the stream behind the block.
    """

    path: str
    tokens: tuple[int, ...]
    steps: dict[str, Floats]
    stream: Floats


def growth(values: Values) -> list[Growth]:
    """One row for each block of which the output was recorded."""
    rows = []
    for path in _blocks(values):
        whole = values[path]
        added = {step: _norms(values[added]) for step, added in _added(path, values).items()}
        rows.append(Growth(path, tuple(whole.positions.tolist()), added, _norms(whole)))
    return rows


def _blocks(values: Iterable[str]) -> list[str]:
    return sorted((p for p in values if BLOCK.fullmatch(p)), key=lambda p: int(p.rpartition(".")[2]))


def _added(block: str, values: Iterable[str]) -> dict[str, str]:
    """Step -> path of what it adds to the stream: its output, through the norm behind it if there is one."""
    inside = [p.removeprefix(f"{block}.") for p in values if p.startswith(f"{block}.") and p.count(".") == 2]
    steps = [name for name in inside if not name.endswith(("_norm", "_residual"))]
    return {s: f"{block}.{s}_post_norm" if f"{s}_post_norm" in inside else f"{block}.{s}" for s in steps}


def _norms(value: Value) -> Floats:
    """Euclidean norm of each token's row, float32 [tokens]."""
    rows = value.array.reshape(len(value.array), -1)
    out: Floats = np.sqrt(np.einsum("ij,ij->i", rows, rows))
    return out


@dataclass(frozen=True)
class Look:
    """A token that is looked at, and the weight of its value in the sum."""

    token: int
    weight: float


def heads(values: Values, token: int, top: int = 3) -> dict[str, list[list[Look]]]:
    """For each attention gear, and each of its heads, the tokens that `token` reads most.

    Args:
        values: attention weights among them.
        token: the one that reads.
        top: how many for each head; of equal weights the earlier tokens. Weights of 0 aren't listed.

    Raises:
        SettingError: the token has no weights.
    """
    found = {}
    for path in values:
        if path.endswith(".attention.weights"):
            found[path.removesuffix(".weights")] = [_most(row, top) for row in values[path].at(token)]
    return found


def _most(weights: Floats, top: int) -> list[Look]:
    best = np.argsort(-weights, kind="stable")[:top]
    return [Look(int(i), float(weights[i])) for i in best if weights[i] > 0]


class Lens:
    """The last norm and the head behind any row of the residual stream, in float32.

    These are the reference backend's gears on decoded weights, whatever backend made the rows: no step
    of that backend is run, so nothing waits for it. Against quantised kernels the logits differ by a
    rounding.

    Args:
        model: the tree.
        tensors: gear path -> stored tensor.

    Raises:
        SettingError: the model has no head.
    """

    def __init__(self, model: Model, tensors: Mapping[str, StoredTensor]) -> None:
        if model.head is None:
            raise SettingError("this model has no head, so its layers say no tokens")
        self._model, self._head = model, model.head
        self._table = "embed.weight" if model.head.tied else "head.weight"
        self._tensors = tensors
        self._at = _scope(tensors)
        self._whole = 4 * model.vocab * model.dim <= KEPT or model.head.extra > 0

    def logits(self, rows: Floats) -> Floats:
        """Rows of the stream [n, dim] -> logits [n, vocab]."""
        model, x = self._model, rows
        for name, gear in (("norm", model.norm), ("transform", model.transform)):
            x = x if gear is None else self._at.run(name, gear, x)
        if self._whole:
            return self._at.run("head", self._head, x)
        return np.concatenate([self._stretch(x, first) for first in range(0, model.vocab, STRETCH)], axis=1)

    def _stretch(self, x: Floats, first: int) -> Floats:
        """Logits of some entries: the head with those rows alone."""
        count = min(STRETCH, self._head.vocab - first)
        parts = {self._table: self._tensors[self._table].part(first, count)}
        bare = replace(self._head, vocab=count, bias=False, cap=0.0)
        logits = _scope(parts).run("head", bare, x)
        if self._head.bias:
            logits = logits + self._at.weights["head.bias"][first : first + count]
        return _capped(logits, self._head)


def _capped(logits: Floats, head: Head) -> Floats:
    return np.float32(head.cap) * np.tanh(logits / np.float32(head.cap)) if head.cap else logits


def _scope(tensors: Mapping[str, StoredTensor]) -> Scope:
    """A place for gears that look at nothing but their input and their weights."""
    nothing = np.zeros(0, np.int64)
    step = Step(nothing, nothing, nothing, (), nothing)
    return Scope("", Weights(tensors), step, KVCache({}), TABLE)


@dataclass(frozen=True)
class Layer:
    """What a layer would say.

    Attributes:
        path: of the block.
        top: the likeliest ids with their probabilities, likeliest first; none where a logit is NaN.
        final: probability of the id that the model itself finds likeliest in the end.
        rank: how many ids are likelier than that one.
    """

    path: str
    top: tuple[tuple[int, float], ...]
    final: float
    rank: int


def lens(values: Values, made_by: Lens, token: int, top: int = 5) -> tuple[list[Layer], int]:
    """What each layer would say after a token, and which layer decided.

    Args:
        values: outputs of blocks; the row of the last comes from `head`, the model's own logits, where
            these were recorded.
        made_by: the lens.
        token: the position.
        top: how many ids for each layer.

    Returns:
        A row for each block, and the number of the first from which on all rows put the model's
        likeliest id first.

    Raises:
        SettingError: no block's output was recorded, or none for this token.
    """
    paths = _blocks(values)
    if not paths:
        raise SettingError("the logit lens needs the outputs of blocks: record `blocks.*`")
    logits = made_by.logits(np.stack([values[path].at(token) for path in paths]))
    if "head" in values and token in values["head"].positions:
        logits[-1] = values["head"].at(token)
    final = int(logits[-1].argmax())
    layers = list(_layers(paths, logits, final, top))
    undecided = [number for number, layer in enumerate(layers) if not layer.top or layer.top[0][0] != final]
    return layers, undecided[-1] + 1 if undecided else 0


def _layers(paths: Sequence[str], logits: Floats, final: int, top: int) -> Iterator[Layer]:
    count = min(max(1, top), logits.shape[1])
    for path, row in zip(paths, logits, strict=True):
        p = softmax(row)
        best = np.zeros(0, np.int64) if np.isnan(row).any() else top_k(row, count)
        best = best[np.argsort(-row[best], kind="stable")]
        likeliest = tuple((int(i), float(p[i])) for i in best)
        yield Layer(path, likeliest, float(p[final]), int((row > row[final]).sum()))
