"""A family's table of names, read backwards: which tensors of a file a tree's parameters become.

In: a table, and a stored tensor for each gear path. Out: `Made`s, in the order of the table's first
use. What the table puts apart when a file is read (rows of one matrix, a stack, a transposed matrix)
is put together again.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from glassgear.convert.values import Made
from glassgear.errors import SettingError
from glassgear.model.families.base import HeadRows, Names, Place, Rows, Stacked, Transposed
from glassgear.model.gears import Attention, Model, RMSNorm, walk
from glassgear.weights.names import NUMBER, stems
from glassgear.weights.tensor import StoredTensor

__all__ = ["foreign_tensors", "interleaved", "norm_offsets", "repaired"]

_HEADS = ("lm_head.", "cls.")  # they stand beside what the prefix names


def foreign_tensors(
    tensors: Mapping[str, StoredTensor],
    names: Names,
    *,
    prefix: str = "",
    offsets: Mapping[str, float] | None = None,
) -> list[Made]:
    """The tensors of the target.

    Args:
        tensors: gear path -> stored tensor.
        names: the family's table for the target. Of two names for a tensor the last is taken.
        prefix: what stands before a name of the table, but for the head's.
        offsets: gear path -> what is added to its values.

    Raises:
        SettingError: a gear path that the table has no name for.
    """
    usual = {theirs: place for theirs, place in names.items() if not isinstance(place, HeadRows)}
    back = {stem: (theirs, place) for theirs, place in usual.items() for stem in stems(place)}
    groups: dict[str, tuple[Place, list[str]]] = {}
    for path in tensors:
        theirs, place = _foreign(path, back)
        groups.setdefault(theirs, (place, []))[1].append(path)
    made = []
    for name, (place, paths) in groups.items():
        full = name if name.startswith(_HEADS) else prefix + name
        made.append(replace(_made(full, place, paths, tensors), added=(offsets or {}).get(paths[0], 0.0)))
    return made


def _foreign(path: str, back: Mapping[str, tuple[str, Place]]) -> tuple[str, Place]:
    """The name of a parameter in the target, and the rule it falls under."""
    numbers = NUMBER.findall(path)
    generic = NUMBER.sub("#", path)
    stem, _, leaf = generic.rpartition(".")
    if generic in back:
        theirs, place = back[generic]
    elif stem + "." in back:
        theirs, place = back[stem + "."]
        theirs += leaf
    else:
        raise SettingError(f"the target has no name for the parameter {path}")
    left = iter(numbers)  # a stacked axis has a number in the path that the name lacks
    return re.sub("#", lambda _: next(left), theirs), place


def _made(name: str, place: Place, paths: list[str], tensors: Mapping[str, StoredTensor]) -> Made:
    """Put the parameters together that are one tensor of the target."""
    stacked = isinstance(place, Stacked)
    inner = place.target if isinstance(place, Stacked) else place
    turned = isinstance(inner, Transposed)
    rows = inner.target if isinstance(inner, Transposed) else inner
    parts = tuple(tensors[path] for path in _in_order(paths, rows))
    total = sum(part.shape[0] for part in parts) if not stacked else 0
    shape = parts[0].shape
    if stacked:
        each = len(rows.targets) if isinstance(rows, Rows) else 1
        count = len(parts) // each
        shape = (count, sum(part.shape[0] for part in parts[:each]), *shape[1:])
    elif len(parts) > 1:
        shape = (total, *shape[1:])
    turned = turned and len(shape) == 2
    return Made(name, shape[::-1] if turned else shape, parts, turned)


def _in_order(paths: Sequence[str], rows: Place) -> list[str]:
    """By the stacked axis first, then as the rule lists the rows."""
    targets = list(rows.targets) if isinstance(rows, Rows) else []

    def key(path: str) -> tuple[list[int], int]:
        stem = NUMBER.sub("#", path).rpartition(".")[0] + "."
        return [int(n) for n in NUMBER.findall(path)], targets.index(stem) if stem in targets else 0

    return sorted(paths, key=key)


def norm_offsets(source: Model, target: Model) -> dict[str, float]:
    """What must be added to the weights of norms that the target stores with another offset."""
    theirs = dict(walk(target))
    return {
        f"{path}.weight": gear.offset - other.offset
        for path, gear in walk(source)
        if isinstance(gear, RMSNorm) and isinstance(other := theirs.get(path), RMSNorm)
        if gear.offset != other.offset
    }


# --------------------------------------------------------------------------------------------
# Rows of queries and keys


def repaired(source: Model, target: Model, tensors: Mapping[str, StoredTensor]) -> dict[str, StoredTensor]:
    """Rows of q and k in the order that the target's rotation pairs, where the source's pairs otherwise."""
    theirs = dict(walk(target))
    out = dict(tensors)
    for path, gear in walk(source):
        other = theirs.get(path)
        if not isinstance(gear, Attention) or not isinstance(other, Attention):
            continue
        if gear.rope and other.rope and gear.rope.pairing != other.rope.pairing:
            out |= _reordered(path, gear, gear.rope.dim, out, to_halves=other.rope.pairing == "half")
    return out


def interleaved(model: Model, tensors: Mapping[str, StoredTensor]) -> dict[str, StoredTensor]:
    """Rows of q and k as llama.cpp's converter stores them: see `weights.open`, which undoes this."""
    out = dict(tensors)
    for path, gear in walk(model):
        if isinstance(gear, Attention) and gear.rope is not None and gear.rope.pairing == "half":
            out |= _reordered(path, gear, gear.head_dim, out, to_halves=False)
    return out


def _reordered(
    path: str, gear: Attention, turning: int, tensors: Mapping[str, StoredTensor], *, to_halves: bool
) -> dict[str, StoredTensor]:
    """The first `turning` rows of each head, from neighbours to halves or back."""
    out: dict[str, StoredTensor] = {}
    for part, heads in (("query", gear.heads), ("key", gear.kv_heads)):
        rows = np.arange(heads * gear.head_dim, dtype=np.intp).reshape(heads, -1)
        pairs = rows[:, :turning].reshape(heads, *((-1, 2) if to_halves else (2, -1)))
        rows[:, :turning] = pairs.swapaxes(1, 2).reshape(heads, -1).copy()
        for leaf in ("weight", "bias"):
            full = f"{path}.{part}.{leaf}"
            if full in tensors:
                out[full] = tensors[full].reordered(rows.reshape(-1))
    return out
