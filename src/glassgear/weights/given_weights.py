"""Weights that a model file gives: written in it, or in a safetensors file beside it.

In: the `weights` of the file. Out: a tensor for every parameter of the model that it describes, or an
error that names what is missing, left over or misshapen. docs/designs.md is the reference.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from glassgear.errors import FormatError, UnsupportedError
from glassgear.model.gears import Model, tensors
from glassgear.weights import safetensors
from glassgear.weights.names import NUMBER, match, renamed
from glassgear.weights.tensor import StoredTensor

__all__ = ["given_weights"]

FILE_NAME = re.compile(r"[^/\\:\0]+\.safetensors")
MOST_LEVELS = 12  # of tables in tables: a gear path is shorter


def given_weights(given: Any, model: Model, path: Path) -> dict[str, StoredTensor]:
    """The tensors of a model file; both ways name them by gear path.

    Args:
        given: the file's `weights`: the name of a safetensors file, or a table of numbers.
        model: what the file describes.
        path: the model file.

    Raises:
        FormatError: neither of these, or not the tensors of this model.
        FileError: the file beside it isn't there, or damaged.
    """
    if isinstance(given, str):
        source, found = _beside(path, given)
    elif isinstance(given, Mapping):
        source, found = path, {name: _written(path, name, v) for name, v in _flat(path, given)}
    else:
        raise FormatError(path, f"`weights` should name a file or be a table, found {given!r:.40}")
    names = {NUMBER.sub("#", name): NUMBER.sub("#", name) for name in tensors(model)}
    return match(str(source), model, found, names)[0]


def _beside(path: Path, name: str) -> tuple[Path, dict[str, StoredTensor]]:
    if not FILE_NAME.fullmatch(name):
        raise FormatError(
            path, f"`weights` should name a .safetensors file in the same folder, found {name!r:.60}"
        )
    source = path.parent / name
    found = safetensors.read(source)
    for tensor in found.values():
        if tensor.type not in ("F32", "F16", "BF16"):
            raise UnsupportedError(
                source, f"tensor `{tensor.name}` is {tensor.type}; weights are F32, F16 or BF16 here"
            )
    return source, renamed(source, found)


def _flat(
    path: Path, table: Mapping[str, Any], before: str = "", level: int = 0
) -> Iterator[tuple[str, Any]]:
    """`blocks.0.ffn.up.weight` may be one quoted key, or tables in tables."""
    for key, value in table.items():
        name = f"{before}{key}"
        if isinstance(value, Mapping):
            if level == MOST_LEVELS:
                raise FormatError(path, f"`weights.{name:.60}` is no tensor of a model")
            yield from _flat(path, value, f"{name}.", level + 1)
        else:
            yield name, value


def _written(path: Path, name: str, value: Any) -> StoredTensor:
    """A tensor from its rows, which must be of one length."""
    try:
        values = np.asarray(value, dtype=object)
        flat = values.reshape(-1).tolist()
        plain = values.ndim > 0 and all(isinstance(v, int | float) and not isinstance(v, bool) for v in flat)
    except ValueError:  # rows of several lengths
        plain = False
    if not plain:
        raise FormatError(
            path, f"`weights.{name:.80}` should be a list of numbers, or a list of rows of one length"
        )
    with np.errstate(over="ignore"):
        numbers = np.array([_float(v) for v in flat], np.float64).astype(np.float32)
    if not np.isfinite(numbers).all():
        raise FormatError(path, f"`weights.{name:.80}` holds a number that float32 has no room for")
    return StoredTensor(name, "F32", values.shape, numbers.view(np.uint8), str(path))


def _float(value: int | float) -> float:
    try:
        return float(value)
    except OverflowError:  # a whole number of more than 308 digits
        return np.inf
