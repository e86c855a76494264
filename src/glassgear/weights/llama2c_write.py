"""Write the `.bin` checkpoints of llama2.c: versions 0, 1 and 2 (export.py, commit 350e04f).

In: a header and float32 values by gear path. Out: a file that is there whole or not at all.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from math import prod
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from glassgear.errors import FileError
from glassgear.model.rope import inverse_frequencies
from glassgear.weights.atomic import replacing
from glassgear.weights.llama2c import HEADER, MAGIC, Header, file_order, rope_of

__all__ = ["group_size", "nbytes", "write"]

Values = Callable[[str], Iterator[NDArray[np.float32]]]
"""Gear path -> its values in order, in pieces of whole rows."""

_LARGEST_GROUP = 64  # the exporter's own choice


def group_size(dim: int, hidden: int) -> int:
    """Values under one scale in version 2: the exporter's 64, halved until it divides all rows."""
    group = _LARGEST_GROUP
    while dim % group or hidden % group:
        group //= 2
    return group


def nbytes(header: Header) -> int:
    """Bytes of the whole file."""
    values = [prod(shape) for _, shape in file_order(header)]
    if header.version != 2:
        return (HEADER if header.version else 28) + 4 * sum(values)
    floats = [prod(shape) for _, shape in file_order(header) if len(shape) == 1]
    coded = sum(values) - sum(floats)
    return HEADER + 4 * sum(floats) + coded + 4 * (coded // header.group)


def write(path: Path, header: Header, values: Values) -> None:
    """Write a checkpoint.

    Raises:
        FileError: the system refuses to write.
    """
    try:
        with replacing(path) as file:
            file.write(_head(header))
            if header.version == 2:
                _write_version_2(file, header, values)
            else:
                _write_floats(file, header, values)
    except OSError as error:
        raise FileError(path, f"can't be written: {error.strerror or error}") from error


def _head(h: Header) -> bytes:
    sizes = [h.dim, h.hidden, h.layers, h.heads, h.kv_heads, h.vocab, h.context]
    if h.version == 0:
        if not h.tied:
            sizes[5] = -h.vocab  # how this version says that the head has weights of its own
        return struct.pack("<7i", *sizes)
    head = MAGIC + struct.pack("<i7iB", h.version, *sizes, h.tied)
    if h.version == 2:
        head += struct.pack("<i", h.group)
    return head.ljust(HEADER, b"\0")


def _write_floats(file: BinaryIO, h: Header, values: Values) -> None:
    tables = _rotary_tables(h)
    for path, _ in file_order(h):
        for piece in values(path) if path else (next(tables),):
            file.write(np.ascontiguousarray(piece, "<f4").data.cast("B"))


def _rotary_tables(h: Header) -> Iterator[NDArray[np.float32]]:
    """Cosines and sines of every position: version 0 carries them, nobody needs them."""
    frequencies = np.array(inverse_frequencies(rope_of(h)), np.float32)
    angles = np.arange(h.context, dtype=np.float32)[:, np.newaxis] * frequencies
    yield np.cos(angles)
    yield np.sin(angles)


def _write_version_2(file: BinaryIO, h: Header, values: Values) -> None:
    """float32 norms, then for each matrix its int8 codes and, behind them, their scales."""
    order = file_order(h)
    for path, _ in (entry for entry in order if len(entry[1]) == 1):
        for piece in values(path):
            file.write(np.ascontiguousarray(piece, "<f4").data.cast("B"))
    for path, _ in (entry for entry in order if len(entry[1]) == 2):
        scales = []
        for piece in values(path):
            codes, scale = _int8(piece, h.group)
            file.write(codes.data.cast("B"))
            scales.append(scale)
        for scale in scales:
            file.write(scale.astype("<f4").data.cast("B"))


def _int8(values: NDArray[np.float32], group: int) -> tuple[NDArray[Any], NDArray[np.float32]]:
    """Codes of -127 to 127 and the scale of each group; a group of zeros has the scale 0."""
    groups = np.ascontiguousarray(values).reshape(-1, group)
    scales = np.abs(groups).max(axis=1) / np.float32(127)
    safe = np.where(scales == 0, np.float32(1), scales)
    codes = np.clip(np.rint(groups / safe[:, np.newaxis]), -127, 127).astype(np.int8)
    return codes, scales
