"""`glassgear score`: how likely a text is under a model."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import click

from glassgear.cli import console
from glassgear.cli.opening import open_model
from glassgear.cli.options import Command, model_options, option
from glassgear.cli.output import json_line, quoted

if TYPE_CHECKING:
    from glassgear.language_model import LanguageModel, Score

__all__ = ["command"]

EXAMPLES = """
glassgear score smollm2-135m story.txt
echo "The capital of France is Paris." | glassgear score smollm2-135m - --tokens
glassgear score model.gguf story.txt --json
"""


@click.command(cls=Command, short_help="Log-probability and perplexity of a text.", examples=EXAMPLES)
@click.argument("model")
@click.argument("file")
@option("--tokens", is_flag=True, section="Output", help="A line for each token with its log-probability.")
@option("--json", "as_json", is_flag=True, section="Output", help="One JSON object, every token included.")
@model_options
def command(model: str, file: str, tokens: bool, as_json: bool, **given: Any) -> None:
    """Measure how well MODEL predicts the text in FILE.

    FILE is read as UTF-8; `-` is standard input. Each token is judged by the probability that
    the model gives it after all those before it; the first one only if the model's texts begin
    with a token of their own (BOS). Lower perplexity is better; bits per byte
    compare models with different vocabularies. A text longer than the context is read in
    windows that overlap by half.
    """
    text = console.read_stdin() if file == "-" else console.read_file(file)
    loaded = open_model(model, given)
    with console.status("Reading the text ..."):
        score = loaded.score(text)
    figures = _figures(score, _nbytes(loaded, score, text))
    if as_json:
        json_line(figures | {"scores": _described(loaded, score)})
        return
    if tokens:
        _show_tokens(loaded, score)
    for name, value in (
        ("tokens scored", f"{figures['tokens']:,}"),
        ("log-probability", f"{figures['logprob']:,.4f} nats"),
        ("a token", f"{figures['nats_per_token']:.4f} nats"),
        ("perplexity", f"{figures['perplexity']:,.4f}"),
        ("bits per byte", f"{figures['bits_per_byte']:.4f}"),
    ):
        click.echo(f"{console.style(f'{name:<16}', dim=True)} {value}", color=console.may_colour())


def _nbytes(model: LanguageModel, score: Score, text: str) -> int:
    """Bytes of the text that were scored: without a BOS its first token isn't."""
    tokens = (token for token in score.ids if not model.tokenizer.is_special(token))
    scored = sum(len(model.tokenizer.token_bytes(token)) for token in tokens)
    return max(1, min(scored, len(text.encode("utf-8"))))


def _figures(score: Score, nbytes: int) -> dict[str, Any]:
    return {
        "tokens": len(score.ids),
        "logprob": score.total,
        "nats_per_token": -score.total / len(score.ids),
        "perplexity": score.perplexity,
        "bits_per_byte": -score.total / math.log(2) / nbytes,
    }


def _described(model: LanguageModel, score: Score) -> list[dict[str, Any]]:
    return [
        {"id": token, "piece": model.tokenizer.piece(token), "logprob": float(value)}
        for token, value in zip(score.ids, score.logprobs, strict=True)
    ]


def _show_tokens(model: LanguageModel, score: Score) -> None:
    """Unlikely tokens stand out: below one in a hundred bold, below one in a thousand red."""
    for token, value in zip(score.ids, score.logprobs, strict=True):
        looks = {"bold": value < math.log(0.01), "fg": "red" if value < math.log(0.001) else None}
        name = console.style(quoted(model.tokenizer, token), **looks)
        click.echo(f"{token:>7} {value:>9.4f}  {name}", color=console.may_colour())
    click.echo()
