"""`glassgear view`: the page that shows a model at work."""

from __future__ import annotations

from typing import Any

import click

from glassgear.cli import console
from glassgear.cli.opening import MODEL_OPTIONS, open_model
from glassgear.cli.options import Command, model_options, option

__all__ = ["command"]

PORT = 8323
SECTION = "Page"

EXAMPLES = """
glassgear view smollm2-135m
glassgear view                                         choose a model on the page
glassgear view model.gguf --port 0 --no-browser        any free port; open the address yourself
glassgear view my.toml --random                        a design of your own, with random weights
"""


@click.command(cls=Command, short_help="Watch a token being made, on a local page.", examples=EXAMPLES)
@click.argument("model", required=False)
@option("--port", type=click.IntRange(0, 65535), default=PORT, metavar="N", section=SECTION,
        help=f"Where the page is; 0 takes a free port. [default: {PORT}]")  # fmt: skip
@option("--host", default="127.0.0.1", metavar="ADDRESS", section=SECTION,
        help="The address to serve. [default: 127.0.0.1, which only this machine can reach]")  # fmt: skip
@option("--no-browser", is_flag=True, section=SECTION, help="Print the address, and open nothing.")
@option("--memory", type=click.IntRange(min=1), metavar="MB", section=SECTION,
        help="Most memory for the values of all runs; what doesn't fit is computed again when it is looked "
             "at. [default: a quarter of what is free, 512 to 4096]")  # fmt: skip
@option("--random", is_flag=True, section="Model",
        help="Take random weights: for model files and published configs, which have none.")  # fmt: skip
@option("--seed", type=click.IntRange(min=0), metavar="N", section="Model",
        help="Of random weights. [default: 0]")  # fmt: skip
@model_options
def command(model: str | None, port: int, host: str, no_browser: bool, **given: Any) -> None:
    """Serve a page that shows every value between a prompt and the next token, and open it.

    MODEL is a path or a name that `glassgear list` shows; the page can load others. Everything stays on
    this machine: nothing comes from elsewhere, nothing is sent anywhere. Ctrl-C ends it.
    """
    from glassgear.serve.app import Service
    from glassgear.serve.guard import is_loopback
    from glassgear.serve.limits import Limits, default_bytes
    from glassgear.serve.models import Models
    from glassgear.serve.server import address, bind, serve, shows_pages

    listening = bind(host, port)
    with listening:
        options = {name: given[name] for name in MODEL_OPTIONS if given.get(name) is not None}
        models = Models({**options, "on_compile": console.compiling})
        if model is not None:
            _ = models.add(model, open_model(model, given)).shown  # one token is run: kernels are ready then
        memory = given["memory"]
        nbytes = default_bytes() if memory is None else memory << 20
        where = address(listening)
        if not is_loopback(host):
            console.note("whoever can reach this address can open the models of this machine, and run them")
        console.say(f"The page is at {console.style(where, bold=True)}   (Ctrl-C ends it)")
        serve(Service(models, Limits(nbytes=nbytes)), listening, browser=not no_browser and shows_pages())
