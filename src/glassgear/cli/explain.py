"""`glassgear explain`: where one number came from."""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING, Any

import click

from glassgear.cli import console
from glassgear.cli.ids_mode import prompt_ids
from glassgear.cli.language import language_option, speaking
from glassgear.cli.narrow import narrowed, wrapped
from glassgear.cli.opening import open_model
from glassgear.cli.options import (
    Command,
    Option,
    as_text,
    model_options,
    option,
    sampling_options,
    sampling_settings,
    with_seed,
)
from glassgear.cli.output import json_line
from glassgear.cli.table import room, table
from glassgear.cli.zeroing import zero_option, zeroing_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from glassgear.language_model import LanguageModel
    from glassgear.languages import Words
    from glassgear.trace.explain import Explanation
    from glassgear.trace.explain.page import Section
    from glassgear.trace.trace import Trace

__all__ = ["command"]

TOP = 12  # terms without --top
BAR = 10  # cells of the longest bar

EXAMPLES = """
glassgear explain smollm2-135m "The capital of France is" blocks.2.ffn.down --token 3 --index 17
glassgear explain smollm2-135m "The capital of France is" blocks.2.ffn.down --index 17 --follow 40
glassgear explain smollm2-135m "I" blocks.0.attention.scores --head 4 --index 0
glassgear explain smollm2-135m "I" sampled -t 0.8 --seed 7 -n 3 --token 2
glassgear explain smollm2-135m "I" probability --top 5 --json | jq .terms
glassgear explain smollm2-135m "I" head --lang zh
glassgear explain smollm2-135m "1, 2, 3," blocks.4.ffn --zero blocks.3.attention:4
glassgear explain smollm2-135m blocks.0.ffn --open run.safetensors
"""


def _index(ctx: click.Context, parameter: click.Parameter, value: str | None) -> tuple[int, ...] | None:
    """Callback: `17` or `2,5`."""
    if value is None:
        return None
    if not re.fullmatch(r"\s*[+-]?\d{1,12}(\s*,\s*[+-]?\d{1,12})*\s*", value):
        raise click.BadParameter(f"{value!r:.40} isn't an index such as 17 or 2,5", ctx, parameter)
    return tuple(int(part) for part in value.split(","))


@click.command(cls=Command, short_help="Where one number came from, factor by factor.", examples=EXAMPLES)
@click.argument("model")
@click.argument("prompt", callback=as_text)
@click.argument("path", required=False)
@option(
    "--token",
    type=int,
    default=-1,
    metavar="N",
    section="Which number",
    help="The token, counted from 0; negative: from the end. [default: -1, the last]",
)
@option(
    "--index",
    callback=_index,
    metavar="I[,J]",
    section="Which number",
    help="The place in the token's value; of values with heads 2,5: head 2, channel (or seen token) 5. "
    "[default: the largest]",
)
@option("--head", type=int, metavar="H", section="Which number", help="The head; --index is the rest.")
@option(
    "--follow",
    type=click.IntRange(min=0),
    multiple=True,
    metavar="N",
    section="Which number",
    help="Explain input number N of this number instead; again for an input of that.",
)
@option(
    "-n",
    "--max-tokens",
    "--decode",
    type=click.IntRange(min=0),
    default=0,
    metavar="N",
    section="Which number",
    help="Add N tokens to the prompt first.",
)
@option(
    "--open",
    "trace",
    type=click.Path(),
    metavar="TRACE",
    section="Which number",
    help="Take the numbers of a saved trace; then there is no PROMPT.",
)
@zero_option("Which number", "and explain a number of that run; with --open: of the run that was saved")
@option(
    "--top",
    type=click.IntRange(min=1),
    metavar="N",
    section="Output",
    help=f"List the N largest terms, the rest in one line. [default: {TOP}]",
)
@option(
    "--in-order",
    is_flag=True,
    section="Output",
    help="List terms as the backend adds them, with the sum that it holds.",
)
@option(
    "--block",
    type=click.IntRange(min=0),
    metavar="N",
    section="Output",
    help="Of quantised weights show block N in full. [default: the one that adds most]",
)
@option(
    "--json",
    "as_json",
    is_flag=True,
    section="Output",
    help="One JSON object: all terms and inputs, or with --top the largest.",
)
@language_option("Output")
@option(
    "--special",
    is_flag=True,
    section="Model",
    help="Read control tokens in the prompt as what they are, such as <|im_start|>.",
)
@sampling_options
@model_options
def command(model: str, prompt: str, path: str | None, **given: Any) -> None:  # fmt: skip
    """Take one number of a run of MODEL on PROMPT apart: what it is computed from, and how.

    PATH names a value: `embed`, `blocks.2.attention.scores`, `blocks.2.ffn.down`, `head`, ...;
    `probability` and `sampled` follow from the logits. The number is computed again from the
    traced numbers before it, in the backend's own order, and compared with the traced one.
    """
    with speaking(given["lang"]) as words:
        _explain(model, *_what(prompt, path, given), given, words)


