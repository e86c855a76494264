"""GGUF files, versions 2 and 3: metadata, and tensors that stay in the mapped file.

In: a path. Out: `GGUFFile`, checked: what a `StoredTensor` of it promises lies in the file.
Nothing is known here of architectures; names and values are the file's own. Format:
`docs/gguf.md` of ggml-org/ggml. No number of a file is believed before it is compared with the
bytes that are left, and sizes are multiplied as Python integers, which can't wrap.
"""

from __future__ import annotations

import mmap
import os
import re
import struct
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod
from os import PathLike, fspath
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glassgear.errors import FormatError, NotFoundError, UnsupportedError
from glassgear.model.gears import Shape
from glassgear.weights.gguf_format import (
    ALIGNMENT_KEY,
    ARRAY,
    BOOL,
    DEFAULT_ALIGNMENT,
    MAGIC,
    NUMBERS,
    OTHER_TYPES,
    STRING,
)
from glassgear.weights.mapped import HEAD_BYTES, foreign, map_file
from glassgear.weights.quant import TYPES, BlockType
from glassgear.weights.tensor import StoredTensor

__all__ = ["GGUFFile", "read"]

_LEAST = {**{kind: dtype.itemsize for kind, dtype in NUMBERS.items()}, STRING: 8, ARRAY: 12}
_BY_NUMBER = {kind.number: kind for kind in TYPES.values()}

_MOST_KEY_BYTES = 65535  # the specification's own limit
_MOST_DIMENSIONS = 4  # GGML_MAX_DIMS
_MOST_NESTING = 4  # the specification sets none; files in the wild don't nest arrays at all
_MOST_ALIGNMENT = 1 << 21  # a huge page; files in the wild use 32
_LEAST_ENTRY, _LEAST_PAIR = 25, 14  # bytes of the shortest possible tensor entry and key with value

_LENGTH = struct.Struct("<Q").unpack_from
_PART_NAME = re.compile(r"(.*)-(\d{5})-of-(\d{5})(\.gguf)", re.DOTALL | re.IGNORECASE)


@dataclass(frozen=True, eq=False)
class GGUFFile:
    """What a GGUF file says, or a set of files that were split from one.

    Attributes:
        path: the file that was asked for.
        version: 2 or 3.
        alignment: tensors start at multiples of it, counted from `data_start`.
        data_start: where the first tensor may start, in bytes from the start of the file.
        metadata: key -> bool, int, float, str, NumPy array (of numbers or bools), list[str], or
            list of such arrays where a file nests them. Text is UTF-8; anything else is refused.
        tensors: name -> tensor, in file order; empty in a file with only a vocabulary.
        parts: every file that was read, the first one first.
    """

    path: str
    version: int
    alignment: int
    data_start: int
    metadata: dict[str, Any]
    tensors: dict[str, StoredTensor]
    parts: tuple[str, ...]


def read(path: str | PathLike[str]) -> GGUFFile:
    """Read a GGUF file. One part of a split file (`-00001-of-00003.gguf`) brings in the others.

    Raises:
        NotFoundError: nothing lies at the path, or a part is missing.
        FormatError: something else than a GGUF file, or a damaged one.
        UnsupportedError: another version or byte order, or a tensor of a type that isn't decoded.
    """
    file = _read_one(fspath(path))
    count = _whole(file, "split.count", 1)
    return file if count <= 1 else _join(file, count)


