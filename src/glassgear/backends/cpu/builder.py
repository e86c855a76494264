"""The steps that programs are made of, and the memory between them.

`Memory` gives out zeroed buffers and holds packed weights. `Builder` appends steps: one method
for each kernel, which fills in the fields of `fields.py`. Which steps a model needs is decided
in `program.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from glassgear.backends.cpu.cache import LayerCache
from glassgear.backends.cpu.fields import ROWS, STEP_FIELDS, TILE, Step, quantized_bytes
from glassgear.backends.cpu.layouts import BLOCK, PANEL, FloatLayout, Layout, QuantLayout
from glassgear.backends.cpu.machine_code import Kernel
from glassgear.backends.cpu.pack import fill, plan
from glassgear.backends.cpu.release import release
from glassgear.weights.tensor import StoredTensor

__all__ = ["FEW", "Builder", "Matrix", "Memory", "Source", "Units", "Value"]

FEW = 4  # rows up to which each thread does norms and codes for itself
Fields = dict[Step, int]
CAPACITY = ROWS + TILE  # rows of a buffer
SLACK = 4096  # bytes behind the last weights: what is asked for in advance may lie past the end


@dataclass(frozen=True)
class Value:
    """Rows of floats: `width` of them at `address`, next row `stride` bytes on.

    `private`: bytes between the copies of it that threads have for a few rows; 0 if they share it.
    """

    address: int
    stride: int
    width: int
    private: int = 0


@dataclass(frozen=True)
class Codes:
    """Activation blocks of rows, and the bytes between threads' copies."""

    address: int
    private: int = 0


@dataclass(frozen=True)
class Source:
    """What matrices read: floats, codes, or both."""

    floats: Value | None
    codes: Codes | None


