"""A tensor as a file stores it: its bytes, still mapped, and how to read them as float32."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from glassgear.errors import FormatError, UnsupportedError
from glassgear.model.gears import Shape
from glassgear.weights import quant

__all__ = ["BlockScales", "StoredTensor", "head_rows"]


@dataclass(frozen=True, eq=False)
class BlockScales:
    """What the values of a matrix are multiplied by, block by block: DeepSeek-V3's FP8.

    Attributes:
        values: float32 [row blocks, column blocks].
        size: rows and columns of a block; the last ones of a matrix may be smaller.
        first: the row of `values`' matrix that is row 0 of this one.
    """

    values: NDArray[np.float32]
    size: tuple[int, int]
    first: int = 0

    def of_rows(self, index: NDArray[np.integer], columns: int) -> NDArray[np.float32]:
        """The factor of each value of some stored rows: [len(index), columns]."""
        scales = self.values[(self.first + index) // self.size[0]]
        return np.repeat(scales, self.size[1], axis=1)[:, :columns]

    def nbytes(self, rows: int) -> int:
        """Bytes of the scales that so many rows need."""
        last = -(-(self.first + rows) // self.size[0])
        return self.values[self.first // self.size[0] : last].nbytes


@dataclass(frozen=True, eq=False)
class StoredTensor:
    """One tensor of a checkpoint.

    Attributes:
        name: its name in the file.
        type: `F32`, `BF16`, `Q4_1`, ...: a key of `quant.TYPES`; `INT8_GROUPS`; or another that a
            file may hold (`I64`, `BOOL`, `F8_E5M2`), whose values can't be read.
        shape: row-major; the last axis is contiguous in the file.
        data: its raw bytes, uint8, flat; a view of the mapped file, never written to.
        file: where it lies, for messages.
        row_order: logical row i is stored row `row_order[i]`; None where they agree.
        scales: float32, flat, one for each group of codes (`INT8_GROUPS` of llama2.c alone).
        blocks: scales of a matrix of float8 values that are kept beside it.
    """

    name: str
    type: str
    shape: Shape
    data: NDArray[np.uint8]
    file: str
    row_order: NDArray[np.intp] | None = None
    scales: NDArray[np.float32] | None = None
    blocks: BlockScales | None = None

    @property
    def nbytes(self) -> int:
        """Bytes in the file, scales included."""
        beside = 0 if self.scales is None else self.scales.nbytes
        return self.data.nbytes + beside + (self.blocks.nbytes(self.matrix[0]) if self.blocks else 0)

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
        if self.row_order is None and self.blocks is None:
            return self._decode(self.data, self.scales, rows).reshape(self.shape)
        return self.rows(np.arange(rows)).reshape(self.shape)

    def rows(self, index: NDArray[np.integer]) -> NDArray[np.float32]:
        """Some rows, decoded: [len(index), columns]. What isn't asked for isn't read."""
        rows, columns = self.matrix
        stored = np.asarray(index) if self.row_order is None else self.row_order[index]
        data = self.data.reshape(rows, -1)[stored]
        scales = None if self.scales is None else self.scales.reshape(rows, -1)[stored]
        values = self._decode(data.reshape(-1), scales, len(stored)).reshape(len(stored), columns)
        if self.blocks is not None:
            with np.errstate(over="ignore", invalid="ignore"):  # as in `_decode`
                values *= self.blocks.of_rows(stored, columns)
        return values

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
            blocks=self.blocks and replace(self.blocks, first=self.blocks.first + first),
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
        kind = None if self.blocks else quant.TYPES.get(self.type)
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
            size = quant.known(self.type).values
            field = found.field if found else ""
        if found:
            row, column = divmod(found.block * size, self.matrix[1])
            raise FormatError(
                self.file,
                f"tensor {self.name!r:.80} ({self.type}) holds {found.value}: the {field} of block "
                f"{found.block:,} (stored row {row:,}, from column {column:,}). "
                "The file is damaged or was converted wrongly",
            )
        if self.blocks is not None and not np.isfinite(self.blocks.values).all():
            row, column = np.argwhere(~np.isfinite(self.blocks.values))[0]
            raise FormatError(
                self.file,
                f"the scale of block {row:,}, {column:,} of tensor {self.name!r:.80} is "
                f"{self.blocks.values[row, column]}. The file is damaged or was converted wrongly",
            )

    def require_decodable(self) -> None:
        """Refuse a type that `quant` has no decoder for, as the I64 and BOOL of buffers, or F8_E5M2.

        Files may hold such tensors; only one that a model needs is a reason to refuse them.

        Raises:
            UnsupportedError: the tensor and its type.
        """
        if not quant.is_known(self.type) and self.scales is None:
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


def head_rows(parts: Sequence[StoredTensor], transposed: Sequence[bool]) -> StoredTensor | None:
    """One matrix from tensors that hold some rows of each of its heads; a copy, so it takes memory.

    Args:
        parts: [heads, rows, columns] each, with the same heads and columns.
        transposed: of each, whether it is [heads, columns, rows].

    Returns:
        In each head the rows of the first, then those of the next: [heads * rows, columns], of the type
        of the parts if they have a common one without blocks, else F32. None: the sizes don't fit.
    """
    kinds = {part.type for part in parts}
    plain = len(kinds) == 1 and (kind := quant.TYPES.get(parts[0].type)) is not None and kind.values == 1
    cells = []
    for part, turned in zip(parts, transposed, strict=True):
        data = part.data if plain else part.float32().reshape(-1).view(np.uint8)
        whole = data.reshape(*part.shape, -1)  # [heads, rows, columns, bytes]
        cells.append(whole.swapaxes(1, 2) if turned else whole)
    heads, _, columns, _ = cells[0].shape
    if any((cell.shape[0], cell.shape[2]) != (heads, columns) for cell in cells):
        return None
    joined = np.concatenate(cells, axis=1)
    shape = (heads * joined.shape[1], columns)
    name = " and ".join(part.name for part in parts)
    return StoredTensor(name, parts[0].type if plain else "F32", shape, joined.reshape(-1), parts[0].file)
