"""A model's sublayers, attention and feed-forward networks: what each holds, takes, and is worth.

In: a loaded decoder and ids. Out: plain numbers; `experiments/ffn_or_attention.py` makes tables of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glassgear.backends.base import Backend, Chunk, Hook
from glassgear.errors import SettingError
from glassgear.language_model import LanguageModel
from glassgear.model.gears import Experts, GatedFFN, Model, Residual
from glassgear.model.ledger import Counts
from glassgear.sampling import logprobs
from glassgear.trace.changes import Zero, hook_of
from glassgear.trace.flow import flow

__all__ = ["KINDS", "Locality", "Size", "blocks_with", "locality", "loss", "operations", "seconds", "size",
           "without"]  # fmt: skip

Floats = NDArray[np.float32]
KINDS = ("attention", "ffn")


@dataclass(frozen=True)
class Size:
    """What a model's sublayers hold.

    Attributes:
        dim: width of the stream.
        hidden: width inside the last block's feed-forward network, or inside one expert.
        attention: parameters of the last block's attention.
        ffn: of its feed-forward network, all experts included.
        active: of these, what one token meets.
        share: of all parameters of the model, those in feed-forward networks.
        attention_share: likewise in attention.
    """

    dim: int
    hidden: int
    attention: int
    ffn: int
    active: int
    share: float
    attention_share: float

    @property
    def ratio(self) -> float:
        """How many times the attention's parameters the feed-forward network has."""
        return self.ffn / self.attention


def _steps(model: Model) -> Iterator[tuple[str, Residual]]:
    """Path and step of every attention and every feed-forward network, in order."""
    for number, block in enumerate(model.blocks):
        for step in block.steps:
            if step.gear.label in KINDS:
                yield f"blocks.{number}.{step.step}", step


def blocks_with(model: Model) -> list[int]:
    """The blocks that have both.

    Raises:
        SettingError: none has.
    """
    found = []
    for number, block in enumerate(model.blocks):
        if {step.gear.label for step in block.steps} >= set(KINDS):
            found.append(number)
    if not found:
        raise SettingError("this model has no block with both attention and a feed-forward network")
    return found


def size(model: Model) -> Size:
    """Count a decoder whose blocks have both."""
    counts = Counts()
    total = dict.fromkeys(KINDS, 0)
    last: dict[str, Residual] = {}
    for _, step in _steps(model):
        total[step.gear.label] += counts.of(step.gear).parameters
        last[step.gear.label] = step
    network: Any = last["ffn"].gear
    inner = network.expert if isinstance(network, Experts) else network
    wide: Any = inner.gate if isinstance(inner, GatedFFN) else inner.up
    whole = counts.of(model).parameters
    made = counts.of(network)
    return Size(
        model.dim, wide.outputs, counts.of(last["attention"].gear).parameters, made.parameters, made.active,
        total["ffn"] / whole, total["attention"] / whole,
    )  # fmt: skip


def operations(model: Model, position: int) -> dict[str, int]:
    """Operations of all attentions, of all feed-forward networks, for the token at a position."""
    counts, found = Counts(), dict.fromkeys(KINDS, 0)
    for _, step in _steps(model):
        made = counts.of(step.gear)
        reached = sum(times * reach.decode * reach.seen(position) for reach, times in made.reaches.items())
        found[step.gear.label] += made.flops + reached
    return found


# --- time -------------------------------------------------------------------------------------


class _Stopwatch:
    """A hook that notes when a backend comes past the values where sublayers begin and end."""

    reads_only = True

    def __init__(self, model: Model) -> None:
        self.plans: dict[Any, Any] = {}
        self.kinds = {_end(path, step): step.gear.label for path, step in _steps(model)}
        self.begin = "embed"
        self.times: list[tuple[str, float]] = []

    def wants(self, path: str) -> bool:
        """As a `Watcher`."""
        return path in self.kinds or path in (self.begin, "head")

    def place(self, path: str, shape: tuple[int, ...]) -> None:
        """As a `Watcher`: nothing is to be copied."""

    def same(self, path: str, other: str) -> None:
        """As a `Watcher`: nothing is kept."""

    def seen(self, path: str, shape: tuple[int, int, int]) -> None:
        """As a `Watcher`: nothing is to be written."""

    def take(self, path: str, value: Floats) -> bool:
        """As a `Watcher`: nothing is kept."""
        return False

    def __call__(self, path: str, value: Floats) -> None:
        """As any hook."""
        self.times.append((self.kinds.get(path, path), perf_counter()))


def _end(path: str, step: Residual) -> str:
    """Path of the last value of a step."""
    if step.sum_norm is not None:
        return f"{path}_sum_norm"
    if step.skip:
        return f"{path}_residual"
    return path if step.post_norm is None else f"{path}_post_norm"


