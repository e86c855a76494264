"""The block formats of GGML, in one table, and how each becomes float32.

In: the raw bytes of a tensor and the name of its type. Out: its values, flat. A block is a few
scales and the packed codes of 1, 32 or 256 neighbouring values; its layout here is a NumPy
record type whose fields stand in file order. The layouts follow `ggml-common.h` of
ggml-org/ggml, the arithmetic (and its order, so that every bit agrees) the `gguf.quants` module
of llama.cpp. That sizes fit is checked by the container that found the bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["TYPES", "BlockType", "NonFinite", "decode", "find_non_finite", "is_known", "known"]

Blocks = NDArray[Any]  # [n] records of a layout
Codes = NDArray[np.integer[Any]]  # [n, codes of a block]
Floats = NDArray[np.float32]

_DECODE_SLICE = 1 << 15  # values decoded at a time: the temporaries of a slice stay in the cache
_CHECK_SLICE = 1 << 14  # blocks examined at a time
_BFLOAT16 = "<u2"  # NumPy has no such type: its bits are the upper half of a float32

_FLOAT8 = "|u1"  # likewise: the bits of a float8_e4m3fn

# Type of a float field -> the integer of its size, and the bits of its exponent. All of them
# set is NaN or infinity, in each of these formats. Float8 has no infinity, and the one NaN has the
# bits of the fraction set as well.
_EXPONENTS = {
    "<f4": ("<u4", 0x7F80_0000), "<f2": ("<u2", 0x7C00), _BFLOAT16: ("<u2", 0x7F80), _FLOAT8: ("|u1", 0x7F),
}  # fmt: skip


@dataclass(frozen=True)
class BlockType:
    """One way of storing values.

    Attributes:
        name: as people write it: `Q4_K`.
        number: as a GGUF file writes it (`enum ggml_type`); -1 of a type that GGUF doesn't have.
        values: values in a block; the length of a row is a multiple of it.
        layout: the record of one block. Only its float fields can be NaN or infinite.
        decoder: [n] records -> float32 [n, values].
    """

    name: str
    number: int
    values: int
    layout: np.dtype[Any]
    decoder: Callable[[Blocks], Floats]

    @property
    def nbytes(self) -> int:
        """Bytes of a block."""
        return self.layout.itemsize

    @property
    def floats(self) -> dict[str, str]:
        """Its float fields, and the type of each."""
        fields = {name: self.layout[name].str for name in self.layout.names or ()}
        return {name: kind for name, kind in fields.items() if kind in _EXPONENTS}


class NonFinite(NamedTuple):
    """A NaN or an infinity: in which block, in which field of its layout, and which of the two."""

    block: int
    field: str
    value: float


def known(type_name: str) -> BlockType:
    """A type by its name: one of `TYPES`, or `F8_E4M3`, which only safetensors files hold."""
    return _FLOAT8_TYPE if type_name == _FLOAT8_TYPE.name else TYPES[type_name]


def is_known(type_name: str) -> bool:
    """Whether its values can be read."""
    return type_name in TYPES or type_name == _FLOAT8_TYPE.name


def decode(type_name: str, data: NDArray[np.uint8]) -> Floats:
    """All values of a tensor, or of some of its rows.

    Args:
        type_name: of a `known` type.
        data: the bytes, flat: whole blocks.

    Returns:
        float32, flat. F32 is a view of `data`; all else is new memory, filled slice by slice so
        that nothing else of its size is ever held.
    """
    kind = known(type_name)
    blocks = _records(kind, data)
    if type_name == "F32":
        return blocks["value"].astype(np.float32, copy=False)
    out = np.empty((len(blocks), kind.values), np.float32)
    with np.errstate(invalid="ignore", over="ignore"):  # NaN and infinity are the caller's to judge
        for part in _slices(len(blocks), max(1, _DECODE_SLICE // kind.values)):
            out[part] = kind.decoder(blocks[part])
    return out.reshape(-1)


def find_non_finite(type_name: str, data: NDArray[np.uint8]) -> NonFinite | None:
    """The first NaN or infinity of a tensor, or None if every value is finite.

    Of quantised types only the float16 scales are read. Codes can't turn a finite scale into
    an infinite value: the largest possible one is below 65504 * 128 * 128.

    Args:
        type_name: of a `known` type.
        data: the bytes, flat: whole blocks.
    """
    kind = known(type_name)
    blocks = _records(kind, data)
    for part in _slices(len(blocks), _CHECK_SLICE):
        found = [
            NonFinite(part.start + int(np.argmax(broken)), name, 0.0)
            for name, dtype in kind.floats.items()
            if (broken := _broken(blocks[name][part], dtype)) is not None
        ]
        if found:
            first = min(found, key=lambda one: one.block)
            return first._replace(value=_as_float(blocks[first.field][first.block], kind.floats[first.field]))
    return None


def _broken(values: NDArray[Any], dtype: str) -> NDArray[np.bool_] | None:
    """Where floats are NaN or infinite; None if nowhere."""
    integer, ones = _EXPONENTS[dtype]
    exponents = values.view(integer) & np.dtype(integer).type(ones)
    return exponents == ones if exponents.max() == ones else None


def _as_float(value: Any, dtype: str) -> float:
    if dtype == _BFLOAT16:
        return float(np.array(int(value) << 16, np.uint32).view(np.float32))
    return float("nan") if dtype == _FLOAT8 else float(value)


def _records(kind: BlockType, data: NDArray[np.uint8]) -> Blocks:
    assert data.dtype == np.uint8 and data.ndim == 1 and data.size % kind.nbytes == 0
    return data.view(kind.layout)


def _slices(blocks: int, step: int) -> Iterator[slice]:
    return (slice(start, start + step) for start in range(0, blocks, step))


# --------------------------------------------------------------------------------------------
# What the formats share


def _unpack(codes: Codes, bits: int, run: int) -> Codes:
    """Codes of `bits` bits: each `run` bytes hold 8 / bits runs of values, lowest bits first."""
    shifts = np.arange(0, 8, bits, dtype=np.uint8).reshape(-1, 1)
    runs = codes.reshape(len(codes), -1, 1, run)  # [n, bytes / run, 1, run]
    planes = (runs >> shifts) & np.uint8(2**bits - 1)  # [n, bytes / run, 8 / bits, run]
    return planes.reshape(len(codes), -1)


def _scaled(scales: Floats, codes: NDArray[Any]) -> Floats:
    """Codes times the scale of their group: [n, groups] and [n, values] -> [n, groups, values / groups]."""
    n, groups = scales.shape
    scaled: Floats = np.multiply(codes.reshape(n, groups, -1), scales[:, :, np.newaxis], dtype=np.float32)
    return scaled


def _float(blocks: Blocks, field: str) -> Floats:
    """One float16 of each block, as float32: [n, 1]."""
    return np.asarray(blocks[field].astype(np.float32).reshape(-1, 1))


def _flat(values: Floats) -> Floats:
    return values.reshape(len(values), -1)


def _scales_and_minima(packed: Codes) -> tuple[Codes, Codes]:
    """Eight scales and eight minima of 6 bits in 12 bytes, as Q4_K and Q5_K pack them.

    Bytes 0-3 and 4-7 hold the first four of each, and in their two upper bits those of the last
    four, whose lower four bits share bytes 8-11.
    """
    scales, minima, rest = packed[:, 0:4], packed[:, 4:8], packed[:, 8:12]
    last_scales = (rest & 0x0F) | (scales >> 6 << 4)
    last_minima = (rest >> 4) | (minima >> 6 << 4)
    return (
        np.concatenate([scales & 0x3F, last_scales], axis=1),
        np.concatenate([minima & 0x3F, last_minima], axis=1),
    )


# The 16 levels of IQ4_NL and IQ4_XS, closer together near zero (`kvalues_iq4nl` of ggml-common.h).
_LEVELS = np.array(
    [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113], dtype=np.float32
)


# --------------------------------------------------------------------------------------------
# One decoder for each format: [n] records -> float32 [n, values]


def _f32(blocks: Blocks) -> Floats:
    return _float(blocks, "value")


def _f16(blocks: Blocks) -> Floats:
    return _float(blocks, "value")


def _bf16(blocks: Blocks) -> Floats:
    return (blocks["value"].astype(np.uint32) << 16).view(np.float32).reshape(-1, 1)


def _float8_values() -> Floats:
    """What each byte means as float8_e4m3fn: sign, 4 bits of exponent, 3 of fraction (Micikevicius 2022)."""
    byte = np.arange(256)
    exponent, fraction = byte >> 3 & 15, (byte & 7) / 8
    size = np.where(exponent == 0, fraction * 2.0**-6, (1 + fraction) * 2.0 ** (exponent - 7))
    size[byte & 0x7F == 0x7F] = np.nan
    signed: Floats = np.where(byte < 128, size, -size).astype(np.float32)
    return signed


_FLOAT8_VALUES = _float8_values()


def _f8_e4m3(blocks: Blocks) -> Floats:
    values: Floats = _FLOAT8_VALUES[blocks["value"]]
    return values.reshape(-1, 1)


def _q4_0(blocks: Blocks) -> Floats:
    codes = _unpack(blocks["codes"], 4, 16).view(np.int8) - np.int8(8)
    return _flat(_scaled(_float(blocks, "scale"), codes))


def _q4_1(blocks: Blocks) -> Floats:
    scaled = _scaled(_float(blocks, "scale"), _unpack(blocks["codes"], 4, 16))
    return _flat(scaled) + _float(blocks, "minimum")


def _five_bits(blocks: Blocks) -> Codes:
    high = np.unpackbits(blocks["high_bits"], axis=1, bitorder="little")
    return _unpack(blocks["codes"], 4, 16) | (high << 4)


def _q5_0(blocks: Blocks) -> Floats:
    codes = _five_bits(blocks).view(np.int8) - np.int8(16)
    return _flat(_scaled(_float(blocks, "scale"), codes))


def _q5_1(blocks: Blocks) -> Floats:
    return _flat(_scaled(_float(blocks, "scale"), _five_bits(blocks))) + _float(blocks, "minimum")


def _q8_0(blocks: Blocks) -> Floats:
    return _flat(_scaled(_float(blocks, "scale"), blocks["codes"]))


def _q2_k(blocks: Blocks) -> Floats:
    scales = _float(blocks, "scale") * (blocks["scales"] & 0x0F)
    minima = _float(blocks, "minimum") * (blocks["scales"] >> 4)
    codes = _unpack(blocks["codes"], 2, 32)
    return _flat(_scaled(scales, codes) - minima[:, :, np.newaxis])


def _q3_k(blocks: Blocks) -> Floats:
    packed = blocks["scales"]
    signed = _unpack(packed[:, 0:8], 4, 8) | (_unpack(packed[:, 8:12], 2, 4) << 4)
    scales = _float(blocks, "scale") * (signed.view(np.int8) - np.int8(32))
    codes = _unpack(blocks["codes"], 2, 32) | (_unpack(blocks["high_bits"], 1, 32) << 2)
    return _flat(_scaled(scales, codes.view(np.int8) - np.int8(4)))


def _with_minima(blocks: Blocks, codes: Codes) -> Floats:
    scale_codes, minimum_codes = _scales_and_minima(blocks["scales"])
    scales = _float(blocks, "scale") * scale_codes
    minima = _float(blocks, "minimum") * minimum_codes
    return _flat(_scaled(scales, codes) - minima[:, :, np.newaxis])


def _q4_k(blocks: Blocks) -> Floats:
    return _with_minima(blocks, _unpack(blocks["codes"], 4, 32))


def _q5_k(blocks: Blocks) -> Floats:
    high = _unpack(blocks["high_bits"], 1, 32)
    return _with_minima(blocks, _unpack(blocks["codes"], 4, 32) | (high << 4))


def _q6_k(blocks: Blocks) -> Floats:
    codes = _unpack(blocks["codes"], 4, 64) | (_unpack(blocks["high_bits"], 2, 32) << 4)
    scales = _float(blocks, "scale") * blocks["scales"]
    return _flat(_scaled(scales, codes.view(np.int8) - np.int8(32)))


def _iq4_nl(blocks: Blocks) -> Floats:
    return _flat(_scaled(_float(blocks, "scale"), _LEVELS[_unpack(blocks["codes"], 4, 16)]))


def _iq4_xs(blocks: Blocks) -> Floats:
    signed = _unpack(blocks["scales"], 4, 1) | (_unpack(blocks["high_scales"], 2, 1) << 4)
    scales = _float(blocks, "scale") * (signed.view(np.int8) - np.int8(32))
    return _flat(_scaled(scales, _LEVELS[_unpack(blocks["codes"], 4, 16)]))


# --------------------------------------------------------------------------------------------
# The table

_SCALE = ("scale", "<f2")
_MINIMUM = ("minimum", "<f2")


def _row(
    number: int, values: int, decoder: Callable[[Blocks], Floats], *fields: tuple[Any, ...]
) -> BlockType:
    return BlockType(decoder.__name__[1:].upper(), number, values, np.dtype(list(fields)), decoder)


TYPES: dict[str, BlockType] = {
    kind.name: kind
    for kind in (
        _row(0, 1, _f32, ("value", "<f4")),
        _row(1, 1, _f16, ("value", "<f2")),
        _row(30, 1, _bf16, ("value", _BFLOAT16)),
        _row(2, 32, _q4_0, _SCALE, ("codes", "u1", 16)),
        _row(3, 32, _q4_1, _SCALE, _MINIMUM, ("codes", "u1", 16)),
        _row(6, 32, _q5_0, _SCALE, ("high_bits", "u1", 4), ("codes", "u1", 16)),
        _row(7, 32, _q5_1, _SCALE, _MINIMUM, ("high_bits", "u1", 4), ("codes", "u1", 16)),
        _row(8, 32, _q8_0, _SCALE, ("codes", "i1", 32)),
        _row(10, 256, _q2_k, ("scales", "u1", 16), ("codes", "u1", 64), _SCALE, _MINIMUM),
        _row(11, 256, _q3_k, ("high_bits", "u1", 32), ("codes", "u1", 64), ("scales", "u1", 12), _SCALE),
        _row(12, 256, _q4_k, _SCALE, _MINIMUM, ("scales", "u1", 12), ("codes", "u1", 128)),
        _row(
            13, 256, _q5_k, _SCALE, _MINIMUM,
            ("scales", "u1", 12), ("high_bits", "u1", 32), ("codes", "u1", 128),
        ),
        _row(14, 256, _q6_k, ("codes", "u1", 128), ("high_bits", "u1", 64), ("scales", "i1", 16), _SCALE),
        _row(20, 32, _iq4_nl, _SCALE, ("codes", "u1", 16)),
        _row(23, 256, _iq4_xs, _SCALE, ("high_scales", "u1", 2), ("scales", "u1", 4), ("codes", "u1", 128)),
    )
}  # fmt: skip
_FLOAT8_TYPE = _row(-1, 1, _f8_e4m3, ("value", _FLOAT8))
