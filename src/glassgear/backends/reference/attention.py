"""softmax(q k^T / sqrt(head_dim)) v W_o (Vaswani et al. 2017, eq. 1), with shared KV heads (GQA).

Keys and values of all positions lie in the cache; a query at position p sees positions 0..p.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from glassgear.backends.reference.rope import rotate
from glassgear.backends.reference.scope import Scope, Span
from glassgear.backends.reference.softmax import softmax
from glassgear.model.gears import Attention

__all__ = ["causal_mask", "run"]

Floats = NDArray[np.float32]


def causal_mask(positions: NDArray[np.int64], length: int) -> NDArray[np.bool_]:
    """True where a query may look: [T, S]. Aligned to positions, not to the chunk."""
    return np.arange(length)[None, :] <= positions[:, None]


def run(gear: Attention, x: Floats, at: Scope) -> Floats:
    """[T, dim] -> [T, dim]; appends keys and values of the new tokens to the cache."""
    q, k, v = (
        at.run(name, part, x).reshape(len(x), -1, gear.head_dim)  # [T, heads or kv_heads, head_dim]
        for name, part in (("query", gear.query), ("key", gear.key), ("value", gear.value))
    )
    if gear.rope is not None:
        positions = at.step.positions
        q = at.see("query_rotated", rotate(gear.rope, q, positions))
        k = at.see("key_rotated", rotate(gear.rope, k, positions))
    mixed = np.empty_like(q)
    for span in at.step.spans:
        rows = slice(span.start, span.stop)
        at.cache.write(at.path, span.pages, int(at.step.positions[span.start]), k[rows], v[rows])
        mixed[rows] = _attend(gear, q[rows], span, at)
    return at.run("output", gear.output, at.see("mixed", mixed).reshape(len(x), -1))


def _attend(gear: Attention, q: Floats, span: Span, at: Scope) -> Floats:
    """One sequence: [t, heads, head_dim] -> the same."""
    positions = at.step.positions[span.start : span.stop]
    length = int(positions[-1]) + 1
    k, v = at.cache.read(at.path, span.pages, length)  # [S, kv_heads, head_dim]
    group = gear.heads // gear.kv_heads
    # Query heads that share a key head stand next to each other: [kv_heads, group * t, head_dim].
    grouped = q.transpose(1, 0, 2).reshape(gear.kv_heads, group * len(q), gear.head_dim)
    scores = grouped @ k.transpose(1, 2, 0) * np.float32(gear.scale)
    scores = scores.reshape(gear.heads, len(q), length)  # [heads, t, S]
    scores = at.see("scores", np.where(causal_mask(positions, length), scores, np.float32(-np.inf)))
    weights = at.see("weights", softmax(scores))
    mixed = weights.reshape(gear.kv_heads, group * len(q), length) @ v.transpose(1, 0, 2)
    return mixed.reshape(gear.heads, len(q), gear.head_dim).transpose(1, 0, 2)