def _explain(model: str, path: str, text: str, given: dict[str, Any], words: Words) -> None:
    index = _place(given)
    from glassgear.trace.explain.said import said

    loaded, trace = _opened(model, given)
    settings = sampling_settings(given)
    settings = with_seed({"temperature": 0.0} | settings) if settings else {}
    with console.status("Running the model ..."):
        source = trace if trace is not None else prompt_ids(loaded, text, given)
        made = loaded.explain(
            source, path, given["token"], index, max_tokens=given["max_tokens"],
            change=zeroing_of(loaded, given["zero"]), parse_special=given["special"], **settings,
        )  # fmt: skip
        chain = [made]
        for number in given["follow"]:
            chain.append(chain[-1].follow(number))
    if given["as_json"]:
        found = chain[-1].to_json(given["top"])
        json_line(found if given["lang"] == "en" else said(found, words))
        return
    _print(chain, given, words)
    if index is None and made.index:
        console.note(words(f"without --index this is the largest number of {made.path}"))
    if given["block"] is not None and not chain[-1].made.blocks:
        console.note(
            words(f"{chain[-1].path} is no sum over blocks of quantised weights: --block shows nothing")
        )


def _what(prompt: str, path: str | None, given: dict[str, Any]) -> tuple[str, str]:
    """The path and the prompt; with a saved trace the only argument is the path."""
    if given["trace"] is None:
        if path is None:
            raise click.UsageError(
                "which value? Give a MODEL, a PROMPT and a PATH such as blocks.0.ffn.down; "
                "`glassgear show MODEL` lists the gears"
            )
        return path, console.read_stdin() if prompt == "-" else prompt
    if path is not None:
        raise click.UsageError("a saved trace has its prompt: give MODEL and PATH alone with --open")
    if given["max_tokens"]:
        raise click.UsageError("a saved trace has its tokens: --max-tokens doesn't go with --open")
    return prompt, ""


def _place(given: dict[str, Any]) -> tuple[int, ...] | None:
    index: tuple[int, ...] | None = given["index"]
    if given["head"] is None:
        return index
    if index is None:
        raise click.UsageError("--head says half of the place: --index says the channel or the seen token")
    return (given["head"], *index)


def _opened(model: str, given: dict[str, Any]) -> tuple[LanguageModel, Trace | None]:
    """The model, on the backend that a saved trace was made with."""
    if given["trace"] is None:
        return open_model(model, given), None
    from glassgear.loading import BACKENDS
    from glassgear.trace.trace import Trace

    trace = Trace.open(given["trace"])
    if given["backend"] is None and trace.backend in BACKENDS:
        given = given | {"backend": trace.backend}
    return open_model(model, given), trace


def _print(chain: Sequence[Explanation], given: dict[str, Any], words: Words) -> None:
    from glassgear.trace.explain.page import sections, title
    from glassgear.trace.explain.said import said_section

    colour, made = console.may_colour(), chain[-1]
    told = []
    for before, number in zip(chain, given["follow"], strict=False):
        line = words(f"{title(before)}, input {number}: {before.inputs[number].name}")
        told += [console.style(part, dim=True) for part in _lines(line)]
    told += [console.style(part, bold=True) for part in _lines(words(title(made)))]
    top = given["top"] or TOP
    for section in sections(made, top, in_order=given["in_order"], block=given["block"]):
        verdict = 0 if section.title == "result" else None  # the line that is green or yellow
        told.append("\n" + _section(said_section(section, words), made, verdict, words))
    click.echo("\n".join(told), color=colour)  # at once: a reader may want the first line alone


def _lines(text: str) -> list[str]:
    """A text as lines that the terminal has room for."""
    limit = room()
    shown = console.visible(text)
    return [shown] if limit is None else wrapped(shown, limit)


def _section(section: Section, made: Explanation, verdict: int | None, words: Words) -> str:
    lines = [console.style(part, fg="cyan") for part in _lines(section.title)] if section.title else []
    for i, line in enumerate(section.lines):
        parts = _lines(line)
        if i == verdict:
            parts = [console.style(part, bold=True, fg="green" if made.exact else "yellow") for part in parts]
        lines += parts
    if section.head:
        lines += _table(section, words)
    return "\n".join(lines)


def _table(section: Section, words: Words) -> list[str]:
    width = room()
    head, rows, right, left_out = (
        (section.head, section.rows, section.right, [])
        if width is None
        else narrowed(section.head, section.rows, section.right, width)
    )
    lines = _with_bars(section, table(head, rows, right), width)
    if left_out:
        missing = words(f"no room for: {', '.join(left_out)}")
        lines += [console.style(part, dim=True) for part in _lines(missing)]
    return lines


def _with_bars(section: Section, drawn: str, width: int | None) -> list[str]:
    """The rows of a table, each with a bar as long as its number is large, where a person looks on."""
    lines = drawn.split("\n")
    if not section.sizes or not console.is_terminal(sys.stdout) or len(lines) != len(section.rows) + 1:
        return lines  # a row that folds has no bar
    longest = max(console.cells(click.unstyle(line)) for line in lines)
    if width is None or longest + BAR + 2 > width:
        return lines
    most = max(map(abs, section.sizes)) or 1.0
    for i, size in enumerate(section.sizes, start=1):
        bar = "\u2588" * round(abs(size) / most * BAR) or "\u258f"
        space = " " * (longest - console.cells(click.unstyle(lines[i])) + 2)
        lines[i] += space + console.style(bar, fg="green" if size >= 0 else "red")
    return lines


for _parameter in command.params:  # as LanguageModel.trace has it: what isn't asked for isn't random
    if isinstance(_parameter, Option) and _parameter.name == "temperature":
        _parameter.help = "0 takes the likeliest token; higher is freer. [default: 0]"
    if isinstance(_parameter, Option) and _parameter.name == "seed":  # there is no --stats here
        _parameter.help = "The same seed gives the same tokens. [default: a new one]"
