"""Multi-head latent attention (DeepSeek-AI 2024, "DeepSeek-V2", section 2.1).

The cache holds the latent and the shared rotated key of each token, [latent | shared]. Two forms
give the same numbers up to rounding: expanded makes keys and values of all positions from their
latents, which pays for many new tokens; absorbed carries the queries to the latents instead.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from glassgear.backends.reference.attention import causal_mask
from glassgear.backends.reference.rope import rotate
from glassgear.backends.reference.scope import Scope, Span
from glassgear.backends.reference.softmax import softmax
from glassgear.model.gears import LatentAttention

__all__ = ["ABSORBED_UP_TO", "absorbed", "expanded", "run"]

Floats = NDArray[np.float32]
ABSORBED_UP_TO = 16  # new tokens of a sequence


def run(gear: LatentAttention, x: Floats, at: Scope) -> Floats:
    """[T, dim] -> [T, dim]; appends latents of the new tokens to the cache."""
    positions = at.step.positions
    q = _queries(gear, x, at).reshape(len(x), gear.heads, gear.head_dim)
    down = at.run("kv_down", gear.kv_down, x)
    latent = at.run("kv_norm", gear.kv_norm, down[:, : gear.kv_rank])  # [T, kv_rank]
    plain, turned = q[..., : gear.plain_dim], q[..., gear.plain_dim :]
    turned = at.see("query_rotated", rotate(gear.rope, turned, positions))
    shared = at.see("key_rotated", rotate(gear.rope, down[:, None, gear.kv_rank :], positions))
    kept = np.concatenate([latent, shared[:, 0]], axis=1)
    mixed = np.empty((len(x), gear.heads, gear.value_dim), np.float32)
    for span in at.step.spans:
        rows = slice(span.start, span.stop)
        at.cache.write(at.path, span.pages, int(positions[span.start]), kept[rows, None])
        form = absorbed if span.stop - span.start <= ABSORBED_UP_TO else expanded
        mixed[rows] = form(gear, plain[rows], turned[rows], span, at)
    return at.run("output", gear.output, at.see("mixed", mixed).reshape(len(x), -1))


def _queries(gear: LatentAttention, x: Floats, at: Scope) -> Floats:
    """[T, heads * head_dim], in one step or through a latent of their own."""
    if gear.query is not None:
        return at.run("query", gear.query, x)
    assert gear.query_down is not None and gear.query_up is not None
    down = at.run("query_down", gear.query_down, x)
    if gear.query_norm is not None:
        down = at.run("query_norm", gear.query_norm, down)
    return at.run("query_up", gear.query_up, down)


def expanded(gear: LatentAttention, plain: Floats, turned: Floats, span: Span, at: Scope) -> Floats:
    """Keys and values of every position, head by head: queries [t, heads, ...] -> [t, heads, value_dim]."""
    latent, shared, positions = _history(gear, span, at)
    both = (latent @ at("kv_up").weight().T).reshape(len(latent), gear.heads, -1)  # [S, heads, ...]
    keys, values = both[..., : gear.plain_dim], both[..., gear.plain_dim :]
    scores = plain.transpose(1, 0, 2) @ keys.transpose(1, 2, 0) + turned.transpose(1, 0, 2) @ shared.T
    weights = _weights(gear, scores, positions, at)  # [heads, t, S]
    return (weights @ values.transpose(1, 0, 2)).transpose(1, 0, 2)


def absorbed(gear: LatentAttention, plain: Floats, turned: Floats, span: Span, at: Scope) -> Floats:
    """Queries carried to the latents, mixed latents carried to values."""
    latent, shared, positions = _history(gear, span, at)
    up = at("kv_up").weight().reshape(gear.heads, -1, gear.kv_rank)  # [heads, plain + value, kv_rank]
    to_key, to_value = up[:, : gear.plain_dim], up[:, gear.plain_dim :]
    carried = plain.transpose(1, 0, 2) @ to_key  # [heads, t, kv_rank]
    scores = carried @ latent.T + turned.transpose(1, 0, 2) @ shared.T
    mixed: Floats = _weights(gear, scores, positions, at) @ latent  # [heads, t, kv_rank]
    return (mixed @ to_value.transpose(0, 2, 1)).transpose(1, 0, 2)


def _history(gear: LatentAttention, span: Span, at: Scope) -> tuple[Floats, Floats, NDArray[np.int64]]:
    """Latents [S, kv_rank] and shared keys [S, rope.dim] of a sequence, and the queries' positions."""
    positions = at.step.positions[span.start : span.stop]
    (kept,) = at.cache.read(at.path, span.pages, int(positions[-1]) + 1)
    return kept[:, 0, : gear.kv_rank], kept[:, 0, gear.kv_rank :], positions


def _weights(gear: LatentAttention, scores: Floats, positions: NDArray[np.int64], at: Scope) -> Floats:
    """Scaled, masked and softmaxed: [heads, t, S]."""
    seen = causal_mask(positions, scores.shape[-1])
    scores = at.see("scores", np.where(seen, scores * np.float32(gear.scale), np.float32(-np.inf)))
    return at.see("weights", softmax(scores))
