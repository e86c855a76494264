"""How a text that is being made gets printed: as text, as JSON lines, or a line for each token."""

from __future__ import annotations

import json
import math
import sys
from typing import TYPE_CHECKING, Any, Protocol

import click

from glassgear.cli import console
from glassgear.cli.stats import Stats

if TYPE_CHECKING:
    from glassgear.generate import Piece, TokenLogprob
    from glassgear.text.base import Tokenizer

__all__ = ["JsonLines", "Output", "PlainText", "TokenLines", "json_line", "quoted"]

COLUMN = 18  # width of a token in a table


class Output(Protocol):
    """Where pieces go."""

    def piece(self, piece: Piece) -> None:
        """Print one piece now."""
        ...

    def end(self) -> None:
        """Print what closes the text, however it ended."""
        ...


class PlainText:
    """The text itself, and a newline after it.

    Args:
        prompt: printed first, if it isn't empty.
        always_newline: also where the text ends with one, as llama2.c does.
    """

    def __init__(self, prompt: str = "", *, always_newline: bool = False) -> None:
        self._always = always_newline
        self._prompt = prompt
        self._last: str | None = None  # character printed; None: no piece came, so nothing is to be closed

    def piece(self, piece: Piece) -> None:
        """Print a piece's text."""
        self._show_prompt()
        console.write(piece.text)
        self._last = piece.text[-1:] or self._last or ""

    def end(self) -> None:
        """Close the last line."""
        if self._last is None:
            return
        if self._always or self._last != "\n":
            console.write("\n")

    def _show_prompt(self) -> None:
        """Together with the first piece: until then a status line may stand in its place."""
        if self._prompt:
            prompt, self._prompt = self._prompt, ""
            self._last = prompt[-1]
            if console.is_terminal(sys.stdout):
                prompt = console.style(console.visible(prompt), bold=True)
            click.echo(prompt, nl=False, color=console.may_colour())


class JsonLines:
    """An object on a line for each piece; the last one has the figures too."""

    def __init__(self, tokenizer: Tokenizer | None, stats: Stats) -> None:
        self._tokenizer = tokenizer
        self._stats = stats
        self._finished = False

    def piece(self, piece: Piece) -> None:
        """Print `text`, `ids`, and `logprobs` where they were asked for."""
        found: dict[str, Any] = {"text": piece.text, "ids": list(piece.ids)}
        if piece.logprobs is not None:
            found["logprobs"] = [self._logprob(mark) for mark in piece.logprobs]
        if piece.finish_reason is not None:
            found |= self._stats.as_json()
            self._finished = True
        json_line(found)

    def end(self) -> None:
        """The figures, where no piece could say them because the text was interrupted."""
        if not self._finished and self._stats.finish_reason is not None:
            json_line({"text": "", "ids": []} | self._stats.as_json())

    def _logprob(self, mark: TokenLogprob) -> dict[str, Any]:
        top = [self._entry(token, value) for token, value in mark.top]
        return self._entry(mark.id, mark.logprob) | {"top": top}

    def _entry(self, token: int, logprob: float) -> dict[str, Any]:
        finite = logprob if math.isfinite(logprob) else None  # JSON has no -Infinity
        piece = None if self._tokenizer is None else self._tokenizer.piece(token)
        return {"id": token, "piece": piece, "logprob": finite}


class TokenLines:
    """A line for each token: its probability, and the likeliest ones beside it."""

    def __init__(self, tokenizer: Tokenizer | None) -> None:
        self._tokenizer = tokenizer

    def piece(self, piece: Piece) -> None:
        """Print the lines of a piece's tokens."""
        for mark in piece.logprobs or ():
            chosen = console.style(console.padded(self._name(mark.id), COLUMN), bold=True)
            others = [self._share(token, value) for token, value in mark.top]
            # A column is as wide as a token mostly is; the last one needs no width.
            line = "  ".join(
                [f"{mark.logprob:>8.3f}", *(console.padded(other, COLUMN + 7) for other in others)]
            )
            click.echo(f"{chosen} {line.rstrip()}", color=console.may_colour())

    def end(self) -> None:
        """Nothing: every line is closed."""

    def _share(self, token: int, logprob: float) -> str:
        return f"{math.exp(logprob):>6.1%} {self._name(token)}"

    def _name(self, token: int) -> str:
        return str(token) if self._tokenizer is None else quoted(self._tokenizer, token)


def quoted(tokenizer: Tokenizer, token: int) -> str:
    r"""A token as a person reads it: `" the"`, `"\n"`, `<|im_end|>`, `"\xe6\xad"` for half a character."""
    if tokenizer.is_special(token):
        return console.visible(tokenizer.piece(token))
    text = tokenizer.token_bytes(token).decode("utf-8", errors="surrogateescape")
    escaped = json.dumps(text, ensure_ascii=False)  # quotes, backslashes, control characters
    half = escaped.encode("utf-8", errors="surrogateescape").decode("utf-8", errors="backslashreplace")
    return console.visible(half)


def json_line(found: Any) -> None:
    """One JSON value on a line of its own, at once."""
    sys.stdout.write(json.dumps(found, ensure_ascii=False, allow_nan=False) + "\n")
    sys.stdout.flush()
