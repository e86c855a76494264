"""Latent attention: scores and mixed values by way of one short vector a token.

The CPU backend carries queries to the latents and mixed latents to values; NumPy's form for many
tokens makes keys and values instead. Terms are the same: products of one latent channel each, or of
one seen token.
"""

from __future__ import annotations

import math
from functools import partial

import numpy as np
from numpy.typing import NDArray

from glassgear.model.gears import LatentAttention
from glassgear.trace.explain import kernels, mixing
from glassgear.trace.explain.attention import CPU_MIX, UNSEEN, weight_inputs
from glassgear.trace.explain.desk import Desk
from glassgear.trace.explain.explanation import Made, Step
from glassgear.trace.explain.linear import EXACT_SUM
from glassgear.trace.explain.terms import Terms
from glassgear.trace.flow import Node

__all__ = ["mixed", "scores"]

Floats = NDArray[np.float32]
CPU_ABSORBED = "the CPU kernels' order: the query is carried to the latents first, then channel by channel"


def _rows(desk: Desk, node: Node, gear: LatentAttention, head: int) -> tuple[Floats, Floats]:
    """A head's rows of `kv_up`: [plain_dim, kv_rank] for keys, [value_dim, kv_rank] for values."""
    size = gear.plain_dim + gear.value_dim
    rows = desk.tensors[node.weights["weight"]].rows(np.arange(head * size, (head + 1) * size))
    return rows[: gear.plain_dim], rows[gear.plain_dim :]


def scores(desk: Desk, node: Node, token: int, index: tuple[int, ...]) -> Made:
    """Carried query times latent, plus turned query times shared key part, times the scale."""
    gear, (head, other) = node.gear, index
    assert isinstance(gear, LatentAttention)
    if other > token:
        return Made(-math.inf, steps=(Step("mask", UNSEEN),), order="the mask")
    query, latent = desk.row(node.reads["query"], token), desk.row(node.reads["latent"], other)
    turned, shared = desk.row(node.reads["query_rotated"], token), desk.row(node.reads["key_rotated"], other)
    start, at, wide = head * gear.head_dim, head * gear.rope.dim, gear.rope.dim
    plain, own = query.values[start : start + gear.plain_dim], turned.values[at : at + wide]
    keys, _ = _rows(desk, node, gear, head)
    carried = keys.T.astype(np.float64) @ plain
    size = np.abs(keys.T.astype(np.float64)) @ np.abs(plain.astype(np.float64))
    held = desk.kept(np.concatenate([latent.values, shared.values]))
    scale, running, order = np.float32(gear.scale), None, EXACT_SUM
    exact = np.concatenate([carried, own]) * held * float(scale)
    result = np.float32(exact.sum())
    if desk.cpu:
        whole = np.concatenate([kernels.products(np.ascontiguousarray(keys.T), plain), own])
        running, order = kernels.accumulate(whole * scale, held), CPU_ABSORBED
        result, carried = running[-1], whole[: gear.kv_rank].astype(np.float64)
    inputs = (
        query.inputs(range(start, start + gear.plain_dim), lambda c: f"query channel {c}")
        + turned.inputs(range(at, at + wide), lambda c: f"turned query channel {c}")
        + latent.inputs(range(gear.kv_rank), lambda c: f"latent channel {c} of {desk.named(other)}")
        + shared.inputs(range(wide), lambda c: f"shared key channel {c} of {desk.named(other)}")
    )
    after, kept, rank = gear.plain_dim + wide, desk.keeping("latent", latent=True), gear.kv_rank
    kinds = (
        ("latent channel", "carried query", carried, np.arange(after, after + rank), slice(0, rank)),
        ("turned channel", "query", own, _turned(gear.plain_dim, after + rank, wide), slice(rank, None)),
    )
    latents, turns = (
        Terms.columns(
            partial("{} {}".format, name), used, ((factor, left), (kept, held[here])), exact[here],
            None if running is None else running[here],
        )
        for name, factor, left, used, here in kinds
    )  # fmt: skip
    steps = (
        Step("carried query", f"W^T q: head {head}'s key rows of kv_up, turned round, times its query"),
        Step("scale", "what scores are multiplied by", float(scale)),
    )
    absolute = np.concatenate([size, np.abs(own)]) * np.abs(held) * float(scale)
    return Made(float(result), inputs, latents.joined(turns), steps, (), float(absolute.sum()), order,
                summed="scale times query times what is kept of the token")  # fmt: skip


def _turned(query: int, key: int, wide: int) -> NDArray[np.int64]:
    """Numbers of the inputs of each turned channel: of the query, and of the key."""
    return np.stack([np.arange(query, query + wide), np.arange(key, key + wide)], axis=1)


def mixed(desk: Desk, node: Node, token: int, index: tuple[int, ...]) -> Made:
    """The weighted sum of the seen tokens' values, each a row of `kv_up` times its latent."""
    gear, (head, channel) = node.gear, index
    assert isinstance(gear, LatentAttention)
    found = desk.row(node.reads["weights"], token)
    weights = found.values.reshape(found.shape)[head, : token + 1].astype(np.float64)
    held = desk.kept(desk.rows(node.reads["latent"], 0, token))  # [seen, kv_rank]
    row = _rows(desk, node, gear, head)[1][channel]
    values = held @ row.astype(np.float64)
    size = np.abs(held).astype(np.float64) @ np.abs(row.astype(np.float64))
    result, order = np.float32((weights * values).sum()), EXACT_SUM
    if desk.cpu and not desk.changes((*node.reads["scores"], *node.reads["weights"])):
        own = desk.row(node.reads["scores"], token)
        mix = mixing.attend(own.values.reshape(own.shape)[head, : token + 1], 0, token, held)
        result, order = kernels.accumulate(row, mix.mixed)[-1], CPU_MIX + "; latents first, then the row"
    inputs = weight_inputs(desk, found, head, 0, token)
    terms = Terms.columns(
        desk.named, np.arange(token + 1), (("weight", weights), ("value", values)), weights * values
    )
    steps = (Step("value", f"row {channel} of head {head}'s value rows of kv_up times the token's latent"),)
    return Made(float(result), inputs, terms, steps, (), float((weights * size).sum()), order,
                summed="weight times value")  # fmt: skip
