"""`glassgear embed`: texts to vectors, and how alike they are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from glassgear.cli import console
from glassgear.cli.opening import open_model
from glassgear.cli.options import Command, as_text, model_options, option
from glassgear.cli.output import json_line
from glassgear.cli.table import table

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["command"]

POOLINGS = ("mean", "cls", "last", "pooler")
SHOWN = 40  # characters of a text in the table

EXAMPLES = """
glassgear embed bge-small/ "a cat on a mat" "a dog in a bed"      a line of numbers for each
glassgear embed bge-small/ "cats" "dogs" "tax law" --similarity   how alike they are
glassgear embed bge-small/ --json - < lines.txt                   each line is a text
glassgear embed smollm2-135m "a text" --pooling mean              a decoder can do it too
"""


@click.command(cls=Command, short_help="Turn texts into vectors, and compare them.", examples=EXAMPLES)
@click.argument("model")
@click.argument("texts", nargs=-1, required=True, callback=as_text, metavar="TEXT...")
@option(
    "--similarity",
    is_flag=True,
    section="Output",
    help="Show the cosine between every two texts instead of the vectors.",
)
@option("--json", "as_json", is_flag=True, section="Output", help="One JSON object.")
@option(
    "--pooling",
    type=click.Choice(POOLINGS),
    section="Vectors",
    help="Take the mean of all tokens' states, the state of the first token (cls) or of the last one, "
    "or what the model's pooler makes of the first. [default: as the model says; else mean, and "
    "last for models that read from left to right]",
)
@option(
    "--normalize/--no-normalize",
    default=None,
    section="Vectors",
    help="Make each vector's length 1. [default: as the model says; else yes]",
)
@option(
    "--truncate",
    is_flag=True,
    section="Vectors",
    help="Cut off what a model has no room for, instead of refusing the text.",
)
@model_options
def command(model: str, texts: tuple[str, ...], *, similarity: bool, as_json: bool, pooling: Any,
            normalize: bool | None, truncate: bool, **given: Any) -> None:  # fmt: skip
    """Turn each TEXT into a vector, so that texts that mean something alike lie near each other.

    MODEL is an encoder that was made for this (MiniLM, BGE, E5, GTE), or any other model. A folder in the
    form of sentence-transformers and a GGUF say how vectors are made; options replace that. TEXT
    `-` stands for the lines of standard input. Without an option for the output, each text gives a
    line of numbers.
    """
    wanted = _all(texts)
    loaded = open_model(model, given)
    notices: list[str] = []
    with console.status("Reading the texts ..."):
        vectors = loaded.embed(
            wanted, pooling=pooling, normalize=normalize, truncate=truncate, notice=notices.append
        )
    for notice in notices:
        console.note(notice)
    if as_json:
        json_line(_described(wanted, vectors, similarity))
    elif similarity:
        click.echo(_matrix(wanted, cosines(vectors)), color=console.may_colour())
    else:
        for vector in vectors:
            click.echo(" ".join(f"{value:.7g}" for value in vector.tolist()))


def _all(texts: Sequence[str]) -> list[str]:
    if texts.count("-") > 1:
        raise click.UsageError("standard input (-) can be read only once")
    found: list[str] = []
    for text in texts:
        found += _lines() if text == "-" else [text]
    if not found:
        raise click.UsageError("standard input holds no line")
    return found


def _lines() -> list[str]:
    """Of standard input; other characters that Python takes for line ends are text."""
    whole = console.read_stdin().removesuffix("\n")
    return [line.removesuffix("\r") for line in whole.split("\n")] if whole else []


def cosines(vectors: NDArray[np.float32]) -> NDArray[np.float64]:
    """Between every two rows: float64 [texts, texts]; 0 for a vector of length 0."""
    import numpy as np

    wide = vectors.astype(np.float64)
    lengths = np.linalg.norm(wide, axis=1, keepdims=True)
    unit = wide / np.where(lengths > 0, lengths, 1)
    found: NDArray[np.float64] = np.clip(unit @ unit.T, -1, 1)
    return found


def _described(texts: Sequence[str], vectors: NDArray[np.float32], similarity: bool) -> dict[str, Any]:
    found: dict[str, Any] = {
        "dim": vectors.shape[1],
        "embeddings": [
            {"text": text, "embedding": vector.tolist()} for text, vector in zip(texts, vectors, strict=True)
        ],
    }
    return found | ({"similarity": cosines(vectors).tolist()} if similarity else {})


def _matrix(texts: Sequence[str], found: NDArray[np.float64]) -> str:
    numbers = [str(place + 1) for place in range(len(texts))]
    rows = [
        [number, _short(text), *(f"{value:.3f}" for value in row)]
        for number, text, row in zip(numbers, texts, found.tolist(), strict=True)
    ]
    return table(["", "text", *numbers], rows, right=[0, *range(2, len(texts) + 2)])


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= SHOWN else f"{line[: SHOWN - 1]}\u2026"
