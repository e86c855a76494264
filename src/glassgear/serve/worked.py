"""The worked example as a model that every server has: the file of `glassgear lab`, and its six words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from glassgear.weights.inside import EXAMPLE, EXAMPLE_WORDS, example

if TYPE_CHECKING:
    from glassgear.language_model import LanguageModel

__all__ = ["NAME", "PROMPT", "worked_example"]

NAME = EXAMPLE
PROMPT = "".join(EXAMPLE_WORDS)
OF_THE_MACHINE = ("backend", "threads", "cache_type", "on_compile", "device", "dtype")


def worked_example(options: Mapping[str, Any]) -> LanguageModel:
    """The model, loaded.

    Args:
        options: keyword arguments of `loading.load`; those that belong to another model (its tokenizer,
            its context) are left out.
    """
    from glassgear.loading import load

    chosen = {name: value for name, value in options.items() if name in OF_THE_MACHINE}
    return load(example(), **chosen)
