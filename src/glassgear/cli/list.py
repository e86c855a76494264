"""`glassgear list`: the models on this machine, and those that can be fetched."""

from __future__ import annotations

import sys

import click

from glassgear.cli import console
from glassgear.cli.options import Command, option
from glassgear.cli.output import json_line
from glassgear.cli.table import size, table

__all__ = ["command"]

EXAMPLES = """
glassgear list
glassgear list --json | jq -r '.models[].name'
"""


@click.command(cls=Command, short_help="Show the models on this machine.", examples=EXAMPLES)
@option("--json", "as_json", is_flag=True, section="Options", help="One JSON object.")
def command(as_json: bool) -> None:
    """List the models on this machine, by the names that every command takes in place of a path."""
    from glassgear.weights import pull

    models = pull.present()
    there = {model.name for model in models}
    fetchable = {name: about for name, about in pull.known().items() if name not in there}
    if as_json:
        found = [
            {
                "name": model.name,
                "path": str(model.path),
                "bytes": model.nbytes,
                "container": model.container,
                "source": model.source,
            }
            for model in models
        ]
        json_line({"models": found, "fetchable": fetchable})
        return
    rows = [(m.name, size(m.nbytes), m.container, m.source, str(m.path)) for m in models]
    click.echo(table(("name", "size", "kind", "from", "path"), rows, right={1}), color=console.may_colour())
    if fetchable and console.is_terminal(sys.stderr):
        console.say("\nTo fetch:")
        for name, about in fetchable.items():
            console.say(f"  glassgear pull {name}   {console.style(about, dim=True)}")
