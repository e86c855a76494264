"""Qwen2 and Qwen2.5: Llama's gears with biases on queries, keys and values.

Their configs carry window settings that don't apply unless `use_sliding_window` says so.
Sources: Yang et al. 2024 (Qwen2; Qwen2.5).
"""

from __future__ import annotations

from dataclasses import replace

from glassgear.model.families.base import Family, Found
from glassgear.model.families.llama import (
    GGUF_NAMES,
    HF_NAMES,
    checked,
    llama,
    sizes_from_gguf,
    sizes_from_hf,
    skip,
)
from glassgear.model.families.windows import sliding_layers, windows
from glassgear.model.gears import Model
from glassgear.model.settings import Settings

__all__ = ["DEFAULTS", "FAMILY", "qwen_windows"]

# What transformers takes keys for that a config doesn't have.
DEFAULTS = {"max_position_embeddings": 32768, "sliding_window": 4096, "max_window_layers": 28}


def from_hf(s: Settings, found: Found) -> Model:
    """The model of a `config.json` of type `qwen2`."""
    s = s.completed(DEFAULTS)
    s.only("use_mrope", False)
    sizes = sizes_from_hf(s, found)
    made = replace(sizes, attention_bias=True, windows=qwen_windows(s, sizes.layers), family="qwen2")
    return llama(checked(made, s))


def qwen_windows(s: Settings, layers: int) -> tuple[int, ...]:
    """The window of each layer: off unless `use_sliding_window`, and then in the upper layers.

    Those are what `layer_types` says, or else the layers from number `max_window_layers` on. (The
    documentation of the key says the opposite; the models were trained as the code does it.)
    """
    on = s.take("use_sliding_window", bool, False)
    width = s.size("sliding_window", 0, least=0)
    first = s.size("max_window_layers", 28, least=0)
    sliding = sliding_layers(s, layers)
    if sliding is None:
        sliding = tuple(on and width > 0 and layer >= first for layer in range(layers))
    return windows(s, sliding, width if on else 0)


def from_gguf(s: Settings, found: Found) -> Model:
    """The model of GGUF metadata of architecture `qwen2`."""
    return llama(checked(replace(sizes_from_gguf(s, found), family="qwen2"), s))


FAMILY = Family(
    "qwen2",
    hf_types=("qwen2",),
    from_hf=from_hf,
    hf_names=HF_NAMES,
    gguf_types=("qwen2",),
    from_gguf=from_gguf,
    gguf_names=GGUF_NAMES,
    skip=skip,
)