@dataclass(frozen=True)
class Matrix:
    """A packed matrix."""

    address: int
    layout: Layout
    rows: int
    columns: int
    nbytes: int

    @property
    def panels(self) -> int:
        """Panels of 16 rows."""
        return -(-self.rows // PANEL)


@dataclass(frozen=True)
class Units:
    """How steps are shared out: `size` panels (or heads) together; number `first` of `total`."""

    size: int
    first: int
    total: int


class Memory:
    """Buffers and weights of one model; they live as long as this does."""

    def __init__(self, threads: int) -> None:
        self._threads = threads
        self._held: list[NDArray[np.uint8]] = []
        self.weight_bytes = 0

    def raw(self, nbytes: int) -> int:
        """Address of zeroed memory on a cache line. What isn't written to costs nothing."""
        block = np.zeros(nbytes + 64, np.uint8)
        self._held.append(block)
        return int(block.ctypes.data) + -int(block.ctypes.data) % 64

    def rows(self, width: int, private: bool = False) -> Value:
        """A buffer for all rows of a pass."""
        stride = -(-width // BLOCK) * BLOCK * 4
        own = (FEW + TILE) * stride if private else 0
        return Value(self.raw(max(CAPACITY * stride, own * self._threads) + SLACK), stride, width, own)

    def codes(self, width: int, private: bool = False) -> Codes:
        """A buffer for the activation blocks of all rows."""
        # As far apart as copies of the floats: a step that writes both has one distance for them.
        own = (FEW + TILE) * -(-width // BLOCK) * BLOCK * 4 if private else 0
        return Codes(self.raw(max(quantized_bytes(CAPACITY, width), own * self._threads) + SLACK), own)

    def vector(self, values: NDArray[np.float32]) -> int:
        """Address of a vector, filled up with zeros to whole blocks."""
        address = self.raw(-(-values.size // BLOCK) * BLOCK * 4)
        self.view(address, values.size)[:] = values.reshape(-1)
        self.weight_bytes += values.nbytes
        return address

    def matrices(self, tensors: Sequence[StoredTensor]) -> list[Matrix]:
        """Pack matrices one behind the other, in the order in which they are used."""
        plans = [plan(tensor) for tensor in tensors]
        block = np.empty(sum(-(-p.nbytes // 64) * 64 for p in plans) + SLACK + 64, np.uint8)
        self._held.append(block)
        at = -int(block.ctypes.data) % 64
        made = []
        for p in plans:
            fill(p, block[at : at + p.nbytes])
            release(p.tensor.data)
            made.append(Matrix(int(block.ctypes.data) + at, p.layout, p.rows, p.columns, p.nbytes))
            self.weight_bytes += p.nbytes
            at += -(-p.nbytes // 64) * 64
        return made

    def view(self, address: int, count: int) -> NDArray[np.float32]:
        """`count` floats at an address of this memory."""
        for block in reversed(self._held):
            offset = address - int(block.ctypes.data)
            if 0 <= offset < block.nbytes:
                return block[offset : offset + 4 * count].view(np.float32)
        raise AssertionError("not an address of this memory")

    def array(self, value: Value, rows: int) -> NDArray[np.float32]:
        """A buffer's first rows, [rows, width], to read and to write."""
        wide = value.stride // 4
        return self.view(value.address, rows * wide).reshape(rows, wide)[:, : value.width]


class Builder:
    """Appends steps.

    Args:
        memory: where buffers come from.
        kernels: which family computes products of codes.
        alone: every step ends with a meeting, so that values can be seen between steps.
    """

    def __init__(self, memory: Memory, kernels: str, alone: bool) -> None:
        self.memory = memory
        self._wide = kernels == "avx512vnni"
        self._dot = kernels
        self._alone = alone
        self.steps: list[Fields] = []
        self.kernels: list[Kernel] = []
        self.queues = 0

    def array(self, addresses: Mapping[Kernel, int]) -> NDArray[np.int64]:
        """The finished program, [steps, STEP_FIELDS]."""
        out = np.zeros((len(self.steps), STEP_FIELDS), np.int64)
        for row, step, kernel in zip(out, self.steps, self.kernels, strict=True):
            for field, value in step.items():
                row[field] = value
            row[Step.KERNEL] = addresses[kernel]
        return out

    def barrier(self, kind: int = 1) -> None:
        """Let all threads meet after the last step; `kind` 2: only where rows are shared out."""
        self.steps[-1][Step.BARRIER] = max(self.steps[-1].get(Step.BARRIER, 0), kind) if kind == 2 else 1

    def _step(self, kernel: tuple[str, ...], fields: Fields) -> None:
        self.kernels.append(Kernel(kernel))
        self.steps.append(fields | ({Step.BARRIER: 1} if self._alone else {}))

    def norm(self, x: Value, weight: int, eps: float, to: Source, *, wanted: bool = False) -> None:
        """`rms_norm` of rows, or of those whose logits are wanted."""
        fields = {Step.INPUT: x.address, Step.INPUT_STRIDE: x.stride, Step.COLUMNS: x.width}
        fields |= {Step.WEIGHTS: weight, Step.A: float_bits(eps), Step.WANTED: int(wanted)} | _target(to)
        self._step(("rows", "rms_norm"), fields)
        self.barrier(2)

    def quantize(self, x: Value, to: Codes, *, wanted: bool = False) -> None:
        """Floats to activation blocks."""
        fields = {Step.INPUT: x.address, Step.INPUT_STRIDE: x.stride, Step.COLUMNS: x.width}
        fields |= {Step.CODES: to.address, Step.PRIVATE: to.private, Step.WANTED: int(wanted)}
        self._step(("rows", "quantize"), fields)
        self.barrier(2)

    def matmul(
        self, matrix: Matrix, x: Source, to: Value | None, units: Units, *, add: bool = False,
        wanted: bool = False,
    ) -> None:  # fmt: skip
        """A matrix times rows; without `to`, logits."""
        fields = {Step.WEIGHTS: matrix.address, Step.COLUMNS: matrix.columns, Step.PANELS: matrix.panels}
        fields |= {Step.ADD: int(add), Step.WANTED: int(wanted)} | _shared_out(units)
        if to is not None:
            fields |= {Step.OUTPUT: to.address, Step.OUTPUT_STRIDE: to.stride}
        if isinstance(matrix.layout, QuantLayout):
            assert x.codes is not None
            fields |= {Step.INPUT: x.codes.address, Step.PRIVATE: x.codes.private}
            self._step(("matmul", "quant_matmul", matrix.layout.key, self._dot), fields)
            return
        assert x.floats is not None
        fields |= {Step.INPUT: x.floats.address, Step.INPUT_STRIDE: x.floats.stride}
        fields |= {Step.PRIVATE: x.floats.private}
        self._step(("matmul", "float_matmul", matrix.layout.key, str(int(self._wide))), fields)

    def bias(self, vector: int, to: Value, panels: int, units: Units) -> None:
        """Add a vector to rows."""
        fields = {Step.WEIGHTS: vector, Step.OUTPUT: to.address, Step.OUTPUT_STRIDE: to.stride}
        self._step(("rows", "bias"), fields | {Step.PANELS: panels} | _shared_out(units))

    def rotate(
        self, x: Value, to: Value, heads: int, head_dim: int, rope: tuple[int, int, int], units: Units
    ) -> None:
        """Turn heads by position; `rope`: channels, 1 for neighbours, number of the table."""
        fields = {Step.INPUT: x.address, Step.INPUT_STRIDE: x.stride}
        fields |= {Step.OUTPUT: to.address, Step.OUTPUT_STRIDE: to.stride, Step.PANELS: heads}
        fields |= {Step.A: head_dim, Step.B: rope[0], Step.C: rope[1], Step.D: rope[2]}
        self._step(("cache", "rotate"), fields | _shared_out(units))

    def store(self, what: str, x: Value, place: LayerCache, half: bool, units: Units) -> None:
        """`keys` or `values` of the new tokens into the cache."""
        offset, head = (place.keys, place.key_head) if what == "keys" else (place.values, place.value_head)
        fields = {Step.INPUT: x.address, Step.INPUT_STRIDE: x.stride, Step.PANELS: place.kv_heads}
        fields |= {Step.A: place.head_dim, Step.B: offset, Step.C: head} | _shared_out(units)
        self._step(("cache", f"store_{what}", str(int(half))), fields)

    def attend(self, q: Value, to: Value, group: int, scale: float, place: LayerCache, half: bool) -> None:
        """softmax(q k^T * scale) v over the cache."""
        fields = {Step.INPUT: q.address, Step.INPUT_STRIDE: q.stride}
        fields |= {Step.OUTPUT: to.address, Step.OUTPUT_STRIDE: to.stride}
        fields |= {Step.A: place.head_dim, Step.B: place.keys, Step.C: place.values, Step.F: group}
        fields |= {Step.D: place.key_head, Step.E: place.value_head, Step.H: float_bits(scale)}
        fields |= {Step.PANELS: place.kv_heads, Step.UNIT_FIRST: self.queues}
        self.queues += 1
        self._step(("attention", "attention", str(int(half)), "6" if self._wide else "1"), fields)

    def activate(
        self, name: str, gate: Value, up: Value, to: Source, units: Units, alone: Value | None = None
    ) -> None:
        """activation(gate) * up; `alone` also takes activation(gate)."""
        assert gate.stride == up.stride
        fields = {Step.INPUT: gate.address, Step.INPUT_STRIDE: gate.stride, Step.A: up.address - gate.address}
        fields |= {Step.PANELS: units.total, Step.B: alone.address if alone else 0}
        fields |= _target(to) | {Step.UNIT: 1, Step.UNIT_FIRST: units.first, Step.UNITS: units.total}
        fields[Step.OUTPUT_STRIDE] = gate.stride
        self._step(("rows", "activate", name), fields)

    def multiply(self, x: Value, other: Value, to: Value) -> None:
        """The product of two buffers, number by number."""
        fields = {
            Step.INPUT: x.address,
            Step.INPUT_STRIDE: x.stride,
            Step.A: other.address,
            Step.B: other.stride,
        }
        fields |= {Step.OUTPUT: to.address, Step.OUTPUT_STRIDE: to.stride, Step.COLUMNS: x.width}
        self._step(("rows", "multiply"), fields)

    def add(self, x: Value, to: Value) -> None:
        """Add rows to rows."""
        fields = {Step.INPUT: x.address, Step.INPUT_STRIDE: x.stride, Step.COLUMNS: x.width}
        self._step(("rows", "add_rows"), fields | {Step.OUTPUT: to.address, Step.OUTPUT_STRIDE: to.stride})


def float_bits(value: float) -> int:
    """A float32 as the int64 field that holds it."""
    return int(np.float32(value).view(np.uint32))


def is_float(matrix: Matrix) -> bool:
    """Whether a matrix reads floats rather than codes."""
    return isinstance(matrix.layout, FloatLayout)


def _shared_out(units: Units) -> Fields:
    return {Step.UNIT: units.size, Step.UNIT_FIRST: units.first, Step.UNITS: units.total}


def _target(to: Source) -> Fields:
    fields: Fields = {}
    private = 0
    if to.floats is not None:
        fields |= {Step.OUTPUT: to.floats.address, Step.OUTPUT_STRIDE: to.floats.stride}
        private = to.floats.private
    if to.codes is not None:
        assert to.floats is None or private == to.codes.private
        fields |= {Step.CODES: to.codes.address}
        private = to.codes.private
    return fields | {Step.PRIVATE: private}
