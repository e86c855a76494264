"""GGUF files byte by byte, so that tests can make any number in them lie.

Independent of the reader and the writer under test: the layout stands here once more.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path

import numpy as np

U8, I8, U16, I16, U32, I32, F32, BOOL, STRING, ARRAY, U64, I64, F64 = range(13)
_STRUCT = {U8: "B", I8: "b", U16: "H", I16: "h", U32: "I", I32: "i", F32: "f", BOOL: "B", U64: "Q", I64: "q",
           F64: "d"}  # fmt: skip


def text(raw: str | bytes, length: int | None = None) -> bytes:
    """A string as GGUF has it; `length` is what it claims to be."""
    raw = raw.encode() if isinstance(raw, str) else raw
    return struct.pack("<Q", len(raw) if length is None else length) + raw


def number(kind: int, value: float) -> bytes:
    """A number of a value type."""
    return struct.pack("<" + _STRUCT[kind], value)


def array(kind: int, items: Sequence[bytes], count: int | None = None) -> bytes:
    """An array of ready-made items; `count` is what it claims to hold."""
    return struct.pack("<IQ", kind, len(items) if count is None else count) + b"".join(items)


def pair(key: str | bytes, kind: int, value: bytes) -> bytes:
    """A metadata key and its value."""
    return text(key) + struct.pack("<I", kind) + value


def entry(
    name: str | bytes, dims: Sequence[int], kind: int, offset: int = 0, n_dims: int | None = None
) -> bytes:
    """A tensor's entry: `dims` in GGML's order, `kind` the number of its type."""
    count = len(dims) if n_dims is None else n_dims
    return text(name) + struct.pack(f"<I{len(dims)}QIQ", count, *dims, kind, offset)


def gguf(
    pairs: Sequence[bytes] = (),
    entries: Sequence[bytes] = (),
    data: bytes = b"",
    *,
    start: bytes = b"GGUF\x03\0\0\0",
    tensor_count: int | None = None,
    pair_count: int | None = None,
    alignment: int = 32,
) -> bytes:
    """A file. `alignment` pads the header; whether metadata says so too is up to `pairs`."""
    counts = struct.pack(
        "<QQ",
        len(entries) if tensor_count is None else tensor_count,
        len(pairs) if pair_count is None else pair_count,
    )
    head = start + counts + b"".join(pairs) + b"".join(entries)
    return head + bytes(-len(head) % alignment) + data if data else head


def floats(count: int, first: float = 0.0) -> bytes:
    """`count` float32 values that rise by one."""
    return np.arange(first, first + count, dtype=np.float32).tobytes()


def save(folder: Path, data: bytes, name: str = "model.gguf") -> Path:
    """Write a file."""
    path = folder / name
    path.write_bytes(data)
    return path
