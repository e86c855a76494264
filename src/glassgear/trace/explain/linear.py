"""Matrix products: one output is the sum of inputs times a row of weights."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from glassgear.model.gears import Head
from glassgear.trace.explain import kernels
from glassgear.trace.explain.desk import Desk, Row
from glassgear.trace.explain.explanation import Block, Made, Step
from glassgear.trace.explain.stored import Codes, codes_of, weights_of
from glassgear.trace.explain.terms import Input, Listed, Terms
from glassgear.trace.flow import Node
from glassgear.weights.tensor import StoredTensor

__all__ = ["CPU_FLOATS", "EXACT_SUM", "Product", "head", "linear", "neighbours", "product"]

Floats = NDArray[np.float32]
CPU_FLOATS = "the CPU kernel's order: input by input, each multiplied and added with one rounding"
CPU_CODES = "the CPU kernel's order: integer sums, which are exact, then block by block in float32"
EXACT_SUM = "added in float64 and rounded once; the backend's matrix product adds in an order of its own"


class Product(NamedTuple):
    """A row of inputs times a row of weights."""

    result: np.float32
    terms: Terms
    blocks: tuple[Block, ...]
    magnitude: float
    order: str


def product(
    desk: Desk, tensor: StoredTensor, row: int, x: Floats, name: Callable[[int], str], first: int = 0
) -> Product:
    """The product of a row and the terms that it is the sum of.

    Args:
        desk: whose arithmetic.
        tensor: the matrix.
        row: number of the output.
        x: what it is multiplied by.
        name: of an input of the explanation, by its number.
        first: number of the first of them among the inputs of the explanation.
    """
    weights = weights_of(tensor, row)
    codes = codes_of(tensor, row)
    if codes is not None and desk.cpu:
        return _of_codes(codes, weights, x, name, first)
    exact = weights.astype(np.float64) * x
    if desk.cpu:
        running = kernels.accumulate(weights, x)
        result, order = running[-1], CPU_FLOATS
    else:
        running = np.cumsum(exact)
        result, order = np.float32(exact.sum()), EXACT_SUM
    inputs = first + np.arange(len(x))
    terms = Terms.columns(
        lambda i: name(first + i), inputs, (("weight", weights), ("input", x)), exact, running
    )
    blocks = () if codes is None else _as_floats(codes, exact)
    return Product(result, terms, blocks, float(np.abs(exact).sum()), order)


def _of_codes(codes: Codes, weights: Floats, x: Floats, name: Callable[[int], str], first: int) -> Product:
    """Integer dot products of codes, as `quant_tile` has them."""
    rounded, units = kernels.encode(x)
    total, blocks = np.float32(0), []
    for whole, unit in enumerate(units):
        part = np.float32(0)
        for number in range(whole * 32 // codes.sub, (whole + 1) * 32 // codes.sub):
            here = slice(number * codes.sub, (number + 1) * codes.sub)
            dot, ones = np.float32(codes.levels[here] @ rounded[here]), np.float32(rounded[here].sum())
            part = kernels.fma_one(dot, codes.scales[number], part)
            if codes.minima is not None:
                part = kernels.fma_one(codes.minima[number], ones, part)
            blocks.append(_block(codes, number, rounded[here], float(unit)))
        total = kernels.fma_one(part, unit, total)
        blocks[-1] = replace(blocks[-1], running=float(total))
    worth = rounded * np.repeat(units, 32).astype(np.float64)
    held = _held_weights(codes)
    values = held * worth
    inputs = first + np.arange(len(x))
    factors = (("weight", weights), ("input", x), ("input in int8", worth))
    terms = Terms.columns(lambda i: name(first + i), inputs, factors, values)
    return Product(total, terms, tuple(blocks), float(np.abs(values).sum()), CPU_CODES)


def _held_weights(codes: Codes) -> NDArray[np.float64]:
    """Weights with the scales that the kernels have, float64."""
    scales = np.repeat(codes.scales, codes.sub).astype(np.float64)
    lows = 0.0 if codes.minima is None else np.repeat(codes.minima, codes.sub).astype(np.float64)
    held: NDArray[np.float64] = scales * codes.levels + lows
    return held


def _block(codes: Codes, number: int, rounded: NDArray[np.int64], unit: float) -> Block:
    first = number * codes.sub
    here = slice(first, first + codes.sub)
    dot = int(codes.levels[here] @ rounded)
    scale, low = float(codes.scales[number]), None if codes.minima is None else float(codes.minima[number])
    return Block(
        number, first, codes.stored(first), _whole(codes.codes[here]), _whole(codes.levels[here]), scale, low,
        _whole(rounded), unit, dot, (dot * scale + (low or 0.0) * int(rounded.sum())) * unit, None,
    )  # fmt: skip


def _as_floats(codes: Codes, products: NDArray[np.float64]) -> tuple[Block, ...]:
    """The blocks of a row whose weights the backend decodes before it multiplies."""
    found = []
    for number in range(len(codes.scales)):
        first = number * codes.sub
        here = slice(first, first + codes.sub)
        found.append(
            Block(
                number, first, codes.stored(first), _whole(codes.codes[here]), _whole(codes.levels[here]),
                float(codes.scales[number]), None if codes.minima is None else float(codes.minima[number]),
                (), None, None, float(products[here].sum()), None,
            )
        )  # fmt: skip
    return tuple(found)


def _whole(values: NDArray[np.integer]) -> tuple[int, ...]:
    return tuple(int(v) for v in values)


def channels(x: Row, before: str = "") -> Listed[Input]:
    """All numbers of a row as inputs; `before` is put before their names."""
    return x.inputs(range(len(x.values)), lambda i: before + _channel(x, i))


def _channel(x: Row, place: int) -> str:
    if len(x.shape) == 1:
        return f"channel {place}"
    head, channel = np.unravel_index(place, x.shape)
    return f"head {head}, channel {channel}"


def linear(desk: Desk, node: Node, token: int, index: tuple[int, ...]) -> Made:
    """The sum of inputs times a row of weights, and a bias."""
    x = desk.row(node.reads["x"], token)
    return _with_bias(desk, node, index[0], channels(x), x.values)


def neighbours(desk: Desk, node: Node, token: int, index: tuple[int, ...]) -> Made:
    """The same of [next, own, previous] embeddings; zeros beyond either end."""
    start, stop = desk.span(token)
    inputs: Listed[Input] = Listed.of(())
    values = []
    for place, name in ((token + 1, "next"), (token, "own"), (token - 1, "previous")):
        x = desk.row(node.reads["x"], place if start <= place < stop else token)
        if x.token == place:
            inputs += channels(x, f"{name} token, ")
            values.append(x.values)
        else:
            zero = Input("", token, (), 0.0, f"no {name} token: 0")
            inputs += Listed.of([zero] * len(x.values))
            values.append(np.zeros_like(x.values))
    return _with_bias(desk, node, index[0], inputs, np.concatenate(values))


def _with_bias(desk: Desk, node: Node, output: int, inputs: Listed[Input], x: Floats) -> Made:
    tensor = desk.tensors[node.weights["weight"]]
    found = product(desk, tensor, output, x, lambda i: inputs[i].name)
    result, steps, magnitude = found.result, [], found.magnitude
    if "bias" in node.weights:
        bias = desk.vector(node.weights["bias"])[output]
        steps = [Step("sum", "of the terms", float(result)), Step("bias", "is added", float(bias))]
        result, magnitude = np.float32(result + bias), magnitude + abs(float(bias))
    stored = tensor.type if found.blocks else ""
    return Made(
        float(result), inputs, found.terms, tuple(steps), found.blocks, magnitude, found.order, stored,
        "weight times input",
    )  # fmt: skip


def head(desk: Desk, node: Node, token: int, index: tuple[int, ...]) -> Made:
    """A logit: a matrix product, the inputs that a tied table is too narrow for, bias, cap."""
    gear = node.gear
    assert isinstance(gear, Head)
    x, entry, steps = desk.row(node.reads["x"], token), index[0], []
    inputs, main = channels(x), gear.dim - gear.extra
    tensor = desk.tensors[node.weights["weight"]]
    found = product(desk, tensor, entry, x.values[:main], lambda i: _channel(x, i))
    result, terms, magnitude = found.result, found.terms, found.magnitude
    if gear.extra:
        own = desk.tensors[node.weights["extra"]]
        more = product(desk, own, entry, x.values[main:], lambda i: _channel(x, i), main)
        steps += [
            Step("first sum", f"over channels 0 to {main - 1}, by the embedding's table", float(result)),
            Step("second sum", f"over channels {main} to {gear.dim - 1}, by weights of their own",
                 float(more.result)),
        ]  # fmt: skip
        result, terms = np.float32(result + more.result), terms.joined(more.terms)
        magnitude += more.magnitude
    if gear.bias:
        bias = desk.vector(node.weights["bias"])[entry]
        steps += [Step("sum", "of all terms", float(result)), Step("bias", "is added", float(bias))]
        result, magnitude = np.float32(result + bias), magnitude + abs(float(bias))
    if gear.cap:
        cap, tanh = np.float32(gear.cap), _tanh(desk)
        steps += [
            Step("before the cap", "sum and bias", float(result)),
            Step("cap", "z becomes cap * tanh(z / cap)", float(cap)),
        ]
        result = np.float32(cap * tanh(result / cap))
    stored = tensor.type if found.blocks else ""
    return Made(
        float(result), inputs, terms, tuple(steps), found.blocks, magnitude, found.order, stored,
        "weight times input",
    )  # fmt: skip


def _tanh(desk: Desk) -> Callable[[np.float32], np.float32]:
    if desk.cpu:
        return lambda x: np.float32(kernels.tanh(x))
    return lambda x: np.float32(np.tanh(x))
