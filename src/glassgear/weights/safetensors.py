"""safetensors files: named tensors that stay in the mapped file, and a writer.

In: a path. Out: `StoredTensor`s, checked: what each of them promises lies in the file, and its
bytes belong to it alone. Format: README.md of huggingface/safetensors, section Format: eight
bytes with the length of the header, the header (a JSON object: name -> dtype, shape,
data_offsets), the data. The data is covered without holes, as the reference reader demands.

The library's own NumPy reader isn't used: it has no BF16, and its errors don't name the tensor.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from os import PathLike, fspath
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glassgear.errors import FormatError, SettingError, UnsupportedError
from glassgear.model.gears import Shape
from glassgear.weights.atomic import replacing
from glassgear.weights.json_object import parse_object, quoted
from glassgear.weights.mapped import foreign, map_file
from glassgear.weights.streamed import StreamedTensor
from glassgear.weights.tensor import StoredTensor

__all__ = ["BITS", "read", "read_metadata", "write"]

BITS = {
    "F64": 64, "F32": 32, "F16": 16, "BF16": 16, "I64": 64, "I32": 32, "I16": 16, "I8": 8,
    "U64": 64, "U32": 32, "U16": 16, "U8": 8, "BOOL": 8, "C64": 64,
    "F8_E5M2": 8, "F8_E4M3": 8, "F8_E8M0": 8, "F8_E5M2FNUZ": 8, "F8_E4M3FNUZ": 8,
    "F6_E2M3": 6, "F6_E3M2": 6, "F4": 4,
}  # fmt: skip
"""Every type of the format, and the bits of one value. Which of them can be decoded, `quant` says."""

_METADATA = "__metadata__"
_PREFIX = 8  # bytes of the header's length
_MOST_HEADER_BYTES = 100_000_000  # as in the reference reader
_MOST_DIMENSIONS = 32  # NumPy's own limit before version 2
_MOST_BITS = 1 << 63
_HEAD_BYTES = 1024
_DTYPES = {
    "f8": "F64", "f4": "F32", "f2": "F16", "i8": "I64", "i4": "I32", "i2": "I16", "i1": "I8",
    "u8": "U64", "u4": "U32", "u2": "U16", "u1": "U8", "b1": "BOOL", "c8": "C64",
}  # fmt: skip


@dataclass(frozen=True)
class _Entry:
    """A tensor as the header has it; offsets count from the end of the header."""

    name: str
    type: str
    shape: Shape
    begin: int
    end: int


def read(path: str | PathLike[str]) -> dict[str, StoredTensor]:
    """Read the header of a file; the data stays mapped for as long as one of the tensors lives.

    Returns:
        name -> tensor, in the order of the header. Types without a decoder (`I64` and `BOOL`
        buffers, `F8_E5M2` weights) are listed too: they refuse when their values are asked for.

    Raises:
        NotFoundError: there is no such file.
        FormatError: not a safetensors file, or one whose header contradicts itself or its data.
        UnsupportedError: a tensor of a type that the format doesn't have yet.
    """
    path = fspath(path)
    data, header, start = _open(path)
    entries = [_entry(path, name, value) for name, value in header.items() if name != _METADATA]
    _check_cover(path, entries, len(data) - start)
    return {
        entry.name: StoredTensor(
            entry.name, entry.type, entry.shape, data[start + entry.begin : start + entry.end], path
        )
        for entry in entries
    }


def read_metadata(path: str | PathLike[str]) -> dict[str, str]:
    """The free text that a file carries under `__metadata__`; nothing in Glassgear depends on it."""
    _, header, _ = _open(fspath(path))
    found = header.get(_METADATA)
    pairs = found.items() if isinstance(found, dict) else ()
    return {key: value for key, value in pairs if isinstance(value, str)}


def _open(path: str) -> tuple[NDArray[np.uint8], dict[str, Any], int]:
    """The whole file as bytes, its header, and where the data starts."""
    data = np.frombuffer(map_file(path), np.uint8)
    length = int.from_bytes(data[:_PREFIX].tobytes(), "little")
    start = _PREFIX + length
    if len(data) < _PREFIX + 2 or length > len(data) - _PREFIX or data[_PREFIX] != ord("{"):
        other = foreign(data[:_HEAD_BYTES].tobytes())
        if other and other != "a safetensors file":
            raise FormatError(path, f"should be a safetensors file, but is {other}")
    if len(data) < _PREFIX + 2:
        raise FormatError(path, f"is {len(data)} bytes, too short for a safetensors file: fetch it again")
    if length > _MOST_HEADER_BYTES:
        raise FormatError(
            path,
            f"gives {length:,} bytes as the length of its header, where {_MOST_HEADER_BYTES:,} is the most: "
            "it is damaged, or no safetensors file",
        )
    if length > len(data) - _PREFIX:
        raise FormatError(
            path,
            f"says that its header has {length:,} bytes, but only {len(data) - _PREFIX:,} follow: "
            "it is cut off, or no safetensors file",
        )
    if length < 2 or data[_PREFIX] != ord("{"):
        raise FormatError(path, "has no header that opens with `{`: it is damaged, or no safetensors file")
    return data, parse_object(path, data[_PREFIX:start].tobytes(), "its header"), start


def _entry(path: str, name: str, value: Any) -> _Entry:
    """One entry of the header, its numbers checked against each other."""
    if not isinstance(value, dict):
        raise FormatError(path, f"tensor {quoted(name)} is described by {_kind(value)}, not by an object")
    missing = [field for field in ("dtype", "shape", "data_offsets") if field not in value]
    if missing:
        raise FormatError(path, f"tensor {quoted(name)} lacks `{'`, `'.join(missing)}` in the header")
    dtype, shape, offsets = value["dtype"], value["shape"], value["data_offsets"]
    if not isinstance(dtype, str):
        raise FormatError(path, f"tensor {quoted(name)}: its dtype is {_kind(dtype)}, not a name")
    if dtype not in BITS:
        raise UnsupportedError(path, f"tensor {quoted(name)} is of type {quoted(dtype)}, which isn't known")
    if not _are_sizes(shape):
        raise FormatError(
            path, f"tensor {quoted(name)}: its shape should be a list of whole numbers from 0 up"
        )
    if len(shape) > _MOST_DIMENSIONS:
        raise FormatError(
            path, f"tensor {quoted(name)} has {len(shape)} dimensions, where {_MOST_DIMENSIONS} is the most"
        )
    if not _are_sizes(offsets) or len(offsets) != 2 or offsets[0] > offsets[1]:
        raise FormatError(
            path, f"tensor {quoted(name)}: its data_offsets should be [begin, end], and begin at most end"
        )
    entry = _Entry(name, dtype, tuple(shape), *offsets)
    _check_span(path, entry)
    return entry


def _check_span(path: str, entry: _Entry) -> None:
    """The bytes an entry lays claim to are those that its shape and type need."""
    bits = BITS[entry.type]
    for size in entry.shape:
        bits *= size or 1  # a huge shape is no less impossible for having a zero in it
        if bits >= _MOST_BITS:
            raise FormatError(path, f"tensor {quoted(entry.name)}: its shape is larger than any memory")
    if 0 in entry.shape:
        bits = 0
    if bits % 8 or bits // 8 != entry.end - entry.begin:
        shape = " x ".join(map(str, entry.shape)) or "a single value"
        need = f"{bits // 8:,}" if bits % 8 == 0 else f"{bits / 8:,}"
        raise FormatError(
            path,
            f"tensor {quoted(entry.name)} ({shape}, {entry.type}) needs {need} bytes, "
            f"but its data_offsets span {entry.end - entry.begin:,}",
        )


def _check_cover(path: str, entries: list[_Entry], size: int) -> None:
    """Every byte of the data belongs to one tensor: no overlap, no hole, nothing past the end."""
    at, before = 0, None
    for entry in sorted(entries, key=lambda one: (one.begin, one.end)):
        if entry.end > size:
            raise FormatError(
                path,
                f"tensor {quoted(entry.name)} ends at byte {entry.end:,} of the data, but the file holds "
                f"{size:,}: its download broke off, or it is damaged",
            )
        if entry.begin < at:
            assert before is not None
            raise FormatError(
                path, f"tensors {quoted(before.name)} and {quoted(entry.name)} share bytes, so it is damaged"
            )
        if entry.begin > at:
            raise FormatError(
                path, f"holds {entry.begin - at:,} bytes that belong to nothing, before {quoted(entry.name)}"
            )
        at, before = entry.end, entry
    if at != size:
        after = f"after its last tensor, {quoted(before.name)}" if before else "but lists no tensor"
        raise FormatError(path, f"holds {size - at:,} bytes that belong to nothing, {after}")


def _are_sizes(value: Any) -> bool:
    # `type`, not `isinstance`: JSON's true is an int to Python.
    return isinstance(value, list) and all(type(n) is int and 0 <= n < _MOST_BITS for n in value)


def _kind(value: Any) -> str:
    names = {dict: "an object", list: "a list", str: "a text", bool: "a truth value", type(None): "null"}
    return names.get(type(value), "a number")


def write(
    path: str | PathLike[str],
    tensors: Mapping[str, StoredTensor | StreamedTensor | NDArray[Any]],
    metadata: Mapping[str, str] | None = None,
) -> None:
    """Write a safetensors file; its name appears when it is complete.

    Args:
        path: where; a file that is there is replaced.
        tensors: name -> array, or a stored tensor whose bytes are copied as they are (BF16 too), or
            one that is made while it is written.
        metadata: text to keep under `__metadata__`.

    Raises:
        SettingError: a type or name that the format doesn't have, or rows in another order.
    """
    parts = [(name, *_bytes_of(name, tensor)) for name, tensor in tensors.items()]
    # Widest type first, then by name, as the reference writer does: each tensor lies aligned.
    parts.sort(key=lambda part: (-BITS[part[1]], part[0]))
    header: dict[str, Any] = {_METADATA: dict(metadata)} if metadata else {}
    offset = 0
    for name, kind, shape, data in parts:
        header[name] = {"dtype": kind, "shape": shape, "data_offsets": [offset, offset + data.nbytes]}
        offset += data.nbytes
    text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with replacing(Path(path)) as file:
        file.write(len(text).to_bytes(_PREFIX, "little"))
        file.write(text)
        for *_, data in parts:
            for chunk in data.chunks() if isinstance(data, StreamedTensor) else (data.data,):
                file.write(chunk)


def _bytes_of(
    name: str, tensor: StoredTensor | StreamedTensor | NDArray[Any]
) -> tuple[str, Shape, NDArray[np.uint8] | StreamedTensor]:
    """Type, shape and bytes of a tensor that is to be written."""
    if name == _METADATA:
        raise SettingError(f"a tensor can't have the name `{_METADATA}`")
    if isinstance(tensor, StreamedTensor):
        if tensor.type not in BITS:
            raise SettingError(
                f"tensor {quoted(name)} is of type {tensor.type}: safetensors has no such type"
            )
        return tensor.type, tensor.shape, tensor
    if isinstance(tensor, StoredTensor):
        if tensor.type not in BITS or tensor.row_order is not None:
            trouble = "in another row order" if tensor.type in BITS else f"of type {tensor.type}"
            raise SettingError(f"tensor {quoted(name)} is {trouble}: decode it before writing")
        return tensor.type, tensor.shape, np.ascontiguousarray(tensor.data)
    kind = _DTYPES.get(tensor.dtype.str[1:])
    if kind is None:
        raise SettingError(f"tensor {quoted(name)}: safetensors has no type for NumPy's {tensor.dtype}")
    little = np.ascontiguousarray(tensor, tensor.dtype.newbyteorder("<"))
    return kind, tensor.shape, little.reshape(-1).view(np.uint8)
