"""`glassgear warm-up`: compile now what a model's first run would wait for."""

from __future__ import annotations

import time
from typing import Any

import click

from glassgear.cli import console
from glassgear.cli.opening import open_model
from glassgear.cli.options import Command, model_options

__all__ = ["command"]

EXAMPLES = """
glassgear warm-up                        every kernel that this processor can be asked for
glassgear warm-up smollm2-135m           those of one model, and a first run
glassgear warm-up one.gguf other.gguf    each kind of weights has kernels of its own
"""


@click.command(cls=Command, short_help="Compile a model's kernels ahead of its first run.", examples=EXAMPLES)
@click.argument("models", metavar="[MODEL]...", nargs=-1)
@model_options
def command(models: tuple[str, ...], **given: Any) -> None:
    """Compile the kernels that MODEL needs on this machine, or all there are, and keep them on disk.

    The first run of a model does the same by itself; this is for doing it when nobody waits: in an
    installer, or while a container image is built. What is there already isn't compiled again.
    """
    if not models:
        _everything(given)
        return
    from glassgear.measure import warm_up

    for name in models:
        start = time.perf_counter()
        model = open_model(name, given)
        with console.status(f"Running {name} ..."):
            warm_up(model)
        kernels = getattr(model.backend, "kernels", "")
        what = f"{model.backend.name}{f' ({kernels})' if kernels else ''}"
        click.echo(f"{console.visible(name)}: ready on {what}, {time.perf_counter() - start:.1f} s")


def _everything(given: dict[str, Any]) -> None:
    """Compile what any model could need."""
    if given.get("backend") == "reference":
        raise click.UsageError("The reference backend has no kernels; only the cpu backend has.")
    from glassgear.backends.cpu.features import target
    from glassgear.backends.cpu.warm_up import warm_up

    start = time.perf_counter()
    with console.status("Looking for compiled kernels ..."):
        count = warm_up(console.compiling)
    click.echo(f"{count} kernels for {target().kernels}: ready, {time.perf_counter() - start:.1f} s")
