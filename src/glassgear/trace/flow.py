"""Where every value comes from: which gear makes it, from which other values, with which weights.

In: a tree of gears. Out: a node for each path under which a backend shows a value, in the order of
the reference backend. One walk over the tree, so that whatever has to know how values hang together
(explanations, drawings, selections) reads it here. No array, no backend.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from types import MappingProxyType

from glassgear.model.gears import (
    FFN,
    Attention,
    Bottleneck,
    Experts,
    GatedFFN,
    Gear,
    LatentAttention,
    Linear,
    Model,
    Norm,
    Residual,
    Router,
)

__all__ = ["PROBABILITY", "SAMPLED", "Flow", "Node", "Stream", "flow"]

PROBABILITY, SAMPLED = "probability", "sampled"

Stream = tuple[str, ...]
"""Paths whose values, added in this order, are what a gear reads; nearly always one."""

Flow = Mapping[str, "Node"]


@dataclass(frozen=True)
class Node:
    """One value.

    Attributes:
        path: its name.
        kind: how it is made: `linear`, `norm`, `scores`, ...; `same` is another value under a new name.
        gear: what makes it.
        owner: the gear that this one is a part of, where sizes of the owner matter (heads, say).
        reads: role -> the values that it is made from.
        weights: role -> path of a parameter tensor.
        shown: False for what follows from logits outside of the backends.
    """

    path: str
    kind: str
    gear: Gear
    owner: Gear
    reads: Mapping[str, Stream] = field(default_factory=dict)
    weights: Mapping[str, str] = field(default_factory=dict)
    shown: bool = True

    @property
    def inputs(self) -> tuple[str, ...]:
        """Every path that it reads, each once."""
        return tuple(dict.fromkeys(path for stream in self.reads.values() for path in stream))


@lru_cache(maxsize=8)
def flow(model: Model) -> Flow:
    """The nodes of all values of a model, by path."""
    walk = _Walk()
    x = _enter(walk, model)
    for i, block in enumerate(model.blocks):
        for step in block.steps:
            x = _residual(walk, f"blocks.{i}", step, x)
        x = walk.add(f"blocks.{i}", "same", block, {"x": x})
    if model.norm is not None:
        x = walk.norm("norm", model.norm, x)
    _leave(walk, model, x)
    return MappingProxyType(walk.nodes)


class _Walk:
    """Nodes so far."""

    def __init__(self) -> None:
        self.nodes: dict[str, Node] = {}

    def add(
        self, path: str, kind: str, gear: Gear, reads: Mapping[str, Stream],
        weights: Mapping[str, str] | None = None, *, owner: Gear | None = None, shown: bool = True,
    ) -> Stream:  # fmt: skip
        """Append a node; what reads it reads the stream that comes back."""
        assert path not in self.nodes
        self.nodes[path] = Node(path, kind, gear, owner or gear, reads, weights or {}, shown)
        return (path,)

    def linear(self, path: str, gear: Linear | Router, x: Stream, *, owner: Gear | None = None) -> Stream:
        """A matrix product. Of a router it is the logits, whose weights lie one step above."""
        above = path.removesuffix(".logits") if isinstance(gear, Router) else path
        names = {name: f"{above}.{name}" for name in gear.tensors if name in ("weight", "bias")}
        return self.add(path, "linear", gear, {"x": x}, names, owner=owner)

    def norm(self, path: str, gear: Norm, x: Stream, *, owner: Gear | None = None) -> Stream:
        """A norm."""
        names = {name: f"{path}.{name}" for name in gear.tensors}
        return self.add(path, "norm", gear, {"x": x}, names, owner=owner)


def _enter(walk: _Walk, model: Model) -> Stream:
    """What enters the first block. Tables that are added to embeddings leave a sum without a name."""
    x = walk.add("embed", "row", model.embed, {}, {"table": "embed.weight"})
    if model.neighbours is not None:
        gear = model.neighbours
        names = {name: f"neighbours.mix.{name}" for name in gear.mix.tensors}
        x = walk.add("neighbours.mix", "neighbours", gear.mix, {"x": x}, names)
        x = walk.add("neighbours", "same", gear, {"x": x})
    for name, table in (("positions", model.positions), ("token_types", model.token_types)):
        if table is not None:
            x += walk.add(name, "row", table, {}, {"table": f"{name}.weight"})
    return x if model.embed_norm is None else walk.norm("embed_norm", model.embed_norm, x)


def _leave(walk: _Walk, model: Model, x: Stream) -> None:
    if model.pooler is not None:
        dense = walk.linear("pooler.dense", model.pooler.dense, x)
        walk.add("pooler", "tanh", model.pooler, {"x": dense})
    if model.head is None:
        return
    if model.transform is not None:
        gear = model.transform
        dense = walk.linear("transform.dense", gear.dense, x)
        bent = walk.add("transform.activated", "activated", gear, {"x": dense})
        x = walk.norm("transform.norm", gear.norm, bent)
        x = walk.add("transform", "same", gear, {"x": x})
    head = model.head
    weights = {name: f"head.{name}" for name in head.tensors}
    if head.tied:
        weights = {"weight": "embed.weight"} | weights
    logits = walk.add("head", "head", head, {"x": x}, weights)
    likely = walk.add(PROBABILITY, PROBABILITY, head, {"logits": logits}, shown=False)
    walk.add(SAMPLED, SAMPLED, head, {"logits": logits, PROBABILITY: likely}, shown=False)


def _residual(walk: _Walk, path: str, step: Residual, x: Stream, inputs: Mapping[str, Stream] = {}) -> Stream:
    """One step of a block; `inputs`: what an attention's projections read, if not the stream."""
    name = f"{path}.{step.step}"
    source = x if step.norm is None else walk.norm(f"{name}_norm", step.norm, x)
    y = _sublayer(walk, name, step.gear, source, inputs)
    if step.post_norm is not None:
        y = walk.norm(f"{name}_post_norm", step.post_norm, y)
    if step.skip:
        y = walk.add(f"{name}_residual", "residual", step, {"stream": x, "branch": y})
    return y if step.sum_norm is None else walk.norm(f"{name}_sum_norm", step.sum_norm, y)


