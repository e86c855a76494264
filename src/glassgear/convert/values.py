"""Stored tensors as the tensors of another file: other names, types and orders, piece by piece.

In: what a target tensor is made of. Out: a `StreamedTensor` that decodes, rounds or quantises some
rows at a time. Bytes of a type that stays are copied as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glassgear.errors import FormatError, SettingError
from glassgear.model.gears import Shape
from glassgear.weights.quant import TYPES
from glassgear.weights.quantize import fitting_type, quantize
from glassgear.weights.streamed import StreamedTensor
from glassgear.weights.tensor import StoredTensor

__all__ = ["Made", "Progress", "TypeRule", "streamed", "type_in_gguf"]

Progress = Callable[[int], None]
"""Is told how many bytes were written just now."""

_PIECE = 1 << 20  # values decoded at a time


@dataclass(frozen=True, eq=False)
class Made:
    """A tensor of the target.

    Attributes:
        name: its name there.
        shape: its shape there.
        parts: what it is made of, one below the other.
        transposed: whether the target has the parts' columns as rows.
        added: what is added to every value.
    """

    name: str
    shape: Shape
    parts: tuple[StoredTensor, ...]
    transposed: bool = False
    added: float = 0.0

    @property
    def stored_type(self) -> str | None:
        """The type of its parts, if it is one and the same, and one that can be decoded."""
        kinds = {part.type for part in self.parts}
        kind = kinds.pop()
        return kind if not kinds and kind in TYPES else None


@dataclass(frozen=True)
class TypeRule:
    """Which type tensors get.

    Attributes:
        matrices: of matrices; None: the type that each is stored in.
        head: of the embedding table and the output matrix; None: as other matrices.
    """

    matrices: str | None = None
    head: str | None = None


# Small, read whole for every token, or precise by nature: positions, token types, and the routers that
# choose experts. llama.cpp keeps them in F32 too.
_PRECISE = ("position_embd.", "token_types.", "ffn_gate_inp.", "rope_freqs.")
_HEAD = ("token_embd.weight", "output.weight")


def type_in_gguf(made: Made, rule: TypeRule) -> str:
    """The type of a tensor in a GGUF file, by its name there.

    One-dimensional tensors and the small ones of `_PRECISE` are F32. All else is of the wanted type,
    or of the nearest that divides its rows.
    """
    if len(made.shape) < 2 or not made.name.endswith(".weight") or _is_precise(made.name):
        return "F32"
    wanted = (rule.head if made.name in _HEAD else None) or rule.matrices
    if wanted is None:
        wanted = "F32" if made.transposed or made.stored_type is None else made.stored_type
    return fitting_type(wanted, made.shape[-1])


def _is_precise(name: str) -> bool:
    return any(part in name for part in _PRECISE) or "_norm." in name


def streamed(made: Made, kind: str, progress: Progress) -> StreamedTensor:
    """The tensor in a type.

    Args:
        made: which.
        kind: a key of `quant.TYPES`.
        progress: see `Progress`.
    """

    def pieces() -> Iterator[NDArray[Any]]:
        for piece in _pieces(made, kind):
            yield piece
            progress(piece.nbytes)

    return StreamedTensor(made.name, kind, made.shape, pieces)


def _pieces(made: Made, kind: str) -> Iterator[NDArray[Any]]:
    for part in made.parts:
        part.check_finite()
    if made.transposed:
        whole = np.concatenate([part.float32().reshape(part.matrix) for part in made.parts])
        yield _encoded(made, kind, np.ascontiguousarray(whole.T), 0)
        return
    columns = made.shape[-1] if made.shape else 1
    first = 0
    for part in made.parts:
        rows, stored_columns = part.matrix
        # A reordered vector counts as a column; its entries are taken one by one, as rows are.
        whole_rows = columns == stored_columns
        step = max(1, _PIECE // stored_columns)
        for start in range(0, rows, step):
            index = np.arange(start, min(start + step, rows))
            if part.type == kind and part.scales is None and not made.added:
                yield _raw(part, index)
            else:
                values = part.rows(index)
                if made.added:
                    values = values + np.float32(made.added)
                yield _encoded(made, kind, values if whole_rows else values.reshape(1, -1), first + start)
        first += rows


def _raw(part: StoredTensor, index: NDArray[np.intp]) -> NDArray[np.uint8]:
    """The bytes of some rows as they are."""
    table = part.data.reshape(part.matrix[0], -1)
    if part.row_order is None:
        return table[index[0] : index[-1] + 1]
    return table[part.row_order[index]]


def _encoded(made: Made, kind: str, values: NDArray[np.float32], first_row: int) -> NDArray[np.uint8]:
    try:
        return quantize(kind, values, name=made.name, first_row=first_row)
    except SettingError as error:
        raise FormatError(made.parts[0].file, str(error)) from None
