"""Stored tensors to packed weights: read once from the file, laid out as the kernels read them.

In: `StoredTensor`. Out: bytes in one of the forms of `layouts.py`. Works on a strip of rows at a
time, so that beside the result only a few megabytes are held.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glassgear.backends.cpu.codes import READERS, Parts
from glassgear.backends.cpu.layouts import BLOCK, PANEL, FloatLayout, Layout, QuantLayout, layout_of
from glassgear.weights.quant import TYPES
from glassgear.weights.tensor import StoredTensor

__all__ = ["Plan", "fill", "plan"]

STRIP_VALUES = 1 << 19  # values that are worked on at a time
HALF_MOST = 65504.0  # the largest float16


@dataclass(frozen=True, eq=False)
class Plan:
    """How one matrix will be packed."""

    tensor: StoredTensor
    layout: Layout
    rows: int
    columns: int

    @property
    def panels(self) -> int:
        """Panels of 16 rows."""
        return -(-self.rows // PANEL)

    @property
    def nbytes(self) -> int:
        """Bytes of the result."""
        return self.panels * self.layout.panel_bytes(self.columns)


def plan(tensor: StoredTensor) -> Plan:
    """Choose a layout for a matrix."""
    rows, columns = tensor.matrix
    group = BLOCK if tensor.scales is None else tensor.data.size // tensor.scales.size
    layout = layout_of(tensor.type, columns, group)
    if isinstance(layout, QuantLayout) and not layout.wide and not _fits_half(tensor):
        layout = replace(layout, wide=True)
    return Plan(tensor, layout, rows, columns)


def fill(plan: Plan, out: NDArray[np.uint8]) -> None:
    """Pack into `out`, `plan.nbytes` bytes. Rows that fill up the last panel are zeros."""
    step = max(PANEL, STRIP_VALUES // max(1, plan.columns) // PANEL * PANEL)
    panels = out.reshape(plan.panels, plan.layout.panel_bytes(plan.columns))
    for first in range(0, plan.rows, step):
        last = min(plan.rows, first + step)
        target = panels[first // PANEL : -(-last // PANEL)]
        if isinstance(plan.layout, FloatLayout):
            _fill_floats(plan, plan.layout, first, last, target)
        else:
            _fill_codes(plan, plan.layout, first, last, target)


def _records(tensor: StoredTensor, first: int, last: int) -> NDArray[np.void]:
    """Blocks of some logical rows, [rows, blocks]."""
    kind = TYPES[tensor.type]
    stored = tensor.data.view(kind.layout).reshape(tensor.matrix[0], -1)
    return stored[first:last] if tensor.row_order is None else stored[tensor.row_order[first:last]]


def _fits_half(tensor: StoredTensor) -> bool:
    """Whether the products of scales are floats that 16 bits hold (they nearly always are).

    Only the large ones can fail. A float16 is a multiple of 2^-24, and so is an integer times
    one: products that are subnormal in 16 bits are held without any error.
    """
    if tensor.type not in ("Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "IQ4_XS"):
        return True  # one float16 scale: kept as it is
    blocks = tensor.data.view(TYPES[tensor.type].layout)
    most = 128 * max(
        float(np.abs(blocks[name].astype(np.float32)).max(initial=0.0))
        for name in ("scale", "minimum") if name in (blocks.dtype.names or ())
    )  # fmt: skip
    return most <= HALF_MOST


def _padded(values: NDArray[Any], rows: int) -> NDArray[Any]:
    """Zero rows added up to whole panels."""
    if rows % PANEL == 0:
        return values
    whole = np.zeros((-(-rows // PANEL) * PANEL, *values.shape[1:]), values.dtype)
    whole[:rows] = values
    return whole


def _fill_floats(plan: Plan, layout: FloatLayout, first: int, last: int, out: NDArray[np.uint8]) -> None:
    tensor, dtype = plan.tensor, np.dtype("<f4" if layout.width == 4 else "<u2")
    if layout.key == "f32":
        values = tensor.rows(np.arange(first, last))
    else:
        stored = tensor.data.view(dtype).reshape(plan.rows, plan.columns)
        order = tensor.row_order
        values = stored[first:last] if order is None else stored[order[first:last]]
    panels = _padded(values, last - first).reshape(-1, PANEL, plan.columns)
    out.view(dtype).reshape(-1, plan.columns, PANEL)[:] = panels.transpose(0, 2, 1)


def _fill_codes(plan: Plan, layout: QuantLayout, first: int, last: int, out: NDArray[np.uint8]) -> None:
    rows, blocks = last - first, plan.columns // BLOCK
    fields = out.reshape(-1, blocks, layout.block_bytes)  # [panels, blocks, bytes]
    if plan.tensor.type in _WORDS:
        scales, minima = _fill_words(plan, layout, first, last, fields)
    else:
        codes, scales, minima = _parts(plan, first, last)
        grouped = _padded(codes.reshape(rows, -1), rows).reshape(-1, PANEL, blocks, 8, 4)
        _store_planes(layout, grouped.transpose(0, 2, 3, 1, 4), fields[..., : layout.code_bytes])
    offset = layout.code_bytes
    for values in (scales, minima):
        if values is not None:
            offset = _store_scales(layout, values.reshape(rows, blocks, -1), fields, offset)


def _parts(plan: Plan, first: int, last: int) -> Parts:
    tensor = plan.tensor
    if tensor.scales is None:
        return READERS[tensor.type](_records(tensor, first, last).reshape(-1))
    codes = tensor.data.reshape(plan.rows, -1)
    scales = tensor.scales.reshape(plan.rows, -1)
    rows = slice(first, last) if tensor.row_order is None else tensor.row_order[first:last]
    repeated = np.repeat(scales[rows], plan.columns // scales.shape[1] // BLOCK, axis=1)
    return codes[rows] ^ np.uint8(128), repeated, None


def _store_scales(
    layout: QuantLayout, values: NDArray[np.float32], fields: NDArray[np.uint8], offset: int
) -> int:
    """[rows, blocks, subs] -> for each panel and block [subs, 16]. Returns the offset behind them."""
    dtype = np.dtype("<f4" if layout.wide else "<f2")
    subs = values.shape[2]
    size = subs * layout.scale_bytes
    panels = _padded(values, len(values)).reshape(-1, PANEL, *values.shape[1:])
    packed = np.ascontiguousarray(panels.transpose(0, 2, 3, 1), dtype)
    fields[..., offset : offset + size] = packed.reshape(*fields.shape[:2], -1).view(np.uint8)
    return int(offset + size)


# Types whose bytes already lie in groups of four as the kernels want them: only words move.
_WORDS = ("Q4_0", "Q4_1", "IQ4_NL", "Q8_0")


def _fill_words(
    plan: Plan, layout: QuantLayout, first: int, last: int, fields: NDArray[np.uint8]
) -> tuple[NDArray[np.float32], NDArray[np.float32] | None]:
    records = _records(plan.tensor, first, last)
    rows, blocks = records.shape
    words = np.ascontiguousarray(records["codes"]).view("<u4").reshape(rows, blocks, -1)
    panels = _padded(words, rows).reshape(-1, PANEL, blocks, words.shape[2]).transpose(0, 2, 3, 1)
    packed = np.ascontiguousarray(panels)
    if layout.bits == 8:
        packed ^= np.uint32(0x80808080)
    fields[..., : layout.code_bytes] = packed.reshape(*fields.shape[:2], -1).view(np.uint8)
    scales = records["scale"].astype(np.float32)
    return scales, records["minimum"].astype(np.float32) if layout.minima else None


def _store_planes(layout: QuantLayout, groups: NDArray[np.uint8], out: NDArray[np.uint8]) -> None:
    """[panels, blocks, 8 groups, 16 rows, 4 inputs] to the bytes of `layouts.py`."""
    shape = (*groups.shape[:2], -1)
    if layout.bits == 8:
        out[:] = groups.reshape(shape)
        return
    low = groups & np.uint8(15)
    out[..., :256] = (low[:, :, :4] | (low[:, :, 4:] << 4)).reshape(shape)
    if layout.bits > 4:
        width = layout.bits - 4
        per_vector = 8 // width
        shifts = (width * np.arange(per_vector, dtype=np.uint8)).reshape(-1, 1, 1)
        high = (groups >> 4).reshape(*groups.shape[:2], width, per_vector, PANEL, 4) << shifts
        out[..., 256:] = np.bitwise_or.reduce(high, axis=3).reshape(shape)
