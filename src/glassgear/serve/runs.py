"""Texts that grow token by token, with everything that was computed on the way.

A run keeps all its values while there is room. Where there isn't, they are dropped, and what is asked
for is recorded again: the same steps over the same tokens, with the ordinary hook.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from glassgear.backends.base import Chunk, Track
from glassgear.errors import ContextFullError, SettingError
from glassgear.language_model import LanguageModel
from glassgear.sampling import Sampler, Sampling
from glassgear.serve.errors import Gone, TooMuch, unknown_path
from glassgear.serve.limits import Limits
from glassgear.serve.models import Entry
from glassgear.serve.prompts import Prepared, text_of, tokenizer_of
from glassgear.serve.store import Found, Recorder, Store, has
from glassgear.trace.changes import Change, hook_of
from glassgear.trace.record import LAST, Wanted, passes
from glassgear.trace.shown import output_of
from glassgear.trace.trace import Trace, Value

__all__ = ["Run", "Runs", "Step"]

Floats = NDArray[np.float32]
MOST = 24  # runs at a time


@dataclass(frozen=True)
class Step:
    """What a step did: the new ids, and why it ended if it did."""

    ids: list[int]
    done: Literal["stop", "context"] | None
    ms: float


@dataclass(eq=False)
class Run:
    """One text.

    Attributes:
        entry: its model.
        model: the model, or one with another tree (other activations).
        changes: what is done differently.
        sampling: how ids are chosen; the seed is set.
        prepared: the prompt.
        limits: see `Limits`.
        make_room: is told how many bytes this run is about to add; whether there is room for them.
    """

    entry: Entry
    model: LanguageModel
    changes: tuple[Change, ...]
    sampling: Sampling
    prepared: Prepared
    limits: Limits
    make_room: Callable[[Run, int], bool]
    key: str = field(default_factory=lambda: secrets.token_urlsafe(9))
    lock: threading.RLock = field(default_factory=threading.RLock)
    used: float = field(default_factory=time.monotonic)
    store: Store = field(default_factory=Store)
    more: OrderedDict[tuple[str, ...], Store] = field(default_factory=OrderedDict)
    answers: dict[tuple[Any, ...], Any] = field(default_factory=dict)  # of the tokens that are there now
    closed: bool = False
    done: Literal["stop", "context"] | None = None

    def __post_init__(self) -> None:
        room = min(self.model.context, self.limits.tokens)
        if len(self.prepared.ids) > room:
            self.model.check_length(len(self.prepared.ids), "the prompt")
            raise ContextFullError(
                f"the prompt is {len(self.prepared.ids):,} tokens; a run holds up to {self.limits.tokens:,}"
            )
        self.ids = list(self.prepared.ids)
        self.prompt = len(self.ids)
        self.track = self.model.backend.open()
        self._recorded = 0
        self.tokenizer = tokenizer_of(self.model)
        self.hook = hook_of(self.model.gears, self.entry.paths, self.changes)
        self._output = output_of(self.model.gears)
        self._room = room

    # --- steps ------------------------------------------------------------------------------

    @property
    def tokens_run(self) -> int:
        """Tokens that the model has read, and whose values are there."""
        return min(self._recorded, self.track.length)

    def step(self, count: int, sampling: Sampling | None = None) -> Step:
        """Run the prompt if it hasn't been, then add so many tokens and run them."""
        with self.lock:
            start = self._begin()
            if count:
                self.model.require_causal()
            self.sampling = sampling or self.sampling
            before = len(self.ids)
            self._catch_up()
            while len(self.ids) < before + count and self.done is None:
                self._append(self._sampler().next(self._logits(), self.ids))
            return self._told(before, start)

    def choose(self, token: int) -> Step:
        """Take this id instead of the sampler's, and run it.

        Raises:
            SettingError: no such id, or the text has ended.
        """
        with self.lock:
            start = self._begin()
            self.model.require_causal()
            if not 0 <= token < self.model.gears.vocab:
                raise SettingError(
                    f"id {token} is outside the model's vocabulary, 0 to {self.model.gears.vocab - 1}"
                )
            before = len(self.ids)
            self._catch_up()
            if self.done is not None:
                raise SettingError("the text has ended here: go back first")
            self._append(token)
            return self._told(before, start)

    def back(self, count: int) -> Step:
        """Forget the last tokens; the cache is cut off where they began.

        Raises:
            SettingError: so many weren't added.
        """
        with self.lock:
            start = self._begin()
            added = len(self.ids) - self.prompt
            if count > added:
                raise SettingError(
                    f"{added} tokens were added, so {count} can't be taken back: a new run has another prompt"
                )
            if count:
                del self.ids[len(self.ids) - count :]
                length = self._recorded = min(self.track.length, len(self.ids))
                self.model.backend.truncate(self.track, length)
                self.store.truncate(length)
                self.done = None
                self._forget()
            return self._told(len(self.ids), start)

    def _begin(self) -> float:
        self.used = time.monotonic()
        if self.closed:
            raise Gone("this run was closed: start it again")
        return time.perf_counter()

    def _told(self, before: int, start: float) -> Step:
        return Step(self.ids[before:], self.done, (time.perf_counter() - start) * 1e3)

    def _sampler(self, sampling: Sampling | None = None, made: int | None = None) -> Sampler:
        """A sampler as it stands after so many generated ids (None: all that there are)."""
        tokenizer = self.tokenizer
        vocab = self.model.gears.vocab if tokenizer is None else tokenizer.vocab_size
        sampler = Sampler(sampling or self.sampling, vocab_size=vocab)
        sampler.skip(len(self.ids) - self.prompt if made is None else made)
        return sampler

    def sampler_at(self, token: int, sampling: Sampling | None = None) -> Sampler:
        """The sampler that chooses what follows a token."""
        return self._sampler(sampling, max(0, token + 1 - self.prompt))

    def _logits(self) -> Floats:
        """Logits after the last token that was run."""
        row: Floats = self.store.pieces["head"].between(self.track.length - 1, self.track.length).array[0]
        return row

    def _append(self, token: int) -> None:
        self.ids.append(token)
        self._forget()
        if token in self.model.end_ids:
            self.done = "stop"
            return
        if self.track.length < self._room:
            self._catch_up()
        if self.track.length >= self._room:
            self.done = "context"

    def _catch_up(self) -> None:
        """Run the ids that haven't been."""
        if self.track.length >= len(self.ids) or self.done is not None:
            return
        first = self.track.length
        if self.store.whole:
            added = self.entry.size(len(self.ids)) - self.entry.size(first)
            if not self.make_room(self, added):
                self.shed()
        with self.entry.lock:
            try:
                whole = self.store.whole
                select = ("*",) if whole else ("head",)
                for piece in self._passes(self.track, len(self.ids), select, everywhere=whole):
                    self.store.add(piece.parts)
                    self._recorded = self.track.length
            except BaseException:
                self.model.backend.truncate(self.track, min(first, self.track.length))
                self.store.truncate(first)
                self._recorded = first
                raise
        self._forget()

    def _passes(
        self, track: Track, last: int, select: Sequence[str], *, everywhere: bool
    ) -> Iterator[Recorder]:
        """Run the ids up to `last` that a track doesn't hold yet, and give what was recorded, pass by pass.

        Args:
            track: the sequence.
            last: where to end.
            select: patterns of the values to record.
            everywhere: whether norm and head are run for every token; else for the last.
        """
        causal, backend = self.model.gears.causal, self.model.backend
        for new, end in passes(self.ids[:last], track.length, causal):
            kept = Recorder(tuple(select), self.hook() if self.hook else None, causal=causal)
            kept.begin(track.length, len(new))
            wanted: Wanted = "all" if everywhere else "last" if end else "none"
            backend.step([Chunk(track, new, wanted)], kept, self._output)
            yield kept

    # --- values -----------------------------------------------------------------------------

    @property
    def nbytes(self) -> int:
        """Bytes of the values that are kept now."""
        return self.store.nbytes + sum(store.nbytes for store in list(self.more.values()))

    def shed(self) -> None:
        """Drop the values, all but the logits that steps need; they can be recorded again."""
        few = Store(whole=False)
        if "head" in self.store.pieces and self.track.length:
            first = min(self.prompt - 1, self.track.length - 1)
            kept = self.store.pieces["head"].between(first, self.track.length)
            few.add({"head": [(kept.array.copy(), kept.positions.copy())]})
        self.store, self.more = few, OrderedDict()

    def close(self) -> None:
        """End it; whoever still reads its values may."""
        with self.lock:
            if not self.closed:
                self.closed = True
                self.model.backend.close(self.track)
                self.store, self.more = Store(), OrderedDict()
                self._forget()

    def _forget(self) -> None:
        self.answers, self.more = {}, OrderedDict()

    def find(self, paths: Sequence[str], *, first: int = 0) -> Found:
        """The recorded values under these paths; what isn't there is recorded again.

        Args:
            paths: of values.
            first: the earliest token that is needed.

        Raises:
            UnknownName: the model has no such value; near ones are named.
            SettingError: nothing has been run yet.
            TooMuch: what would have to be recorded again is larger than the limit.
        """
        self.used = time.monotonic()
        for path in paths:
            if path not in self.entry.paths:
                raise unknown_path(path, list(self.entry.paths), "there is no value called")
        if not self.tokens_run:
            raise SettingError("nothing has been run yet: make a step first")
        if self.closed:
            raise Gone("this run was closed: start it again")
        store, more = self.store, list(self.more.values())
        if store.whole:
            return Found([store])
        stores = [*more[::-1], store]
        missing = [path for path in paths if not has(stores, path, first)]
        return self._again(tuple(missing)) if missing else Found(stores)

    def _again(self, paths: tuple[str, ...]) -> Found:
        """Run the same steps over the same tokens once more, to record some values."""
        with self.lock:
            start, length = time.perf_counter(), self.track.length
            size = self.entry.size(length, paths)
            if size > self.limits.nbytes or not self.make_room(self, size):
                raise TooMuch(
                    f"{_shown(paths)} would take {size / 1e6:,.1f} MB for {length:,} tokens, and all values "
                    f"together may take {self.limits.nbytes / 1e6:,.1f} MB: ask for fewer of them (such as "
                    "blocks.0.ffn.down), use a shorter text, or start `glassgear view` with a larger --memory"
                )
            everywhere = any(path.split(".")[0] in LAST for path in paths)
            store = Store()
            with self.entry.lock:
                track = self.model.backend.open()
                try:
                    for last in range(self.prompt, length + 1):
                        for piece in self._passes(track, last, paths, everywhere=everywhere):
                            store.add(piece.parts)
                finally:
                    self.model.backend.close(track)
            self.more[paths] = store
            ms = (time.perf_counter() - start) * 1e3
            return Found([store, *[s for s in self.more.values() if s is not store], self.store], ms)

    def group(self, path: str) -> list[str]:
        """The values that are worth recording along with one: those of its block, if they aren't too many."""
        if self.store.whole or not path.startswith("blocks."):
            return [path]
        block = ".".join(path.split(".")[:2])
        paths = [p for p in self.entry.paths if p == block or p.startswith(f"{block}.")]
        small = self.entry.size(self.track.length, paths) <= self.limits.nbytes // 4
        return paths if small else [path]

    def trace(self, found: Mapping[str, Value]) -> Trace:
        """What was found as a trace, for explanations and views."""
        texts = self.cached_answer(("texts",), lambda: tuple(self.texts(self.ids)))
        return Trace(
            tuple(self.ids), texts, self.prompt, self.entry.model.checkpoint.path,
            self.model.backend.name, self.model.gears.family, self.told_sampling(), found,
        )  # fmt: skip

    def cached_answer(self, key: tuple[Any, ...], make: Callable[[], Any]) -> Any:
        """An answer that stays the same until the text changes."""
        version = self.answers
        if key not in version:
            version[key] = make()
        return version[key]

    # --- for people -------------------------------------------------------------------------

    def texts(self, ids: Sequence[int]) -> list[str]:
        """What each id stands for."""
        return [text_of(self.tokenizer, token) for token in ids]

    def special(self, ids: Sequence[int]) -> list[bool]:
        """Which are control tokens."""
        return [bool(self.tokenizer and self.tokenizer.is_special(token)) for token in ids]

    def told_sampling(self) -> dict[str, Any]:
        """The settings as JSON."""
        return {k: v for k, v in vars(self.sampling).items() if k != "logit_bias"}


