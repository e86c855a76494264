"""`tokenize --steps`: the way of a prompt, from messages to ids."""

from __future__ import annotations

from typing import TYPE_CHECKING

from glassgear.cli import console
from glassgear.cli.output import json_line, quoted
from glassgear.cli.trace_views import new_table, show

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.text import Text

    from glassgear.text.base import Tokenizer
    from glassgear.trace.pipeline import Pipeline

__all__ = ["show_steps"]


def show_steps(
    tokenizer: Tokenizer, text: str, chat: bool, system: str | None, special: bool, most: int | None,
    as_json: bool,
) -> None:  # fmt: skip
    """Print every step of a prompt; what may go wrong is said on stderr."""
    from glassgear.trace.pipeline import pipeline

    if chat:
        from glassgear.text.chat import template_for

        messages = [{"role": "system", "content": system}] if system is not None else []
        messages.append({"role": "user", "content": text})
        made = pipeline(tokenizer, messages, template=template_for(tokenizer), most=most)
    else:
        made = pipeline(tokenizer, text, parse_special=special, most=most)
    if as_json:
        json_line(made.to_json() | {"count": len(made.pieces), "warnings": list(made.warnings)})
        return
    _show(tokenizer, made)
    for warning in made.warnings:
        if warning not in tokenizer.warnings:  # these were said when it was opened
            console.note(warning)


def _show(tokenizer: Tokenizer, made: Pipeline) -> None:
    parts: list[RenderableType] = []
    if made.messages:
        table = new_table("1 messages", "")
        for message in made.messages:
            table.add_row(str(message["role"]), console.visible(str(message["content"])))
        parts += [table, ""]
    title = "2 what the template makes of them" if made.messages else "1 the text"
    parts += [_dim(title), _controls(tokenizer, made), ""]
    specials = [(i, piece) for i, piece in enumerate(made.pieces) if piece.special]
    number = 3 if made.messages else 2
    table = new_table(f"{number} control tokens", "id", "text", right=[0, 1])
    for i, piece in specials:
        table.add_row(str(i), str(piece.id), console.visible(piece.text))
    parts += [table if specials else _dim(f"{number} control tokens: none"), ""]
    table = new_table(f"{number + 1} pieces", "id", "text", "in the vocabulary", right=[0, 1])
    for i, piece in enumerate(made.pieces):
        spelt = "control token" if piece.special else console.visible(piece.piece)
        table.add_row(str(i), str(piece.id), quoted(tokenizer, piece.id), spelt, style="bold" * piece.special)
    show(*parts, table, "", _dim(f"{number + 2} ids"), " ".join(map(str, made.ids)))


def _dim(text: str) -> Text:
    from rich.text import Text

    return Text(text, style="dim")


def _controls(tokenizer: Tokenizer, made: Pipeline) -> Text:
    """The text; what became control tokens stands out, what only spells them doesn't."""
    from rich.text import Text

    shown = Text(console.visible(made.text))
    at, plain = 0, b""
    for piece in (*made.pieces, None):
        if piece is not None and not piece.special:
            plain += tokenizer.token_bytes(piece.id)
            continue
        between = plain.decode("utf-8", "replace")
        if not at and tokenizer.leading_space:
            between = between.removeprefix(" ")
        if piece is None or not made.text.startswith(between, at):
            break  # the tokenizer changed the text: where it goes on isn't known
        at, plain = at + len(between), b""
        if made.text.startswith(piece.text, at):  # else it was put in front of the text
            shown.stylize("bold cyan", at, at + len(piece.text))
            at += len(piece.text)
    return shown