def _sublayer(walk: _Walk, path: str, gear: Gear, x: Stream, inputs: Mapping[str, Stream]) -> Stream:
    if isinstance(gear, Attention):
        return _attention(walk, path, gear, {name: inputs.get(name, x) for name in ("query", "key", "value")})
    if isinstance(gear, LatentAttention):
        return _latent(walk, path, gear, x)
    if isinstance(gear, Experts):
        return _experts(walk, path, gear, x)
    if isinstance(gear, Bottleneck):
        return _bottleneck(walk, path, gear, x)
    assert isinstance(gear, FFN | GatedFFN)
    return _network(walk, path, gear, x)


def _attention(walk: _Walk, path: str, gear: Attention, inputs: Mapping[str, Stream]) -> Stream:
    made = {
        name: walk.linear(f"{path}.{name}", part, inputs[name], owner=gear)
        for name, part in (("query", gear.query), ("key", gear.key), ("value", gear.value))
    }
    for name, norm in (("query", gear.query_norm), ("key", gear.key_norm)):
        if norm is not None:
            made[name] = walk.norm(f"{path}.{name}_norm", norm, made[name], owner=gear)
    if gear.rope is not None:
        for name in ("query", "key"):
            turned = f"{path}.{name}_rotated"
            made[name] = walk.add(turned, "rotated", gear.rope, {"x": made[name]}, owner=gear)
    scores = walk.add(f"{path}.scores", "scores", gear, {"query": made["query"], "key": made["key"]})
    weights = walk.add(f"{path}.weights", "weights", gear, {"scores": scores})
    reads = {"weights": weights, "scores": scores, "value": made["value"]}
    mixed = walk.add(f"{path}.mixed", "mixed", gear, reads)
    out = walk.linear(f"{path}.output", gear.output, mixed, owner=gear)
    return walk.add(path, "same", gear, {"x": out})


