"""Latent attention, absorbed: queries are carried to the latents, mixed latents to values.

One form for few rows and for many. Expanded keys and values would make long prompts cheaper, but
the sums would go another way, and a row's bits would depend on how many came with it.
"""

from __future__ import annotations

from glassgear.backends.cpu.layouts import PANEL
from glassgear.backends.cpu.program.attention import show_scores
from glassgear.backends.cpu.program.walk import Input, Target, Walk, finish, linear, read, rope_number
from glassgear.backends.cpu.values import Source, Units, Value
from glassgear.model.gears import LatentAttention

__all__ = ["latent_attention"]


def latent_attention(at: Walk, path: str, gear: LatentAttention, x: Input, target: Target | None) -> Value:
    """Attention over one latent and one rotated key part a token."""
    q, kept = _projected(at, path, gear, x)
    carried = _carried(at, path, gear, q, kept)
    layer = at.attention_gears
    at.attention_gears += 1
    place = at.layers[layer]
    at.builder.store("values", kept, place, at.half, Units(1, 0, 1))
    at.builder.barrier()
    latents = at.buffers.rows("mixed latents", gear.heads * gear.kv_rank)
    at.builder.attend(carried, latents, gear.heads, gear.scale, place, at.half)
    at.builder.barrier()
    show_scores(at, path, latents, (gear.heads, gear.kv_rank), layer)
    mixed = at.buffers.rows("mixed", gear.heads * gear.value_dim)
    _by_head(at, f"{path}.kv_up.value", gear.heads, latents, gear.kv_rank, mixed, gear.value_dim)
    at.mark(f"{path}.mixed", mixed, (gear.heads, gear.value_dim))
    output = read(at, Input(mixed), at.matrices(path, ["output"]), name="mixed")
    return finish(at, f"{path}.output", output, target)


def _projected(at: Walk, path: str, gear: LatentAttention, x: Input) -> tuple[Value, Value]:
    """Queries [heads * head_dim], and [normed latent, shared key part before its rotation]."""
    first = "query" if gear.query is not None else "query_down"
    source = read(at, x, at.matrices(path, [first, "kv_down"]))
    q = at.buffers.rows("query", gear.heads * gear.head_dim)
    if gear.query_down is None:
        linear(at, f"{path}.query", source, q)
        at.mark(f"{path}.query", q)
    else:
        _query_in_two(at, path, gear, source, q)
    down, kept = (at.buffers.rows(name, gear.cache_dim) for name in ("down", "kept"))
    linear(at, f"{path}.kv_down", source, down)
    at.builder.barrier()
    at.mark(f"{path}.kv_down", down)
    latent = kept.columns(0, gear.kv_rank)
    at.builder.norm(down, at.weights.norms[f"{path}.kv_norm"], Source(latent, None))
    at.mark(f"{path}.kv_norm", latent)
    return q, kept


def _query_in_two(at: Walk, path: str, gear: LatentAttention, source: Source, q: Value) -> None:
    assert gear.query_down is not None
    down = at.buffers.rows("query down", gear.query_down.outputs)
    linear(at, f"{path}.query_down", source, down)
    at.builder.barrier()
    at.mark(f"{path}.query_down", down)
    norm = f"{path}.query_norm" if gear.query_norm is not None else ""
    latent = read(at, Input(down, norm), at.matrices(path, ["query_up"]), name="query latent")
    linear(at, f"{path}.query_up", latent, q)
    at.mark(f"{path}.query_up", q)


def _carried(at: Walk, path: str, gear: LatentAttention, q: Value, kept: Value) -> Value:
    """Queries in the latents' space, [heads, kv_rank + rope.dim]; turns the shared key part as well."""
    heads, turning = gear.heads, gear.rope.dim
    rope, by_heads = rope_number(at, gear.rope), Units(1, 0, gear.heads)
    before, turned = (at.buffers.rows(f"query part{s}", heads * turning) for s in ("", " rotated"))
    rest = q.columns(gear.plain_dim, q.width - gear.plain_dim)
    at.builder.place_heads(rest, before, (gear.head_dim, turning), turning, by_heads)
    at.builder.rotate(before, turned, heads, turning, rope, by_heads)
    at.mark(f"{path}.query_rotated", turned, (heads, turning))
    down = at.buffers.rows("down", gear.cache_dim).columns(gear.kv_rank, turning)
    shared = kept.columns(gear.kv_rank, turning)
    at.builder.rotate(down, shared, 1, turning, rope, Units(1, 0, 1))
    at.mark(f"{path}.key_rotated", shared, (1, turning))
    carried = at.buffers.rows("carried", heads * gear.cache_dim)
    _by_head(at, f"{path}.kv_up.key", heads, q, gear.head_dim, carried, gear.cache_dim)
    to = carried.columns(gear.kv_rank, carried.width - gear.kv_rank)
    at.builder.place_heads(turned, to, (turning, gear.cache_dim), turning, by_heads)
    return carried


def _by_head(at: Walk, path: str, heads: int, x: Value, x_apart: int, to: Value, apart: int) -> None:
    """Each head's own matrix times its own columns; ends with a meeting."""
    matrices = [at.weights.matrices[f"{path}.{head}"] for head in range(heads)]
    width = matrices[0].panels * PANEL
    # Products come in whole panels: where these would reach into the next head, they go elsewhere first.
    fitting = width == matrices[0].rows
    room, room_apart = (to, apart) if fitting else (at.buffers.rows("by head", heads * width), width)
    for head, matrix in enumerate(matrices):
        source = Source(x.columns(head * x_apart, matrix.columns), None)
        place = room.columns(head * room_apart, width)
        at.builder.matmul(matrix, source, place, Units(1, 0, matrix.panels))
    at.builder.barrier()
    if not fitting:
        at.builder.place_heads(room, to, (width, apart), matrices[0].rows, Units(1, 0, heads))
        at.builder.barrier()
