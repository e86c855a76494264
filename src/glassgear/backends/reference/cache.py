"""Keys and values of every layer, kept in pages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import DTypeLike, NDArray

from glassgear.backends.base import PAGE

__all__ = ["KVCache"]


class KVCache:
    """For each attention gear its stores [pages, PAGE, heads, width]: keys and values, or latents.

    Args:
        layers: path of an attention gear -> (heads, width) of each of its stores.
        dtype: float32, or float16 to halve it.
    """

    def __init__(
        self, layers: Mapping[str, Sequence[tuple[int, int]]], dtype: DTypeLike = np.float32
    ) -> None:
        self.dtype = np.dtype(dtype)
        self._stores = {
            path: [np.zeros((0, PAGE, *shape), self.dtype) for shape in shapes]
            for path, shapes in layers.items()
        }

    @property
    def nbytes(self) -> int:
        """Bytes held now."""
        return sum(store.nbytes for stores in self._stores.values() for store in stores)

    def grow(self, pages: int) -> None:
        """Make room for `pages` pages; doubling keeps the copying linear."""
        for stores in self._stores.values():
            have = len(stores[0])
            if pages > have:
                more = max(pages, 2 * have) - have
                for i, store in enumerate(stores):
                    stores[i] = np.concatenate([store, np.zeros((more, *store.shape[1:]), self.dtype)])

    def write(self, path: str, pages: Sequence[int], first: int, *rows: NDArray[np.float32]) -> None:
        """Store rows [t, heads, width], for each store, at positions `first`, `first + 1`, ..."""
        position = np.arange(first, first + len(rows[0]))
        page, slot = np.asarray(pages)[position // PAGE], position % PAGE
        for store, new in zip(self._stores[path], rows, strict=True):
            store[page, slot] = new

    def read(self, path: str, pages: Sequence[int], length: int) -> list[NDArray[np.float32]]:
        """The first `length` positions of each store, float32 [S, heads, width]."""
        held = list(pages[: -(-length // PAGE)])
        return [
            store[held].reshape(-1, *store.shape[2:])[:length].astype(np.float32, copy=False)
            for store in self._stores[path]
        ]
