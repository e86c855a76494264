"""The `.bin` checkpoints of Karpathy's llama2.c: versions 0, 1 and 2 (export.py, commit 350e04f).

In: a path. Out: the header, and stored tensors under gear paths. Each version is one list of
(path, shape) in file order. The rotary tables that version 0 carries are skipped: they follow
from the sizes.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from glassgear.errors import FormatError, UnsupportedError
from glassgear.model.families.llama import LlamaConfig, llama
from glassgear.model.gears import Model, Rope, Shape
from glassgear.weights.mapped import map_file
from glassgear.weights.tensor import StoredTensor

__all__ = ["HEADER", "MAGIC", "Header", "file_order", "looks_like_version_0", "read", "rope_of", "tree"]

MAGIC = b"24ka"  # the integer 0x616B3432, little-endian
HEADER_V0, HEADER = 28, 256
EPS = 1e-5  # fixed in the C program


@dataclass(frozen=True)
class Header:
    """The seven sizes, and what the versions add."""

    version: int
    dim: int
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    vocab: int
    context: int
    tied: bool
    group: int = 0  # version 2: values under one scale

    @property
    def head_dim(self) -> int:
        """Width of a head."""
        return self.dim // self.heads


def looks_like_version_0(head: bytes) -> bool:
    """Whether the first 28 bytes are seven plausible sizes (version 0 has no magic)."""
    if len(head) < HEADER_V0:
        return False
    sizes = struct.unpack_from("<7i", head)
    return all(0 < abs(size) < 2**24 for size in sizes) and all(s > 0 for s in sizes[:5])


def read(path: str | Path) -> tuple[Model, dict[str, StoredTensor]]:
    """Map a `.bin` file.

    Returns:
        The tree, and a stored tensor for each of its parameters.

    Raises:
        FormatError: impossible sizes, a cut file, scales that no known layout explains.
    """
    data = np.frombuffer(map_file(path), np.uint8)
    header = _header(str(path), data[:HEADER].tobytes())
    model = tree(header)
    if header.version == 2:
        return model, _version_2(str(path), header, data)
    return model, _version_0_or_1(str(path), header, data)


def _header(path: str, head: bytes) -> Header:
    if len(head) < HEADER_V0:
        raise FormatError(path, f"is {len(head)} bytes: too short for a llama2.c header")
    version, offset = 0, 0
    if head[:4] == MAGIC:
        if len(head) < HEADER:
            raise FormatError(path, f"is {len(head)} bytes: its header alone has {HEADER}")
        version, offset = struct.unpack_from("<i", head, 4)[0], 8
        if version not in (1, 2):
            raise UnsupportedError(path, f"is a llama2.c file of version {version}; 0, 1 and 2 can be read")
    dim, hidden, layers, heads, kv_heads, vocab, context = struct.unpack_from("<7i", head, offset)
    # Version 0 tells an untied head by a negative vocabulary; the others by a byte.
    flag = head[offset + 28] if version else int(vocab > 0)
    if flag not in (0, 1):
        raise FormatError(path, f"its flag for a shared classifier is {flag}, not 0 or 1")
    group = struct.unpack_from("<i", head, offset + 29)[0] if version == 2 else 0
    header = Header(
        version,
        dim,
        hidden,
        layers,
        heads,
        kv_heads,
        abs(vocab) if version == 0 else vocab,
        context,
        bool(flag),
        group,
    )
    _check(path, header)
    return header


def _check(path: str, h: Header) -> None:
    sizes = {
        "dim": h.dim, "hidden_dim": h.hidden, "n_layers": h.layers, "n_heads": h.heads,
        "n_kv_heads": h.kv_heads, "vocab_size": h.vocab, "seq_len": h.context,
    }  # fmt: skip
    for name, size in sizes.items():
        if not 0 < size < 2**24:
            raise FormatError(path, f"{name} is {size} in its header: not a llama2.c checkpoint, or damaged")
    if h.layers > 10_000:
        raise FormatError(
            path, f"n_layers is {h.layers} in its header: not a llama2.c checkpoint, or damaged"
        )
    if h.dim % h.heads or h.heads % h.kv_heads or h.head_dim % 2:
        raise FormatError(
            path, f"width {h.dim}, {h.heads} heads and {h.kv_heads} key/value heads don't fit together"
        )
    if h.version == 2 and (h.group <= 0 or h.dim % h.group or h.hidden % h.group):
        raise FormatError(path, f"group size {h.group} doesn't divide the widths {h.dim} and {h.hidden}")


def tree(h: Header) -> Model:
    """The tree of gears; what the sizes leave open is fixed in the C program."""
    return llama(
        LlamaConfig(
            h.dim, h.hidden, h.layers, h.heads, h.kv_heads, h.head_dim, h.vocab, h.context, EPS,
            rope_of(h), h.tied,
        )
    )  # fmt: skip


def rope_of(h: Header) -> Rope:
    """The rotation that all these files mean."""
    return Rope(h.head_dim, 10000.0, "interleaved")


# A part of a layer: its name, and the shape of its tensor.
def _norm_shapes(h: Header) -> dict[str, Shape]:
    return {"attention_norm": (h.dim,), "ffn_norm": (h.dim,)}


def _matrix_shapes(h: Header) -> dict[str, Shape]:
    kv = h.kv_heads * h.head_dim
    return {
        "attention.query": (h.dim, h.dim),
        "attention.key": (kv, h.dim),
        "attention.value": (kv, h.dim),
        "attention.output": (h.dim, h.dim),
        "ffn.gate": (h.hidden, h.dim),
        "ffn.down": (h.dim, h.hidden),
        "ffn.up": (h.hidden, h.dim),
    }


def _each_layer(h: Header, parts: dict[str, Shape]) -> Iterator[tuple[str, Shape]]:
    """All layers of the first part, then all of the second, ..."""
    for part, shape in parts.items():
        for layer in range(h.layers):
            yield f"blocks.{layer}.{part}.weight", shape


def file_order(h: Header) -> list[tuple[str, Shape]]:
    """Path and shape of everything in file order; paths without a gear are tables to skip."""
    norms, matrices = _norm_shapes(h), _matrix_shapes(h)
    embed: tuple[str, Shape] = ("embed.weight", (h.vocab, h.dim))
    final: tuple[str, Shape] = ("norm.weight", (h.dim,))
    head: list[tuple[str, Shape]] = [] if h.tied else [("head.weight", (h.vocab, h.dim))]
    if h.version:
        return [*_each_layer(h, norms), final, embed, *_each_layer(h, matrices), *head]
    first = {"attention_norm": norms["attention_norm"]}
    first |= {name: shape for name, shape in matrices.items() if name.startswith("attention.")}
    second = {"ffn_norm": norms["ffn_norm"]}
    second |= {name: shape for name, shape in matrices.items() if name.startswith("ffn.")}
    tables: list[tuple[str, Shape]] = [("", (h.context, h.head_dim // 2))] * 2
    return [embed, *_each_layer(h, first), *_each_layer(h, second), final, *tables, *head]


def _version_0_or_1(path: str, h: Header, data: NDArray[np.uint8]) -> dict[str, StoredTensor]:
    offset = HEADER if h.version else HEADER_V0
    order = file_order(h)
    _fits(path, len(data), offset + 4 * sum(prod(shape) for _, shape in order))
    tensors = {}
    for name, shape in order:
        size = 4 * prod(shape)
        if name:
            tensors[name] = StoredTensor(name, "F32", shape, data[offset : offset + size], path)
        offset += size
    return tensors


def _fits(path: str, have: int, need: int) -> None:
    if have != need:
        kind = "cut off, or damaged" if have < need else "of another version, or damaged"
        raise FormatError(path, f"is {have:,} bytes, its header asks for {need:,}: {kind}")


def _version_2(path: str, h: Header, data: NDArray[np.uint8]) -> dict[str, StoredTensor]:
    """float32 norms, then int8 matrices, each with its scales behind it, or all scales at the end."""
    order = file_order(h)
    floats = [(name, shape) for name, shape in order if len(shape) == 1]
    coded = [(name, shape) for name, shape in order if len(shape) == 2]
    values = sum(prod(shape) for _, shape in coded)
    start = HEADER + 4 * sum(prod(shape) for _, shape in floats)
    _fits(path, len(data), start + values + 4 * (values // h.group))
    offset, tensors = HEADER, {}
    for name, shape in floats:
        size = 4 * prod(shape)
        tensors[name] = StoredTensor(name, "F32", shape, data[offset : offset + size], path)
        offset += size
    behind = _coded(path, h, data[start:], coded)
    at_end = _coded(path, h, data[start:], coded, scales_from=values)
    fitting = [layout for layout in (behind, at_end) if all(_plausible(t) for t in layout.values())]
    if len(fitting) != 1:
        trouble = "no known" if not fitting else "more than one"
        raise FormatError(
            path, f"its int8 weights fit {trouble} order of codes and scales; export it again with llama2.c"
        )
    return tensors | fitting[0]


def _coded(
    path: str,
    h: Header,
    data: NDArray[np.uint8],
    coded: Sequence[tuple[str, Shape]],
    *,
    scales_from: int | None = None,
) -> dict[str, StoredTensor]:
    """Codes in order; the scales of each right behind it, or all of them from a place on."""
    at, tensors = 0, {}
    for name, shape in coded:
        size = prod(shape)
        length = 4 * (size // h.group)
        scales = at + size if scales_from is None else scales_from
        tensors[name] = StoredTensor(
            name, "INT8_GROUPS", shape, data[at : at + size], path,
            scales=np.frombuffer(data[scales : scales + length], "<f4"),
        )  # fmt: skip
        at = scales + length if scales_from is None else at + size
        scales_from = None if scales_from is None else scales + length
    return tensors


def _plausible(tensor: StoredTensor) -> bool:
    """The exporter divides each group by its largest value / 127: a code of +-127 must be there."""
    scales = tensor.scales
    assert scales is not None
    if not np.isfinite(scales).all() or (scales < 0).any():
        return False
    codes = tensor.data.view(np.int8).reshape(len(scales), -1)
    largest = np.maximum(codes.max(axis=1), -codes.min(axis=1).astype(np.int16))
    return bool(((largest == 127) | ((largest == 0) & (scales == 0))).all())
