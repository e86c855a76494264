"""Weights for a model that has none: drawn when they are asked for, the same for the same seed.

Matrices are normal with variance 1 / inputs, so that what passes through keeps its size. Norms begin as
the identity: weights 1 (0 where a file stores them less 1), ScaleNorm's number sqrt(dim), means 0,
variances 1. Biases are 0. Every tensor has a generator of its own, seeded by the seed and its path, so
its values depend neither on the rest of the model nor on the order in which tensors are asked for.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from math import prod, sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glassgear.model.gears import Gear, Model, RMSNorm, ScaleNorm, Shape, walk
from glassgear.weights.tensor import StoredTensor

__all__ = ["RandomTensor", "random_tensors"]


class RandomTensor(StoredTensor):
    """A float32 tensor whose values are drawn when they are first read, and kept from then on.

    Args:
        path: the parameter's path.
        shape: row-major.
        seed: of the model.
        constant: what all values are, or None: normal ones with variance 1 / columns.
    """

    constant: float | None
    seed: int

    def __init__(self, path: str, shape: Shape, seed: int, constant: float | None) -> None:
        given = {"name": path, "type": "F32", "shape": shape, "file": f"random weights, seed {seed}"}
        for name, value in {**given, "seed": seed, "constant": constant}.items():
            object.__setattr__(self, name, value)

    def __getattr__(self, name: str) -> Any:
        """`data`, which isn't there before it is asked for."""
        if name != "data":
            raise AttributeError(name)
        values = self._drawn() if self.constant is None else np.full(self.shape, self.constant, np.float32)
        object.__setattr__(self, "data", values.reshape(-1).view(np.uint8))
        return self.data

    @property
    def nbytes(self) -> int:
        """Bytes of the values, drawn or not."""
        return 4 * prod(self.shape)

    def check_finite(self) -> None:
        """Nothing to check, so nothing is drawn."""

    def reordered(self, order: NDArray[np.intp]) -> StoredTensor:
        """The same values, with logical row i taken from row `order[i]`."""
        return self._plain().reordered(order)

    def part(self, first: int, count: int) -> StoredTensor:
        """Some rows as a tensor of their own."""
        return self._plain().part(first, count)

    def piece(self, index: int) -> StoredTensor:
        """One of the tensors that are stacked along the first axis."""
        return self._plain().piece(index)

    def transposed(self) -> StoredTensor:
        """The matrix with rows and columns exchanged."""
        return self._plain().transposed()

    def _plain(self) -> StoredTensor:
        return StoredTensor(self.name, self.type, self.shape, self.data, self.file)

    def _drawn(self) -> NDArray[np.float32]:
        digest = hashlib.sha256(f"{self.seed}:{self.name}".encode()).digest()
        generator = np.random.Generator(np.random.PCG64(int.from_bytes(digest[:16], "little")))
        values = generator.standard_normal(self.shape, np.float32)
        values *= np.float32(self.shape[-1] ** -0.5)
        return values


def random_tensors(model: Model, seed: int) -> dict[str, RandomTensor]:
    """A tensor for every parameter of a model; nothing is drawn yet."""
    return dict(_random(model, seed))


def _random(model: Model, seed: int) -> Iterator[tuple[str, RandomTensor]]:
    for path, gear in walk(model):
        for name, shape in gear.tensors.items():
            full = f"{path}.{name}"
            yield full, RandomTensor(full, shape, seed, _constant(gear, name, shape))


def _constant(gear: Gear, name: str, shape: Shape) -> float | None:
    """What all values of a tensor begin as; None: they are drawn."""
    if len(shape) > 1:
        return None
    if name in ("bias", "mean", "correction"):
        return 0.0
    if isinstance(gear, ScaleNorm):
        return sqrt(gear.dim)
    return 1.0 - gear.offset if isinstance(gear, RMSNorm) else 1.0
