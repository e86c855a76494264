"""What the flattening of all gears shares: buffers, marks, and the steps that every gear needs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from glassgear.backends.cpu.builder import Builder
from glassgear.backends.cpu.cache import LayerCache
from glassgear.backends.cpu.layouts import BLOCK, PANEL
from glassgear.backends.cpu.memory import CAPACITY, Memory
from glassgear.backends.cpu.program.weights import Weights
from glassgear.backends.cpu.values import Codes, Matrix, Source, Units, Value, is_float
from glassgear.model.gears import Activation, Model, Rope

__all__ = [
    "Buffers",
    "Inner",
    "Input",
    "Mark",
    "Nest",
    "Target",
    "Walk",
    "activate",
    "add_up",
    "finish",
    "linear",
    "normed_in_place",
    "read",
    "rope_number",
]


@dataclass(frozen=True)
class Mark:
    """A value that can be seen when `steps` steps are done.

    Attributes:
        steps: how many.
        path: its name.
        value: where it is; `None` for logits, which have a place of their own.
        shape: of a row.
        kind: `rows`, `wanted` (rows whose output is asked for), `scores`, or `experts`.
        layer: number of the attention gear, for scores.
        nest: for experts.
        copied: whether the next step is one that copies the value to where a hook wants it.
    """

    steps: int
    path: str
    value: Value | None
    shape: tuple[int, ...]
    kind: str = "rows"
    layer: int = 0
    nest: Nest | None = None
    copied: bool = False


class Inner(NamedTuple):
    """The program of one expert by itself: its steps, what can be seen, its input and its result."""

    program: NDArray[np.int64]
    marks: Sequence[Mark]
    x: Value
    result: Value


@dataclass(frozen=True)
class Nest:
    """Experts whose programs run one by one, each on the rows that it is for, so that they can be seen.

    Attributes:
        x: what goes in.
        weights: of all experts, 0 where a row doesn't use one.
        inner: makes an expert's program.
        made: those that have been made.
    """

    x: Value
    weights: Value
    inner: Callable[[int], Inner]
    made: dict[int, Inner] = field(default_factory=dict)

    def program(self, number: int) -> Inner:
        """The program of an expert."""
        if number not in self.made:
            self.made[number] = self.inner(number)
        return self.made[number]


class Buffers:
    """The values between steps, shared by all layers and by all programs."""

    def __init__(self, model: Model, memory: Memory) -> None:
        self._memory = memory
        self._rows: dict[tuple[str, int, int], Value] = {}
        self._codes: dict[tuple[str, int, int], Codes] = {}
        self._plans: dict[int, int] = {}
        self.x = memory.rows(model.dim)
        self.embedded = memory.rows(model.embed.dim) if model.neighbours else self.x

    def rows(self, name: str, width: int, private: bool = False, count: int = CAPACITY) -> Value:
        """The buffer of this name and width."""
        key = (name, width, count)
        if key not in self._rows:
            self._rows[key] = self._memory.rows(width, private, count)
        return self._rows[key]

    def codes(self, name: str, width: int, private: bool = False, count: int = CAPACITY) -> Codes:
        """The buffer of this name and width for activation blocks."""
        key = (name, width, count)
        if key not in self._codes:
            self._codes[key] = self._memory.codes(width, private, count)
        return self._codes[key]

    def source(
        self, name: str, width: int, readers: Sequence[Matrix], *, private: bool, floats: bool = False,
        count: int = CAPACITY,
    ) -> Source:  # fmt: skip
        """What `readers` need of a value of this name: floats, codes, or both."""
        wants_floats = floats or any(is_float(m) for m in readers)
        wants_codes = any(not is_float(m) for m in readers)
        return Source(
            self.rows(name, width, private, count) if wants_floats else None,
            self.codes(name, width, private, count) if wants_codes else None,
        )

    def plan(self, words: int) -> int:
        """Address of room for the plan of a router."""
        if words not in self._plans:
            self._plans[words] = self._memory.raw(8 * words)
        return self._plans[words]


@dataclass
class Walk:
    """One flattening in progress.

    Attributes:
        model: the tree.
        builder: where steps go.
        weights: packed.
        buffers: for the values between.
        layers: where each attention gear's keys and values lie.
        half: whether they are float16.
        ropes: distinct rotations; those of the model that are missing are appended.
        seeing: make the program for hooks.
        reads_only: for hooks that change nothing: work stays together that shows its values all the same.
        finished: turns a builder into an array; for programs inside of programs.
        marks: what can be seen, in order; empty for the fast program.
        attention_gears: how many have been met.
    """

    model: Model
    builder: Builder
    weights: Weights
    buffers: Buffers
    layers: Sequence[LayerCache]
    half: bool
    ropes: list[Rope]
    seeing: bool
    reads_only: bool
    finished: Callable[[Builder], NDArray[np.int64]]
    marks: list[Mark] = field(default_factory=list)
    attention_gears: int = 0

    def mark(self, path: str, value: Value, shape: tuple[int, ...] | None = None) -> None:
        """Note that a value is complete now; by default a row is as wide as its buffer."""
        if self.seeing:
            kind = "wanted" if self.builder.wanted else "rows"
            row = shape or (value.width,)
            self.marks.append(Mark(len(self.builder.steps), path, value, row, kind, copied=True))
            self.builder.copy(value)

    def matrices(self, path: str, names: Sequence[str]) -> list[Matrix]:
        """Packed matrices of the parts of a gear."""
        return [self.weights.matrices[f"{path}.{name}"] for name in names]


@dataclass(frozen=True)
class Input:
    """What a gear reads: rows, through the norm of this path first if there is one."""

    rows: Value
    norm: str = ""


@dataclass(frozen=True)
class Target:
    """Where the result of a gear goes, if its last step may put it there itself."""

    to: Value
    add: bool


def read(
    at: Walk, x: Input, readers: Sequence[Matrix], *, name: str = "normed", floats: bool = False,
    gather: bool = False, private: bool = True,
) -> Source:  # fmt: skip
    """An input in the form that `readers` want.

    Args:
        at: the walk.
        x: the input.
        readers: matrices that it is for.
        name: of the buffers.
        floats: floats are wanted in any case.
        gather: of all rows take those whose output is wanted; there must be a norm.
        private: threads may have few rows each for itself.
    """
    if not x.norm:
        assert not gather
        return _encoded(at, x.rows, readers, name)
    vectors = at.weights.norms[x.norm]
    to = at.buffers.source(name, vectors.width, readers, private=private, floats=floats or at.seeing)
    if not at.seeing:
        at.builder.norm(x.rows, vectors, to, gather=gather)
        return to
    assert to.floats is not None
    at.builder.norm(x.rows, vectors, to if at.reads_only else Source(to.floats, None), gather=gather)
    at.mark(x.norm, to.floats)
    if to.codes is not None and not at.reads_only:
        at.builder.quantize(to.floats, to.codes)
    return to


def _encoded(at: Walk, x: Value, readers: Sequence[Matrix], name: str) -> Source:
    """A buffer of floats, also as codes if a reader wants them."""
    if all(is_float(m) for m in readers):
        return Source(x, None)
    codes = at.buffers.codes(name, x.width, private=True)
    at.builder.quantize(x, codes)
    return Source(x, codes)


def linear(
    at: Walk, path: str, x: Source, to: Value, units: Units | None = None, *, bias: bool = True
) -> None:
    """W x (+ b) into a buffer, shared out by `units`, which fit the matrix, or by panels."""
    matrix = at.weights.matrices[path]
    shared = units or Units(1, 0, matrix.panels)
    at.builder.matmul(matrix, x, to, shared)
    vector = at.weights.vectors.get(f"{path}.bias", 0) if bias else 0
    if vector:
        at.builder.join(None, to, matrix.panels, shared, bias=vector)


def finish(at: Walk, path: str, x: Source, target: Target | None, name: str = "branch") -> Value:
    """W x (+ b), the last step of a gear: to its target, or into a buffer of this name.

    Returns:
        Where the result is.
    """
    matrix = at.weights.matrices[path]
    units = Units(1, 0, matrix.panels)
    bias = at.weights.vectors.get(f"{path}.bias", 0)
    to = at.buffers.rows(name, matrix.rows)
    if target is None:
        linear(at, path, x, to)
        at.builder.barrier()
        at.mark(path, to)
        return to
    if bias:
        at.builder.matmul(matrix, x, to, units)
        at.builder.join(to, target.to, matrix.panels, units, bias=bias, add=target.add)
    else:
        at.builder.matmul(matrix, x, target.to, units, add=target.add)
    at.builder.barrier()
    return target.to


def add_up(at: Walk, x: Value, to: Value, *, add: bool = True, gather: bool = False) -> None:
    """Put x to where it goes, or add it to what is there."""
    panels = -(-to.width // PANEL)
    at.builder.join(x, to, panels, Units(1, 0, panels), add=add, gather=gather)
    at.builder.barrier()


def normed_in_place(at: Walk, path: str, x: Value) -> None:
    """A norm of rows that takes their place."""
    at.builder.norm(x, at.weights.norms[path], Source(x, None))
    at.mark(path, x)


def activate(
    at: Walk,
    path: str,
    name: Activation,
    first: Value,
    second: Value | None,
    reader: Matrix,
    biases: tuple[int, int],
) -> Source:
    """activation(first) [* second], in the form that `reader` wants; biases in the fast program alone."""
    width = first.width
    units = Units(1, 0, -(-width // BLOCK))
    to = at.buffers.source("product", width, [reader], private=False, floats=at.seeing)
    if not at.seeing:
        at.builder.activate(name, first, second, to, units, biases=biases)
        at.builder.barrier()
        return to
    alone = at.buffers.rows("activated", width)
    if at.reads_only:
        if second is None:
            to = Source(alone, to.codes)
        at.builder.activate(name, first, second, to, units, alone=None if second is None else alone)
        at.mark(f"{path}.activated", alone)
        if second is not None and to.floats is not None:
            at.mark(f"{path}.product", to.floats)
        return to
    at.builder.activate(name, first, None, Source(None, None), units, alone=alone)
    at.mark(f"{path}.activated", alone)
    if second is None:
        to = Source(alone, to.codes)
    else:
        assert to.floats is not None
        at.builder.multiply(alone, second, to.floats)
        at.mark(f"{path}.product", to.floats)
    if to.codes is not None:
        assert to.floats is not None
        at.builder.quantize(to.floats, to.codes)
    return to


def rope_number(at: Walk, rope: Rope) -> tuple[int, int, int]:
    """Channels that turn, 1 where neighbours form pairs, number of the table."""
    if rope not in at.ropes:
        at.ropes.append(rope)
    return rope.dim, int(rope.pairing == "interleaved"), at.ropes.index(rope)


Readers = Mapping[str, Input]
