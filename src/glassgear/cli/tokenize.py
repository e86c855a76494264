"""`glassgear tokenize`: a text's pieces and ids, or the text of ids."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from glassgear.cli import console
from glassgear.cli.opening import open_tokenizer
from glassgear.cli.options import Command, as_text, option
from glassgear.cli.output import json_line, quoted
from glassgear.errors import SettingError

if TYPE_CHECKING:
    from glassgear.text.base import Tokenizer
    from glassgear.text.frames import Inputs

__all__ = ["command"]

BACKGROUNDS = ("blue", "green", "magenta", "cyan", "yellow")  # neighbours differ

EXAMPLES = """
glassgear tokenize smollm2-135m "Once upon a time"
glassgear tokenize tokenizer.json - < story.txt           a file, or any pipe
glassgear tokenize smollm2-135m --ids 6403,1980,253,655   back to text
glassgear tokenize smollm2-135m "<|im_start|>hi" --special
glassgear tokenize model.gguf "Hello" --json
glassgear tokenize smollm2-135m "Hi!" --steps --chat       messages, rendered text, pieces, ids
glassgear tokenize bert/ "Who?" --pair "You." --truncate 512   as an encoder takes two texts in
"""


@click.command(cls=Command, short_help="Show a text's pieces and ids.", examples=EXAMPLES)
@click.argument("model")
@click.argument("text", required=False, callback=as_text)
@option("--ids", metavar="IDS", section="Options", help="Decode these ids, such as 1,2,3, instead of TEXT.")
@option(
    "--add-special/--no-add-special",
    default=False,
    section="Options",
    help="Add what the model expects around a text: BOS, or [CLS] and [SEP]. [default: no]",
)
@option(
    "--special",
    is_flag=True,
    section="Options",
    help="Read control tokens written in TEXT as what they are; with --ids, show them.",
)
@option(
    "--pair",
    metavar="TEXT",
    callback=as_text,
    section="Options",
    help="A second text, read together with the first: control tokens around both, and the type of "
    "each token, 0 or 1.",
)
@option(
    "--truncate",
    type=click.IntRange(min=1),
    metavar="N",
    section="Options",
    help="Keep N ids at most, those that --add-special or --pair adds among them.",
)
@option(
    "--steps",
    is_flag=True,
    section="Options",
    help="Show the whole way of a prompt, with what the model expects around it, and warn of what may go "
    "wrong: a doubled BOS, control tokens in the text, truncation.",
)
@option("--chat", is_flag=True, section="Options", help="With --steps: TEXT is a message to answer.")
@option(
    "--system",
    callback=as_text,
    metavar="TEXT",
    section="Options",
    help="With --chat: a system message before it.",
)
@option("--json", "as_json", is_flag=True, section="Options", help="One JSON object.")
def command(model: str, text: str | None, *, ids: str | None, add_special: bool, special: bool,
            pair: str | None, truncate: int | None, steps: bool, chat: bool, system: str | None,
            as_json: bool) -> None:  # fmt: skip
    """Cut TEXT into the pieces that a model's vocabulary knows, or put ids back together.

    MODEL is a model, or just a tokenizer: a vocabulary-only GGUF, a tokenizer.json, tokenizer.bin
    (llama2.c), tokenizer.model (SentencePiece) or vocab.txt (BERT). TEXT `-` reads standard input
    as it is. Each line holds an id and its piece; how many there are is said on stderr.
    """
    if (text is None) == (ids is None):
        raise click.UsageError("give either TEXT or --ids")
    if ids is not None and (pair is not None or truncate is not None):
        raise click.UsageError("--pair and --truncate are about TEXT, not about --ids")
    if steps and (ids is not None or pair is not None):
        raise click.UsageError("--steps shows the way of one TEXT: it goes with neither --ids nor --pair")
    if (chat and not steps) or (system is not None and not chat):
        raise click.UsageError("--chat goes with --steps, and --system with --chat")
    given = _parsed(ids) if ids is not None else None
    if text == "-":
        text = console.read_stdin()
    tokenizer = open_tokenizer(model)
    if given is not None:
        _show_text(tokenizer, given, special, as_json)
        return
    text = text or ""
    if steps:
        from glassgear.cli.tokenize_steps import show_steps

        show_steps(tokenizer, text, chat, system, special, truncate, as_json)
        return
    if pair is not None:
        first, second = (tokenizer.encode(one, parse_special=special) for one in (text, pair))
        _show_pair(tokenizer, (text, pair), tokenizer.framed(first, second, most=truncate), as_json)
    else:
        _show_tokens(tokenizer, text, _tokens(tokenizer, text, add_special, special, truncate), as_json)


def _tokens(
    tokenizer: Tokenizer, text: str, add_special: bool, special: bool, most: int | None
) -> Sequence[int]:
    """A text's ids, `most` of them where that is given."""
    whole = tokenizer.encode(text, add_special=add_special, parse_special=special)
    if most is None or len(whole) <= most:
        return whole
    _note_cut(len(whole) - most)
    if not add_special:
        return whole[:most]
    return tokenizer.framed(tokenizer.encode(text, parse_special=special), most=most).ids


