"""Loaded models: each with the values that it shows, and a lock of its own."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import cached_property
from typing import Any

import numpy as np

from glassgear.errors import GlassgearError, NotFoundError, SettingError
from glassgear.language_model import LanguageModel
from glassgear.model.gears import Model
from glassgear.serve.errors import UnknownName
from glassgear.serve.store import ROWS
from glassgear.serve.worked import NAME, PROMPT, worked_example
from glassgear.trace.changes import Change, tree_with
from glassgear.trace.shown import Shown, shown_by
from glassgear.trace.views import Lens

__all__ = ["Entry", "Models"]

MOST = 4  # models at a time
MOST_VARIANTS = 2  # trees with other activations, of each model


@dataclass(eq=False)
class Entry:
    """One model.

    Attributes:
        name: what the user calls it.
        model: loaded.
        options: what it was loaded with.
        lock: whoever runs the model holds it; who reads values doesn't.
    """

    name: str
    model: LanguageModel
    options: Mapping[str, Any]
    lock: threading.RLock = field(default_factory=threading.RLock)
    used: float = field(default_factory=time.monotonic)
    variants: dict[Model, LanguageModel] = field(default_factory=dict)

    @cached_property
    def shown(self) -> Mapping[str, Shown]:
        """Every value by path, in the order of use; found by running one token."""
        with self.lock:
            return shown_by(self.model.backend)

    @cached_property
    def paths(self) -> dict[str, tuple[str, ...]]:
        """Path of each value -> names of its axes."""
        return {path: shown.axes for path, shown in self.shown.items()}

    @cached_property
    def drawn(self) -> bytes:
        """The tree as JSON."""
        from glassgear.serve.tree import tree

        return json.dumps(tree(self), ensure_ascii=False).encode()

    @cached_property
    def lens(self) -> Lens:
        """The logit lens; it decodes the head when it is first used."""
        return Lens(self.model.gears, self.model.checkpoint.tensors)

    def warm(self) -> None:
        """Decode the head for the lens beside whatever else goes on, so that nobody waits for it later."""
        if self.model.gears.head is not None and "lens" not in vars(self):
            row = np.zeros((1, self.model.gears.dim), np.float32)
            threading.Thread(target=lambda: self.lens.logits(row), daemon=True).start()

    def size(self, tokens: int, paths: Sequence[str] | None = None) -> int:
        """Bytes that a run of so many tokens keeps, of all values or of some."""
        chosen = self.shown.values() if paths is None else [self.shown[path] for path in paths]
        return sum(_size(shown, tokens) for shown in chosen)

    def changed(self, changes: Sequence[Change]) -> LanguageModel:
        """The model with other activations: another program on the same weights."""
        from glassgear.loading import with_gears

        tree = tree_with(self.model.gears, changes)
        if tree is self.model.gears:
            return self.model
        with self.lock:
            if tree not in self.variants:
                while len(self.variants) >= MOST_VARIANTS:  # runs that still use it keep it alive
                    del self.variants[next(iter(self.variants))]
                chosen = {k: v for k, v in self.options.items() if k in VARIANT_OPTIONS}
                self.variants[tree] = with_gears(self.model, tree, **chosen)
            return self.variants[tree]


VARIANT_OPTIONS = ("threads", "cache_type", "on_compile", "device", "dtype")


def _size(shown: Shown, tokens: int) -> int:
    """Bytes that a run of so many tokens keeps of a value: scores and weights in pieces of ROWS tokens."""
    return shown.nbytes * tokens * (min(tokens, (tokens + ROWS) // 2) if shown.quadratic else 1)


@dataclass(eq=False)
class Models:
    """All loaded models.

    Attributes:
        options: keyword arguments of `loading.load` for each of them.
        in_use: the entries that runs need; others may make room for a new one.
    """

    options: Mapping[str, Any] = field(default_factory=dict)
    in_use: Callable[[], set[str]] = set
    entries: dict[str, Entry] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def load(self, name: str, *, random: bool = False, seed: int = 0) -> Entry:
        """A model by name or path; loaded now if it isn't yet.

        Raises:
            GlassgearError: nothing has that name, or it can't be loaded.
            SettingError: as many models as there may be are in use.
        """
        with self.lock:
            found = self.entries.get(name)
            if found is None:
                try:
                    model = self._loaded(name, {"random": True, "seed": seed} if random else {})
                except NotFoundError as trouble:
                    raise UnknownName(str(trouble), self._near(name)) from trouble
                found = self.entries[name] = Entry(name, model, self.options)
            found.used = time.monotonic()
        _ = found.shown
        return found

    def _loaded(self, name: str, more: Mapping[str, Any]) -> LanguageModel:
        """A model, once there is room for it: nobody has to make room for what isn't there."""
        from glassgear.loading import load, without_weights
        from glassgear.weights.described import open_named

        if name == NAME:
            self._make_room()
            return worked_example(self.options)
        opened = open_named(name)
        if not (opened.tensors or more):
            raise NotFoundError(opened.path, without_weights(opened, "view"))
        self._make_room()
        return load(opened, **self.options, **more)

    def add(self, name: str, model: LanguageModel) -> Entry:
        """A model that is loaded already."""
        entry = self.entries[name] = Entry(name, model, self.options)
        return entry

    def get(self, name: str) -> Entry:
        """A loaded model.

        Raises:
            UnknownName: it isn't loaded; near names that are, or that are on this machine, are named.
        """
        found = self.entries.get(name)
        if found is None:
            near = get_close_matches(name[:200], {*self.entries, *_cached()}, 3, 0.5)
            hint = f": did you mean {' or '.join(near)}?" if near else ""
            raise UnknownName(f"no model called {name[:200]!r} is loaded{hint}", near)
        found.used = time.monotonic()
        return found

    def listed(self) -> list[dict[str, Any]]:
        """What is loaded, on this machine, or can be fetched."""
        from glassgear.weights import pull

        known, cached = pull.known(), _cached()
        names = dict.fromkeys([*self.entries, *cached, *known])
        names.pop(NAME, None)
        listed: list[dict[str, Any]] = [
            {
                "name": name,
                "note": known.get(name, ""),
                "loaded": name in self.entries,
                "cached": name in self.entries or name in cached,
            }
            for name in names
        ]
        # Last, and marked: a page that isn't told which model to open takes another one.
        return [
            *listed,
            {"name": NAME, "note": "", "loaded": NAME in self.entries, "cached": True, "example": PROMPT},
        ]

    def _make_room(self) -> None:
        while len(self.entries) >= MOST:
            busy = self.in_use()
            idle = sorted((e for e in self.entries.values() if e.name not in busy), key=lambda e: e.used)
            if not idle:
                raise SettingError(
                    f"{MOST} models are loaded and in use, the most at a time: close the runs of one first"
                )
            del self.entries[idle[0].name]

    def _near(self, name: str) -> list[str]:
        from glassgear.weights import pull

        return get_close_matches(name[:200], {*self.entries, *_cached(), *pull.known()}, 3, 0.5)


def _cached() -> list[str]:
    from glassgear.weights import pull

    try:
        return [model.name for model in pull.present()]
    except (OSError, GlassgearError):
        return []
