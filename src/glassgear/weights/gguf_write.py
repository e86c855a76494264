"""Write a GGUF file, version 3: metadata and stored tensors, byte for byte.

In: Python values, and stored or streamed tensors of any type that GGUF has. Out: a file that is there whole
or not at all. Quantising is left to others.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from os import PathLike, fspath
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glassgear.errors import FileError, SettingError
from glassgear.weights.atomic import replacing
from glassgear.weights.gguf_format import (
    ALIGNMENT_KEY,
    ARRAY,
    BOOL,
    DEFAULT_ALIGNMENT,
    MAGIC,
    NUMBERS,
    STRING,
)
from glassgear.weights.quant import TYPES
from glassgear.weights.streamed import StreamedTensor
from glassgear.weights.tensor import StoredTensor

__all__ = ["write"]

Tensor = StoredTensor | StreamedTensor

_KINDS = {dtype.newbyteorder("="): kind for kind, dtype in NUMBERS.items() if kind != BOOL}
_KINDS[np.dtype(np.bool_)] = BOOL
_SCALAR_INTEGERS = (np.uint32, np.int32, np.uint64, np.int64)
_LIST_INTEGERS = (np.int32, np.int64, np.uint64)


def write(path: str | PathLike[str], metadata: Mapping[str, Any], tensors: Iterable[Tensor]) -> None:
    """Write a GGUF file; nothing stands at `path` until it is complete.

    Args:
        path: where. A file that is there already stays until then.
        metadata: key -> str, bool, int, float, NumPy scalar or array, or list. NumPy values keep
            their type. Python's become the narrowest of uint32, int32, uint64 and int64 that
            holds them, and float32; in lists int32 before int64. `general.alignment` is obeyed.
        tensors: in the order in which they shall lie; rows are written in logical order.

    Raises:
        SettingError: a value or tensor that GGUF can't hold.
        FileError: the system refuses to write.
    """
    found = list(tensors)
    head = _head(metadata, found)
    place = Path(fspath(path))
    try:
        with replacing(place) as file:
            file.write(head)
            for chunk in _data(found, len(head), _alignment(metadata)):
                file.write(chunk)
    except OSError as error:
        raise FileError(place, f"can't be written: {error.strerror or error}") from error


def _alignment(metadata: Mapping[str, Any]) -> int:
    found = int(metadata.get(ALIGNMENT_KEY, DEFAULT_ALIGNMENT))
    if found < 8 or found & (found - 1):
        raise SettingError(f"{ALIGNMENT_KEY} is {found}, not a power of two from 8 on")
    return found


def _head(metadata: Mapping[str, Any], tensors: list[Tensor]) -> bytes:
    if len({tensor.name for tensor in tensors}) < len(tensors):
        raise SettingError("two tensors have the same name")
    alignment = _alignment(metadata)
    chunks = [MAGIC, struct.pack("<IQQ", 3, len(tensors), len(metadata))]
    for key, value in metadata.items():
        kind, payload = _value(key, value)
        chunks += [_string(key), struct.pack("<I", kind), payload]
    offset = 0
    for tensor in tensors:
        chunks.append(_entry(tensor, offset))
        offset += _padded(tensor.nbytes, alignment)
    return b"".join(chunks)


def _entry(tensor: Tensor, offset: int) -> bytes:
    if tensor.type not in TYPES:
        raise SettingError(f"tensor {tensor.name!r} is of type {tensor.type}, which GGUF doesn't have")
    dims = tensor.shape[::-1]  # GGML counts from the contiguous one
    layout = f"<I{len(dims)}QIQ"
    return _string(tensor.name) + struct.pack(layout, len(dims), *dims, TYPES[tensor.type].number, offset)


def _padded(size: int, alignment: int) -> int:
    return -(-size // alignment) * alignment


def _data(tensors: list[Tensor], at: int, alignment: int) -> Iterator[bytes | memoryview]:
    """The tensors' bytes, each after the zeros that bring it to its place."""
    if not tensors:
        return
    yield bytes(_padded(at, alignment) - at)
    for tensor in tensors:
        if isinstance(tensor, StreamedTensor):
            yield from tensor.chunks()
            yield bytes(_padded(tensor.nbytes, alignment) - tensor.nbytes)
            continue
        data = tensor.data
        if tensor.row_order is not None:
            data = data.reshape(tensor.matrix[0], -1)[tensor.row_order]
        yield np.ascontiguousarray(data).data.cast("B")
        yield bytes(_padded(data.nbytes, alignment) - data.nbytes)


def _string(text: str) -> bytes:
    try:
        raw = text.encode()
    except UnicodeEncodeError as error:
        raise SettingError(f"{text!r:.80} can't be written as UTF-8: {error.reason}") from None
    return struct.pack("<Q", len(raw)) + raw


def _value(key: str, value: Any) -> tuple[int, bytes]:
    """The type of a value, and its bytes."""
    if isinstance(value, str):
        return STRING, _string(value)
    if isinstance(value, list | tuple) or (isinstance(value, np.ndarray) and value.ndim):
        return ARRAY, _array(key, value)
    numpy = isinstance(value, np.ndarray | np.generic)
    numbers = np.asarray(value) if numpy else _as_numpy(key, [value], _SCALAR_INTEGERS)
    return _kind(key, numbers), _little_endian(numbers)


def _array(key: str, values: Any) -> bytes:
    """The type of the entries, their number, and their bytes."""
    if len(values) and all(isinstance(value, str) for value in values):
        kind, payload = STRING, b"".join(_string(value) for value in values)
    elif len(values) and all(isinstance(value, list | tuple | np.ndarray) for value in values):
        kind, payload = ARRAY, b"".join(_array(key, value) for value in values)
    else:
        numbers = values if isinstance(values, np.ndarray) else _as_numpy(key, values, _LIST_INTEGERS)
        kind, payload = _kind(key, numbers), _little_endian(numbers)
    return struct.pack("<IQ", kind, len(values)) + payload


def _as_numpy(key: str, values: Sequence[Any], integers: Sequence[type[np.integer[Any]]]) -> NDArray[Any]:
    """Python's numbers in the first type that holds them all."""
    kinds = {type(value) for value in values}
    if kinds == {bool}:
        return np.array(values, np.bool_)
    if kinds <= {int}:
        low, high = min(values, default=0), max(values, default=0)
        for integer in integers:
            if np.iinfo(integer).min <= low and high <= np.iinfo(integer).max:
                return np.array(values, integer)
    if kinds <= {int, float} and float in kinds:
        return np.array(values, np.float32)
    raise SettingError(f"metadata {key!r}: GGUF has no type for {values!r:.80}")


def _kind(key: str, numbers: NDArray[Any]) -> int:
    kind = _KINDS.get(numbers.dtype.newbyteorder("="))
    if kind is None:
        raise SettingError(f"metadata {key!r}: GGUF has no type for {numbers.dtype} values")
    return kind


def _little_endian(numbers: NDArray[Any]) -> bytes:
    return numbers.astype(numbers.dtype.newbyteorder("<")).tobytes()