def _note_cut(count: int) -> None:
    console.note(f"{count:,} {'token' if count == 1 else 'tokens'} left out (--truncate)")


def _parsed(ids: str) -> list[int]:
    try:
        return [int(word) for word in ids.replace(",", " ").replace("[", " ").replace("]", " ").split()]
    except ValueError:
        raise click.BadParameter("ids are whole numbers, such as 1,2,3", param_hint="--ids") from None


def _show_text(tokenizer: Tokenizer, ids: Sequence[int], special: bool, as_json: bool) -> None:
    for token in ids:
        if not 0 <= token < tokenizer.vocab_size:
            raise SettingError(f"id {token} is outside the vocabulary, 0 to {tokenizer.vocab_size - 1:,}")
    text = tokenizer.decode(list(ids), skip_special=not special)
    if as_json:
        json_line({"text": text, "tokens": _described(tokenizer, ids)})
    else:
        console.write(text + "\n")


def _show_tokens(tokenizer: Tokenizer, text: str, ids: Sequence[int], as_json: bool) -> None:
    if as_json:
        json_line({"text": text, "count": len(ids), "tokens": _described(tokenizer, ids)})
        return
    if console.is_terminal(sys.stdout) and console.may_colour() is not False:
        _show_colours(tokenizer, ids)
    width = max((len(str(token)) for token in ids), default=0)
    for token in ids:
        click.echo(f"{token:>{width}}  {quoted(tokenizer, token)}", color=console.may_colour())
    console.say(f"{len(ids):,} token{'' if len(ids) == 1 else 's'}", dim=True)


def _show_pair(tokenizer: Tokenizer, texts: tuple[str, str], made: Inputs, as_json: bool) -> None:
    """Each id with its type."""
    if made.dropped:
        _note_cut(made.dropped)
    if as_json:
        tokens = _described(tokenizer, made.ids)
        typed = [token | {"type": kind} for token, kind in zip(tokens, made.types, strict=True)]
        json_line({"text": texts[0], "pair": texts[1], "count": len(typed), "tokens": typed})
        return
    width = max((len(str(token)) for token in made.ids), default=0)
    for token, kind in zip(made.ids, made.types, strict=True):
        click.echo(f"{token:>{width}}  {kind}  {quoted(tokenizer, token)}", color=console.may_colour())
    console.say(f"{len(made.ids):,} tokens", dim=True)


def _described(tokenizer: Tokenizer, ids: Sequence[int]) -> list[dict[str, Any]]:
    return [
        {
            "id": token,
            "piece": tokenizer.piece(token),
            "bytes": tokenizer.token_bytes(token).hex(),
            "special": tokenizer.is_special(token),
        }
        for token in ids
    ]


def _show_colours(tokenizer: Tokenizer, ids: Sequence[int]) -> None:
    """The text itself, each piece on its own background; ids that share a character share one."""
    pieces: list[str] = []
    held = b""
    for token in ids:
        held += tokenizer.token_bytes(token)
        try:
            pieces.append(held.decode("utf-8"))
        except UnicodeDecodeError:
            if len(held) < 4:
                continue
            pieces.append(held.decode("utf-8", errors="replace"))
        held = b""
    pieces += [held.decode("utf-8", errors="replace")] if held else []
    shown = [
        console.style(line, fg="black", bg=BACKGROUNDS[i % len(BACKGROUNDS)]) if line != "\n" else line
        for i, piece in enumerate(pieces)
        for line in console.visible(piece).replace("\n", "\u21b5\0\n\0").split("\0")
        if line
    ]
    click.echo("".join(shown) + "\n", color=console.may_colour())
