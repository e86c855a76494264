"""Keys and values of every layer, kept in pages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import DTypeLike, NDArray

from glassgear.backends.base import PAGE

__all__ = ["KVCache"]


class KVCache:
    """For each attention gear two stores [pages, PAGE, kv_heads, head_dim].

    Args:
        layers: path of an attention gear -> (kv_heads, head_dim).
        dtype: float32, or float16 to halve it.
    """

    def __init__(self, layers: Mapping[str, tuple[int, int]], dtype: DTypeLike = np.float32) -> None:
        self.dtype = np.dtype(dtype)
        self._stores = {
            path: [np.zeros((0, PAGE, *shape), self.dtype) for _ in ("key", "value")]
            for path, shape in layers.items()
        }

    @property
    def nbytes(self) -> int:
        """Bytes held now."""
        return sum(store.nbytes for pair in self._stores.values() for store in pair)

    def grow(self, pages: int) -> None:
        """Make room for `pages` pages; doubling keeps the copying linear."""
        for pair in self._stores.values():
            have = len(pair[0])
            if pages > have:
                more = max(pages, 2 * have) - have
                for i, store in enumerate(pair):
                    pair[i] = np.concatenate([store, np.zeros((more, *store.shape[1:]), self.dtype)])

    def write(
        self,
        path: str,
        pages: Sequence[int],
        first: int,
        key: NDArray[np.float32],
        value: NDArray[np.float32],
    ) -> None:
        """Store rows [t, kv_heads, head_dim] at positions `first`, `first + 1`, ... of a sequence."""
        position = np.arange(first, first + len(key))
        page, slot = np.asarray(pages)[position // PAGE], position % PAGE
        for store, rows in zip(self._stores[path], (key, value), strict=True):
            store[page, slot] = rows

    def read(
        self, path: str, pages: Sequence[int], length: int
    ) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Keys and values of the first `length` positions, float32 [S, kv_heads, head_dim]."""
        held = list(pages[: -(-length // PAGE)])
        key, value = (
            store[held].reshape(-1, *store.shape[2:])[:length].astype(np.float32, copy=False)
            for store in self._stores[path]
        )
        return key, value
