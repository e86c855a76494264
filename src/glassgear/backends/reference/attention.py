"""softmax(q k^T * scale) v W_o (Vaswani et al. 2017, eq. 1), with shared KV heads (GQA).

Keys and values of all positions lie in the cache; what a query may see of them is the mask's affair.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from glassgear.backends.reference.rope import rotate
from glassgear.backends.reference.scope import Scope, Span
from glassgear.backends.reference.softmax import softmax
from glassgear.model.gears import Attention, Norm

__all__ = ["capped", "causal_mask", "run"]

Floats = NDArray[np.float32]


def causal_mask(positions: NDArray[np.int64], length: int, window: int = 0) -> NDArray[np.bool_]:
    """True where a query may look: [T, S]. Aligned to positions, not to the chunk.

    With a window of W, a query sees W keys: its own and the W - 1 before it.
    """
    keys = np.arange(length)[None, :]
    seen = keys <= positions[:, None]
    return seen & (keys > positions[:, None] - window) if window else seen


def capped(x: Floats, cap: float) -> Floats:
    """Cap * tanh(x / cap): nearly x while it is small, never more than the cap. 0: x."""
    return np.float32(cap) * np.tanh(x / np.float32(cap)) if cap else x


def run(gear: Attention, x: Floats, at: Scope, inputs: Mapping[str, Floats] | None = None) -> Floats:
    """[T, dim] -> [T, dim]; appends keys and values of the new tokens to the cache.

    Args:
        gear: the gear.
        x: its input.
        at: its place.
        inputs: what `query`, `key` and `value` read instead of x, if not the same.
    """
    q, k, v = (
        at.run(name, part, x if inputs is None else inputs[name]).reshape(len(x), -1, gear.head_dim)
        for name, part in (("query", gear.query), ("key", gear.key), ("value", gear.value))
    )  # [T, heads or kv_heads, head_dim]
    q = _normed("query_norm", gear.query_norm, q, at)
    k = _normed("key_norm", gear.key_norm, k, at)
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


def _normed(name: str, norm: Norm | None, x: Floats, at: Scope) -> Floats:
    """Each head by itself, or all together, as wide as the norm is: [T, heads, head_dim]."""
    if norm is None:
        return x
    return at.run(name, norm, x.reshape(len(x), -1, norm.dim)).reshape(x.shape)


def _attend(gear: Attention, q: Floats, span: Span, at: Scope) -> Floats:
    """One sequence: [t, heads, head_dim] -> the same."""
    positions = at.step.positions[span.start : span.stop]
    length = int(positions[-1]) + 1
    k, v = at.cache.read(at.path, span.pages, length)  # [S, kv_heads, head_dim]
    group = gear.heads // gear.kv_heads
    # Query heads that share a key head stand next to each other: [kv_heads, group * t, head_dim].
    grouped = q.transpose(1, 0, 2).reshape(gear.kv_heads, group * len(q), gear.head_dim)
    scores = capped(grouped @ k.transpose(1, 2, 0) * np.float32(gear.scale), gear.cap)
    scores = scores.reshape(gear.heads, len(q), length)  # [heads, t, S]
    if gear.causal:
        scores = np.where(causal_mask(positions, length, gear.window), scores, np.float32(-np.inf))
    scores = at.see("scores", scores)
    weights = at.see("weights", softmax(scores))
    mixed = weights.reshape(gear.kv_heads, group * len(q), length) @ v.transpose(1, 0, 2)
    return mixed.reshape(gear.heads, len(q), gear.head_dim).transpose(1, 0, 2)
