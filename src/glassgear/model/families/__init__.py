"""The families that are known: published kinds of models, each a file that tells how it is spelled."""

from __future__ import annotations

from glassgear.model.families import (
    bert,
    deepseek,
    gemma3,
    glm,
    gpt2,
    llama,
    mistral,
    mobilebert,
    olmo2,
    qwen2,
    qwen3,
    qwen3_moe,
)
from glassgear.model.families.base import Family

__all__ = ["FAMILIES", "by_gguf_type", "by_hf_type"]

FAMILIES: tuple[Family, ...] = (
    llama.FAMILY,
    mistral.FAMILY,
    qwen2.FAMILY,
    qwen3.FAMILY,
    qwen3_moe.FAMILY,
    deepseek.FAMILY,
    olmo2.FAMILY,
    gemma3.FAMILY,
    glm.GLM,
    glm.GLM4,
    gpt2.FAMILY,
    bert.FAMILY,
    mobilebert.FAMILY,
)


def by_hf_type() -> dict[str, Family]:
    """`model_type` of a config.json -> family."""
    return {kind: family for family in FAMILIES for kind in family.hf_types}


def by_gguf_type() -> dict[str, Family]:
    """`general.architecture` of a GGUF -> family."""
    return {kind: family for family in FAMILIES for kind in family.gguf_types}
