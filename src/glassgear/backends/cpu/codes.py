"""Stored blocks to plain codes, scales and minima, for every quantised type.

In: records of a `quant.TYPES` layout. Out: per value a code, per group a scale and perhaps a
minimum, such that weight = scale * (code - offset) + minimum, with the offset of the layout that
`layouts.py` gives the type. `quant.py` says what the values are; a test compares the two.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["READERS", "Parts"]

Codes = NDArray[np.uint8]
Floats = NDArray[np.float32]
Parts = tuple[Codes, Floats, Floats | None]  # [n, values], [n, groups], [n, groups]
Blocks = NDArray[Any]


def _unpack(packed: Codes, bits: int, run: int) -> Any:
    """Each `run` bytes hold 8 / bits runs of codes, lowest bits first."""
    shifts = np.arange(0, 8, bits, dtype=np.uint8).reshape(-1, 1)
    planes = packed.reshape(len(packed), -1, 1, run) >> shifts
    planes &= np.uint8(2**bits - 1)
    return planes.reshape(len(packed), -1)


def _half(blocks: Blocks, field: str) -> Floats:
    return np.asarray(blocks[field].astype(np.float32).reshape(-1, 1))


def _nibbles(blocks: Blocks) -> Parts:
    """Q4_0 and IQ4_NL."""
    return _unpack(blocks["codes"], 4, 16), _half(blocks, "scale"), None


def _q4_1(blocks: Blocks) -> Parts:
    return _unpack(blocks["codes"], 4, 16), _half(blocks, "scale"), _half(blocks, "minimum")


def _five_bits(blocks: Blocks) -> Any:
    high = np.unpackbits(blocks["high_bits"], axis=1, bitorder="little")
    return _unpack(blocks["codes"], 4, 16) | (high << 4)


def _q5_0(blocks: Blocks) -> Parts:
    return _five_bits(blocks), _half(blocks, "scale"), None


def _q5_1(blocks: Blocks) -> Parts:
    return _five_bits(blocks), _half(blocks, "scale"), _half(blocks, "minimum")


def _q8_0(blocks: Blocks) -> Parts:
    return blocks["codes"].view(np.uint8) ^ np.uint8(128), _half(blocks, "scale"), None


def _q2_k(blocks: Blocks) -> Parts:
    scales = _half(blocks, "scale") * (blocks["scales"] & 0x0F)
    minima = -_half(blocks, "minimum") * (blocks["scales"] >> 4)
    return _unpack(blocks["codes"], 2, 32), scales, minima


def _q3_k(blocks: Blocks) -> Parts:
    packed = blocks["scales"]
    signed = _unpack(packed[:, 0:8], 4, 8) | (_unpack(packed[:, 8:12], 2, 4) << 4)
    scales = _half(blocks, "scale") * (signed.view(np.int8) - np.int8(32))
    return _unpack(blocks["codes"], 2, 32) | (_unpack(blocks["high_bits"], 1, 32) << 2), scales, None


def _scales_and_minima(blocks: Blocks) -> tuple[Floats, Floats]:
    """Eight scales and eight minima of 6 bits in 12 bytes (Q4_K, Q5_K)."""
    packed = blocks["scales"]
    first, second, rest = packed[:, 0:4], packed[:, 4:8], packed[:, 8:12]
    scales = np.concatenate([first & 0x3F, (rest & 0x0F) | (first >> 6 << 4)], axis=1)
    minima = np.concatenate([second & 0x3F, (rest >> 4) | (second >> 6 << 4)], axis=1)
    return _half(blocks, "scale") * scales, -_half(blocks, "minimum") * minima


def _q4_k(blocks: Blocks) -> Parts:
    return _unpack(blocks["codes"], 4, 32), *_scales_and_minima(blocks)


def _q5_k(blocks: Blocks) -> Parts:
    high = _unpack(blocks["high_bits"], 1, 32)
    return _unpack(blocks["codes"], 4, 32) | (high << 4), *_scales_and_minima(blocks)


def _q6_k(blocks: Blocks) -> Parts:
    codes = _unpack(blocks["codes"], 4, 64) | (_unpack(blocks["high_bits"], 2, 32) << 4)
    return codes, _half(blocks, "scale") * blocks["scales"], None


def _iq4_xs(blocks: Blocks) -> Parts:
    signed = _unpack(blocks["scales"], 4, 1) | (_unpack(blocks["high_scales"], 2, 1) << 4)
    scales = _half(blocks, "scale") * (signed.view(np.int8) - np.int8(32))
    return _unpack(blocks["codes"], 4, 16), scales, None


READERS: dict[str, Callable[[Blocks], Parts]] = {
    "Q4_0": _nibbles, "IQ4_NL": _nibbles, "Q4_1": _q4_1, "Q5_0": _q5_0, "Q5_1": _q5_1, "Q8_0": _q8_0,
    "Q2_K": _q2_k, "Q3_K": _q3_k, "Q4_K": _q4_k, "Q5_K": _q5_k, "Q6_K": _q6_k, "IQ4_XS": _iq4_xs,
}  # fmt: skip
