"""From the last block's rows to what was asked for: hidden states, one vector, or logits."""

from __future__ import annotations

from glassgear.backends.base import Output
from glassgear.backends.cpu.layouts import BLOCK
from glassgear.backends.cpu.program.walk import (
    Input,
    Mark,
    Walk,
    add_up,
    linear,
    normed_in_place,
    read,
)
from glassgear.backends.cpu.values import Source, Units, Value
from glassgear.model.gears import Activation, Head, Linear, Transform

__all__ = ["tail"]


def tail(at: Walk, output: Output) -> Value | None:
    """The steps behind the last block, for the wanted rows alone; where their output is then."""
    at.builder.wanted = True
    model = at.model
    if output == "pooled":
        assert model.pooler is not None
        pooled = _dense(at, "pooler", model.pooler.dense, _rows(at), "tanh", "pooled")
        at.mark("pooler", pooled)
        return pooled
    if output == "hidden":
        return _rows(at)
    assert model.head is not None
    if model.transform is not None:
        _head(at, model.head, Input(_transform(at, model.transform)))
    elif model.norm is None or model.head.extra:
        _head(at, model.head, Input(_rows(at)))
    else:
        _head(at, model.head, Input(at.buffers.x, "norm"), gather=True)
    return None


def _rows(at: Walk) -> Value:
    """The wanted rows, through the last norm if there is one."""
    x = at.buffers.x
    to = at.buffers.rows("last", x.width)
    if at.model.norm is None:
        add_up(at, x, to, add=False, gather=True)
    else:
        at.builder.norm(x, at.weights.norms["norm"], Source(to, None), gather=True)
        at.mark("norm", to)
    return to


def _dense(at: Walk, path: str, gear: Linear, x: Value, activation: Activation | str, name: str) -> Value:
    """activation(W x + b)."""
    before, to = at.buffers.rows("dense", gear.outputs), at.buffers.rows(name, gear.outputs)
    source = read(at, Input(x), at.matrices(path, ["dense"]), name=f"{path} input")
    linear(at, f"{path}.dense", source, before)
    at.builder.barrier()
    at.mark(f"{path}.dense", before)
    at.builder.activate(activation, before, None, Source(to, None), Units(1, 0, -(-gear.outputs // BLOCK)))
    at.builder.barrier()
    return to


def _transform(at: Walk, gear: Transform) -> Value:
    """norm(activation(dense(x)))."""
    bent = _dense(at, "transform", gear.dense, _rows(at), gear.activation, "transformed")
    at.mark("transform.activated", bent)
    normed_in_place(at, "transform.norm", bent)
    at.mark("transform", bent)
    return bent


def _head(at: Walk, gear: Head, x: Input, *, gather: bool = False) -> None:
    """Logits: W x (+ b), softly capped."""
    matrix = at.weights.matrices["head"]
    units = Units(1, 0, matrix.panels)
    main = x if not gear.extra else Input(x.rows.columns(0, gear.dim - gear.extra))
    at.builder.matmul(matrix, read(at, main, [matrix], name="head input", gather=gather), None, units)
    if gear.extra:  # inputs that a tied table is too narrow for have a matrix of their own
        rest, extra = (
            Input(x.rows.columns(gear.dim - gear.extra, gear.extra)),
            at.weights.matrices["head.extra"],
        )
        at.builder.matmul(extra, read(at, rest, [extra], name="head extra"), None, units, add=True)
    if gear.bias or gear.cap:
        bias = at.weights.vectors["head.bias"] if gear.bias else 0
        at.builder.join(None, None, matrix.panels, units, bias=bias, cap=gear.cap)
    if at.seeing:
        at.marks.append(Mark(len(at.builder.steps), "head", None, (gear.vocab,), "wanted"))
