"""`glassgear lab`: experiments, each of which ends in a verdict."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from glassgear.cli import console
from glassgear.cli.narrow import wrapped
from glassgear.cli.options import Command, option
from glassgear.cli.output import json_line
from glassgear.cli.table import room
from glassgear.errors import SettingError
from glassgear.lab import NAMES, experiment

if TYPE_CHECKING:
    from glassgear.lab.frame import Experiment, Option, Result, Settings, Table

__all__ = ["command"]

WIDTH = 80
FOLDER = "glassgear-lab"
COLOURS = {"confirmed": "green", "refuted": "red", "depends": "yellow"}
WITHOUT_NAME = {
    "--all": "--all runs every experiment, so it takes no name: glassgear lab --all",
    "--list": "--list lists every experiment, so it takes no name: glassgear lab --list",
}
CHINESE = {"confirmed": "证实", "refuted": "证伪", "depends": "视情况而定"}

EXAMPLES = """
glassgear lab --list                                   the questions
glassgear lab xor                                      a verdict, a table, a picture and JSON
glassgear lab sampling --model smollm2-135m            ask a model of your own
glassgear lab quantisation --help                      what else can be set
glassgear lab --all --small --out results              everything, at its smallest
"""


def _common(function: Any) -> Any:
    section = "Options"
    for decorator in (
        option("--no-plot", is_flag=True, section=section, help="Draw no pictures."),
        option("--json", "as_json", is_flag=True, section=section,
               help="One JSON object for each experiment instead of tables; files only with --out."),
        option("--out", type=click.Path(file_okay=False, path_type=Path), metavar="FOLDER", section=section,
               help=f"Where pictures and JSON go. [default: {FOLDER}]"),
        option("--seed", type=click.IntRange(min=0), default=0, metavar="N", section=section,
               help="Of whatever is drawn. [default: 0]"),
        option("--small", is_flag=True, section=section,
               help="The smallest sizes that show the effect; no model unless one is named."),
    ):  # fmt: skip
        function = decorator(function)
    return function


class Lab(Command, click.Group):
    """Experiments as subcommands; each is imported when it is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The experiments."""
        return list(NAMES)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The experiments, then the options."""
        width = max(map(len, NAMES))
        with formatter.section("Experiments"):
            formatter.write_dl([(name.ljust(width), experiment(name).question) for name in NAMES])
        super().format_options(ctx, formatter)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """One experiment as a command."""
        return _command(experiment(cmd_name)) if cmd_name in NAMES else None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the experiment; a mistyped one brings up near ones."""
        if args[0] not in NAMES:
            try:
                experiment(args[0])
            except SettingError as trouble:
                ctx.fail(str(trouble))
        return super().resolve_command(ctx, args)


class One(Command):
    """An experiment as a command; what belongs to all of them is refused in words."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """The options of the experiment."""
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as trouble:
            if trouble.option_name in WITHOUT_NAME:
                ctx.fail(WITHOUT_NAME[trouble.option_name])
            raise


def _command(one: Experiment) -> click.Command:
    def run(**given: Any) -> None:
        common = {name: given.pop(name) for name in ("small", "seed", "out", "as_json", "no_plot")}
        try:
            _run(one, common, given)
        except SettingError as trouble:  # of an option that only the experiment itself can judge
            raise click.UsageError(str(trouble)) from trouble

    function = _common(run)
    for own in reversed(one.options):
        function = _own_option(own)(function)
    made: click.Command = click.command(
        one.name, cls=One, short_help=one.question,
        help=f"{one.question}\n\nThe claim: {one.claim.text} ({one.claim.source})",
        examples=f"glassgear lab {one.name}\nglassgear lab {one.name} --small --no-plot --json",
    )(function)  # fmt: skip
    return made


def _own_option(own: Option) -> Any:
    default = "" if own.default is None else f" [default: {own.default}]"
    return option(
        f"--{own.name.replace('_', '-')}", own.name, type=own.kind, default=None,
        metavar={int: "N", float: "X", str: "TEXT"}[own.kind], section="This experiment",
        help=own.help + default,
    )  # fmt: skip


@click.command(
    cls=Lab, short_help="Measure what is said about gears.", examples=EXAMPLES, invoke_without_command=True,
    subcommand_metavar="[NAME] [OPTIONS]",
)  # fmt: skip
@option("--list", "listed", is_flag=True, section="Options", help="List the experiments.")
@option("--all", "everything", is_flag=True, section="Options", help="Run all of them.")
@_common
@click.pass_context
def command(ctx: click.Context, /, listed: bool, everything: bool, **common: Any) -> None:
    """Run experiment NAME: measure something that is said about gears, and judge it.

    Each ends in a verdict, tables, pictures and JSON. `glassgear lab NAME --help` shows its options.
    """
    if ctx.invoked_subcommand is not None:
        if given := [name for name, value in {**common, "list": listed, "all": everything}.items() if value]:
            if everything or listed:
                ctx.fail(WITHOUT_NAME["--all" if everything else "--list"])
            word = {"as_json": "json", "no_plot": "no-plot"}.get(given[0], given[0])
            ctx.fail(f"--{word} stands before the experiment's name; put it behind: glassgear lab "
                     f"{ctx.invoked_subcommand} --{word}")  # fmt: skip
        return
    if everything:
        _run_all(common)
    elif listed or not any(common.values()):
        _list(common["as_json"])
    else:
        ctx.fail("which experiment? Name one, or give --all for all; `glassgear lab --list` shows them")


def _list(as_json: bool) -> None:
    found = [experiment(name) for name in NAMES]
    if as_json:
        json_line({"experiments": [
            {"name": one.name, "question": one.question, "claim": one.claim.text, "source": one.claim.source}
            for one in found
        ]})  # fmt: skip
        return
    for one in found:
        name, limit = f"{one.name:<18}", room()
        lines = wrapped(name + one.question, limit, len(name)) if limit else [name + one.question]
        told = console.style(name, bold=True) + "\n".join(lines)[len(name) :]
        click.echo(told, color=console.may_colour())


def _run_all(common: dict[str, Any]) -> None:
    from glassgear.lab.frame import NotHereError

    for name in NAMES:
        try:
            _run(experiment(name), common, {})
        except NotHereError as trouble:
            console.note(f"{name} is skipped: {trouble}")
        if not common["as_json"]:
            click.echo()


def _run(one: Experiment, common: dict[str, Any], given: dict[str, Any]) -> None:
    from glassgear.lab.saving import WITHOUT_PLOT, can_draw, make_folder, save

    settings = one.with_options(small=common["small"], seed=common["seed"], **given)
    files = not common["as_json"] or common["out"] is not None
    folder = common["out"] or Path(FOLDER)
    if files:
        make_folder(folder)
    start = time.perf_counter()
    with console.status(f"{one.name} ..."):
        result = one.run(settings)
    seconds = time.perf_counter() - start
    if common["as_json"]:
        json_line(one.to_json(settings, result) | {"seconds": round(seconds, 3)})
    else:
        _print(one, result, settings)
    if not files:
        return
    plot = not common["no_plot"]
    written = save(one, settings, result, folder, plot=plot)
    if plot and result.figures and not can_draw():
        console.note(WITHOUT_PLOT)
    console.say(f"{seconds:.1f} s; written: {', '.join(map(str, written))}", dim=True)


def _print(one: Experiment, result: Result, settings: Settings) -> None:
    from rich.console import Console
    from rich.text import Text

    colourless = console.may_colour() is False
    out = Console(width=min(WIDTH, room() or WIDTH), no_color=colourless, highlight=False, soft_wrap=False)
    out.print(Text(one.name, "bold"), Text(one.question))
    out.print(Text(f"The claim: {one.claim.text} ({one.claim.source})", "dim"))
    for table in result.tables:
        out.print()
        out.print(Text(table.title, "italic"))
        for number, part in enumerate(_tables(table, range(len(table.columns)), out)):
            out.print(*([""] if number else []), part, sep="\n")
    for note in result.notes:
        out.print(Text(f"\u00b7 {note}", "dim"))
    verdict, colour = result.verdict, COLOURS[result.verdict.outcome]
    out.print()
    out.print(
        Text(f"{verdict.outcome}: ", f"bold {colour}").append(Text(verdict.english, "not bold default"))
    )
    chinese = f"{CHINESE[verdict.outcome]}\uff1a"
    out.print(Text(chinese, f"bold {colour}").append(Text(verdict.chinese, "not bold default")))


def _tables(table: Table, columns: Sequence[int], out: Any) -> list[Any]:
    """Some columns of a table; in parts that begin with the same column where the terminal is narrow."""
    from glassgear.cli.trace_views import fit

    drawn = _drawn(table, columns)
    size = out.measure(drawn, options=out.options.update(width=10 * WIDTH))
    if size.maximum <= out.width:
        return [drawn]
    drawn.box = None
    first, *others = columns
    if len(others) > 1 and size.minimum > out.width:
        half = (len(others) + 1) // 2
        parts = ([first, *others[:half]], [first, *others[half:]])
        return [one for part in parts for one in _tables(table, part, out)]
    fit(drawn, out)
    return [drawn]


def _drawn(table: Table, columns: Sequence[int]) -> Any:
    from rich import box
    from rich.table import Table as Drawn

    drawn = Drawn(box=box.SIMPLE_HEAD, pad_edge=False)
    for i in columns:
        column = table.columns[i]
        drawn.add_column(column.name, justify="right" if column.format else "left", overflow="fold")
    for row in range(len(table.rows)):
        drawn.add_row(*(console.visible(table.text(row, i)) for i in columns))
    return drawn
