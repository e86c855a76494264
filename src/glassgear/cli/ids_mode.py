"""The ids of a prompt; `run` on models without a tokenizer, where ids go in and out, and on encoders."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from glassgear.cli import console
from glassgear.cli.output import json_line, quoted
from glassgear.cli.table import table
from glassgear.errors import TokenizerError

if TYPE_CHECKING:
    from glassgear.generate import Piece
    from glassgear.language_model import LanguageModel
    from glassgear.text.base import Tokenizer

__all__ = ["PlainIds", "gives_hidden_states", "prompt_ids", "prompt_of", "show_hidden", "tokenizer_of"]

FIRST = 4  # values of a row that are shown


def tokenizer_of(model: LanguageModel) -> Tokenizer | None:
    """The model's tokenizer, or None."""
    try:
        return model.tokenizer
    except TokenizerError:
        return None


def prompt_of(model: LanguageModel, text: str | None) -> list[int]:
    """The ids that a prompt of numbers names; 0 without a prompt.

    Raises:
        TokenizerError: the prompt is a text, and nothing can read it.
    """
    if not text or not text.strip():
        return [0]
    words = re.split(r"[\s,]+", text.strip(" \t\r\n,"))
    if not all(re.fullmatch(r"[0-9]{1,12}", word) for word in words):
        raise TokenizerError(
            f'{model.checkpoint.path} has no tokenizer, so its prompt is ids, such as "1 2 3": '
            f"found {text!r:.60}; --tokenizer names one that reads texts"
        )
    return [int(word) for word in words]


def prompt_ids(model: LanguageModel, text: str | None, given: Mapping[str, Any]) -> list[int]:
    """The ids that a prompt becomes.

    Args:
        model: with a tokenizer, or without: then the prompt is ids.
        text: the prompt.
        given: of a command's options `special` (whether the text may name control tokens) and, where it has
            them, `chat` (whether it is a message) and `system` (the message before it).

    Raises:
        TokenizerError: nothing can read the prompt.
        TemplateError: the model's chat template refuses the messages.
    """
    if given.get("chat"):
        from glassgear.text.chat import encode_chat

        messages = [{"role": "user", "content": text or ""}]
        if given.get("system") is not None:
            messages.insert(0, {"role": "system", "content": given["system"]})
        return encode_chat(model.tokenizer, model.chat_template, messages)
    if tokenizer_of(model) is None:
        return prompt_of(model, text)
    return model.encode(text, parse_special=given["special"])


class PlainIds:
    """Ids as they come, with spaces between.

    Args:
        prompt: printed in front of the first ones.
    """

    def __init__(self, prompt: Sequence[int] = ()) -> None:
        self._prompt = list(prompt)
        self._begun = False

    def piece(self, piece: Piece) -> None:
        """Print a piece's ids."""
        prompt, self._prompt = self._prompt, []
        for token in (*prompt, *piece.ids):
            console.write(f"{' ' if self._begun else ''}{token}")
            self._begun = True

    def end(self) -> None:
        """Close the line."""
        if self._begun:
            console.write("\n")


def gives_hidden_states(model: LanguageModel) -> bool:
    """Whether a model describes texts rather than continuing them."""
    return model.gears.head is None or not model.gears.causal


def show_hidden(model: LanguageModel, text: str | None, given: dict[str, Any]) -> None:
    """Print the hidden states of a text: a row for each token."""
    tokenizer = tokenizer_of(model)
    ids = prompt_ids(model, text, given)
    hidden = model.hidden(ids)
    if given["as_json"]:
        json_line({"ids": ids, "hidden": [[float(value) for value in row] for row in hidden]})
        return
    first = min(FIRST, hidden.shape[1])
    rows = [
        (str(i), str(token), *([quoted(tokenizer, token)] if tokenizer else []),
         f"{math.hypot(*map(float, row)):.4f}", *(f"{value:.4f}" for value in row[:first]))
        for i, (token, row) in enumerate(zip(ids, hidden, strict=True))
    ]  # fmt: skip
    names = ("", "id", *(["token"] if tokenizer else []), "length", *(f"[{i}]" for i in range(first)))
    right = set(range(len(names))) - ({2} if tokenizer else set())
    click.echo(table(names, rows, right=right), color=console.may_colour())
    console.note(
        f"this model doesn't continue texts: these are its hidden states, {hidden.shape[1]:,} values a token"
    )
