"""How packed weights lie in memory: panels of 16 rows, blocks of 32 inputs.

A panel is 16 rows of a matrix, so that a vector lane is a row and a dot product needs no
horizontal sum. Along a panel lie its blocks, in the order in which kernels read them. A block
of codes holds, for each of 8 groups of 4 inputs, one 64-byte vector: 4 inputs of 16 rows. Then
come its scales, one for each row and sub-block of 16 or 32 inputs, and its minima if it has any:

    weight = scale * (code - offset) + minimum

Codes narrower than a byte are split into planes: vector g (0..3) of the first plane has groups
g and g + 4 in the low and high halves of its bytes; the fifth bit, or the fifth and sixth, of
every group follow in one vector, or two. A float panel has 16 values for each input.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

__all__ = [
    "BLOCK",
    "IQ4_VALUES",
    "PANEL",
    "FloatLayout",
    "Layout",
    "QuantLayout",
    "layout_of",
    "quant_layout",
]

PANEL = 16  # rows
BLOCK = 32  # inputs

# The 16 values of IQ4_NL and IQ4_XS codes (ggml-common.h, `kvalues_iq4nl`).
IQ4_VALUES = (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)


@dataclass(frozen=True)
class QuantLayout:
    """A layout of codes and scales.

    Attributes:
        bits: of a code: 4, 5, 6 or 8.
        sub: inputs under one scale: 16 or 32.
        minima: whether there are minima; if so `offset` is 0.
        wide: scales as float32; else as float16.
        offset: what is taken from a code: 0, or a power of two.
        table: codes are places in `IQ4_VALUES`, kept as value + 128.
    """

    bits: int
    sub: int = 32
    minima: bool = False
    wide: bool = False
    offset: int = 0
    table: bool = False

    @property
    def key(self) -> str:
        """A short name: `q4m`, `q6s16o32`."""
        return (
            f"q{self.bits}"
            + (f"s{self.sub}" if self.sub != BLOCK else "")
            + ("m" if self.minima else "")
            + ("w" if self.wide else "")
            + (f"o{self.offset}" if self.offset else "")
            + ("t" if self.table else "")
        )

    @property
    def code_bytes(self) -> int:
        """Bytes of a block's codes."""
        return PANEL * BLOCK * self.bits // 8

    @property
    def scale_bytes(self) -> int:
        """Bytes of 16 scales."""
        return PANEL * (4 if self.wide else 2)

    @property
    def block_bytes(self) -> int:
        """Bytes of a block: codes, scales, minima."""
        return self.code_bytes + BLOCK // self.sub * self.scale_bytes * (2 if self.minima else 1)

    @property
    def spread(self) -> bool:
        """Whether many rows pay for spreading codes to bytes once, rather than in every tile."""
        return self.bits in (5, 6) or self.sub < BLOCK or self.table

    @property
    def spread_bytes(self) -> int:
        """Bytes of a block whose codes are bytes, and whose scales and minima are float32."""
        return PANEL * BLOCK + BLOCK // self.sub * 4 * PANEL * (2 if self.minima else 1)

    def panel_bytes(self, columns: int) -> int:
        """Bytes of 16 rows."""
        return columns // BLOCK * self.block_bytes


def quant_layout(key: str) -> QuantLayout:
    """The layout that has this `key`."""
    found = re.fullmatch(r"q(\d)(?:s(\d+))?(m)?(w)?(?:o(\d+))?(t)?", key)
    assert found
    bits, sub, minima, wide, offset, table = found.groups()
    return QuantLayout(int(bits), int(sub or BLOCK), bool(minima), bool(wide), int(offset or 0), bool(table))


@dataclass(frozen=True)
class FloatLayout:
    """Plain values: `f32`, `f16` or `bf16`."""

    key: str

    @property
    def width(self) -> int:
        """Bytes of a value."""
        return 4 if self.key == "f32" else 2

    def panel_bytes(self, columns: int) -> int:
        """Bytes of 16 rows."""
        return columns * PANEL * self.width


Layout = QuantLayout | FloatLayout

_LAYOUTS: dict[str, Layout] = {
    "F32": FloatLayout("f32"),
    "F16": FloatLayout("f16"),
    "BF16": FloatLayout("bf16"),
    "Q4_0": QuantLayout(4, offset=8),
    "Q4_1": QuantLayout(4, minima=True),
    "Q5_0": QuantLayout(5, offset=16),
    "Q5_1": QuantLayout(5, minima=True),
    "Q8_0": QuantLayout(8, offset=128),
    "Q2_K": QuantLayout(4, sub=16, minima=True),
    "Q3_K": QuantLayout(4, sub=16, offset=4),
    "Q4_K": QuantLayout(4, minima=True),
    "Q5_K": QuantLayout(5, minima=True),
    "Q6_K": QuantLayout(6, sub=16, offset=32),
    "IQ4_NL": QuantLayout(4, offset=128, table=True),
    "IQ4_XS": QuantLayout(4, offset=128, table=True),
    "INT8_GROUPS": QuantLayout(8, offset=128, wide=True),
    "F8_E4M3": FloatLayout("f32"),  # times its scales, of which half precision would lose bits
}


def known_layouts() -> tuple[Layout, ...]:
    """Every layout that a stored type may get, each once."""
    return tuple(dict.fromkeys(_LAYOUTS.values()))


def layout_of(type_name: str, columns: int, group: int = BLOCK) -> Layout:
    """The layout for a stored type.

    Args:
        type_name: of the tensor in its file.
        columns: inputs of the matrix.
        group: inputs under one scale in the file, where the type leaves it open.

    Returns:
        Its own layout; float32 where rows or groups don't fill whole blocks.
    """
    layout = _LAYOUTS[type_name]
    if isinstance(layout, QuantLayout) and (columns % BLOCK or group % BLOCK):
        return FloatLayout("f32")
    return layout
