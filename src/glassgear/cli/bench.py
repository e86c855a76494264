"""`glassgear bench`: how fast a model runs here, and how near that is to what the memory allows."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from glassgear.cli import console
from glassgear.cli.opening import MODEL_OPTIONS
from glassgear.cli.options import Command, model_options, option
from glassgear.cli.table import size, table

if TYPE_CHECKING:
    from glassgear.measure import Report

__all__ = ["command"]

WHAT = "What to measure"

EXAMPLES = """
glassgear bench smollm2-135m
glassgear bench model.gguf --threads 1                 by one thread
glassgear bench model.gguf --lengths 512,2048 --batches 1,4,16
glassgear bench model.gguf --json > here.json          for programs
"""


def _counts(ctx: click.Context, param: click.Parameter, value: str) -> tuple[int, ...]:
    """`16,128` as numbers, each of them once."""
    parts = [part.strip() for part in value.split(",")]
    if not all(part.isdecimal() and 0 < int(part) < 2**24 for part in parts):
        raise click.BadParameter(f"{value!r} isn't a list of numbers such as 16,128,512")
    return tuple(dict.fromkeys(int(part) for part in parts))


@click.command(cls=Command, short_help="Measure how fast a model runs here.", examples=EXAMPLES)
@click.argument("model")
@option("--lengths", metavar="N,N,...", callback=_counts, default="16,128,512", show_default=True,
        section=WHAT, help="Tokens of the prompts; decoding goes on from there.")  # fmt: skip
@option("--batches", metavar="N,N,...", callback=_counts, default="1,8", show_default=True,
        section=WHAT, help="How many sequences run together.")  # fmt: skip
@option("-n", "--tokens", type=click.IntRange(1), default=32, show_default=True, section=WHAT,
        help="Tokens of each sequence that are decoded in a timing.")  # fmt: skip
@option("--repeats", type=click.IntRange(1), default=5, show_default=True, section=WHAT,
        help="Timings of each figure; the median counts.")  # fmt: skip
@option("--json", "as_json", is_flag=True, section="Output", help="One JSON object with every timing.")
@model_options
def command(model: str, **given: Any) -> None:
    """Time MODEL on this machine: prompts, decoding, start-up, memory.

    MODEL is a path or a name that `glassgear list` shows. Prompts run in one step; decoding takes
    the likeliest token each time and makes no text. Beside the tokens stands how much of the
    memory's read bandwidth decoding uses, measured in the same minutes: each token has to read
    all weights once, so that is the limit for one sequence. Keep the machine quiet meanwhile.
    """
    from glassgear.measure import Settings, bench

    settings = Settings(given["lengths"], given["batches"], given["tokens"], given["repeats"])
    chosen = {name: given[name] for name in MODEL_OPTIONS if given.get(name) is not None}
    with _line() as told:
        report = bench(model, settings, told=told, **chosen)
    text = json.dumps(report.as_json()) if given["as_json"] else _page(report)
    click.echo(text, color=console.may_colour())


@contextmanager
def _line() -> Iterator[Callable[[str], None]]:
    """Say on the terminal what is measured now. Nothing is drawn between: that would disturb it."""
    width = 0

    def told(text: str) -> None:
        nonlocal width
        if console.is_terminal(sys.stderr):
            shown = text[:1].upper() + text[1:]
            line = f"\r{shown.ljust(width)}" + ("" if text else "\r")
            click.echo(line, nl=False, err=True, color=console.may_colour())
            width = len(shown)

    try:
        yield told
    finally:
        told("")


def _page(report: Report) -> str:
    rows = [(name, value) for name, value in (*_about(report), *_figures(report)) if value]
    width = max(len(name) for name, _ in rows)
    lines = [
        f"{console.style(name.ljust(width), dim=True)}  {console.visible(value)}" for name, value in rows
    ]
    return "\n".join([*lines, "", _cells(report), *_notes(report)])


def _about(report: Report) -> list[tuple[str, str]]:
    machine, versions = report.hardware, report.versions
    memory = machine["memory_bytes"]
    parts = [machine["processor"], f"{machine['cpus']} CPUs", f"{size(memory)} memory" if memory else ""]
    types = sorted(report.types.items(), key=lambda item: -item[1])
    return [
        ("model", report.model),
        ("weights", f"{report.parameters:,} parameters: " + ", ".join(f"{t} {size(n)}" for t, n in types)),
        ("machine", ", ".join(filter(None, parts))),
        ("versions", ", ".join(f"{name} {version}" for name, version in versions.items())),
        ("backend", f"{report.backend}, kernels {report.kernels}, threads {report.threads}"),
    ]


def _figures(report: Report) -> list[tuple[str, str]]:
    start, memory = report.start, report.bandwidth
    peak = "" if report.peak_memory is None else f"{size(report.peak_memory)} at most"
    if peak and report.cache_bytes:
        peak += f", {size(report.cache_bytes)} of it KV cache"
    return [
        (
            "start-up",
            f"{start.total:.2f} s from a new process to the first token: {start.load:.2f} to load, "
            f"{start.first:.2f} for the prompt",
        ),
        ("memory", peak),
        (
            "read bandwidth",
            f"{memory.read / 1e9:.1f} GB/s, {memory.read_same_size / 1e9:.1f} over as many bytes as a token "
            "reads",
        ),
        (
            "decoding reads",
            f"{size(report.weight_bytes_per_token)} a token, {memory.used / 1e9:.1f} GB/s: "
            f"{memory.share:.0%} of the read bandwidth",
        ),
    ]


def _cells(report: Report) -> str:
    head = ("work", "tokens", "at once", "tokens/s", "best", "ms a step")
    rows = []
    for cell in report.cells:
        steps = 1 if cell.kind == "prompt" else cell.tokens / cell.batch
        work = "prompt of" if cell.kind == "prompt" else "decode after"
        step = 1000 * cell.tokens / cell.rate / steps
        figures = (f"{cell.rate:,.1f}", f"{cell.best:,.1f}", f"{step:,.2f}")
        rows.append((work, f"{cell.length:,}", str(cell.batch), *figures))
    return table(head, rows, right=range(1, 6))


def _notes(report: Report) -> list[str]:
    return ["", *(console.visible(note) for note in report.notes)] if report.notes else []
