"""`glassgear fill`: guesses for the words that a text leaves out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from glassgear.cli import console
from glassgear.cli.opening import open_model
from glassgear.cli.options import Command, as_text, model_options, option
from glassgear.cli.output import json_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from glassgear.encode import Gap

__all__ = ["command"]

EXAMPLES = """
glassgear fill bert-base-uncased/ "Paris is the [MASK] of France."
glassgear fill bert-base-uncased/ "The [MASK] sat on the [MASK]." --top 3
glassgear fill bert-base-uncased/ - --json < text.txt
"""


@click.command(cls=Command, short_help="Guess masked words.", examples=EXAMPLES)
@click.argument("model")
@click.argument("text", callback=as_text)
@option("--top", type=click.IntRange(min=1), default=5, metavar="N", section="Output",
        help="Show so many guesses for each word. [default: 5]")  # fmt: skip
@option("--json", "as_json", is_flag=True, section="Output", help="One JSON object.")
@model_options
def command(model: str, text: str, *, top: int, as_json: bool, **given: Any) -> None:
    """Guess the words that TEXT leaves out, each with its probability.

    MODEL is an encoder that was trained on masked words and saved with its head for them, such as BERT
    or MobileBERT. Write its mask, [MASK] as a rule, in the place of each word; of several, each
    is guessed while the others are open. TEXT `-` reads standard input.
    """
    if text == "-":
        text = console.read_stdin().rstrip("\r\n")
    loaded = open_model(model, given)
    with console.status("Guessing ..."):
        gaps = loaded.fill(text, top)
    if as_json:
        json_line({"text": text, "gaps": [_described(gap) for gap in gaps]})
    else:
        _show(gaps)


def _described(gap: Gap) -> dict[str, Any]:
    return {
        "position": gap.position,
        "candidates": [
            {"id": one.id, "text": one.text, "probability": one.probability} for one in gap.candidates
        ],
    }


def _show(gaps: Sequence[Gap]) -> None:
    for place, gap in enumerate(gaps):
        if len(gaps) > 1:
            title = console.style(f"mask {place + 1} of {len(gaps)}", dim=True)
            click.echo(f"{chr(10) * bool(place)}{title}", color=console.may_colour())
        for one in gap.candidates:
            click.echo(f"{one.probability:>7.2%}  {console.visible(one.text)}")
