"""Running a model with a hook that keeps what passes.

The prompt is one step, every token after it another, as without a trace; the same kernels give the
same bits. What a selection leaves out isn't copied. Where the final norm or the head is selected, the
prompt's logits are asked for at every token.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from glassgear.backends.base import Backend, Chunk, Hook, Output
from glassgear.errors import SettingError
from glassgear.generate import Chooser
from glassgear.trace.trace import Trace, Value, matches

__all__ = ["LIMIT", "SEEN", "Kept", "axes_of", "joined", "passes", "record", "sizes"]

Floats = NDArray[np.float32]
Wanted = Literal["all", "last", "none"]
LIMIT = 2 << 30  # bytes
PASS = 512  # tokens
LAST = ("norm", "transform", "head")  # gears that see only rows whose logits are asked for
SEEN = ("scores", "weights")  # values [head, token, seen]


def record(
    backend: Backend,
    ids: Sequence[int],
    *,
    sampler: Chooser | None = None,
    max_tokens: int = 0,
    end_ids: frozenset[int] = frozenset(),
    select: Sequence[str] = ("*",),
    limit: int = LIMIT,
    change: Hook | None = None,
    progress: Callable[[int], None] | None = None,
    about: Mapping[str, Any] | None = None,
) -> Trace:
    """Run a prompt, continue it, and keep the selected values of every token.

    Args:
        backend: what runs the model.
        ids: the prompt, at least one id.
        sampler: chooses ids; needed where `max_tokens` is above 0.
        max_tokens: how many ids to add to the prompt. The last one isn't run itself.
        end_ids: ids that end the text earlier.
        select: patterns of paths; see `trace.matches`.
        limit: most bytes.
        change: sees every value first, and may replace it (ablation).
        progress: is told how many tokens are done.
        about: `model`, `family`, `texts` (a function from ids) and `settings` of the trace.

    Raises:
        SettingError: nothing fits the selection, or more than `limit` bytes would be kept; the message
            says how much, and which values take most.
    """
    steps = 1 if max_tokens <= 1 else max_tokens
    _check_size(sizes(backend, ids, len(ids) + steps - 1, select), limit, select)
    kept = Kept(tuple(select), change, room=len(ids) + steps - 1)
    output = _output(backend)
    track, done = backend.open(), list(ids)
    tail = any(matches(path, select) for path in LAST) or any(p.split(".")[0] in LAST for p in select)
    try:
        for made in range(steps):
            for new, last in passes(done, track.length, backend.model.causal):
                kept.begin(track.length, len(new))
                wanted: Wanted = "all" if tail and made == 0 else "last" if last else "none"
                rows = backend.step([Chunk(track, new, wanted)], kept, output)[0]
            if progress is not None:
                progress(track.length)
            if made == max_tokens:
                break
            assert sampler is not None
            done.append(sampler.next(rows[-1], done))
            if done[-1] in end_ids:
                break
    finally:
        backend.close(track)
    told = dict(about or {})
    texts = told.pop("texts", None)
    return Trace(
        tuple(done), tuple(texts(done)) if texts else (), len(ids), told.get("model", ""), backend.name,
        told.get("family", backend.model.family), told.get("settings", {}), kept.values(),
    )  # fmt: skip


def passes(ids: Sequence[int], first: int, causal: bool) -> Iterator[tuple[list[int], bool]]:
    """The ids from `first` on, as many at a time as a backend runs together, and whether these end it.

    Backends take a longer text through in passes of this size themselves, so it gives the same bits;
    a hook then sees the values of one pass at a time.
    """
    size = PASS if causal else max(1, len(ids))
    for start in range(first, len(ids), size):
        yield list(ids[start : start + size]), start + size >= len(ids)


def sizes(backend: Backend, ids: Sequence[int], tokens: int, select: Sequence[str]) -> dict[str, int]:
    """Bytes that each selected value would take for so many tokens, found by running one token."""
    found: dict[str, int] = {}

    def look(path: str, value: Floats) -> None:
        if matches(path, select):
            quadratic = tokens if path.rpartition(".")[2] in SEEN else 1
            found[path] = value.nbytes * tokens * quadratic

    track = backend.open()
    try:
        backend.step([Chunk(track, ids[:1])], look, _output(backend))
    finally:
        backend.close(track)
    return found


def _output(backend: Backend) -> Output:
    return "logits" if backend.model.head is not None else "hidden"


def _check_size(found: Mapping[str, int], limit: int, select: Sequence[str]) -> None:
    if not found:
        raise SettingError(f"no value is called {' or '.join(map(repr, select))}: `*` records all of them")
    total = sum(found.values())
    if total > limit:
        kinds: dict[str, int] = {}
        for path, nbytes in found.items():
            kind = ".".join("*" if word.isdigit() else word for word in path.split("."))
            kinds[kind] = kinds.get(kind, 0) + nbytes
        most = sorted(kinds.items(), key=lambda pair: -pair[1])[:3]
        shares = ", ".join(f"{kind} {nbytes / 1e6:,.0f} MB" for kind, nbytes in most)
        raise SettingError(
            f"this trace would take {total / 1e9:.1f} GB, more than the limit of {limit / 1e9:.1f} GB; "
            f"most of it: {shares}. Select less (select='blocks.*.ffn.*', say), or raise the limit"
        )


@dataclass(eq=False)
class Kept:
    """What a hook keeps, step by step. It is a `backends.base.Watcher`.

    Attributes:
        select: patterns of paths.
        change: sees every value first, and may replace it.
        room: how many tokens there will be at most. Values that have a row for each token are then
            written where they stay; 0 if that isn't known: each step's values are kept by themselves.
    """

    select: tuple[str, ...]
    change: Hook | None
    room: int = 0
    parts: dict[str, list[tuple[Floats, NDArray[np.int64]]]] = field(default_factory=dict)
    wanted: dict[str, bool] = field(default_factory=dict)
    chosen: dict[str, Floats] = field(default_factory=dict)  # a router's weights in this step
    whole: dict[str, Floats] = field(default_factory=dict)  # values with a row for each token
    first: int = 0
    count: int = 0

    def begin(self, first: int, count: int) -> None:
        """A pass of `count` tokens from position `first` on is about to run."""
        self.first, self.count = first, count
        self._everyone = np.arange(first, first + count)

    def wants(self, path: str) -> bool:
        """Whether a value is looked at: routers are, for they say which tokens an expert's rows are."""
        if path not in self.wanted:
            self.wanted[path] = matches(path, self.select)
        return self.wanted[path] or self.change is not None or path.endswith(".router")

    def __call__(self, path: str, value: Floats) -> Floats | None:
        """Keep a copy; what `change` makes of the value is what goes on, and what is kept."""
        changed = self.change(path, value.copy()) if self.change is not None else None
        shown = value if changed is None else np.asarray(changed, np.float32)
        if path.endswith(".router"):
            self.chosen[path.removesuffix("router")] = np.array(shown, np.float32)
        self.wants(path)
        if not self.wanted[path]:
            return changed
        if not self.room or not self._write(path, shown):
            self.keep(path, np.array(shown, np.float32), self._positions(path, shown))
        return changed

    def hook(self, path: str, value: Floats) -> Floats | None:
        """The same as a plain hook, to which every value is shown."""
        return self(path, value)

    def keep(self, path: str, array: Floats, positions: NDArray[np.int64]) -> None:
        """Put a piece of a value beside those that are there."""
        self.parts.setdefault(path, []).append((array, positions))

    def _write(self, path: str, value: Floats) -> bool:
        """Put a value with a row for each token of this pass where it stays; False for any other."""
        stop = self.first + self.count
        whole = self.whole.get(path)
        if value.ndim == 3 and path.endswith(SEEN):
            if whole is None:
                whole = self.whole[path] = np.empty((len(value), self.room, self.room), np.float32)
            whole[:, self.first : stop, :stop] = value
            whole[:, self.first : stop, stop:] = -np.inf if path.endswith("scores") else 0
            return True
        if whole is None:
            if len(value) != self.count or ".experts." in path or (self.first and path not in self.whole):
                return False
            whole = self.whole[path] = np.empty((self.room, *value.shape[1:]), np.float32)
        whole[self.first : stop] = value
        return True

    def _positions(self, path: str, value: Floats) -> NDArray[np.int64]:
        """Which tokens the rows of a value belong to."""
        rows = value.shape[1] if path.rpartition(".")[2] in SEEN and value.ndim == 3 else len(value)
        before, found, after = path.partition(".experts.")
        if found:
            weights = self.chosen[before + "."]
            return self._everyone[np.flatnonzero(weights[:, int(after.split(".")[0])])]
        return self._everyone if rows == self.count else self._everyone[self.count - rows :]

    def values(self) -> dict[str, Value]:
        """Each value as one array, in the order in which they were first seen."""
        stop = self.first + self.count
        found = {path: self._value(path, whole, stop) for path, whole in self.whole.items()}
        found |= {path: joined(path, parts) for path, parts in self.parts.items()}
        return {path: found[path] for path in self.wanted if path in found}

    def _value(self, path: str, whole: Floats, stop: int) -> Value:
        axes = axes_of(path, whole.ndim)
        if stop < self.room:  # the text ended earlier
            whole = (whole[:, :stop, :stop] if axes[-1] == "seen" else whole[:stop]).copy()
        return Value(path, axes, whole, np.arange(stop))


def joined(path: str, parts: Sequence[tuple[Floats, NDArray[np.int64]]]) -> Value:
    """Pieces of a value as one array along the axis `token`."""
    arrays = [array for array, _ in parts]
    axes = axes_of(path, arrays[0].ndim)
    if axes[-1] == "seen":
        longest = max(array.shape[2] for array in arrays)
        nothing = np.float32(-np.inf if path.endswith(".scores") else 0)
        arrays = [
            np.pad(a, ((0, 0), (0, 0), (0, longest - a.shape[2])), constant_values=nothing) for a in arrays
        ]
    whole = arrays[0] if len(arrays) == 1 else np.concatenate(arrays, axis=axes.index("token"))
    return Value(path, axes, whole, np.concatenate([positions for _, positions in parts]))


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
