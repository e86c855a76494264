"""Attention: projections, norms of queries and keys, rotation, the cache, and what is mixed from it."""

from __future__ import annotations

from dataclasses import replace

from glassgear.backends.cpu.layouts import PANEL
from glassgear.backends.cpu.program.walk import (
    Input,
    Readers,
    Target,
    Walk,
    finish,
    linear,
    read,
    rope_number,
)
from glassgear.backends.cpu.values import Source, Units, Value
from glassgear.model.gears import Attention, Norm

__all__ = ["attention", "show_scores"]

NAMES = ("query", "key", "value")


def attention(at: Walk, path: str, gear: Attention, x: Input | Readers, target: Target | None) -> Value:
    """softmax(q k^T * scale) v W_o."""
    inputs = dict.fromkeys(NAMES, x) if isinstance(x, Input) else x
    heads = (gear.heads, gear.kv_heads, gear.kv_heads)
    values = [at.buffers.rows(name, n * gear.head_dim) for name, n in zip(NAMES, heads, strict=True)]
    # Queries, keys and values are shared out together, by heads where panels fit them: a thread
    # that has computed whole heads can turn and store them without waiting for others.
    total, fitting = sum(heads), gear.head_dim % PANEL == 0
    sources = _sources(at, path, inputs)
    first, by_heads = 0, []
    for name, value, n in zip(NAMES, values, heads, strict=True):
        units = Units(gear.head_dim // PANEL, first, total) if fitting else None
        linear(at, f"{path}.{name}", sources[name], value, units)
        at.mark(f"{path}.{name}", value)
        by_heads.append(Units(1, first, total))
        first += n
    if not fitting:
        at.builder.barrier()
    _norms(at, path, gear, values, by_heads)
    q, k = _rotated(at, path, gear, values, by_heads)
    mixed = _mixed(at, path, gear, (q, k, values[2]), by_heads)
    output = read(at, Input(mixed), at.matrices(path, ["output"]), name="mixed")
    return finish(at, f"{path}.output", output, target)


def _sources(at: Walk, path: str, inputs: Readers) -> dict[str, Source]:
    """The input of each projection; one that several read is made once."""
    found: dict[str, Source] = {}
    for x in dict.fromkeys(inputs.values()):
        names = [name for name in NAMES if inputs[name] == x]
        same = len(names) == len(NAMES)
        source = read(at, x, at.matrices(path, names), name="normed" if same else f"{names[0]} input")
        found |= dict.fromkeys(names, source)
    return found


def _norms(at: Walk, path: str, gear: Attention, values: list[Value], by_heads: list[Units]) -> None:
    """Norms of queries and keys, in their places."""
    for name, norm, value, units in zip(
        NAMES, (gear.query_norm, gear.key_norm), values, by_heads, strict=False
    ):
        if norm is not None:
            _norm(at, f"{path}.{name}_norm", norm, value, units if norm.dim == gear.head_dim else None)


def _norm(at: Walk, path: str, norm: Norm, x: Value, heads: Units | None) -> None:
    if heads is None:  # a row is complete only when all threads are done
        at.builder.barrier()
    at.builder.norm(x, at.weights.norms[path], Source(x, None), heads=heads)
    at.mark(path, x, (x.width // norm.dim, norm.dim))


def _rotated(
    at: Walk, path: str, gear: Attention, values: list[Value], by_heads: list[Units]
) -> tuple[Value, Value]:
    """Queries and keys, turned if the gear has rotary positions."""
    if gear.rope is None:
        return values[0], values[1]
    rope, out = rope_number(at, gear.rope), []
    for name, value, units in zip(NAMES[:2], values[:2], by_heads[:2], strict=True):
        to, heads = at.buffers.rows(f"{name} rotated", value.width), value.width // gear.head_dim
        at.builder.rotate(value, to, heads, gear.head_dim, rope, units)
        at.mark(f"{path}.{name}_rotated", to, (heads, gear.head_dim))
        out.append(to)
    return out[0], out[1]


def _mixed(
    at: Walk, path: str, gear: Attention, qkv: tuple[Value, Value, Value], by_heads: list[Units]
) -> Value:
    q, k, v = qkv
    layer = at.attention_gears
    at.attention_gears += 1
    place = at.layers[layer]
    at.builder.store("keys", k, place, at.half, by_heads[1])
    at.builder.store("values", v, place, at.half, by_heads[2])
    at.builder.barrier()
    mixed = at.buffers.rows("mixed", gear.heads * gear.head_dim)
    at.builder.attend(
        q, mixed, gear.heads // gear.kv_heads, gear.scale, place, at.half,
        window=gear.window, causal=gear.causal, cap=gear.cap,
    )  # fmt: skip
    at.builder.barrier()
    show_scores(at, path, mixed, (gear.heads, gear.head_dim), layer)
    at.mark(f"{path}.mixed", mixed, (gear.heads, gear.head_dim))
    return mixed


def show_scores(at: Walk, path: str, mixed: Value, shape: tuple[int, int], layer: int) -> None:
    """Note that the last step's scores can be seen; what it mixed is made anew if they change."""
    if at.seeing:
        at.mark(path, mixed, shape)
        at.marks[-1] = replace(at.marks[-1], kind="scores", layer=layer)