def _read_one(path: str) -> GGUFFile:
    data = map_file(path)
    walk = _Walk(path, data)
    version = _version(walk)
    tensor_count = walk.count("tensors", _LEAST_ENTRY)
    pair_count = walk.count("metadata keys", _LEAST_PAIR)
    metadata = _metadata(walk, pair_count)
    alignment = _alignment(path, metadata)
    entries = [_entry(walk, index) for index in range(tensor_count)]
    start = -(-walk.at // alignment) * alignment
    tensors = _place(path, data, entries, start, alignment)
    return GGUFFile(path, version, alignment, start, metadata, tensors, (path,))


class _Walk:
    """A place in the bytes that only moves over what is there."""

    def __init__(self, path: str, data: mmap.mmap) -> None:
        self.path = path
        self.data = data
        self.size = len(data)
        self.at = 0

    def need(self, count: int, what: str) -> None:
        """Raise unless `count` more bytes are left."""
        if count > self.size - self.at:
            raise FormatError(
                self.path,
                f"ends inside {what}: {count:,} bytes are needed at byte {self.at:,}, "
                f"{self.size - self.at:,} are left. It is cut off or damaged: fetch it again",
            )

    def numbers(self, dtype: np.dtype[Any], count: int, what: str) -> NDArray[Any]:
        """A copy of `count` numbers."""
        self.need(count * dtype.itemsize, what)
        found = np.frombuffer(self.data, dtype, count, self.at).astype(dtype.newbyteorder("="))
        self.at += count * dtype.itemsize
        return found

    def integer(self, bits: int, what: str) -> int:
        """An unsigned integer of 32 or 64 bits."""
        self.need(bits // 8, what)
        self.at += bits // 8
        return int.from_bytes(self.data[self.at - bits // 8 : self.at], "little")

    def count(self, what: str, least: int) -> int:
        """A number of things, each of which takes `least` bytes or more of those that are left."""
        found = self.integer(64, f"the number of {what}")
        if found > (self.size - self.at) // least:
            raise FormatError(
                self.path,
                f"claims to hold {found:,} {what}, more than {self.size - self.at:,} bytes can. "
                "It is cut off or damaged: fetch it again",
            )
        return found

    def string(self, what: str) -> str:
        """Text with its length before it."""
        return self.strings(1, what)[0]

    def strings(self, count: int, what: str) -> list[str]:
        """`count` texts. This loop is most of the time that a large vocabulary takes."""
        data, size, at = self.data, self.size, self.at
        found: list[str] = []
        append = found.append
        try:
            for _ in range(count):
                start = at + 8
                end = start + _LENGTH(data, at)[0]
                if end > size:
                    self.at = start
                    self.need(end - start, _item(what, count, len(found)))
                append(data[start:end].decode())
                at = end
        except struct.error:
            self.at = at
            self.need(8, _item(what, count, len(found)))
        except UnicodeDecodeError as error:
            place = _item(what, count, len(found))
            raise FormatError(self.path, f"{place} isn't valid UTF-8: {_show(error.object)}") from None
        self.at = at
        return found


def _item(what: str, count: int, index: int) -> str:
    return what if count == 1 else f"{what}, entry {index:,}"


def _show(text: str | bytes) -> str:
    """A name from a file, fit to be printed: control characters escaped, not too long."""
    return repr(text[:80]) + ("..." if len(text) > 80 else "")


def _version(walk: _Walk) -> int:
    head = walk.data[:HEAD_BYTES]
    if not head.startswith(MAGIC):
        what = foreign(head)
        raise FormatError(
            walk.path,
            f"is {what}" if what else f"isn't a GGUF file: it starts with {head[:4]!r}, not {MAGIC!r}",
        )
    walk.at = len(MAGIC)
    version = walk.integer(32, "the header")
    if version and version % 65536 == 0:
        swapped = int.from_bytes(version.to_bytes(4, "little"), "big")
        raise UnsupportedError(
            walk.path,
            f"gives its version as {version}, which is {swapped} in big-endian byte order: "
            "get a little-endian file",
        )
    if version not in (2, 3):
        raise UnsupportedError(walk.path, f"is GGUF version {version}; versions 2 and 3 can be read")
    return version


# --------------------------------------------------------------------------------------------
# Metadata


def _metadata(walk: _Walk, count: int) -> dict[str, Any]:
    metadata: dict[str, Any] = {}
    for index in range(count):
        what = f"metadata key {index:,}"
        key = walk.string(what)
        if not key or len(key) > _MOST_KEY_BYTES:
            trouble = f"is {len(key):,} characters long" if key else "is empty"
            raise FormatError(walk.path, f"{what} {trouble}: the file is damaged")
        if key in metadata:
            raise FormatError(walk.path, f"holds the metadata key {_show(key)} twice: the file is damaged")
        what = f"metadata {_show(key)}"
        metadata[key] = _value(walk, walk.integer(32, what), what, 0)
    return metadata


def _value(walk: _Walk, kind: int, what: str, depth: int) -> Any:
    if kind == ARRAY:
        return _array(walk, what, depth + 1)
    if kind == STRING:
        return walk.string(what)
    return _numbers(walk, kind, 1, what)[0].item()


def _array(walk: _Walk, what: str, depth: int) -> NDArray[Any] | list[Any]:
    if depth > _MOST_NESTING:
        raise FormatError(walk.path, f"{what} nests arrays deeper than {_MOST_NESTING}")
    kind = walk.integer(32, what)
    if kind not in _LEAST:
        raise FormatError(walk.path, f"{what} has the unknown value type {kind}: the file is damaged")
    count = walk.count(f"entries of {what}", _LEAST[kind])
    if kind == STRING:
        return walk.strings(count, what)
    if kind == ARRAY:
        return [_array(walk, what, depth + 1) for _ in range(count)]
    return _numbers(walk, kind, count, what)


def _numbers(walk: _Walk, kind: int, count: int, what: str) -> NDArray[Any]:
    if kind not in NUMBERS:
        raise FormatError(walk.path, f"{what} has the unknown value type {kind}: the file is damaged")
    found = walk.numbers(NUMBERS[kind], count, what)
    if kind != BOOL:
        return found
    if count and found.max() > 1:
        raise FormatError(walk.path, f"{what} is a truth value of {found.max()}, neither 0 nor 1")
    return found.astype(np.bool_)


def _alignment(path: str, metadata: dict[str, Any]) -> int:
    found = metadata.get(ALIGNMENT_KEY, DEFAULT_ALIGNMENT)
    # A multiple of 8 by the specification, and of use to kernels only as a power of two.
    if type(found) is not int or not 8 <= found <= _MOST_ALIGNMENT or found & (found - 1):
        raise FormatError(
            path,
            f"{ALIGNMENT_KEY} is {_show(str(found))}, not a power of two from 8 to {_MOST_ALIGNMENT:,}",
        )
    return found


def _whole(file: GGUFFile, key: str, default: int) -> int:
    found = file.metadata.get(key, default)
    if type(found) is not int:
        raise FormatError(file.path, f"{key} is {_show(str(found))}, not a whole number")
    return found


# --------------------------------------------------------------------------------------------
# Tensors


@dataclass(frozen=True)
class _Entry:
    """What the table of tensors says about one of them; `offset` counts from the data's start."""

    name: str
    kind: BlockType
    shape: Shape
    offset: int

    @property
    def nbytes(self) -> int:
        return prod(self.shape) // self.kind.values * self.kind.nbytes


def _entry(walk: _Walk, index: int) -> _Entry:
    what = f"the entry of tensor {index:,}"
    name = walk.string(what)
    if not name:
        raise FormatError(walk.path, f"{what} has no name: the file is damaged")
    what = f"tensor {_show(name)}"
    dimensions = walk.integer(32, what)
    if dimensions > _MOST_DIMENSIONS:
        raise FormatError(walk.path, f"{what} has {dimensions:,} dimensions; {_MOST_DIMENSIONS} are the most")
    # GGML counts dimensions from the contiguous one.
    shape = tuple(walk.integer(64, what) for _ in range(dimensions))[::-1]
    if 0 in shape:
        raise FormatError(walk.path, f"{what} has a dimension of size 0: {list(shape)}")
    kind = _block_type(walk, what)
    columns = shape[-1] if shape else 1
    if columns % kind.values:
        raise FormatError(
            walk.path,
            f"{what} has rows of {columns:,} values, not a multiple of the {kind.values} "
            f"in a block of {kind.name}",
        )
    return _Entry(name, kind, shape, walk.integer(64, what))


def _block_type(walk: _Walk, what: str) -> BlockType:
    number = walk.integer(32, what)
    if number not in _BY_NUMBER:
        name = OTHER_TYPES.get(number, "unknown")
        raise UnsupportedError(
            walk.path, f"{what} is of type {number} ({name}); supported are {', '.join(TYPES)}"
        )
    return _BY_NUMBER[number]


def _place(
    path: str, data: mmap.mmap, entries: Sequence[_Entry], start: int, alignment: int
) -> dict[str, StoredTensor]:
    """Entries to tensors, once each is known to lie in the file, alone in its place."""
    _check_places(path, entries, start, alignment, len(data))
    file = np.frombuffer(data, np.uint8)  # holds the mapping open
    tensors: dict[str, StoredTensor] = {}
    for entry in entries:
        if entry.name in tensors:
            raise FormatError(path, f"holds two tensors named {_show(entry.name)}: the file is damaged")
        first = start + entry.offset
        stored = file[first : first + entry.nbytes]
        tensors[entry.name] = StoredTensor(entry.name, entry.kind.name, entry.shape, stored, path)
    return tensors


def _check_places(path: str, entries: Sequence[_Entry], start: int, alignment: int, size: int) -> None:
    before: _Entry | None = None
    for entry in sorted(entries, key=lambda one: one.offset):
        what = f"tensor {_show(entry.name)}"
        if entry.offset % alignment:
            raise FormatError(
                path, f"{what} starts at {entry.offset:,}, not a multiple of the alignment {alignment}"
            )
        if before and entry.offset < before.offset + before.nbytes:
            raise FormatError(path, f"{what} overlaps tensor {_show(before.name)}: the file is damaged")
        if (end := start + entry.offset + entry.nbytes) > size:
            raise FormatError(
                path,
                f"{what} of shape {list(entry.shape)} should end at byte {end:,}, but the file has {size:,}. "
                "It is cut off or damaged: fetch it again",
            )
        before = entry


# --------------------------------------------------------------------------------------------
# Split files


def _join(asked: GGUFFile, count: int) -> GGUFFile:
    """All parts of a split file as one: the metadata of the first, the tensors of all."""
    name = _PART_NAME.fullmatch(asked.path)
    if not name or int(name[3]) != count or int(name[2]) != _whole(asked, "split.no", 0) + 1:
        raise FormatError(
            asked.path,
            f"is part {_whole(asked, 'split.no', 0) + 1} of {count}, but isn't named so: "
            "give the parts their names back, as `name-00001-of-00003.gguf`",
        )
    paths = [f"{name[1]}-{index:05d}-of-{count:05d}{name[4]}" for index in range(1, count + 1)]
    parts = [_part(path, index, asked) for index, path in enumerate(paths)]
    tensors: dict[str, StoredTensor] = {}
    for part in parts:
        if twice := tensors.keys() & part.tensors.keys():
            raise FormatError(part.path, f"tensor {_show(min(twice))} is in an earlier part too")
        tensors |= part.tensors
    promised = _whole(parts[0], "split.tensors.count", len(tensors))
    if promised != len(tensors):
        raise FormatError(
            parts[0].path, f"its parts hold {len(tensors)} tensors, not the {promised} of the set"
        )
    return replace(parts[0], path=asked.path, tensors=tensors, parts=tuple(paths))


def _part(path: str, index: int, asked: GGUFFile) -> GGUFFile:
    if path == asked.path:
        return asked
    count = _whole(asked, "split.count", 1)
    if not os.path.exists(path):
        raise NotFoundError(path, f"part {index + 1} of {count} is missing; {asked.path} needs all of them")
    part = _read_one(path)
    found = _whole(part, "split.no", 0), _whole(part, "split.count", 1)
    if found != (index, count):
        raise FormatError(
            path, f"is part {found[0] + 1} of {found[1]} by its metadata, not {index + 1} of {count}"
        )
    return part