def _shown(paths: Sequence[str]) -> str:
    return paths[0] if len(paths) == 1 else f"{paths[0]} and {len(paths) - 1:,} more values"


@dataclass(eq=False)
class Runs:
    """All runs. Where memory is short, those that weren't looked at for longest lose their values."""

    limits: Limits
    runs: dict[str, Run] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def start(self, entry: Entry, prepared: Prepared, sampling: Sampling, changes: Sequence[Change]) -> Run:
        """A new run; nothing is computed yet. The oldest goes if there are too many."""
        seed = secrets.randbits(32) if sampling.seed is None else sampling.seed
        model = entry.changed(changes)
        run = Run(
            entry, model, tuple(changes), replace(sampling, seed=seed), prepared, self.limits, self._make_room
        )
        with self.lock:
            old = sorted(self.runs.values(), key=lambda r: r.used)[: max(0, len(self.runs) + 1 - MOST)]
            for one in old:
                del self.runs[one.key]
            self.runs[run.key] = run
        for one in old:
            one.close()
        return run

    def get(self, key: str) -> Run:
        """A run by its name.

        Raises:
            Gone: there is none.
        """
        found = self.runs.get(key)
        if found is None:
            raise Gone("this run isn't there any more: start it again")
        return found

    def close(self, key: str) -> None:
        """End a run."""
        run = self.get(key)
        with self.lock:
            self.runs.pop(key, None)
        run.close()

    def models(self) -> set[str]:
        """Names of the models that runs use."""
        return {run.entry.name for run in list(self.runs.values())}

    def _make_room(self, run: Run, added: int) -> bool:
        """Whether so many bytes fit, once other runs have lost their values."""
        with self.lock:
            others = sorted((r for r in self.runs.values() if r is not run), key=lambda r: r.used)
            for other in others:
                if self._held() + added <= self.limits.nbytes:
                    return True
                if other.nbytes and other.lock.acquire(blocking=False):
                    try:
                        other.shed()
                    finally:
                        other.lock.release()
            if self._held() + added > self.limits.nbytes:
                run.more.clear()
            return self._held() + added <= self.limits.nbytes

    def _held(self) -> int:
        return sum(run.nbytes for run in self.runs.values())
