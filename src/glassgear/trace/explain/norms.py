"""Norms: one channel of a row that was brought to a size."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from glassgear.backends.cpu.fields import NormKind
from glassgear.model.gears import Affine, BatchNorm, LayerNorm, RMSNorm, ScaleNorm
from glassgear.trace.explain import kernels
from glassgear.trace.explain.desk import Desk, Row
from glassgear.trace.explain.explanation import Made, Step
from glassgear.trace.explain.terms import Input, Terms
from glassgear.trace.flow import Node

__all__ = ["norm"]

Floats = NDArray[np.float32]
CPU_ROW = "the CPU kernel's order: 16 lanes in two sets, whose sums are added in halves"
CPU_CHANNEL = "the CPU kernel's: times the weight, plus the bias, with one rounding"
NUMPY = "NumPy's float32 operations in the order of the formula"


class _Part(NamedTuple):
    """The channels that are normed together, and which of them is asked for."""

    row: Row
    first: int
    width: int
    channel: int

    @property
    def values(self) -> Floats:
        return self.row.values[self.first : self.first + self.width]


class _Vectors(NamedTuple):
    """Weight and bias of the channel."""

    weight: np.float32
    bias: np.float32


def norm(desk: Desk, node: Node, token: int, index: tuple[int, ...]) -> Made:
    """Any norm, of whole rows or of each head."""
    gear = node.gear
    assert isinstance(gear, RMSNorm | LayerNorm | ScaleNorm | BatchNorm | Affine)
    row = desk.row(node.reads["x"], token)
    shape = desk.row(node.path, token).shape
    place = int(np.ravel_multi_index(index, shape))
    part = _Part(row, place // gear.dim * gear.dim, gear.dim, place % gear.dim)
    if isinstance(gear, BatchNorm | Affine):
        return _by_channel(desk, node, part)
    inputs = row.inputs(range(part.first, part.first + gear.dim), lambda i: f"channel {i}")
    made = _row_cpu(desk, node, part, inputs) if desk.cpu else _row_numpy(desk, node, part, inputs)
    return made


def _vectors(desk: Desk, node: Node, channel: int) -> _Vectors:
    gear, weight = node.gear, desk.vector(node.weights["weight"])
    one = weight[0] if isinstance(gear, ScaleNorm) else weight[channel]
    if isinstance(gear, RMSNorm) and gear.offset:
        one = np.float32(gear.offset) + one
    bias = desk.vector(node.weights["bias"])[channel] if "bias" in node.weights else np.float32(0)
    return _Vectors(np.float32(one), np.float32(bias))


def _row_cpu(desk: Desk, node: Node, part: _Part, inputs: Sequence[Input]) -> Made:
    gear, x = node.gear, part.values
    assert isinstance(gear, RMSNorm | LayerNorm | ScaleNorm)
    kind = {RMSNorm: NormKind.RMS, LayerNorm: NormKind.LAYER, ScaleNorm: NormKind.SCALE}[type(gear)]
    squares, middle, scale = kernels.moments(kind, x, gear.eps)
    own = _vectors(desk, node, part.channel)
    result = kernels.normed(x, part.channel, middle, scale, own.weight, own.bias)
    return _told(node, part, inputs, float(result), (squares, middle, scale), own, CPU_ROW)


def _row_numpy(desk: Desk, node: Node, part: _Part, inputs: Sequence[Input]) -> Made:
    gear, x = node.gear, part.values
    own, eps, middle = _vectors(desk, node, part.channel), np.float32(0), np.float32(0)
    assert isinstance(gear, RMSNorm | LayerNorm | ScaleNorm)
    eps = np.float32(gear.eps)
    if isinstance(gear, ScaleNorm):
        squares = np.sum(x * x, dtype=np.float32)
        divisor = np.maximum(np.sqrt(squares), eps)
        result = np.float32(own.weight * x[part.channel] / divisor)
    else:
        if isinstance(gear, LayerNorm):
            middle = np.mean(x, dtype=np.float32)
        centred = x - middle
        mean = np.mean(centred * centred, dtype=np.float32)
        divisor = np.sqrt(mean + eps)
        result = np.float32(centred[part.channel] / divisor * own.weight + own.bias)
        squares = np.float32(mean * np.float32(len(x)))
    scale = np.float32(1) / divisor
    return _told(node, part, inputs, float(result), (squares, middle, scale), own, NUMPY)


def _told(
    node: Node, part: _Part, inputs: Sequence[Input], result: float,
    found: tuple[np.float32, np.float32, np.float32], own: _Vectors, order: str,
) -> Made:  # fmt: skip
    """The squares that make the size, and the lines of arithmetic after them."""
    gear, x = node.gear, part.values
    assert isinstance(gear, RMSNorm | LayerNorm | ScaleNorm)
    squares, middle, scale = (float(v) for v in found)
    one = float(x[part.channel])
    centred = x.astype(np.float64) - middle
    factor = "x less mean" if middle else "x"
    terms = Terms.columns(
        lambda i: f"channel {i}", np.arange(len(x)), ((factor, centred),), centred * centred
    )
    mean = squares / len(x)
    steps = [Step("x", f"channel {part.channel} of the input", one)]
    if isinstance(gear, LayerNorm):
        steps.append(Step("mean", f"of all {len(x)} channels, is taken off", middle))
    if isinstance(gear, ScaleNorm):
        steps.append(Step("length", "the root of the sum of squares", math.sqrt(max(0.0, squares))))
    else:
        name = "variance" if isinstance(gear, LayerNorm) else "mean square"
        steps.append(Step(name, f"the sum of squares / {len(x)}", mean))
        steps.append(Step("eps", "is added before the root", gear.eps))
    steps.append(Step("scale", "1 / root, what x is multiplied by", scale))
    if isinstance(gear, RMSNorm) and gear.offset:
        steps.append(Step("weight", f"stored weight + {gear.offset:g}", float(own.weight)))
    else:
        steps.append(Step("weight", "of the norm", float(own.weight)))
    if "bias" in node.weights:
        steps.append(Step("bias", "is added", float(own.bias)))
    magnitude = (abs(one) + abs(middle)) * scale * abs(float(own.weight)) + abs(float(own.bias))
    return Made(
        result, inputs, terms, tuple(steps), magnitude=magnitude, order=order,
        summed="the squares that make the size",
    )  # fmt: skip


def _by_channel(desk: Desk, node: Node, part: _Part) -> Made:
    """BatchNorm and Affine: no other channel takes part."""
    x, channel = part.values[part.channel], part.channel
    inputs = (part.row.input(part.first + channel, f"channel {channel}"),)
    own = _vectors(desk, node, channel)
    gear, steps = node.gear, [Step("x", f"channel {channel} of the input", float(x))]
    weight, bias = own.weight, own.bias
    magnitude = abs(float(x) * float(weight)) + abs(float(bias))
    if isinstance(gear, BatchNorm):
        mean = desk.vector(node.weights["mean"])[channel]
        variance = desk.vector(node.weights["variance"])[channel]
        steps += [
            Step("mean", "stored", float(mean)), Step("variance", "stored", float(variance)),
            Step("eps", "is added before the root", gear.eps),
        ]  # fmt: skip
        spread = math.sqrt(float(variance) + gear.eps)
        magnitude = (abs(float(x)) + abs(float(mean))) / spread * abs(float(weight)) + abs(float(bias))
        if desk.cpu:  # as `program.weights` works the statistics in, once, in float64
            scale = float(weight) / spread
            bias = np.float32(float(bias) - float(mean) * scale)
            weight = np.float32(scale)
        else:
            root = np.sqrt(variance + np.float32(gear.eps))
            result = np.float32((x - mean) / root * weight + bias)
    steps += [Step("weight", _worked_in(desk, gear, "weight"), float(weight)),
              Step("bias", _worked_in(desk, gear, "bias"), float(bias))]  # fmt: skip
    if desk.cpu:
        result = kernels.normed(part.values, channel, np.float32(0), np.float32(1), weight, bias)
    elif isinstance(gear, Affine):
        result = np.float32(x * weight + bias)
    return Made(float(result), inputs, steps=tuple(steps), magnitude=magnitude,
                order=CPU_CHANNEL if desk.cpu else NUMPY)  # fmt: skip


def _worked_in(desk: Desk, gear: object, name: str) -> str:
    """What a vector of a norm is, as the backend has it."""
    if not (desk.cpu and isinstance(gear, BatchNorm)):
        return "is multiplied" if name == "weight" else "is added"
    return "weight / root" if name == "weight" else "bias - mean * weight / root"
