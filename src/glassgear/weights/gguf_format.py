"""Numbers of the GGUF format that reading and writing share (`docs/gguf.md` of ggml-org/ggml)."""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["ALIGNMENT_KEY", "ARRAY", "BOOL", "DEFAULT_ALIGNMENT", "MAGIC", "NUMBERS", "OTHER_TYPES", "STRING"]

MAGIC = b"GGUF"
ALIGNMENT_KEY = "general.alignment"
DEFAULT_ALIGNMENT = 32

# Value types of metadata. A bool is a byte, 0 or 1.
BOOL, STRING, ARRAY = 7, 8, 9
NUMBERS: dict[int, np.dtype[Any]] = {
    0: np.dtype("<u1"), 1: np.dtype("<i1"), 2: np.dtype("<u2"), 3: np.dtype("<i2"),
    4: np.dtype("<u4"), 5: np.dtype("<i4"), 6: np.dtype("<f4"), BOOL: np.dtype("<u1"),
    10: np.dtype("<u8"), 11: np.dtype("<i8"), 12: np.dtype("<f8"),
}  # fmt: skip

# Types of tensors (`enum ggml_type`) that `quant.TYPES` doesn't decode, for messages.
OTHER_TYPES = {
    4: "Q4_2", 5: "Q4_3", 9: "Q8_1", 15: "Q8_K", 16: "IQ2_XXS", 17: "IQ2_XS", 18: "IQ3_XXS", 19: "IQ1_S",
    21: "IQ3_S", 22: "IQ2_S", 24: "I8", 25: "I16", 26: "I32", 27: "I64", 28: "F64", 29: "IQ1_M",
    31: "Q4_0_4_4", 32: "Q4_0_4_8", 33: "Q4_0_8_8", 34: "TQ1_0", 35: "TQ2_0", 36: "IQ4_NL_4_4",
    37: "IQ4_NL_4_8", 38: "IQ4_NL_8_8", 39: "MXFP4", 40: "NVFP4", 41: "Q1_0",
}  # fmt: skip
