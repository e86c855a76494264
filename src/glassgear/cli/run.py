"""`glassgear run`: continue a text."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from glassgear.cli import console
from glassgear.cli.ids_mode import (
    PlainIds,
    gives_hidden_states,
    prompt_ids,
    prompt_of,
    show_hidden,
    tokenizer_of,
)
from glassgear.cli.llama2c_mode import Llama2c, refuse_other_options
from glassgear.cli.opening import open_model
from glassgear.cli.options import (
    Command,
    as_text,
    limit_options,
    model_options,
    option,
    sampling_options,
    sampling_settings,
    with_seed,
)
from glassgear.cli.output import JsonLines, Output, PlainText, TokenLines
from glassgear.cli.stats import Stats

if TYPE_CHECKING:
    from glassgear.generate import Piece
    from glassgear.language_model import LanguageModel

__all__ = ["command"]

MAX_TOKENS = 256  # without -n

EXAMPLES = """
glassgear run                                          a story, by the model that comes with Glassgear
glassgear run tiny-stories "Tom had a red ball."       the same model, a beginning of yours
glassgear run smollm2-135m "Once upon a time"
glassgear run model.gguf "2 + 2 =" -t 0 -n 8           the likeliest tokens, 8 of them
cat story.txt | glassgear run smollm2-135m -           the prompt from standard input
glassgear run smollm2-135m "I" --seed 7 --stats        repeatable, with speed figures
glassgear run smollm2-135m "I" --logprobs 3            each token beside its rivals
glassgear run smollm2-135m "I" --json | jq .text       for programs

A design of your own, with random weights, on ids:
glassgear run my.toml "1 2 3" --random --seed 7 -n 16

As llama2.c prints it, letter for letter:
glassgear run stories260K.bin --tokenizer tok512.bin -t 1.0 -p 0.9 -s 133742 --llama2c
"""


@click.command(cls=Command, short_help="Continue a text.", examples=EXAMPLES)
@click.argument("model", required=False)
@click.argument("prompt", required=False, callback=as_text)
@limit_options(tokens=str(MAX_TOKENS))
@sampling_options
@option(
    "--json",
    "as_json",
    is_flag=True,
    section="Output",
    help="A JSON object for each piece, on a line of its own; the last has the finish reason, token "
    "counts, timings and seed.",
)
@option("--stats", is_flag=True, section="Output", help="Speed, seed and finish reason, on stderr.")
@option(
    "--logprobs",
    metavar="N",
    type=click.IntRange(0, 1000),
    section="Output",
    help="Print each token with its log-probability and the N likeliest ones.",
)
@option(
    "--echo/--no-echo",
    default=None,
    section="Output",
    help="Print the prompt first. [default: only on a terminal]",
)
@option(
    "--special",
    is_flag=True,
    section="Model",
    help="Read control tokens in the prompt as what they are, such as <|im_start|>.",
)
@option(
    "--random",
    is_flag=True,
    section="Model",
    help="Take random weights, the same for the same --seed [default: 0]: for model files and published "
    "configs, which have none.",
)
@model_options
@option("--llama2c", is_flag=True, section="Model",
        help="Do exactly what karpathy/llama2.c does: its sampler (-t 1.0, -p 0.9 unless given), its end, "
             "and -n counts the prompt too.")  # fmt: skip
def command(model: str | None, prompt: str | None, **given: Any) -> None:
    """Continue a text: MODEL writes on from where PROMPT ends.

    Without either, the model that comes with Glassgear tells a story.

    MODEL is a GGUF file, a llama2.c .bin, a Hugging Face folder, or a name that `glassgear list`
    shows. PROMPT is the text to continue; `-` reads all of standard input (one newline at its
    very end is left out), and without a PROMPT the text starts from nothing. To talk to a model
    instead, use `glassgear chat`.

    With --random, MODEL can also be a model file (TOML) or the name of a published config. Where
    there is no tokenizer, PROMPT is ids, such as "1 2 3", and ids come out. Of an encoder the
    hidden states are shown.
    """
    if given["random"] and given["seed"] is None:
        given["seed"] = 0
    settings = with_seed(sampling_settings(given))
    if model is None:
        from glassgear.weights import inside

        model, prompt = inside.DEFAULT, inside.PROMPT
        given["echo"] = given["echo"] is not False
    if given["llama2c"]:
        refuse_other_options(given)
    text = _without_last_newline(console.read_stdin()) if prompt == "-" else prompt
    started = time.perf_counter()
    loaded = open_model(model, given)
    load_seconds = time.perf_counter() - started
    if gives_hidden_states(loaded):
        show_hidden(loaded, text, given)
        return
    stats, pieces = _begin(loaded, text, settings, given)
    stats.load_seconds = load_seconds
    _stream(pieces, _output(loaded, text, stats, given), stats)
    _report(loaded, stats, given)


def _begin(
    model: LanguageModel, text: str | None, settings: dict[str, Any], given: dict[str, Any]
) -> tuple[Stats, Iterator[Piece]]:
    """The text that is about to be made, and its figures."""
    tokens = MAX_TOKENS if given["max_tokens"] is None else given["max_tokens"]
    if given["llama2c"]:
        exact = Llama2c(model, text, given, tokens)
        return Stats(len(exact.ids), exact.seed), exact.pieces()
    ids = prompt_ids(model, text, given)
    pieces = model.generate(
        ids, max_tokens=None if tokens < 0 else tokens, stop=given["stop"], logprobs=given["logprobs"],
        ignore_eos=given["ignore_eos"], **settings,
    )  # fmt: skip
    return Stats(len(ids), settings["seed"]), pieces


def _output(model: LanguageModel, text: str | None, stats: Stats, given: dict[str, Any]) -> Output:
    tokenizer = tokenizer_of(model)
    if given["as_json"]:
        return JsonLines(tokenizer, stats)
    if given["logprobs"] is not None:
        return TokenLines(tokenizer)
    echo = console.is_terminal(sys.stdout) if given["echo"] is None else given["echo"]
    if tokenizer is None:
        return PlainIds(prompt_of(model, text) if echo and text else ())
    if given["llama2c"]:
        return PlainText(always_newline=True)
    return PlainText(text or "" if echo else "")


def _stream(pieces: Iterator[Piece], output: Output, stats: Stats) -> None:
    """Print pieces as they come. However it ends, the line is closed before anything else is said."""
    try:
        with console.status("Reading the prompt ...") as line:
            for piece in stats.watch(pieces):
                line.close()
                output.piece(piece)
    except KeyboardInterrupt:
        stats.finish_reason = "interrupted"
        raise
    finally:
        output.end()


def _report(model: LanguageModel, stats: Stats, given: dict[str, Any]) -> None:
    if stats.finish_reason == "context":
        limit = model.gears.context
        more = (
            f"--ctx {limit} makes room for all that it was trained for"
            if model.context < limit
            else "the model was trained for no more"
        )
        console.note(f"the context of {model.context:,} tokens is full, so the text ends here; {more}")
    elif stats.finish_reason == "length" and given["max_tokens"] is None and console.is_terminal(sys.stdout):
        console.say(f"(stopped after {MAX_TOKENS} tokens; -n -1 goes on to the end)", dim=True)
    if given["stats"]:
        stats.show()


def _without_last_newline(text: str) -> str:
    return text.removesuffix("\n").removesuffix("\r")
