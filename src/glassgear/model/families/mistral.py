"""Mistral: Llama's gears with a sliding window in every layer, where the config gives one.

Its GGUF files have the architecture `llama`; a window that such a file names is applied (llama.cpp's
converter writes none, and llama.cpp reads none). Source: Jiang et al. 2023.
"""

from __future__ import annotations

from dataclasses import replace

from glassgear.model.families.base import Family, Found
from glassgear.model.families.llama import HF_NAMES, checked, llama, sizes_from_hf, skip
from glassgear.model.gears import Model
from glassgear.model.settings import Settings

__all__ = ["FAMILY"]

# What transformers takes keys for that a config doesn't have.
DEFAULTS = {"num_key_value_heads": 8, "max_position_embeddings": 131072, "sliding_window": 4096}


def from_hf(s: Settings, found: Found) -> Model:
    """The model of a `config.json` of type `mistral`. A window of null is none (v0.2 and later)."""
    s = s.completed(DEFAULTS)
    sizes = sizes_from_hf(s, found)
    window = s.size("sliding_window", 0, least=0)
    return llama(checked(replace(sizes, windows=(window,) * sizes.layers, family="mistral"), s))


FAMILY = Family("mistral", hf_types=("mistral",), from_hf=from_hf, hf_names=HF_NAMES, skip=skip)
