"""float32 values to the types that files store: the way back from `quant.decode`.

In: rows of float32 and the name of a type. Out: their bytes. Which type a tensor gets where the
wanted one doesn't fit its rows is decided here too. How the codes of a block are chosen:
`block_encoders.py`, `k_encoders.py`, `fits.py`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glassgear.errors import SettingError
from glassgear.weights.block_encoders import (
    LARGEST_HALF,
    float_records,
    offset_records,
    scale_records,
)
from glassgear.weights.k_encoders import minima_records, signed_records
from glassgear.weights.quant import TYPES, find_non_finite

__all__ = ["FALLBACKS", "WRITABLE", "fitting_type", "quantize"]

Encoder = Callable[[str, NDArray[np.float32]], NDArray[Any]]

_ENCODERS: Mapping[str, Encoder] = {
    **dict.fromkeys(("F32", "F16", "BF16"), float_records),
    **dict.fromkeys(("Q8_0", "Q4_0", "Q5_0"), scale_records),
    **dict.fromkeys(("Q4_1", "Q5_1"), offset_records),
    **dict.fromkeys(("Q4_K", "Q5_K"), minima_records),
    "Q6_K": signed_records,
}  # fmt: skip
WRITABLE = ("F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q4_K", "Q5_K", "Q6_K")
"""Every type that can be written."""

FALLBACKS = {"Q4_K": "Q5_0", "Q5_K": "Q5_1", "Q6_K": "Q8_0"}
"""What takes a K type's place where rows aren't a multiple of 256: llama.cpp's own choice."""

_SLICE = 1 << 16  # values encoded at a time: a slice and its temporaries stay in the cache
_MOST_THREADS = 8


def fitting_type(wanted: str, columns: int) -> str:
    """The type that rows of a length get: the wanted one, or the nearest that divides them.

    A K type gives way to its entry in `FALLBACKS`, and a type of blocks of 32 to F16.
    """
    for kind in (wanted, FALLBACKS.get(wanted, wanted)):
        if columns % TYPES[kind].values == 0:
            return kind
    return "F16"


def quantize(
    type_name: str,
    values: NDArray[np.float32],
    *,
    name: str = "values",
    first_row: int = 0,
    threads: int | None = None,
) -> NDArray[np.uint8]:
    """Rows of values as the bytes that a file holds.

    Args:
        type_name: one of `WRITABLE`.
        values: float32 [rows, columns].
        name: the tensor, for messages.
        first_row: the number of its first row, for messages.
        threads: how many to use; None: as many as there are cores, at most 8.

    Returns:
        uint8 [rows, bytes of a row]. Beside it and `values`, nothing of their size is held.

    Raises:
        SettingError: a type that can't be written, rows that its blocks don't divide, a NaN or an
            infinity, or a value too large for the type; the message names the tensor and the row.
    """
    if type_name not in _ENCODERS:
        raise SettingError(f"tensor {name!r}: can't be written as {type_name}; choose {', '.join(WRITABLE)}")
    kind = TYPES[type_name]
    rows, columns = values.shape
    if columns % kind.values:
        raise SettingError(
            f"tensor {name!r} has rows of {columns:,} values, not a multiple of the {kind.values} in a block "
            f"of {type_name}"
        )
    flat = np.ascontiguousarray(values, np.float32).reshape(-1)
    _refuse_bad_values(type_name, flat, columns, name, first_row)
    if not flat.size:
        return np.empty((rows, columns // kind.values * kind.nbytes), np.uint8)
    out = np.empty(len(flat) // kind.values, kind.layout)
    step = max(1, _SLICE // kind.values)
    blocks = flat.reshape(-1, kind.values)

    def encode(start: int) -> None:
        out[start : start + step] = _ENCODERS[type_name](type_name, blocks[start : start + step])

    with ThreadPoolExecutor(threads or min(_MOST_THREADS, os.cpu_count() or 1)) as pool:
        for _ in pool.map(encode, range(0, len(blocks), step)):
            pass
    return out.view(np.uint8).reshape(rows, -1)


# Above this, float16 and bfloat16 round to infinity. Blocks hold float16 scales and minima.
_LARGEST = {"F32": np.inf, "F16": 65519.996, "BF16": 3.3961774e38}


def _refuse_bad_values(
    type_name: str, flat: NDArray[np.float32], columns: int, name: str, first_row: int
) -> None:
    found = find_non_finite("F32", flat.view(np.uint8))
    if found:
        row, column = divmod(found.block, columns)
        raise SettingError(
            f"tensor {name!r}, row {first_row + row:,}, column {column:,}: holds {found.value}, "
            "which can't be converted"
        )
    most = _LARGEST.get(type_name, float(LARGEST_HALF))
    if flat.size and max(flat.max(), -flat.min()) > most:
        place = int(np.argmax(np.abs(flat) > most))
        row, column = divmod(place, columns)
        raise SettingError(
            f"tensor {name!r}, row {first_row + row:,}, column {column:,}: holds {flat[place]:g}, "
            f"too large for {type_name}"
        )
