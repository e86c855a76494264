"""Open what the user named, with a status line while it takes long and its notices afterwards."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from glassgear.cli import console
from glassgear.errors import TokenizerError

if TYPE_CHECKING:
    from pathlib import Path

    from glassgear.language_model import LanguageModel
    from glassgear.text.base import Tokenizer
    from glassgear.weights.checkpoint import Checkpoint

__all__ = ["MODEL_OPTIONS", "find", "open_checkpoint", "open_model", "open_tokenizer", "print_notices"]

MODEL_OPTIONS = ("tokenizer", "context", "cache_type", "threads", "backend", "device", "dtype")


def open_model(name: str, given: dict[str, Any]) -> LanguageModel:
    """Load a model to run it.

    Args:
        name: a path or name.
        given: options of the command; those of `options.model_options` are used.
    """
    from glassgear.loading import load

    chosen = {key: given[key] for key in MODEL_OPTIONS if given.get(key) is not None}
    if given.get("random"):
        chosen |= {"random": True, "seed": given.get("seed") or 0}
    with console.status(f"Loading {name} ..."):
        model = load(name, on_compile=console.compiling, **chosen)
    print_notices(model.checkpoint.notices)
    if model.context > model.gears.context:
        console.note(
            f"the model was trained for {model.gears.context:,} tokens; past them (--ctx {model.context}) "
            "its texts may fall apart"
        )
    with suppress(TokenizerError):  # a model may come without a tokenizer
        print_notices(model.tokenizer.warnings)
    return model


def open_tokenizer(name: str) -> Tokenizer:
    """Load a tokenizer: of a model, or from a file of its own."""
    from glassgear.loading import load_tokenizer

    with console.status(f"Loading {name} ..."):
        tokenizer = load_tokenizer(name)
    print_notices(tokenizer.warnings)
    return tokenizer


def find(name: str) -> Path:
    """The path of a model that the user named."""
    from glassgear.weights.pull import resolve

    return resolve(name)


def open_checkpoint(name: str) -> Checkpoint:
    """Open a model to look at it: files, a model file, a published config. No weight is read."""
    from glassgear.weights.described import open_named

    with console.status(f"Opening {name} ..."):
        return open_named(name)


def print_notices(notices: Iterable[str]) -> None:
    """Say what the user should know about a file."""
    for notice in notices:
        console.note(notice)
