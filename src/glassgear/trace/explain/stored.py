"""One row of a weight matrix: its floats, and its codes and scales where it is quantised."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glassgear.backends.cpu import pack
from glassgear.backends.cpu.codes import READERS
from glassgear.backends.cpu.layouts import BLOCK, IQ4_VALUES, QuantLayout
from glassgear.weights.quant import TYPES
from glassgear.weights.tensor import StoredTensor

__all__ = ["Codes", "codes_of", "weights_of"]

Floats = NDArray[np.float32]
INT8_GROUPS = "INT8_GROUPS"


@dataclass(frozen=True, eq=False)
class Codes:
    """A quantised row as the CPU backend holds it.

    Attributes:
        codes: as stored, [columns].
        levels: the integers that they stand for, int64 [columns].
        scales: float32, one for each `sub` inputs.
        minima: likewise, or None.
        sub: inputs under one scale.
        records: the file's blocks; None where codes and scales lie apart.
        values: inputs in one of these.
    """

    codes: NDArray[np.integer[Any]]
    levels: NDArray[np.int64]
    scales: Floats
    minima: Floats | None
    sub: int
    records: NDArray[Any] | None
    values: int

    def stored(self, column: int) -> tuple[tuple[str, str], ...]:
        """The fields of the file's block in which an input lies, as people read them."""
        if self.records is None:
            return ()
        record = self.records[column // self.values]
        found = [("bytes", bytes(record.tobytes()).hex(" "))]
        for name in record.dtype.names or ():
            value = record[name]
            found.append((name, f"{float(value):.9g}" if value.shape == () else value.tobytes().hex(" ")))
        return tuple(found)


def weights_of(tensor: StoredTensor, row: int) -> Floats:
    """The weights of a row, decoded: [columns]."""
    return np.asarray(tensor.rows(np.array([row]))[0], np.float32)


def codes_of(tensor: StoredTensor, row: int) -> Codes | None:
    """The codes of a row; None where the CPU backend computes with floats."""
    layout = pack.plan(tensor).layout
    if not isinstance(layout, QuantLayout):
        return None
    place = row if tensor.row_order is None else int(tensor.row_order[row])
    rows, columns = tensor.matrix
    if tensor.type == INT8_GROUPS:
        assert tensor.scales is not None
        codes = tensor.data.reshape(rows, -1)[place] ^ np.uint8(128)
        each = tensor.scales.reshape(rows, -1)[place]
        scales, minima, records = np.repeat(each, columns // len(each) // BLOCK), None, None
    else:
        records = tensor.data.view(TYPES[tensor.type].layout).reshape(rows, -1)[place]
        many, by_block, lows = READERS[tensor.type](records)
        codes, scales = many.reshape(-1), by_block.reshape(-1)
        minima = None if lows is None else lows.reshape(-1)
    levels: NDArray[np.int64] = codes.astype(np.int64) - layout.offset
    if layout.table:
        levels = np.array(IQ4_VALUES, np.int64)[codes]
    values = columns if records is None else columns // len(records)
    if layout.bits == 8:  # stored with a sign; panels have them without
        codes = levels
    return Codes(codes, levels, _held(scales, layout), None if minima is None else _held(minima, layout),
                 layout.sub, records, values)  # fmt: skip


def _held(scales: Floats, layout: QuantLayout) -> Floats:
    """Scales in the width that panels keep them in."""
    return scales if layout.wide else scales.astype(np.float16).astype(np.float32)
