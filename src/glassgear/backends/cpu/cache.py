"""Keys and values of all layers, in pages of 64 tokens whose addresses never change.

A page holds every layer: its keys head by head as [head_dim, 64], its values head by head as
[64, head_dim rounded up to 16]. Memory is taken in slabs of pages, and touched when used.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from glassgear.backends.base import PAGE

__all__ = ["LayerCache", "PagedCache"]

SLAB = 64 << 20  # bytes, or one page


@dataclass(frozen=True)
class LayerCache:
    """Where one attention gear's keys and values lie in a page, in bytes."""

    kv_heads: int
    head_dim: int
    keys: int
    values: int
    key_head: int
    value_head: int

    @property
    def channels(self) -> int:
        """Channels that a value takes."""
        return -(-self.head_dim // 16) * 16


class PagedCache:
    """The pages.

    Args:
        shapes: (kv_heads, head_dim) of each attention gear.
        half: float16 instead of float32.
    """

    def __init__(self, shapes: Sequence[tuple[int, int]], half: bool) -> None:
        self.half = half
        self.width = 2 if half else 4
        self.layers: list[LayerCache] = []
        at = 0
        for heads, head_dim in shapes:
            channels = -(-head_dim // 16) * 16
            key_head, value_head = head_dim * PAGE * self.width, channels * PAGE * self.width
            self.layers.append(LayerCache(heads, head_dim, at, at + heads * key_head, key_head, value_head))
            at += heads * (key_head + value_head)
        self.page_bytes = at
        self.addresses: list[int] = []
        self._slabs: list[NDArray[np.uint8]] = []

    @property
    def nbytes(self) -> int:
        """Bytes held now."""
        return sum(slab.nbytes for slab in self._slabs)

    def grow(self, pages: int) -> None:
        """Have at least `pages` pages."""
        while len(self.addresses) < pages:
            # Twice as many as before, within bounds: few slabs, and little taken in vain.
            count = min(
                max(1, len(self.addresses), pages - len(self.addresses)), max(1, SLAB // self.page_bytes)
            )
            slab = np.zeros(count * self.page_bytes + 64, np.uint8)
            start = int(slab.ctypes.data)
            start += -start % 64
            self._slabs.append(slab)
            self.addresses.extend(start + i * self.page_bytes for i in range(count))

    def read_values(self, layer: int, pages: Sequence[int], length: int) -> NDArray[np.float32]:
        """Values of the first `length` tokens of a sequence: [length, kv_heads, head_dim]."""
        place = self.layers[layer]
        dtype = np.float16 if self.half else np.float32
        out = np.empty((len(pages) * PAGE, place.kv_heads, place.head_dim), np.float32)
        for i, page in enumerate(pages):
            raw = self._bytes(self.addresses[page] + place.values, place.kv_heads * place.value_head)
            values = raw.view(dtype).reshape(place.kv_heads, PAGE, place.channels)
            out[i * PAGE : (i + 1) * PAGE] = values[:, :, : place.head_dim].transpose(1, 0, 2)
        return out[:length]

    def _bytes(self, address: int, count: int) -> NDArray[np.uint8]:
        for slab in self._slabs:
            offset = address - int(slab.ctypes.data)
            if 0 <= offset < slab.nbytes:
                return slab[offset : offset + count]
        raise AssertionError("no such page")
