"""The reference backend: a batch step from ids to logits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from glassgear.backends.base import Chunk, Hook, Output, PageTable, Track, check_chunks, wanted_rows
from glassgear.backends.reference import (
    attention,
    block,
    bottleneck,
    embed,
    experts,
    ffn,
    gated_ffn,
    head,
    latent_attention,
    linear,
    norms,
)
from glassgear.backends.reference.cache import KVCache
from glassgear.backends.reference.scope import Scope, Span, Step, Weights
from glassgear.model.gears import (
    FFN,
    Affine,
    Attention,
    BatchNorm,
    Block,
    Bottleneck,
    Embed,
    Experts,
    GatedFFN,
    Gear,
    Head,
    LatentAttention,
    LayerNorm,
    LearnedPositions,
    Linear,
    Model,
    Neighbours,
    Pooler,
    RMSNorm,
    Router,
    ScaleNorm,
    TokenTypes,
    Transform,
    walk,
)
from glassgear.weights.tensor import StoredTensor

__all__ = ["Reference"]

TABLE: dict[type[Gear], Any] = {
    Affine: norms.affine,
    Attention: attention.run,
    BatchNorm: norms.batch_norm,
    Block: block.run,
    Bottleneck: bottleneck.run,
    Embed: embed.run,
    Experts: experts.run,
    FFN: ffn.run,
    GatedFFN: gated_ffn.run,
    Head: head.run,
    LatentAttention: latent_attention.run,
    LayerNorm: norms.layer_norm,
    LearnedPositions: embed.positions,
    Linear: linear.run,
    Neighbours: embed.neighbours,
    Pooler: head.pooler,
    RMSNorm: norms.rms_norm,
    Router: experts.router,
    ScaleNorm: norms.scale_norm,
    TokenTypes: embed.token_types,
    Transform: head.transform,
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
            {path: _cached(g) for path, g in walk(model) if isinstance(g, Attention | LatentAttention)},
            cache_type,
        )

    @property
    def cache_nbytes(self) -> int:
        """Bytes of the KV cache now."""
        return self._cache.nbytes

    @property
    def cache_form(self) -> str:
        """How keys and values are kept: `float32` or `float16`."""
        return str(self._cache.dtype)

    def open(self) -> Track:
        """A new, empty sequence."""
        return Track()

    def truncate(self, track: Track, length: int) -> None:
        """Forget all but the first `length` tokens of a sequence."""
        self._pages.truncate(track, length)

    def close(self, track: Track) -> None:
        """End a sequence."""
        self._pages.close(track)

    def step(
        self, chunks: Sequence[Chunk], hook: Hook | None = None, output: Output = "logits"
    ) -> list[NDArray[np.float32]]:
        """Run new tokens through the model; see `backends.base.Backend.step`."""
        check_chunks(self.model, chunks, output)
        before = [chunk.track.length for chunk in chunks]
        out: list[list[NDArray[np.float32]]] = [[] for _ in chunks]
        longest = max((len(c.ids) for c in chunks), default=0)
        # Where a token sees later ones, all of them have to be there at once.
        at_once = AT_ONCE if self.model.causal else max(1, longest)
        try:
            for first in range(0, longest, at_once):
                live = [i for i, chunk in enumerate(chunks) if len(chunk.ids) > first]
                parts = [_part(chunks[i], first, at_once) for i in live]
                for i, rows in zip(live, self._pass(parts, hook, output), strict=True):
                    out[i].append(rows)
        except BaseException:
            for chunk, length in zip(chunks, before, strict=True):
                self._pages.truncate(chunk.track, min(length, chunk.track.length))
            raise
        return [rows[0] if len(rows) == 1 else np.concatenate(rows) for rows in out]

    def _pass(self, chunks: Sequence[Chunk], hook: Hook | None, output: Output) -> list[NDArray[np.float32]]:
        step, model = self._plan(chunks), self.model
        at = Scope("", self._weights, step, self._cache, TABLE, hook)
        x = self._input(at)
        for i, layer in enumerate(model.blocks):
            x = at.run(f"blocks.{i}", layer, x)
        x = x[step.wanted]
        if model.norm is not None:
            x = at.run("norm", model.norm, x)
        if output == "pooled":
            assert model.pooler is not None
            x = at.run("pooler", model.pooler, x)
        elif output == "logits":
            assert model.head is not None
            x = x if model.transform is None else at.run("transform", model.transform, x)
            x = at.run("head", model.head, x)
        for chunk in chunks:
            chunk.track.length += len(chunk.ids)
        counts = [_wanted(chunk) for chunk in chunks]
        return np.split(x, np.cumsum(counts)[:-1]) if chunks else []

    def _input(self, at: Scope) -> NDArray[np.float32]:
        """What enters the first block: [T, dim]."""
        model, step = self.model, at.step
        x = at.run("embed", model.embed, step.ids)
        if model.neighbours is not None:
            x = at.run("neighbours", model.neighbours, x)
        if model.positions is not None:
            x = x + at.run("positions", model.positions, step.positions)
        if model.token_types is not None:
            x = x + at.run("token_types", model.token_types, step.types)
        return x if model.embed_norm is None else at.run("embed_norm", model.embed_norm, x)

    def _plan(self, chunks: Sequence[Chunk]) -> Step:
        spans, positions, wanted, row = [], [], [], 0
        for chunk in chunks:
            first, count = chunk.track.length, len(chunk.ids)
            assert count > 0
            self._pages.reserve(chunk.track, first + count)
            spans.append(Span(row, row + count, tuple(chunk.track.pages)))
            positions.append(np.arange(first, first + count))
            wanted.append(row + wanted_rows(chunk))
            row += count
        self._cache.grow(self._pages.count)
        ids = np.concatenate([np.asarray(chunk.ids, np.int64) for chunk in chunks])
        types = np.concatenate([_types(chunk) for chunk in chunks])
        return Step(ids, np.concatenate(positions), types, tuple(spans), np.concatenate(wanted))


def _cached(gear: Attention | LatentAttention) -> list[tuple[int, int]]:
    """Heads and width of what the cache holds of a token: keys and values, or one latent."""
    return [(gear.kv_heads, gear.head_dim)] * 2 if isinstance(gear, Attention) else [(1, gear.cache_dim)]


def _part(chunk: Chunk, first: int, count: int) -> Chunk:
    """The piece of a chunk that one pass takes: `first` and `last` are rows of one piece alone."""
    stop = first + count
    elsewhere = stop < len(chunk.ids) if chunk.logits == "last" else chunk.logits == "first" and first > 0
    types = None if chunk.types is None else chunk.types[first:stop]
    return Chunk(chunk.track, chunk.ids[first:stop], "none" if elsewhere else chunk.logits, types)


def _types(chunk: Chunk) -> NDArray[np.int64]:
    return np.zeros(len(chunk.ids), np.int64) if chunk.types is None else np.asarray(chunk.types, np.int64)


def _wanted(chunk: Chunk) -> int:
    return len(wanted_rows(chunk))
