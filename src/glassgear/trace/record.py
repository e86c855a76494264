"""Running a model with a hook that keeps what passes.

The prompt is one step, every token after it another, as without a trace; the same kernels give the
same bits. What a selection leaves out isn't copied. Where the final norm or the head is selected, the
prompt's logits are asked for at every token.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from glassgear.backends.base import Backend, Chunk, Hook
from glassgear.errors import SettingError
from glassgear.generate import Chooser
from glassgear.memory import floats
from glassgear.trace.shown import SEEN, axes_of, output_of, shown_by, size_of_all
from glassgear.trace.trace import Trace, Value, kind_of, matches

__all__ = ["LIMIT", "Kept", "joined", "passes", "record", "sizes"]

Floats = NDArray[np.float32]
Wanted = Literal["all", "last", "none"]
LIMIT = 2 << 30  # bytes
PASS = 512  # tokens
SLABS = 2 << 20, 16 << 20  # floats that are asked for at a time: at first, and then
LAST = ("norm", "pooler", "transform", "head")  # gears that see only rows whose logits are asked for


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
    if "*" not in select or size_of_all(backend, len(ids) + steps - 1) > limit:
        found = sizes(backend, len(ids) + steps - 1, select)
        if not found:
            raise _nothing(select, list(shown_by(backend)))
        _check_size(found, limit)
    kept = Kept(tuple(select), change, tokens=len(ids) + steps - 1)
    output = output_of(backend.model)
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
            last = rows[-1]
            last.flags.writeable = False  # the trace keeps them
            done.append(sampler.next(last, done))
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


def sizes(backend: Backend, tokens: int, select: Sequence[str]) -> dict[str, int]:
    """Bytes that each selected value would take for so many tokens; of experts, if all are chosen alike."""
    return {
        path: int(shown.nbytes * shown.share * tokens) * (tokens if shown.quadratic else 1)
        for path, shown in shown_by(backend).items()
        if matches(path, select)
    }


def _nothing(select: Sequence[str], paths: Sequence[str]) -> SettingError:
    """The error for patterns that nothing fits, with paths that are spelled alike."""
    near = list(dict.fromkeys(n for one in select for n in get_close_matches(one[:200], paths, 2, 0.5)))
    hint = f"did you mean {' or '.join(near)}?" if near else f"the first are {', '.join(paths[:3])}."
    return SettingError(
        f"no value is called {' or '.join(map(repr, select))}: {hint} `*` stands for anything: "
        "`blocks.*.ffn.*`, say; `*` alone records all"
    )


def _check_size(found: Mapping[str, int], limit: int) -> None:
    total = sum(found.values())
    if total > limit:
        kinds: dict[str, int] = {}
        for path, nbytes in found.items():
            kind = kind_of(path)
            kinds[kind] = kinds.get(kind, 0) + nbytes
        most = sorted(kinds.items(), key=lambda pair: -pair[1])[:3]
        shares = ", ".join(f"{kind} {_size(nbytes)}" for kind, nbytes in most)
        raise SettingError(
            f"this trace would take {_size(total)}, more than the limit of {_size(limit)}; "
            f"most of it: {shares}. Select less (select='blocks.*.ffn.*', say), or raise the limit"
        )


def _size(nbytes: int) -> str:
    unit, name = next((pair for pair in ((1e9, "GB"), (1e6, "MB")) if nbytes >= pair[0]), (1e3, "kB"))
    return f"{nbytes / unit:.1f} {name}" if nbytes >= 1e3 else f"{nbytes} bytes"


@dataclass(eq=False)
class Kept:
    """What a hook keeps, step by step. It is a `backends.base.Watcher`.

    Attributes:
        select: patterns of paths.
        change: sees every value first, and may replace it.
        tokens: how many there will be at most. Values that have a row for each token are then written
            where they stay; 0 if that isn't known: each step's values are kept by themselves.
    """

    select: tuple[str, ...]
    change: Hook | None
    tokens: int = 0
    parts: dict[str, list[tuple[Floats, NDArray[np.int64]]]] = field(default_factory=dict)
    wanted: dict[str, bool] = field(default_factory=dict)
    chosen: dict[str, Floats] = field(default_factory=dict)  # a router's weights in this step
    whole: dict[str, Floats] = field(default_factory=dict)  # values with a row for each token
    places: dict[str, tuple[int, int]] = field(default_factory=dict)  # their addresses, bytes of a row
    plans: dict[Any, Any] = field(default_factory=dict)
    slab: Floats = field(default_factory=lambda: np.empty(0, np.float32))  # memory for the next values
    slabs: int = 0
    address: int = 0  # of the next value's memory
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
        changed = self._changed(path, value)
        shown = value if changed is None else changed
        if path.endswith(".router"):
            self.chosen[path.removesuffix("router")] = np.array(shown, np.float32)
        self.wants(path)
        if not self.wanted[path]:
            return changed
        if not self.tokens or not self._write(path, shown):
            positions = self._positions(path, shown)
            if len(positions):  # logits that nobody asked for have none
                self.keep(path, np.array(shown, np.float32), positions)
        return changed

    def _changed(self, path: str, value: Floats) -> Floats | None:
        """What `change` makes of a value, as float32; None: it stays as it is."""
        made = None if self.change is None else self.change(path, value.copy())
        if made is None:
            return None
        try:
            found = np.asarray(made, np.float32)
        except (TypeError, ValueError):
            raise SettingError(f"change returned {made!r:.60} for {path}, not an array of numbers") from None
        if found.shape != value.shape:
            raise SettingError(
                f"change returned the shape {list(found.shape)} for {path}, not {list(value.shape)}"
            )
        return found

    def hook(self, path: str, value: Floats) -> Floats | None:
        """The same as a plain hook, to which every value is shown."""
        return self(path, value)

    def keep(self, path: str, array: Floats, positions: NDArray[np.int64]) -> None:
        """Put a piece of a value beside those that are there."""
        self.parts.setdefault(path, []).append((array, positions))

    @property
    def reads_only(self) -> bool:
        """Whether nothing is changed."""
        return self.change is None

    def place(self, path: str, shape: tuple[int, ...]) -> tuple[int, int] | None:
        """Where a value with a row for each token stays: address, bytes of a row; None for any other."""
        if path in self.places:
            return self.places[path]
        if self.first or not self.tokens or path.endswith(".router") or ".experts." in path:
            return None
        row = math.prod(shape)
        whole = self._room(self.tokens * row)
        self.places[path] = self.address - whole.nbytes, 4 * row
        self.whole[path] = whole.reshape(self.tokens, *shape)
        return self.places[path]

    def same(self, path: str, other: str) -> None:
        """A value that is another one once more shares its memory."""
        self.places[path], self.whole[path] = self.places[other], self.whole[other]

    def seen(self, path: str, shape: tuple[int, int, int]) -> Floats | None:
        """Where scores or weights of a whole prompt stay; None where other tokens come before or after."""
        if self.first or shape[1:] != (self.tokens, self.tokens):
            return None
        whole = self.whole[path] = self._room(math.prod(shape)).reshape(shape)
        return whole

    def take(self, path: str, value: Floats) -> bool:
        """Logits of a whole prompt that is all of the text are kept where they are."""
        whole = not self.first and 0 < self.tokens == len(value) and value.flags.c_contiguous
        if not whole or not self.reads_only or not self.wants(path):
            return False
        self.whole[path] = value
        return True

    def _room(self, count: int) -> Floats:
        """Memory for so many floats, a part of a larger piece; `address` is where it ends."""
        if count > self.slab.size:
            self.slab = floats(max(count, SLABS[min(self.slabs, 1)]))
            self.slabs += 1
            self.address = self.slab.ctypes.data  # an object each time: too slow for every value
        taken, self.slab = self.slab[:count], self.slab[count:]
        self.address += 4 * count
        return taken

    def _write(self, path: str, value: Floats) -> bool:
        """Put a value where it stays; False if it has no such place."""
        if value.ndim == 3 and path.endswith(SEEN):
            self._write_seen(path, value)
            return True
        if len(value) != self.count or self.place(path, value.shape[1:]) is None:
            return False
        self.whole[path][self.first : self.first + self.count] = value
        return True

    def _write_seen(self, path: str, value: Floats) -> None:
        """Scores or weights [head, rows, seen]: nothing is seen beyond the last token of a pass."""
        if path not in self.whole:
            shape = len(value), self.tokens, self.tokens
            self.whole[path] = self._room(math.prod(shape)).reshape(shape)
        stop = self.first + self.count
        rows = self.whole[path][:, self.first : stop]
        rows[:, :, :stop] = value
        rows[:, :, stop:] = -np.inf if path.endswith(".scores") else 0

    def _positions(self, path: str, value: Floats) -> NDArray[np.int64]:
        """Which tokens the rows of a value belong to."""
        rows = value.shape[1] if path.rpartition(".")[2] in SEEN and value.ndim == 3 else len(value)
        before, found, after = path.partition(".experts.")
        if found:
            weights = self.chosen[before + "."]
            return self._everyone[np.flatnonzero(weights[:, int(after.split(".")[0])])]
        return self._everyone if rows == self.count else self._everyone[self.count - rows :]

    def values(self) -> Mapping[str, Value]:
        """Each value as one array, in the order of the model."""
        stop = self.first + self.count
        everyone = np.arange(stop)
        everyone.flags.writeable = False  # all values share it
        found = _Placed(
            self.whole, everyone, {path: joined(path, parts) for path, parts in self.parts.items()}
        )
        if stop < self.tokens:  # the text ended earlier
            found = _Placed(
                {path: _until(stop, path, whole) for path, whole in self.whole.items()}, everyone, found.made
            )
        order = {path: number for number, path in enumerate(self.wanted)}

        def place(path: str) -> int:
            before, inside, _ = path.partition(".experts.")  # whose experts run is known when they run
            return order[f"{before}.router" if inside else path]

        there = found.whole.keys() | found.made.keys()
        paths = sorted(order, key=place) if any(".experts." in path for path in found.made) else order
        found.order = [path for path in paths if path in there]
        return found


@dataclass(eq=False)
class _Placed(Mapping[str, Value]):
    """Values by path. Those that lie where they stay are made when they are asked for: a model has hundreds.

    Attributes:
        whole: arrays with a row for each token.
        positions: the tokens.
        made: values that have been made.
        order: all paths.
    """

    whole: dict[str, Floats]
    positions: NDArray[np.int64]
    made: dict[str, Value]
    order: list[str] = field(default_factory=list)

    def __getitem__(self, path: str) -> Value:
        if path not in self.made:
            array = self.whole[path]
            self.made[path] = Value(path, axes_of(path, array.ndim), array, self.positions)
        return self.made[path]

    def __contains__(self, path: object) -> bool:
        return path in self.made or path in self.whole

    def __iter__(self) -> Iterator[str]:
        return iter(self.order)

    def __len__(self) -> int:
        return len(self.order)


def _until(stop: int, path: str, whole: Floats) -> Floats:
    """The first tokens of a value, without the memory of the others."""
    return (whole[:, :stop, :stop] if axes_of(path, whole.ndim)[-1] == "seen" else whole[:stop]).copy()


def joined(path: str, parts: Sequence[tuple[Floats, NDArray[np.int64]]]) -> Value:
    """Pieces of a value as one array along the axis `token`."""
    arrays = [array for array, _ in parts]
    axes = axes_of(path, arrays[0].ndim)
    if len(arrays) == 1:
        whole = arrays[0]
    elif axes[-1] == "seen":
        whole = _together(arrays, np.float32(-np.inf if path.endswith(".scores") else 0))
    else:
        whole = np.concatenate(arrays, axis=axes.index("token"))
    return Value(path, axes, whole, np.concatenate([positions for _, positions in parts]))


def _together(arrays: Sequence[Floats], nothing: np.float32) -> Floats:
    """Arrays [head, token, seen] as one, as wide as the widest; `nothing` stands where one is narrower."""
    rows, wide = sum(array.shape[1] for array in arrays), max(array.shape[2] for array in arrays)
    whole, at = np.full((arrays[0].shape[0], rows, wide), nothing), 0
    for array in arrays:
        whole[:, at : at + array.shape[1], : array.shape[2]] = array
        at += array.shape[1]
    return whole
