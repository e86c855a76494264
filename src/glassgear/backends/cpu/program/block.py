"""Layers: sublayers, the norms around them, and the stream that leads past them."""

from __future__ import annotations

from collections.abc import Callable

from glassgear.backends.cpu.program.attention import attention
from glassgear.backends.cpu.program.experts import experts
from glassgear.backends.cpu.program.ffn import ffn
from glassgear.backends.cpu.program.latent_attention import latent_attention
from glassgear.backends.cpu.program.walk import (
    Input,
    Readers,
    Target,
    Walk,
    add_up,
    finish,
    linear,
    normed_in_place,
    read,
)
from glassgear.backends.cpu.values import Source, Value
from glassgear.model.gears import (
    FFN,
    Attention,
    Block,
    Bottleneck,
    Experts,
    GatedFFN,
    Gear,
    LatentAttention,
    Residual,
)

__all__ = ["block"]


def block(at: Walk, path: str, gear: Block) -> None:
    """One layer, on the residual stream."""
    for step in gear.steps:
        _residual(at, path, step, at.buffers.x)
    at.mark(path, at.buffers.x)


def _residual(at: Walk, path: str, step: Residual, x: Value, readers: Readers | None = None) -> None:
    """sum_norm(x + post_norm(gear(norm(x)))) in the place of x."""
    inner = f"{path}.{step.step}"
    source = Input(x, f"{inner}_norm" if step.norm is not None else "")
    alone = at.seeing or step.post_norm is not None
    target = None if alone else Target(x, step.skip)
    if readers is not None and isinstance(step.gear, Attention):
        done = attention(at, inner, step.gear, readers, target)
    else:
        done = EMIT[type(step.gear)](at, inner, step.gear, source, target)
    at.mark(inner, done)
    if alone:
        _leave_branch(at, inner, step, done, x)
    if step.skip:
        at.mark(f"{inner}_residual", x)
    if step.sum_norm is not None:
        normed_in_place(at, f"{inner}_sum_norm", x)


def _leave_branch(at: Walk, inner: str, step: Residual, done: Value, x: Value) -> None:
    """Put the branch, through its norm if it has one, in the place of x or add it."""
    if step.post_norm is None:
        add_up(at, done, x, add=step.skip)
        return
    norm = f"{inner}_post_norm"
    if at.seeing:
        normed_in_place(at, norm, done)
        add_up(at, done, x, add=step.skip)
    else:
        at.builder.norm(done, at.weights.norms[norm], Source(x, None), add_to=x if step.skip else None)


def _bottleneck(at: Walk, path: str, gear: Bottleneck, x: Input, target: Target | None) -> Value:
    """Sublayers on a narrower stream; attention there reads its values from the wide one."""
    narrow, shared = (
        at.buffers.rows("narrow", gear.narrow.outputs),
        at.buffers.rows("shared", gear.shared.outputs),
    )
    source = read(at, x, at.matrices(path, ["narrow", "shared"]), name="wide", floats=True, private=False)
    assert source.floats is not None
    for name, to, norm in (("narrow", narrow, gear.narrow_norm), ("shared", shared, gear.shared_norm)):
        linear(at, f"{path}.{name}", source, to)
        at.builder.barrier()
        at.mark(f"{path}.{name}", to)
        if norm is not None:
            normed_in_place(at, f"{path}.{name}_norm", to)
    same, wide = Input(shared), Input(source.floats)
    for step in gear.steps:
        _residual(at, path, step, narrow, {"query": same, "key": same, "value": wide})
    codes = read(at, Input(narrow), at.matrices(path, ["widen"]), name="narrow")
    return finish(at, f"{path}.widen", codes, target)


EMIT: dict[type[Gear], Callable[..., Value]] = {
    Attention: attention,
    Bottleneck: _bottleneck,
    Experts: experts,
    FFN: ffn,
    GatedFFN: ffn,
    LatentAttention: latent_attention,
}
