"""Values to the block formats of GGML: the way back from the decoders of `quant.py`.

In: [n, values of a block] float32, at most 65504 in magnitude. Out: [n] records of the type's
layout. Scales are rounded as the format stores them before codes are chosen, so that codes answer
for the rounding.
A block of the legacy types is never further from its values than the one that `gguf.quants` or
llama.cpp's reference quantiser would write: the scale that they take is one of the candidates.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glassgear.weights.fits import affine_fit, codes_for, covering_half, divided, scale_fit, squared_error
from glassgear.weights.quant import TYPES

__all__ = ["LARGEST_HALF", "float_records", "offset_records", "pack", "scale_records"]

Blocks = NDArray[Any]
Codes = NDArray[np.uint8]
Floats = NDArray[np.float32]


def pack(codes: Codes, bits: int, run: int) -> Codes:
    """Codes of `bits` bits as `quant` unpacks them: each `run` bytes hold 8 / bits runs of values."""
    planes = codes.reshape(len(codes), -1, 8 // bits, run)
    shifts = np.arange(0, 8, bits, dtype=np.uint8).reshape(-1, 1)
    packed: Codes = np.bitwise_or.reduce(planes << shifts, axis=2)
    return packed.reshape(len(codes), -1)


def float_records(type_name: str, values: Floats) -> Blocks:
    """F32, F16 and BF16, rounded to the nearest, ties to even."""
    blocks = np.empty(len(values), TYPES[type_name].layout)
    flat = values.reshape(-1)
    if type_name == "BF16":
        bits = flat.view(np.uint32)
        blocks["value"] = (bits + (np.uint32(0x7FFF) + ((bits >> 16) & np.uint32(1)))) >> 16
    else:
        blocks["value"] = flat
    return blocks


LARGEST_HALF = np.float32(65504)

# Type -> the least and the largest code.
_SCALED = {"Q4_0": (-8, 7), "Q5_0": (-16, 15), "Q8_0": (-127, 127)}
_OFFSET = {"Q4_1": 15, "Q5_1": 31}


def scale_records(type_name: str, values: Floats) -> Blocks:
    """Q4_0, Q5_0 and Q8_0: codes around 0 and one float16 scale."""
    low, high = _SCALED[type_name]
    extreme = np.take_along_axis(values, np.abs(values).argmax(axis=1)[:, np.newaxis], axis=1)[:, 0]
    unit = -extreme
    groups = np.ascontiguousarray(divided(values, unit[:, np.newaxis]).T)
    fitted, plain = scale_fit(groups, low, high) * unit, unit / np.float32(-low)
    candidates = covering_half(fitted), plain.astype(np.float16)
    scale, codes = _nearest_half(groups, unit, candidates, low, high)
    blocks = np.empty(len(values), TYPES[type_name].layout)
    blocks["scale"] = scale
    _put_codes(blocks, codes.T, -low)
    return blocks


def _nearest_half(
    groups: Floats, unit: Floats, candidates: Sequence[NDArray[np.float16]], low: int, high: int
) -> tuple[NDArray[np.float16], Floats]:
    """Of several scales the one whose codes come nearest: scales [n], codes [k, n]."""
    best = np.full(len(unit), np.inf, np.float32)
    scales, codes = np.zeros(len(unit), np.float16), np.zeros_like(groups)
    for candidate in candidates:
        relative = divided(candidate.astype(np.float32), unit)
        found = codes_for(groups, relative, None, low, high)
        error = squared_error(groups, found, relative, None)
        better = error < best
        best[better], scales[better] = error[better], candidate[better]
        codes[:, better] = found[:, better]
    return scales, codes


def offset_records(type_name: str, values: Floats) -> Blocks:
    """Q4_1 and Q5_1: codes from 0, a float16 scale and a float16 offset, here called minimum."""
    top = _OFFSET[type_name]
    unit = np.abs(values).max(axis=1)
    groups = np.ascontiguousarray(divided(values, unit[:, np.newaxis]).T)
    fitted = affine_fit(groups, top)
    least = values.min(axis=1)
    with np.errstate(over="ignore"):  # float16 ends before
        width = values.max(axis=1) - least
    # Not in the units of the fit: where a scale lies between two of float16, a rounding more takes the other.
    plain = width / np.float32(top), least
    best = np.full(len(unit), np.inf, np.float32)
    blocks = np.zeros(len(values), TYPES[type_name].layout)
    chosen = np.zeros_like(groups)
    for to_half, pair in ((covering_half, (fitted[0] * unit, fitted[1] * unit)), (_half, plain)):
        half_scale, half_offset = to_half(pair[0]), _half(pair[1])
        scale = divided(half_scale.astype(np.float32), unit)
        offset = divided(half_offset.astype(np.float32), unit)
        codes = codes_for(groups, scale, offset, 0, top)
        error = squared_error(groups, codes, scale, offset)
        better = error < best
        best[better] = error[better]
        blocks["scale"][better], blocks["minimum"][better] = half_scale[better], half_offset[better]
        chosen[:, better] = codes[:, better]
    _put_codes(blocks, chosen.T, 0)
    return blocks


def _half(values: Floats) -> NDArray[np.float16]:
    """The nearest float16. A fitted offset may reach past the values it was fitted to; float16 ends there."""
    return np.clip(values, -LARGEST_HALF, LARGEST_HALF).astype(np.float16)


def _put_codes(blocks: Blocks, codes: Floats, zero: int) -> None:
    """Codes into the fields that a layout has for them; `zero` is added to those below 8 bits."""
    if "codes" in (blocks.dtype.names or ()) and blocks.dtype["codes"].base == np.int8:
        blocks["codes"] = codes
        return
    whole = np.ascontiguousarray(codes + np.float32(zero)).astype(np.uint8)
    blocks["codes"] = pack(whole & np.uint8(15), 4, 16)
    if "high_bits" in (blocks.dtype.names or ()):
        blocks["high_bits"] = np.packbits(whole >> 4, axis=1, bitorder="little")
