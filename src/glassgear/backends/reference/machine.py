"""The reference backend: a batch step from ids to logits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from glassgear.backends.base import Chunk, Hook, PageTable, Track
from glassgear.backends.reference import attention, block, embed, gated_ffn, head, linear, rms_norm
from glassgear.backends.reference.cache import KVCache
from glassgear.backends.reference.scope import Scope, Span, Step, Weights
from glassgear.model.gears import (
    Attention,
    Block,
    Embed,
    GatedFFN,
    Gear,
    Head,
    Linear,
    Model,
    RMSNorm,
    walk,
)
from glassgear.weights.tensor import StoredTensor

__all__ = ["Reference"]

TABLE: dict[type[Gear], Any] = {
    Attention: attention.run,
    Block: block.run,
    Embed: embed.run,
    GatedFFN: gated_ffn.run,
    Head: head.run,
    Linear: linear.run,
    RMSNorm: rms_norm.run,
}

AT_ONCE = 512  # tokens of one sequence in a pass: bounds the scores that are held


class Reference:
    """Runs a model in NumPy float32. Implements `backends.base.Backend`.

    Args:
        model: the tree of gears.
        tensors: gear path -> stored tensor.
        cache_type: dtype of cached keys and values.
    """

    name = "reference"

    def __init__(
        self, model: Model, tensors: Mapping[str, StoredTensor], *, cache_type: DTypeLike = np.float32
    ) -> None:
        self.model = model
        self._weights = Weights(tensors)
        self._pages = PageTable()
        self._cache = KVCache(
            {path: (g.kv_heads, g.head_dim) for path, g in walk(model) if isinstance(g, Attention)},
            cache_type,
        )

    @property
    def cache_nbytes(self) -> int:
        """Bytes of the KV cache now."""
        return self._cache.nbytes

    def open(self) -> Track:
        """A new, empty sequence."""
        return Track()

    def truncate(self, track: Track, length: int) -> None:
        """Forget all but the first `length` tokens of a sequence."""
        self._pages.truncate(track, length)

    def close(self, track: Track) -> None:
        """End a sequence."""
        self._pages.close(track)

    def step(self, chunks: Sequence[Chunk], hook: Hook | None = None) -> list[NDArray[np.float32]]:
        """Run new tokens through the model; see `backends.base.Backend.step`."""
        before = [chunk.track.length for chunk in chunks]
        out: list[list[NDArray[np.float32]]] = [[] for _ in chunks]
        try:
            for first in range(0, max((len(c.ids) for c in chunks), default=0), AT_ONCE):
                live = [i for i, chunk in enumerate(chunks) if len(chunk.ids) > first]
                parts = [_part(chunks[i], first) for i in live]
                for i, rows in zip(live, self._pass(parts, hook), strict=True):
                    out[i].append(rows)
        except BaseException:
            for chunk, length in zip(chunks, before, strict=True):
                self._pages.truncate(chunk.track, min(length, chunk.track.length))
            raise
        return [rows[0] if len(rows) == 1 else np.concatenate(rows) for rows in out]

    def _pass(self, chunks: Sequence[Chunk], hook: Hook | None) -> list[NDArray[np.float32]]:
        step = self._plan(chunks)
        at = Scope("", self._weights, step, self._cache, TABLE, hook)
        x = at.run("embed", self.model.embed, step.ids)  # type: ignore[arg-type]  # ids, not floats
        for i, layer in enumerate(self.model.blocks):
            x = at.run(f"blocks.{i}", layer, x)
        x = at.run("norm", self.model.norm, x[step.wanted])
        logits = at.run("head", self.model.head, x)
        for chunk in chunks:
            chunk.track.length += len(chunk.ids)
        counts = [_wanted(chunk) for chunk in chunks]
        return np.split(logits, np.cumsum(counts)[:-1]) if chunks else []

    def _plan(self, chunks: Sequence[Chunk]) -> Step:
        spans, positions, wanted, row = [], [], [], 0
        for chunk in chunks:
            first, count = chunk.track.length, len(chunk.ids)
            assert count > 0
            self._pages.reserve(chunk.track, first + count)
            spans.append(Span(row, row + count, tuple(chunk.track.pages)))
            positions.append(np.arange(first, first + count))
            wanted.append(np.arange(row + count - _wanted(chunk), row + count))
            row += count
        self._cache.grow(self._pages.count)
        ids = np.concatenate([np.asarray(chunk.ids, np.int64) for chunk in chunks])
        return Step(ids, np.concatenate(positions), tuple(spans), np.concatenate(wanted))


def _part(chunk: Chunk, first: int) -> Chunk:
    """The piece of a chunk that one pass takes; only its last piece yields a `last` row."""
    stop = first + AT_ONCE
    early = chunk.logits == "last" and stop < len(chunk.ids)
    return Chunk(chunk.track, chunk.ids[first:stop], "none" if early else chunk.logits)


def _wanted(chunk: Chunk) -> int:
    return {"none": 0, "last": 1, "all": len(chunk.ids)}[chunk.logits]
