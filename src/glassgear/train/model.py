"""The tree that is trained: sizes of a Llama, or a design of one's own."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from glassgear.errors import FormatError, NotFoundError, SettingError
from glassgear.model.families.llama import LlamaConfig, llama
from glassgear.model.gears import Model, Rope

__all__ = ["LARGEST", "SIZES", "VocabularyError", "model_of"]

SIZES = {"dim", "hidden", "layers", "heads", "kv_heads", "head_dim", "theta", "eps", "tied", "vocab"}
DEEPEST = 10_000  # layers: each is a gear of its own, and a million of them take a minute to be made
LARGEST = 1 << 63  # whole numbers of 64 bits are below it


class VocabularyError(SettingError):
    """A table of fewer rows than the tokenizer has entries."""


def model_of(given: Mapping[str, Any], vocab: int, context: int) -> Model:
    """The model of a run.

    Args:
        given: `dim`, `layers`, `heads`, and perhaps `hidden` (8/3 of dim, in whole 32s), `kv_heads`,
            `head_dim`, `theta`, `eps`, `tied`; or `design` alone.
        vocab: entries of the tokenizer.
        context: tokens of a sequence.

    Raises:
        SettingError: sizes that don't fit together, or a key that means nothing.
        VocabularyError: a table of fewer rows than `vocab`.
    """
    if "design" in given:
        return _design(given, vocab, context)
    for key, value in given.items():
        if key not in SIZES:
            near = get_close_matches(key, SIZES, 1)
            hint = (
                f": did you mean `{near[0]}`?" if near else f": known are {', '.join(sorted(SIZES))}, design"
            )
            raise SettingError(f"model has `{key}`, which means nothing here{hint}")
        _check_kind(key, value)
    if missing := [key for key in ("dim", "layers", "heads") if key not in given]:
        raise SettingError(f"model needs `{missing[0]}`")
    if given.get("vocab", vocab) < vocab:
        raise VocabularyError(
            f"model.vocab is {given['vocab']:,}: the tokenizer has {vocab:,} entries, and each needs a row. "
            f"Leave vocab out, give at least {vocab:,}, or take a smaller tokenizer"
        )
    dim, heads = int(given["dim"]), int(given["heads"])
    if "head_dim" not in given and dim % heads:
        raise SettingError(f"model.dim {dim} doesn't divide by {heads} heads: change one, or give head_dim")
    head_dim = int(given.get("head_dim", dim // heads))
    hidden = int(given.get("hidden", -(-8 * dim // 3) // 32 * 32 or 32))
    return llama(
        LlamaConfig(
            dim, hidden, int(given["layers"]), heads, int(given.get("kv_heads", heads)), head_dim,
            int(given.get("vocab", vocab)), context, float(given.get("eps", 1e-5)),
            Rope(head_dim, float(given.get("theta", 10000.0))), bool(given.get("tied", True)),
        )
    )  # fmt: skip


def _check_kind(key: str, value: Any) -> None:
    kinds: dict[str, tuple[Any, str]] = {
        "theta": ((int, float), "a number"), "eps": ((int, float), "a number"),
        "tied": (bool, "true or false"),
    }  # fmt: skip
    kind, words = kinds.get(key, (int, "a whole number"))
    if not isinstance(value, kind) or (isinstance(value, bool) and key != "tied"):
        raise SettingError(f"model.{key} is {value!r:.40}: {words} is needed")
    if isinstance(value, int) and value >= LARGEST:
        raise SettingError(f"model.{key} is too large: it must be below 2 to the 63rd")
    if key == "layers" and value > DEEPEST:
        raise SettingError(f"model.layers is {value:,}: the most are {DEEPEST:,}")
    if not math.isfinite(value):
        raise SettingError(f"model.{key} is {value}: a finite number is needed")
    if key != "tied" and not value > 0:
        raise SettingError(f"model.{key} is {value}: it must be above 0")


def _design(given: Mapping[str, Any], vocab: int, context: int) -> Model:
    """A design's tree; its vocabulary is the tokenizer's where it leaves it open."""
    from glassgear.model.designs import design

    path = Path(str(given["design"]))
    if len(given) > 1:
        raise SettingError("model has a design and sizes beside it: give one or the other")
    if not path.is_file():
        raise NotFoundError(path, "there is no such design")
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as trouble:
        raise FormatError(path, f"is no TOML: {trouble}") from trouble
    made = design({"vocab": vocab} | values, str(path))
    if not made.causal or made.head is None:
        raise SettingError(f"{path} isn't a model that continues text: it can't be trained here")
    if made.vocab < vocab:
        raise VocabularyError(
            f"{path} has a vocabulary of {made.vocab:,}: the tokenizer has {vocab:,} entries, and each needs "
            f"a row. Leave vocab out of it, give at least {vocab:,}, or take a smaller tokenizer"
        )
    return replace(made, context=context)
