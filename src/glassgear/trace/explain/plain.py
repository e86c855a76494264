"""Gears with little arithmetic: table rows, sums, activations, products, and other names."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from glassgear.backends.reference.activation import ACTIVATIONS
from glassgear.model.gears import FFN, Embed, GatedFFN, LearnedPositions, Pooler, TokenTypes, Transform
from glassgear.trace.explain import kernels
from glassgear.trace.explain.desk import Desk, Row
from glassgear.trace.explain.explanation import Made, Step
from glassgear.trace.explain.stored import codes_of
from glassgear.trace.explain.terms import Input, Term, Terms
from glassgear.trace.flow import Node

__all__ = ["activated", "product", "residual", "row", "same", "sum_of", "tanh"]

Floats = NDArray[np.float32]
FLOAT32 = "float32, one operation"


def _place(row: Row, index: tuple[int, ...]) -> int:
    return int(np.ravel_multi_index(index, row.shape))


def row(desk: Desk, node: Node, token: int, index: tuple[int, ...]) -> Made:
    """A number of a table: no other value takes part."""
    gear, channel = node.gear, index[0]
    assert isinstance(gear, Embed | LearnedPositions | TokenTypes)
    tensor = desk.tensors[node.weights["table"]]
    if isinstance(gear, Embed):
        number, what = desk.trace.ids[token], f"the id of {desk.named(token)}"
    elif isinstance(gear, LearnedPositions):
        offset = f" + {gear.offset}" if gear.offset else ""
        number, what = token + gear.offset, f"position {token}{offset}"
    else:
        number, what = 0, "the token's type"
    value = tensor.rows(np.array([number]))[0, channel]
    steps = [Step("row", f"{what}: row {number} of {tensor.matrix[0]}"),
             Step("entry", f"column {channel} of that row", float(value))]  # fmt: skip
    stored = codes_of(tensor, number)
    if stored is not None:
        group = channel // stored.sub
        steps.append(Step("level", f"the integer that code {stored.codes[channel]} stands for",
                          float(stored.levels[channel])))  # fmt: skip
        steps.append(Step("scale", "of its block", float(stored.scales[group])))
        if stored.minima is not None:
            steps.append(Step("minimum", "of its block", float(stored.minima[group])))
    result = value
    if isinstance(gear, Embed) and gear.scale != 1:
        steps.append(Step("scale", "of the embedding, is multiplied", gear.scale))
        result = value * np.float32(gear.scale)
    return Made(
        float(result), steps=tuple(steps), magnitude=abs(float(result)), order="a copy of the table's number",
        stored=tensor.type if stored is not None else "",
    )  # fmt: skip


def same(desk: Desk, node: Node, token: int, index: tuple[int, ...]) -> Made:
    """The last value inside a gear is the gear's own."""
    found = desk.row(node.reads["x"], token)
    one = found.input(_place(found, index), f"the last value inside it: {found.path}")
    return Made(one.value, (one,), magnitude=abs(one.value), order="a copy")


def sum_of(desk: Desk, node: Node, token: int, index: tuple[int, ...]) -> Made:
    """Values that are added before anybody sees the sum."""
    inputs = []
    for path in node.reads["x"]:
        found = desk.row((path,), token)
        inputs.append(found.input(_place(found, index), path))
    return _added(inputs)


def residual(desk: Desk, node: Node, token: int, index: tuple[int, ...]) -> Made:
    """What came along the stream, plus what the sublayer says."""
    inputs = []
    for role in ("stream", "branch"):
        found = desk.row(node.reads[role], token)
        inputs.append(found.input(_place(found, index), f"{role}: {found.path}"))
    return _added(inputs)


def _added(inputs: list[Input]) -> Made:
    result, terms = np.float32(inputs[0].value), []
    for i, one in enumerate(inputs):
        result = np.float32(one.value) if i == 0 else np.float32(result + np.float32(one.value))
        terms.append(Term(one.name, (i,), (), one.value, float(result)))
    magnitude = math.fsum(abs(one.value) for one in inputs)
    return Made(
        float(result), tuple(inputs), Terms.of(terms), (), (), magnitude, FLOAT32, summed="the inputs"
    )


def activated(desk: Desk, node: Node, token: int, index: tuple[int, ...]) -> Made:
    """A bend."""
    gear = node.gear
    assert isinstance(gear, FFN | GatedFFN | Transform)
    found = desk.row(node.reads["x"], token)
    one = found.input(_place(found, index), found.path)
    x = np.array([one.value], np.float32)
    table = kernels.ACTIVATIONS if desk.cpu else ACTIVATIONS
    result = table[gear.activation](x)[0]
    steps = tuple(_bend(gear.activation, one.value))
    order = "the CPU kernel's float32 operations" if desk.cpu else "NumPy's float32 operations"
    # A gate's product rounds by the size of x, also where the bend brings it near 0.
    return Made(float(result), (one,), steps=steps, magnitude=abs(one.value), order=order)


def _bend(name: str, x: float) -> list[Step]:
    """The parts of an activation, in float64."""
    steps = [Step("x", "what comes in", x)]
    if name == "silu":
        return [*steps, Step("sigmoid", "1 / (1 + e^-x), how far the gate is open", _sigmoid(x)),
                Step("SiLU", "x * sigmoid")]  # fmt: skip
    if name == "gelu":
        share = 0.5 * (1 + math.erf(x / math.sqrt(2)))
        return [*steps, Step("Phi", "(1 + erf(x / sqrt 2)) / 2, how far the gate is open", share),
                Step("GELU", "x * Phi")]  # fmt: skip
    if name == "gelu_tanh":
        inner = math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)
        return [*steps, Step("u", "sqrt(2/pi) (x + 0.044715 x^3)", inner),
                Step("tanh", "of u", math.tanh(inner)), Step("GELU", "x (1 + tanh u) / 2")]  # fmt: skip
    if name == "relu":
        return [*steps, Step("ReLU", "x is above 0: it stays" if x > 0 else "x isn't above 0: it becomes 0")]
    return [*steps, Step("identity", "x stays as it is")]


def _sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x)) if x > -700 else 0.0


def product(desk: Desk, node: Node, token: int, index: tuple[int, ...]) -> Made:
    """The opened gate times the other projection."""
    inputs = []
    for role in ("activated", "up"):
        found = desk.row(node.reads[role], token)
        inputs.append(found.input(_place(found, index), role))
    result = np.float32(inputs[0].value) * np.float32(inputs[1].value)
    steps = tuple(Step(one.name, f"input {i}", one.value) for i, one in enumerate(inputs))
    return Made(
        float(result), tuple(inputs), steps=(*steps, Step("product", "of the two")),
        magnitude=abs(float(result)), order=FLOAT32,
    )  # fmt: skip


def tanh(desk: Desk, node: Node, token: int, index: tuple[int, ...]) -> Made:
    """The pooler's bend."""
    assert isinstance(node.gear, Pooler)
    found = desk.row(node.reads["x"], token)
    one = found.input(_place(found, index), found.path)
    x = np.array([one.value], np.float32)
    result = (kernels.tanh(x) if desk.cpu else np.tanh(x))[0]
    steps = (Step("x", "what comes in", one.value), Step("tanh", "of x"))
    return Made(float(result), (one,), steps=steps, magnitude=1.0, order=FLOAT32)