def _latent(walk: _Walk, path: str, gear: LatentAttention, x: Stream) -> Stream:
    if gear.query is not None:
        query = walk.linear(f"{path}.query", gear.query, x, owner=gear)
    else:
        assert gear.query_down is not None and gear.query_up is not None
        query = walk.linear(f"{path}.query_down", gear.query_down, x, owner=gear)
        if gear.query_norm is not None:
            query = walk.norm(f"{path}.query_norm", gear.query_norm, query, owner=gear)
        query = walk.linear(f"{path}.query_up", gear.query_up, query, owner=gear)
    down = walk.linear(f"{path}.kv_down", gear.kv_down, x, owner=gear)
    latent = walk.norm(f"{path}.kv_norm", gear.kv_norm, down, owner=gear)
    turned = walk.add(f"{path}.query_rotated", "rotated", gear.rope, {"x": query}, owner=gear)
    shared = walk.add(f"{path}.key_rotated", "rotated", gear.rope, {"x": down}, owner=gear)
    up = {"weight": f"{path}.kv_up.weight"} | ({"bias": f"{path}.kv_up.bias"} if gear.kv_up.bias else {})
    reads = {"query": query, "query_rotated": turned, "latent": latent, "key_rotated": shared}
    scores = walk.add(f"{path}.scores", "latent scores", gear, reads, up)
    weights = walk.add(f"{path}.weights", "weights", gear, {"scores": scores})
    reads = {"weights": weights, "scores": scores, "latent": latent}
    mixed = walk.add(f"{path}.mixed", "latent mixed", gear, reads, up)
    out = walk.linear(f"{path}.output", gear.output, mixed, owner=gear)
    return walk.add(path, "same", gear, {"x": out})


def _network(walk: _Walk, path: str, gear: FFN | GatedFFN, x: Stream) -> Stream:
    gated = isinstance(gear, GatedFFN)
    first = walk.linear(f"{path}.gate", gear.gate, x) if isinstance(gear, GatedFFN) else ()
    up = walk.linear(f"{path}.up", gear.up, x)
    made = walk.add(f"{path}.activated", "activated", gear, {"x": first if gated else up})
    if gated:
        made = walk.add(f"{path}.product", "product", gear, {"activated": made, "up": up})
    out = walk.linear(f"{path}.down", gear.down, made)
    return walk.add(path, "same", gear, {"x": out})


def _experts(walk: _Walk, path: str, gear: Experts, x: Stream) -> Stream:
    router = gear.router
    logits = walk.linear(f"{path}.router.logits", router, x)
    scores = walk.add(f"{path}.router.scores", "router scores", router, {"logits": logits})
    correction = {"correction": f"{path}.router.correction"} if router.correction else {}
    weights = walk.add(f"{path}.router", "router", router, {"scores": scores}, correction)
    reads: dict[str, Stream] = {"router": weights}
    for number in range(router.count):
        reads[f"expert {number}"] = _network(walk, f"{path}.experts.{number}", gear.expert, x)
    if gear.shared is not None:
        reads["shared"] = _network(walk, f"{path}.shared", gear.shared, x)
    return walk.add(path, "mixture", gear, reads)


def _bottleneck(walk: _Walk, path: str, gear: Bottleneck, x: Stream) -> Stream:
    y = walk.linear(f"{path}.narrow", gear.narrow, x)
    if gear.narrow_norm is not None:
        y = walk.norm(f"{path}.narrow_norm", gear.narrow_norm, y)
    shared = walk.linear(f"{path}.shared", gear.shared, x)
    if gear.shared_norm is not None:
        shared = walk.norm(f"{path}.shared_norm", gear.shared_norm, shared)
    inputs = {"query": shared, "key": shared, "value": x}
    for step in gear.steps:
        y = _residual(walk, path, step, y, inputs if isinstance(step.gear, Attention) else {})
    out = walk.linear(f"{path}.widen", gear.widen, y)
    return walk.add(path, "same", gear, {"x": out})
