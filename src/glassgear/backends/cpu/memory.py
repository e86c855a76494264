"""The memory between steps: zeroed buffers, vectors and packed weights, by their addresses."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from glassgear.backends.cpu.fields import ROWS, TILE, quantized_bytes
from glassgear.backends.cpu.layouts import BLOCK
from glassgear.backends.cpu.pack import fill, plan
from glassgear.backends.cpu.release import release
from glassgear.backends.cpu.values import Codes, Matrix, Value
from glassgear.weights.tensor import StoredTensor

__all__ = ["CAPACITY", "FEW", "Memory"]

FEW = 4  # rows up to which each thread does norms and codes for itself
CAPACITY = ROWS + TILE  # rows of a buffer
SLACK = 4096  # bytes behind the last weights: what is asked for in advance may lie past the end


class Memory:
    """Buffers and weights of one model; they live as long as this does."""

    def __init__(self, threads: int) -> None:
        self._threads = threads
        self._held: list[NDArray[np.uint8]] = []
        self._from: dict[int, NDArray[np.uint8]] = {}  # what `raw` gave, by address
        self.weight_bytes = 0

    def raw(self, nbytes: int) -> int:
        """Address of zeroed memory on a cache line. What isn't written to costs nothing."""
        block = np.zeros(nbytes + 64, np.uint8)
        self._held.append(block)
        skip = -int(block.ctypes.data) % 64
        address = int(block.ctypes.data) + skip
        self._from[address] = block[skip:]
        return address

    def rows(self, width: int, private: bool = False, count: int = CAPACITY) -> Value:
        """A buffer for all rows of a pass, or for `count`."""
        stride = _stride(width)
        own = (FEW + TILE) * stride if private else 0
        return Value(self.raw(max(count * stride, own * self._threads) + SLACK), stride, width, own)

    def codes(self, width: int, private: bool = False, count: int = CAPACITY) -> Codes:
        """A buffer for the activation blocks of all rows, or of `count`."""
        # As far apart as copies of the floats: a step that writes both has one distance for them.
        own = (FEW + TILE) * _stride(width) if private else 0
        return Codes(self.raw(max(quantized_bytes(count, width), own * self._threads) + SLACK), own)

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

    def data(self, address: int, nbytes: int) -> NDArray[np.uint8]:
        """Bytes at an address of this memory."""
        if (found := self._from.get(address)) is not None:
            return found[:nbytes]
        for block in reversed(self._held):
            offset = address - int(block.ctypes.data)
            if 0 <= offset < block.nbytes:
                return block[offset : offset + nbytes]
        raise AssertionError("not an address of this memory")

    def view(self, address: int, count: int) -> NDArray[np.float32]:
        """`count` floats at an address of this memory."""
        return self.data(address, 4 * count).view(np.float32)

    def array(self, value: Value, rows: int) -> NDArray[np.float32]:
        """A buffer's first rows, [rows, width], to read and to write."""
        wide = value.stride // 4
        return self.view(value.address, rows * wide).reshape(rows, wide)[:, : value.width]


def _stride(width: int) -> int:
    """Bytes from row to row: whole blocks, and never a multiple of 4096.

    A first cache keeps lines that lie so far apart in one and the same set: the rows of a tile would
    push each other out (F16 products of 2048 inputs: 91 against 116 GFLOP/s).
    """
    stride = -(-width // BLOCK) * BLOCK * 4
    return stride if stride % 4096 else stride + 64