def seconds(model: LanguageModel, ids: Sequence[int], before: int, repeats: int) -> dict[str, float]:
    """Seconds of one pass by what they went into: `attention`, `ffn` (each with its norms), `head`.

    Args:
        model: a decoder.
        ids: the tokens of the pass, behind `before` more of the same text.
        before: how many of `ids` are in the cache already.
        repeats: the quickest of so many counts, for each place in the model.
    """
    backend, watch = model.backend, _Stopwatch(model.gears)
    track = backend.open()
    laps = []
    try:
        if before:
            backend.step([Chunk(track, ids[:before], "none")])
        for _ in range(repeats + 1):  # the first one compiles and warms up
            watch.times.clear()
            backend.step([Chunk(track, ids[before:])], watch)
            laps.append(np.diff([moment for _, moment in watch.times]))
            backend.truncate(track, before)
    finally:
        backend.close(track)
    best = np.min(laps[1:], axis=0)
    found = dict.fromkeys((*KINDS, "head"), 0.0)
    for (name, _), taken in zip(watch.times[1:], best, strict=True):
        found[name] += float(taken)
    return found


# --- what is lost without one -----------------------------------------------------------------


def loss(model: LanguageModel, ids: Sequence[int], hook: Hook | None = None) -> float:
    """Nats per token of a text, its first token given."""
    logits = _logits(model.backend, ids, hook)
    return -float(np.mean([logprobs(row)[after] for row, after in zip(logits, ids[1:], strict=False)]))


def _logits(backend: Backend, ids: Sequence[int], hook: Hook | None) -> Floats:
    track = backend.open()
    try:
        return backend.step([Chunk(track, list(ids), "all")], hook)[0]
    finally:
        backend.close(track)


def without(model: Model, kind: str, layers: Sequence[int] | None = None) -> Hook:
    """A hook that sets to zero what sublayers of a kind add to the stream.

    Args:
        model: the tree.
        kind: `attention` or `ffn`.
        layers: in which blocks; None: in all.
    """
    chosen = range(len(model.blocks)) if layers is None else layers
    found = []
    for path, step in _steps(model):
        if step.gear.label == kind and int(path.split(".")[1]) in chosen:
            found.append(Zero(path if step.post_norm is None else f"{path}_post_norm"))
    made = hook_of(model, dict.fromkeys(flow(model), ()), found)
    assert made is not None
    return made()


# --- who sees whom ----------------------------------------------------------------------------


@dataclass(frozen=True)
class Locality:
    """How a row's outputs change with a neighbouring token, its own inputs held as they were.

    Attributes:
        attention: the change's length by the output's, the median of all layers.
        ffn: the same of feed-forward networks, the largest of all layers.
        attention_moved: layers whose attention gives another row.
        ffn_moved: layers whose feed-forward network does.
        logits: largest change of the row's logits, in a model whose attention adds nothing.
    """

    attention: float
    ffn: float
    attention_moved: int
    ffn_moved: int
    logits: float


def locality(model: LanguageModel, ids: Sequence[int], other: int) -> Locality:
    """Exchange the last token but one, and look at the last row.

    What the last row reads is put back to what it was in front of each sublayer. So whatever changes
    behind it came from other rows.

    Args:
        model: a decoder.
        ids: at least two.
        other: the id that takes the place of the last but one.
    """
    backend = model.backend
    changed = [*ids[:-2], other, ids[-1]]
    inputs, outputs = _places(model.gears)
    first = _Rows({*inputs, *(path for path, _ in outputs)})
    _logits(backend, ids, first)
    second = _Rows({path for path, _ in outputs}, {path: first.seen[path] for path in inputs})
    _logits(backend, changed, second)
    moved: dict[str, list[float]] = {kind: [] for kind in KINDS}
    for path, kind in outputs:
        before, after = first.seen[path].astype(np.float64), second.seen[path]
        moved[kind].append(float(np.linalg.norm(after - before) / max(float(np.linalg.norm(before)), 1e-30)))
    alone = [_logits(backend, text, without(model.gears, "attention"))[-1] for text in (ids, changed)]
    return Locality(
        float(np.median(moved["attention"])), max(moved["ffn"]),
        sum(x > 0 for x in moved["attention"]), sum(x > 0 for x in moved["ffn"]),
        float(np.abs(alone[1] - alone[0]).max()),
    )  # fmt: skip


def _places(model: Model) -> tuple[set[str], list[tuple[str, str]]]:
    """Paths of what sublayers read, and path and kind of what they give."""
    inputs, outputs, before = set(), [], "embed"
    for path, step in _steps(model):
        inputs.add(before if step.norm is None else f"{path}_norm")
        outputs.append((path, step.gear.label))
        before = _end(path, step)
    return inputs, outputs


class _Rows:
    """A hook that keeps the last row of some values, and first puts that of others back."""

    def __init__(self, keep: set[str], put: dict[str, Floats] | None = None) -> None:
        self.keep, self.put = keep, put or {}
        self.seen: dict[str, Floats] = {}

    def __call__(self, path: str, value: Floats) -> Floats | None:
        """As any hook."""
        if path in self.keep:
            self.seen[path] = value[-1].copy()
        if path not in self.put:
            return None
        out = value.copy()
        out[-1] = self.put[path]
        return out
