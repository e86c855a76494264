"""A tensor as a file stores it: its bytes, still mapped, and how to read them as float32."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from glassgear.errors import FormatError, UnsupportedError
from glassgear.model.gears import Shape
from glassgear.weights import quant

__all__ = ["StoredTensor"]


@dataclass(frozen=True, eq=False)
class StoredTensor:
    """One tensor of a checkpoint.

    Attributes:
        name: its name in the file.
        type: `F32`, `BF16`, `Q4_1`, ...: a key of `quant.TYPES`; `INT8_GROUPS`; or another that a
            file may hold (`I64`, `BOOL`, `F8_E4M3`), whose values can't be read.
        shape: row-major; the last axis is contiguous in the file.
        data: its raw bytes, uint8, flat; a view of the mapped file, never written to.
        file: where it lies, for messages.
        row_order: logical row i is stored row `row_order[i]`; None where they agree.
        scales: float32, flat, one for each group of codes (`INT8_GROUPS` of llama2.c alone).
    """

    name: str
    type: str
    shape: Shape
    data: NDArray[np.uint8]
    file: str
    row_order: NDArray[np.intp] | None = None
    scales: NDArray[np.float32] | None = None

    @property
    def nbytes(self) -> int:
        """Bytes in the file, scales included."""
        return self.data.nbytes + (0 if self.scales is None else self.scales.nbytes)

    @property
    def matrix(self) -> tuple[int, int]:
        """Shape as rows x columns. A vector is one row, unless its entries are reordered one by one."""
        if len(self.shape) == 1 and self.row_order is not None:
            return self.shape[0], 1
        columns = self.shape[-1] if self.shape else 1
        rows = 1
        for size in self.shape[:-1]:
            rows *= size
        return rows, columns

    def float32(self) -> NDArray[np.float32]:
        """All values, decoded, in `shape`. F32 without a row order is a view of the file."""
        rows, _ = self.matrix
        if self.row_order is None:
            return self._decode(self.data, self.scales, rows).reshape(self.shape)
        return self.rows(np.arange(rows)).reshape(self.shape)

    def rows(self, index: NDArray[np.integer]) -> NDArray[np.float32]:
        """Some rows, decoded: [len(index), columns]. What isn't asked for isn't read."""
        rows, columns = self.matrix
        stored = np.asarray(index) if self.row_order is None else self.row_order[index]
        data = self.data.reshape(rows, -1)[stored]
        scales = None if self.scales is None else self.scales.reshape(rows, -1)[stored]
        return self._decode(data.reshape(-1), scales, len(stored)).reshape(len(stored), columns)

    def reordered(self, order: NDArray[np.intp]) -> StoredTensor:
        """The same bytes, with logical row i taken from row `order[i]` of this tensor."""
        return replace(self, row_order=order if self.row_order is None else self.row_order[order])

    def part(self, first: int, count: int) -> StoredTensor:
        """Rows `first` to `first + count`, or so many entries of a vector, as a tensor of its own."""
        rows = self.shape[0]
        assert 0 <= first <= first + count <= rows
        if self.row_order is not None:
            return replace(
                self, shape=(count, *self.shape[1:]), row_order=self.row_order[first : first + count]
            )
        size, scales = self.data.size // rows, self.scales
        if scales is not None:
            each = scales.size // rows
            scales = scales[first * each : (first + count) * each]
        return replace(
            self,
            shape=(count, *self.shape[1:]),
            data=self.data[first * size : (first + count) * size],
            scales=scales,
        )

    def piece(self, index: int) -> StoredTensor:
        """One of the tensors that are stacked along the first axis."""
        assert self.row_order is None
        whole = self.part(index, 1)
        return replace(whole, shape=self.shape[1:])

    def transposed(self) -> StoredTensor:
        """The matrix with rows and columns exchanged; a copy, so it takes memory.

        Raises:
            UnsupportedError: its values lie in blocks along a row.
        """
        kind = quant.TYPES.get(self.type)
        if kind is None or kind.values != 1 or self.row_order is not None:
            raise UnsupportedError(
                self.file, f"tensor `{self.name}` is stored the other way round, which {self.type} can't be"
            )
        rows, columns = self.shape
        size = self.data.size // (rows * columns)
        turned = np.ascontiguousarray(self.data.reshape(rows, columns, size).swapaxes(0, 1))
        return replace(self, shape=(columns, rows), data=turned.reshape(-1))

    def check_finite(self) -> None:
        """Refuse NaN and infinity, in the scales of quantised types and in the values of others.

        One such number makes every logit NaN, so it is said at load where it lies.

        Raises:
            FormatError: the tensor, its first such block and where that is.
        """
        if self.scales is not None:
            found = quant.find_non_finite("F32", self.scales.view(np.uint8))
            size = self.data.size // max(1, self.scales.size)
            field = "scale"
        else:
            self.require_decodable()
            found = quant.find_non_finite(self.type, self.data)
            size = quant.TYPES[self.type].values
            field = found.field if found else ""
        if found:
            row, column = divmod(found.block * size, self.matrix[1])
            raise FormatError(
                self.file,
                f"tensor {self.name!r:.80} ({self.type}) holds {found.value}: the {field} of block "
                f"{found.block:,} (stored row {row:,}, from column {column:,}). "
                "The file is damaged or was converted wrongly",
            )

    def require_decodable(self) -> None:
        """Refuse a type that `quant` has no decoder for, as the I64 and BOOL of buffers, or F8_E4M3.

        Files may hold such tensors; only one that a model needs is a reason to refuse them.

        Raises:
            UnsupportedError: the tensor and its type.
        """
        if self.type not in quant.TYPES and self.scales is None:
            raise UnsupportedError(
                self.file,
                f"tensor `{self.name}` holds values of type {self.type}, which this version can't "
                "compute with: take a checkpoint in F32, F16, BF16 or a GGUF",
            )

    def _decode(
        self, data: NDArray[np.uint8], scales: NDArray[np.float32] | None, rows: int
    ) -> NDArray[np.float32]:
        if scales is not None:
            codes = data.view(np.int8).astype(np.float32).reshape(scales.size, -1)
            with np.errstate(over="ignore"):  # judged by `check_finite`, and by whoever uses the values
                return (codes * scales.reshape(-1, 1)).reshape(-1)
        self.require_decodable()
        return quant.decode(self.type, data)
