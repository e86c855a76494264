"""`glassgear convert`: a model in another kind of file, or with weights of another type."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from glassgear.cli import console
from glassgear.cli.opening import find, print_notices
from glassgear.cli.options import Command, option
from glassgear.cli.output import json_line
from glassgear.cli.table import size
from glassgear.errors import SettingError

if TYPE_CHECKING:
    from glassgear.convert import Summary
    from glassgear.convert.job import Progress

__all__ = ["command"]

TYPES = ("f32", "f16", "bf16", "q8_0", "q4_0", "q4_1", "q5_0", "q5_1", "q4_k", "q5_k", "q6_k")
KINDS = ("gguf", "folder", "bin")

EXAMPLES = """
glassgear convert folder model.gguf --type q4_k    quantise a Hugging Face folder
glassgear convert model.gguf folder --type bf16    and the way back
glassgear convert stories260K.bin stories.gguf     llama2.c's files too
glassgear convert a.gguf b.gguf --type q4_k --head-type q6_k
"""


@click.command(cls=Command, short_help="Write a model as another kind of file or type.", examples=EXAMPLES)
@click.argument("source", metavar="IN")
@click.argument("target", metavar="OUT", type=click.Path(path_type=Path))
@option(
    "--type",
    "kind",
    type=click.Choice(TYPES, case_sensitive=False),
    metavar="TYPE",
    section="Weights",
    help=f"Type of all matrices: {', '.join(TYPES)}. [default: what they are stored in, else f32]",
)
@option(
    "--head-type",
    type=click.Choice(TYPES, case_sensitive=False),
    metavar="TYPE",
    section="Weights",
    help="Another type for the embedding table and the output matrix.",
)
@option(
    "--to",
    type=click.Choice(KINDS),
    section="Files",
    help="Kind of OUT. [default: as its name ends: .gguf, .bin, else a folder]",
)
@option(
    "--bin-version",
    type=click.IntRange(0, 2),
    metavar="N",
    section="Files",
    help="Version of a llama2.c .bin: 0 and 1 hold f32, 2 holds 8 bits. [default: 0]",
)
@option("--force", is_flag=True, section="Files", help="Replace OUT if it is there.")
@option("--json", "as_json", is_flag=True, section="Files", help="Print what was done as a JSON object.")
def command(
    source: str,
    target: Path,
    kind: str | None,
    head_type: str | None,
    to: str | None,
    bin_version: int | None,
    force: bool,
    as_json: bool,
) -> None:
    """Write the model IN as OUT: a .gguf file, a llama2.c .bin, or a Hugging Face folder.

    Settings, tokenizer and chat template come along. What OUT can't hold is said before anything is
    written, and OUT appears when it is complete.
    """
    from glassgear.convert import Wanted, check_options, convert

    wanted = Wanted(to, kind, head_type, bin_version, force)
    try:
        check_options(target, wanted)
    except SettingError as trouble:
        raise click.UsageError(str(trouble)) from None
    path = find(source)
    with _shown(f"Writing {target.name}") as progress:
        done = convert(path, target, wanted, progress)
    if as_json:
        json_line(_described(done))
        return
    print_notices(done.notices)
    console.say(_sentence(done))
    click.echo(done.target)


@contextmanager
def _shown(text: str) -> Iterator[Progress | None]:
    """A progress bar while a person looks on."""
    if not console.is_terminal(sys.stderr):
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=40),
        DownloadColumn(),
        TimeRemainingColumn(),
    )
    where = Console(stderr=True, no_color=console.may_colour() is False)
    with Progress(*columns, console=where, transient=True) as bar:
        task = bar.add_task(console.visible(text), total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total or None)


def _sentence(done: Summary) -> str:
    kinds = ", ".join(f"{count} in {kind}" for kind, count in sorted(done.types.items(), key=lambda t: -t[1]))
    fallbacks = len(done.fallbacks)
    other = f"; {fallbacks} whose rows the type doesn't divide took the next that does" if fallbacks else ""
    return f"{sum(done.types.values())} tensors, {size(done.nbytes)}: {kinds}{other}"


def _described(done: Summary) -> dict[str, object]:
    return {
        "source": done.source,
        "source_kind": done.container,
        "target": done.target,
        "kind": done.kind,
        "bytes": done.nbytes,
        "types": done.types,
        "fallbacks": done.fallbacks,
        "notices": list(done.notices),
    }
