"""The ledger: what a tree of gears holds and costs, counted from the tree alone.

In: a tree, and for bytes the sizes of its stored tensors if there are any. Out: rows and
totals. A tied head counts once; no array is made.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

from glassgear.model.gears import Attention, Gear, Head, Linear, Model, Shape, walk

__all__ = ["Ledger", "Row", "ledger"]


@dataclass(frozen=True)
class Row:
    """One parameter tensor."""

    path: str
    gear: str
    shape: Shape
    parameters: int
    type: str
    nbytes: int


@dataclass(frozen=True)
class Ledger:
    """The rows of a model and what follows from them.

    Attributes:
        rows: every parameter tensor, in the order in which a token meets them.
        parameters: values in unique tensors: a tied head adds none.
        nbytes: their bytes as stored.
        kv_bytes_per_token: bytes that one token adds to the KV cache.
        cache_values: float values that one token adds to it.
    """

    rows: tuple[Row, ...]
    parameters: int
    nbytes: int
    cache_values: int
    kv_bytes_per_token: int
    matrix_flops: int
    attention_flops_per_position: int

    def flops_per_token(self, position: int = 0) -> int:
        """Floating-point operations for one token that sees `position` earlier ones.

        Two for each weight of each matrix it is multiplied with, the head included, plus
        two per channel for each score and each weighted value. Norms, RoPE, softmax and
        activations are left out: they are below 1 %.
        """
        return self.matrix_flops + (position + 1) * self.attention_flops_per_position


def ledger(
    model: Model,
    stored: Mapping[str, tuple[str, int]] | None = None,
    *,
    type_name: str = "F32",
    bits: float = 32,
    cache_bytes: int = 4,
) -> Ledger:
    """Count a model.

    Args:
        model: the tree.
        stored: path -> (type name, bytes) of a checkpoint's tensors; without it every
            tensor is taken as `type_name` of `bits` bits a value.
        type_name: see `stored`.
        bits: see `stored`.
        cache_bytes: bytes of one value in the KV cache.
    """
    rows = tuple(_rows(model, stored, type_name, bits))
    values = sum(2 * g.kv_heads * g.head_dim for _, g in walk(model) if isinstance(g, Attention))
    scores = sum(4 * g.heads * g.head_dim for _, g in walk(model) if isinstance(g, Attention))
    return Ledger(
        rows=rows,
        parameters=sum(row.parameters for row in rows),
        nbytes=sum(row.nbytes for row in rows),
        cache_values=values,
        kv_bytes_per_token=values * cache_bytes,
        matrix_flops=sum(_flops(gear) for _, gear in walk(model)),
        attention_flops_per_position=scores,
    )


def _rows(
    model: Model, stored: Mapping[str, tuple[str, int]] | None, type_name: str, bits: float
) -> list[Row]:
    rows = []
    for path, gear in walk(model):
        for name, shape in gear.tensors.items():
            full = f"{path}.{name}"
            count = prod(shape)
            kind, size = stored[full] if stored else (type_name, int(count * bits / 8))
            rows.append(Row(full, type(gear).__name__, shape, count, kind, size))
    return rows


def _flops(gear: Gear) -> int:
    if isinstance(gear, Linear):
        return 2 * gear.inputs * gear.outputs
    return 2 * gear.dim * gear.vocab if isinstance(gear, Head) else 0
