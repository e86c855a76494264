"""Models that are known by their description alone: a file of one's own, or a published config.

In: a TOML file, or a name of `model.presets`. Out: a `Checkpoint`, without tensors unless the file gives
some (`given_weights.py`). Everything that needs no weights works on it; `random_weights.py` can draw some.
"""

from __future__ import annotations

import difflib
import os
import tomllib
from dataclasses import replace
from os import PathLike
from pathlib import Path

from glassgear.errors import FileError, FormatError, NotFoundError
from glassgear.model import presets
from glassgear.model.designs import design
from glassgear.weights.checkpoint import Checkpoint
from glassgear.weights.pull import resolve

__all__ = ["is_described", "open_named", "read_design", "with_random_weights"]

MOST_BYTES = 1 << 20  # of a model file: what describes a model is short


def open_named(name_or_path: str | PathLike[str]) -> Checkpoint:
    """Open whatever a user named: files with weights, a model file, or a published config.

    Raises:
        NotFoundError: none of these; the message suggests what may have been meant.
        FormatError: it is damaged, or no model.
        UnsupportedError: a kind that this version doesn't run.
    """
    from glassgear.weights.open import open_checkpoint

    try:
        path = resolve(name_or_path)
    except NotFoundError as trouble:
        if not isinstance(name_or_path, str) or os.path.lexists(name_or_path):
            raise
        if name_or_path in presets.PRESETS:
            return _preset(name_or_path)
        near = difflib.get_close_matches(name_or_path.lower(), presets.PRESETS, n=1)
        if not near:
            raise
        raise NotFoundError(
            trouble.path, f"{trouble.trouble}; there is a published config called {near[0]}"
        ) from None
    return open_checkpoint(path)


def _preset(name: str) -> Checkpoint:
    source = presets.PRESETS[name].source
    return Checkpoint(name, f"published config of {source}", presets.model(name), {})


def is_described(path: Path) -> bool:
    """Whether a path is a model file: TOML can't be told by its first bytes, so its name says it."""
    return path.suffix.lower() == ".toml"


def read_design(path: Path) -> Checkpoint:
    """The model of a TOML file; docs/designs.md is its reference.

    Raises:
        FormatError: no TOML, or no model; the message names the key or the line.
    """
    try:
        with path.open("rb") as file:
            raw = file.read(MOST_BYTES + 1)
    except OSError as trouble:
        raise FileError(path, f"can't be read: {trouble.strerror or trouble}") from trouble
    if len(raw) > MOST_BYTES:
        raise FormatError(path, f"is larger than {MOST_BYTES:,} bytes, so it is no model file")
    try:
        values = tomllib.loads(raw.decode("utf-8"))
    except UnicodeDecodeError as trouble:
        raise FormatError(path, f"isn't UTF-8 text: byte {trouble.start:,} fits nowhere") from None
    except tomllib.TOMLDecodeError as trouble:
        raise FormatError(path, f"is no TOML: {trouble}") from None
    except (RecursionError, ValueError) as trouble:  # nested too deeply; numbers with too many digits
        raise FormatError(path, f"can't be read as TOML: {trouble}") from None
    model = design(values, str(path))
    if "weights" not in values:
        return Checkpoint(str(path), "model file", model, {})
    from glassgear.weights.given_weights import given_weights

    return Checkpoint(str(path), "model file", model, given_weights(values["weights"], model, path))


def with_random_weights(checkpoint: Checkpoint, seed: int) -> Checkpoint:
    """The same model with random weights in place of its own, if it has any; none is drawn yet."""
    from glassgear.weights.random_weights import random_tensors

    notices = (*checkpoint.notices, f"random weights (seed {seed}): what the model says means nothing")
    return replace(checkpoint, tensors=random_tensors(checkpoint.model, seed), notices=notices)
