"""What differs: a run's settings from those its folder was made with, a tokenizer from a model's own."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from glassgear.errors import SettingError, TokenizerError, UnsupportedError
from glassgear.train.settings import TrainSettings

if TYPE_CHECKING:
    from glassgear.text.base import Tokenizer

__all__ = ["check_tokenizer", "other_run", "refusal"]

FIXED = ("context", "batch", "accumulate", "seed", "start")  # with text and model: what a run can't change
ANY_OF_THEM = "another model, other text or another seed, batch or context"


def other_run(folder: Path, settings: TrainSettings) -> str:
    """In what the run that a folder holds is another one than the settings describe.

    Args:
        folder: the run's, with the `settings.json` of its last save.
        settings: those that were refused.

    Returns:
        The end of a sentence, such as `model.layers 2 (now 3)`.
    """
    try:
        before = _flat(json.loads((folder / "settings.json").read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return ANY_OF_THEM
    now = _flat(json.loads(json.dumps(asdict(settings), default=str)))
    odd = [key for key in before | now if before.get(key) != now.get(key)]
    if not odd:
        return "the same settings but other text, or another tokenizer or design file"
    return " and ".join(f"{key} {_shown(before, key)} (now {_shown(now, key)})" for key in odd)


def refusal(path: Path, other: str) -> SettingError:
    """The error about a folder of another run, which `other_run` has found to be one."""
    return SettingError(
        f"{path} comes from a run with {other}: "
        "give this run a folder of its own (out), or delete the old one"
    )


def _flat(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Dotted name -> value, of what a run can't change; of files the names, wherever they lie."""
    data = {f"data.{key}": value for key, value in settings["data"].items()}
    data["data.files"] = [Path(name).name for name in data["data.files"]]
    model = {f"model.{key}": value for key, value in settings["model"].items()}
    for table, key in ((data, "data.tokenizer"), (model, "model.design")):
        if isinstance(table.get(key), str):
            table[key] = Path(table[key]).name
    return data | model | {key: settings[key] for key in FIXED}


def _shown(values: Mapping[str, Any], key: str) -> str:
    return json.dumps(values[key], ensure_ascii=False) if key in values else "not given"


def check_tokenizer(start: str, tokenizer: Path) -> None:
    """Whether ids mean the same to a run as to the model that it begins with.

    A model without a tokenizer is taken as it is, and one whose tokenizer Glassgear can't read.

    Args:
        start: the model, as `begin_with` takes it.
        tokenizer: the run's tokenizer.json.

    Raises:
        SettingError: an id stands for other text.
    """
    from glassgear.loading import load_tokenizer
    from glassgear.weights.described import open_named

    if open_named(start).vocabulary is None:
        return
    try:
        theirs, ours = load_tokenizer(start), load_tokenizer(tokenizer)
    except (TokenizerError, UnsupportedError):
        return
    for token in range(min(theirs.vocab_size, ours.vocab_size)):
        if (before := _text(theirs, token)) != (now := _text(ours, token)):
            raise SettingError(
                f"{start} has another tokenizer than this run: token {token:,} is {_quoted(before)} there, "
                f"{_quoted(now)} here. Name the model's own tokenizer.json as `tokenizer` in [data]"
            )


def _text(tokenizer: Tokenizer, token: int) -> bytes | None:
    """What an id stands for; formats differ in how they spell pieces, and in breaks around BOS (llama2.c)."""
    try:
        found = tokenizer.token_bytes(token)
    except TokenizerError:
        return None  # a gap in the vocabulary
    return found.strip() if found.strip().startswith(b"<") else found


def _quoted(text: bytes | None) -> str:
    return "nothing" if text is None else repr(text.decode("utf-8", "replace"))
