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
glassgear warm-up smollm2-135m
glassgear warm-up one.gguf other.gguf    each kind of weights has kernels of its own
"""


@click.command(cls=Command, short_help="Compile a model's kernels ahead of its first run.", examples=EXAMPLES)
@click.argument("models", metavar="MODEL...", nargs=-1, required=True)
@model_options
def command(models: tuple[str, ...], **given: Any) -> None:
    """Compile the kernels that MODEL needs on this machine, and keep them on disk.

    The first run of a model does the same by itself; this is for doing it when nobody waits: in an
    installer, or while a container image is built. What is there already isn't compiled again.
    """
    from glassgear.measure import warm_up

    for name in models:
        start = time.perf_counter()
        model = open_model(name, given)
        with console.status(f"Running {name} ..."):
            warm_up(model)
        kernels = getattr(model.backend, "kernels", "")
        what = f"{model.backend.name}{f' ({kernels})' if kernels else ''}"
        click.echo(f"{console.visible(name)}: ready on {what}, {time.perf_counter() - start:.1f} s")
