"""What flows into a backend and out of it, the same for all of them.

A batch step is a list of chunks: for each sequence its new ids, and for how many of them
logits are wanted. A prompt of 500 tokens, one token of one chat and one token each of 16
chats are the same call. A sequence is a list of cache pages and a length; who owns which
page is decided here, what a page holds is the backend's business.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from glassgear.errors import ContextFullError, SettingError
from glassgear.model.gears import Model

__all__ = [
    "PAGE",
    "Backend",
    "Chunk",
    "Hook",
    "Output",
    "PageTable",
    "Track",
    "Watcher",
    "check_chunks",
    "wanted_rows",
]

PAGE = 64  # tokens in a page of the KV cache

Output = Literal["logits", "hidden", "pooled"]
Hook = Callable[[str, NDArray[np.float32]], NDArray[np.float32] | None]
"""Sees a value under its gear path; what it returns, if anything, takes the value's place.

A hook that is a `Watcher` says beforehand which values it looks at.
"""


class Watcher(Protocol):
    """A hook for some values alone, which copies what it keeps.

    A backend needn't stop for the others, and may show a value where it was computed: the array is
    good until the hook returns. Where it reads only, a backend may also copy a value to the place that
    it names, and not call it.

    Attributes:
        reads_only: whether it returns nothing but None.
        plans: what backends worked out for it; empty at first.
    """

    reads_only: bool
    plans: dict[Any, Any]

    def wants(self, path: str) -> bool:
        """Whether it is to be called for this value."""
        ...

    def place(self, path: str, shape: tuple[int, ...]) -> tuple[int, int] | None:
        """Where a value that has a row of this shape for each token of a step is to be copied, if anywhere.

        Returns:
            Address of the row of token 0, and bytes from row to row; the same for every step. None: call
            me with the value.
        """
        ...

    def same(self, path: str, other: str) -> None:
        """A value equals, number by number, another one whose place was asked for."""
        ...

    def seen(self, path: str, shape: tuple[int, int, int]) -> NDArray[np.float32] | None:
        """Where scores or weights [head, row, seen] of a step are to be written, if anywhere.

        Returns:
            A contiguous array of this shape, for one step. None: call me with the value.
        """
        ...

    def take(self, path: str, value: NDArray[np.float32]) -> bool:
        """An array that the backend made for this step and won't write again: it may be kept as it is.

        Returns:
            Whether it is. False: call me with it.
        """
        ...

    def __call__(self, path: str, value: NDArray[np.float32]) -> NDArray[np.float32] | None:
        """As any hook."""
        ...


@dataclass(eq=False)
class Track:
    """One sequence in a backend's cache: `length` tokens, kept in `pages` in order."""

    length: int = 0
    pages: list[int] = field(default_factory=list)
    closed: bool = False


@dataclass(frozen=True, eq=False)
class Chunk:
    """New tokens of one sequence.

    Attributes:
        track: the sequence they continue; its length is their first position.
        ids: the new ids, at least one.
        logits: for which of them output is wanted.
        types: their token types, for models that have these; None: all 0.
    """

    track: Track
    ids: Sequence[int]
    logits: Literal["first", "last", "all", "none"] = "last"
    types: Sequence[int] | None = None


def wanted_rows(chunk: Chunk) -> NDArray[np.int64]:
    """Which of a chunk's rows give output."""
    count = len(chunk.ids)
    rows = {"first": (0, 1), "last": (count - 1, count), "all": (0, count), "none": (0, 0)}
    return np.arange(*rows[chunk.logits])


def check_chunks(model: Model, chunks: Sequence[Chunk], output: Output) -> None:
    """Refuse what a model can't do, before anything is computed.

    Raises:
        SettingError: output that it doesn't have, or a text in pieces where each token sees all others.
        ContextFullError: more positions than a table of them holds.
    """
    if output == "logits" and model.head is None:
        raise SettingError("this model has no head: it gives hidden states, not logits")
    if output == "pooled" and model.pooler is None:
        raise SettingError("this model has no pooler")
    if not model.causal and any(chunk.track.length for chunk in chunks):
        raise SettingError("a model whose tokens see later ones can't continue a text: give it whole")
    if model.positions is not None:
        longest = max((chunk.track.length + len(chunk.ids) for chunk in chunks), default=0)
        room = model.positions.count - model.positions.offset
        if longest > room:
            raise ContextFullError(f"{longest:,} tokens, but the model knows {room:,} positions")


class PageTable:
    """Hands out cache pages, takes them back, and never holds one for two sequences."""

    def __init__(self) -> None:
        self._free: list[int] = []
        self.count = 0  # pages ever handed out: what a backend must have room for

    def reserve(self, track: Track, length: int) -> None:
        """Give `track` pages enough for `length` tokens."""
        assert not track.closed
        while len(track.pages) * PAGE < length:
            if self._free:
                track.pages.append(self._free.pop())
            else:
                track.pages.append(self.count)
                self.count += 1

    def truncate(self, track: Track, length: int) -> None:
        """Forget all but the first `length` tokens."""
        assert 0 <= length <= track.length
        track.length = length
        keep = -(-length // PAGE)
        self._free.extend(reversed(track.pages[keep:]))
        del track.pages[keep:]

    def close(self, track: Track) -> None:
        """Take all pages back."""
        if not track.closed:
            self.truncate(track, 0)
            track.closed = True


class Backend(Protocol):
    """Runs one model. Not for two threads at once unless a backend says otherwise."""

    name: str
    model: Model

    def open(self) -> Track:
        """A new, empty sequence."""
        ...

    def truncate(self, track: Track, length: int) -> None:
        """Forget all but the first `length` tokens of a sequence."""
        ...

    def close(self, track: Track) -> None:
        """End a sequence; its pages are free for others."""
        ...

    def step(
        self, chunks: Sequence[Chunk], hook: Hook | None = None, output: Output = "logits"
    ) -> list[NDArray[np.float32]]:
        """Run new tokens through the model and append them to their sequences.

        Args:
            chunks: new tokens, by sequence.
            hook: sees values, and may change them.
            output: `logits`; `hidden`: hidden states after the final norm instead; `pooled`:
                what the pooler makes of the wanted rows (it is made for `first`).

        Returns:
            For each chunk the wanted rows, float32 [rows, vocab or dim]: 1 row for `first` and
            `last`, all for `all`, 0 for `none`. A step that raises leaves every length as it was.
        """
        ...
