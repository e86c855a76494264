"""Keys and values of all layers, in pages of 64 tokens whose addresses never change.

A page holds every layer: its keys head by head as [key_dim, 64], its values head by head as
[64, value_dim rounded up to 16]. A latent layer has one head, whose keys begin with its values:
each token has one row of [key_dim rounded up to 16], and nothing twice. Memory is taken in slabs
of pages, and touched when used.

Numbers are float32 or float16, or, where float16 is asked for and the machine multiplies 16-bit
integers fast, int16 codes with one float32 scale for each token's key and value of each head:
for their length no less exact than float16 up to 1,024 channels (`kernels/attention_codes.py`
says how codes lie, and why). Latent layers stay float16.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glassgear.backends.base import PAGE
from glassgear.backends.cpu.fields import QUERY_ROWS, SPARE_ROWS

__all__ = ["CacheShape", "LayerCache", "PagedCache", "scratch_bytes"]

SLAB = 64 << 20  # bytes, or one page


@dataclass(frozen=True)
class CacheShape:
    """What an attention gear keeps of each token.

    Attributes:
        kv_heads: key and value heads.
        key_dim: width of a key.
        value_dim: width of a value.
        latent: one head, whose value is the first `value_dim` channels of its key.
    """

    kv_heads: int
    key_dim: int
    value_dim: int
    latent: bool = False

    def __post_init__(self) -> None:
        assert not self.latent or (self.kv_heads == 1 and self.value_dim <= self.key_dim)


@dataclass(frozen=True)
class LayerCache:
    """Where one attention gear's keys and values lie in a page, in bytes.

    Attributes:
        shape: what is kept.
        keys: from the page to the keys; of a latent layer to its rows.
        values: from the page to the values; of a latent layer to its rows.
        key_head: from head to head of the keys.
        value_head: from head to head of the values.
        value_row: from token to token of the values, or of a latent layer's rows.
        kind: 0 float32, 1 float16, 2 codes.
    """

    shape: CacheShape
    keys: int
    values: int
    key_head: int
    value_head: int
    value_row: int
    kind: int


def _rounded(width: int) -> int:
    """Whole vectors of 16."""
    return -(-width // 16) * 16


def scratch_bytes(layers: Sequence[LayerCache]) -> int:
    """Memory that a thread needs for attention: see `kernels/attention.py`."""
    rows = QUERY_ROWS + SPARE_ROWS
    most = 0
    for shape in (layer.shape for layer in layers):
        keys, values = _rounded(shape.key_dim), _rounded(shape.value_dim)
        queries, scores, seen = 4 * keys, (4 + 2) * PAGE, 16
        mixed = 4 * values + 128
        # Keys of a latent layer, turned, or scores that are to be seen.
        last = max(4 * PAGE * keys if shape.latent else 0, rows * 4 * PAGE)
        most = max(most, rows * (queries + scores + seen + 2 * mixed) + last)
    return -(-most // 64) * 64 + 64


def _values(raw: NDArray[np.uint8], place: LayerCache) -> NDArray[Any]:
    """A page's values, [kv_heads, 64, channels], from its bytes [kv_heads, bytes of a head]."""
    heads = len(raw)
    if place.kind < 2:
        return raw.view(np.float16 if place.kind else np.float32).reshape(heads, PAGE, -1)
    scales = np.ascontiguousarray(raw[:, : 4 * PAGE]).view(np.float32)
    pairs = np.ascontiguousarray(raw[:, 4 * PAGE :]).view(np.int16).reshape(heads, PAGE // 2, -1, 2)
    return pairs.transpose(0, 1, 3, 2).reshape(heads, PAGE, -1) * scales[:, :, None]


class PagedCache:
    """The pages.

    Args:
        shapes: what each attention gear keeps.
        half: float16 instead of float32.
        codes: codes instead of float16.
    """

    def __init__(self, shapes: Sequence[CacheShape], half: bool, codes: bool = False) -> None:
        self.half, self.codes = half, half and codes
        self.width = 2 if half else 4
        self.layers: list[LayerCache] = []
        self.page_bytes = 0
        for shape in shapes:
            self.layers.append(self._placed(shape))
        self.addresses: list[int] = []
        self._slabs: list[NDArray[np.uint8]] = []

    def _placed(self, shape: CacheShape) -> LayerCache:
        """Room for one more layer in each page."""
        start = self.page_bytes
        if shape.latent:
            row = _rounded(shape.key_dim) * self.width
            self.page_bytes += PAGE * row
            return LayerCache(shape, start, start, 0, 0, row, int(self.half))
        row = _rounded(shape.value_dim) * self.width
        key_head, value_head = shape.key_dim * PAGE * self.width, PAGE * row
        if self.codes:
            scales = 4 * PAGE
            key_head, value_head = _rounded(shape.key_dim) * PAGE * 2 + scales, value_head + scales
        values = start + shape.kv_heads * key_head
        self.page_bytes = values + shape.kv_heads * value_head
        kind = 2 if self.codes else int(self.half)
        return LayerCache(shape, start, values, key_head, value_head, row, kind)

    @property
    def nbytes(self) -> int:
        """Bytes held now."""
        return sum(slab.nbytes for slab in self._slabs)

    def grow(self, pages: int) -> None:
        """Have at least `pages` pages."""
        while len(self.addresses) < pages:
            # Twice as many as before, within bounds: few slabs, and little taken in vain.
            count = min(
                max(1, len(self.addresses), pages - len(self.addresses)),
                max(1, SLAB // max(1, self.page_bytes)),
            )
            slab = np.zeros(count * self.page_bytes + 64, np.uint8)
            start = int(slab.ctypes.data)
            start += -start % 64
            self._slabs.append(slab)
            self.addresses.extend(start + i * self.page_bytes for i in range(count))

    def read_values(self, layer: int, pages: Sequence[int], length: int) -> NDArray[np.float32]:
        """Values of the first `length` tokens of a sequence: [length, kv_heads, value_dim]."""
        place = self.layers[layer]
        heads, width = place.shape.kv_heads, place.shape.value_dim
        head = place.value_head or PAGE * place.value_row
        out = np.empty((len(pages) * PAGE, heads, width), np.float32)
        for i, page in enumerate(pages):
            raw = self._bytes(self.addresses[page] + place.values, heads * head).reshape(heads, head)
            out[i * PAGE : (i + 1) * PAGE] = _values(raw, place)[:, :, :width].transpose(1, 0, 2)
        return out[:length]

    def _bytes(self, address: int, count: int) -> NDArray[np.uint8]:
        for slab in self._slabs:
            offset = address - int(slab.ctypes.data)
            if 0 <= offset < slab.nbytes:
                return slab[offset : offset + count]
        raise AssertionError("no such page")
