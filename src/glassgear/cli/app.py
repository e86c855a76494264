"""The group of commands, and how an exception becomes a message and an exit code.

0: done. 1: it failed; one sentence says why. 2: the command was written wrongly. 130: Ctrl-C.
141: whoever read the output has gone (`| head`), which is no error of theirs: nothing is said.
`GLASSGEAR_DEBUG=1` adds the traceback to a failure.
"""

from __future__ import annotations

import difflib
import os
import signal
import sys
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from typing import Any

import click

from glassgear._version import __version__
from glassgear.cli import console
from glassgear.errors import GlassgearError

__all__ = ["FAILED", "INTERRUPTED", "App", "app"]

FAILED, INTERRUPTED, READER_GONE = 1, 130, 141

SECTIONS = {
    "Talk to a model": ("run", "chat"),
    "Look inside": ("view", "show", "trace", "explain", "sample", "params", "compare", "tokenize", "score"),
    "Measure claims": ("lab",),
    "Encoders": ("embed", "fill"),
    "Models on this machine": ("pull", "list", "convert"),
    "Make a model": ("train",),
    "Speed": ("bench", "warm-up"),
}
"""The commands in the order in which help lists them; each is `command` in `cli/<name>.py`."""

EXAMPLES = """\
Examples:
  glassgear pull smollm2-135m                    fetch a small model (98 MB)
  glassgear run smollm2-135m "Once upon a time"  let it continue a text
  glassgear chat smollm2-135m                    talk to it
  glassgear show model.gguf                      what a model is made of

`glassgear COMMAND --help` has examples for each command. GLASSGEAR_CACHE names another
folder for models, NO_COLOR turns colours off, GLASSGEAR_DEBUG=1 shows where an error arose.
"""


class App(click.Group):
    """A group that imports a command's file when the command is used."""

    def main(self, *args: Any, **extra: Any) -> Any:
        """Run one command line; click's own, with streams that can print any text."""
        console.prepare_streams()
        console.speak(None)  # until a command has read its --lang
        return super().main(*args, **extra)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Every command, in help's order."""
        return [name for names in SECTIONS.values() for name in names]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of that name, imported now."""
        if cmd_name not in self.list_commands(ctx):
            return None
        found: click.Command = import_module(f"glassgear.cli.{cmd_name.replace('-', '_')}").command
        return found

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command; a mistyped one brings up near ones."""
        name = args[0]
        if self.get_command(ctx, name) is None and not name.startswith("-"):
            near = difflib.get_close_matches(name, self.list_commands(ctx), n=2)
            meant = f" Did you mean {' or '.join(near)}?" if near else _maybe_a_model(name)
            ctx.fail(f"No such command {name!r}.{meant}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The commands by what they are for."""
        width = max(map(len, self.list_commands(ctx)))
        for title, names in SECTIONS.items():
            rows = []
            for name in names:
                command = self.get_command(ctx, name)
                if command is not None:
                    rows.append((name.ljust(width), command.get_short_help_str(limit=90)))
            with formatter.section(title):
                formatter.write_dl(rows)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The examples as they stand."""
        formatter.write_paragraph()
        formatter.write(EXAMPLES)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; whatever it raises becomes a message and an exit code."""
        ctx.color = console.may_colour()
        with _exit_codes(), _told_to_end():
            value = super().invoke(ctx)
            sys.stdout.flush()
            return value


def _maybe_a_model(name: str) -> str:
    if os.path.exists(name) or name.startswith("hf:"):
        return f" To run a model: glassgear run {name}"
    return " `glassgear --help` lists them."


@contextmanager
def _exit_codes() -> Iterator[None]:
    try:
        yield
    except click.UsageError as trouble:
        if console.in_english():
            raise
        _say_usage(trouble)
        sys.exit(trouble.exit_code)
    except (click.exceptions.Exit, click.ClickException):
        raise
    except (KeyboardInterrupt, click.Abort):
        sys.exit(INTERRUPTED)
    except BrokenPipeError:
        _let_go_of_stdout()
        sys.exit(READER_GONE)
    except Exception as trouble:
        console.error(_sentence(trouble))
        if os.environ.get("GLASSGEAR_DEBUG", "0") not in ("", "0"):
            traceback.print_exc()
        sys.exit(FAILED)


def _say_usage(trouble: click.UsageError) -> None:
    """What click says of a command that was written wrongly, in another language."""
    if trouble.ctx is not None:
        usage = trouble.ctx.get_usage()
        console.say(usage.replace("Usage: ", console.in_words("Usage:"), 1))
        console.say(console.in_words(f"Try '{trouble.ctx.command_path} --help' for help.") + "\n")
    console.error(trouble.format_message())


@contextmanager
def _told_to_end() -> Iterator[None]:
    """A polite signal ends a command the way Ctrl-C does, so that half-written files go."""

    def end(number: int, frame: object) -> None:
        sys.exit(128 + number)

    names = [name for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
    if threading.current_thread() is not threading.main_thread():
        names = []
    before = {name: signal.getsignal(getattr(signal, name)) for name in names}
    # `nohup` has the hang-up signal ignored; that stays so.
    taken = [name for name in names if before[name] is signal.SIG_DFL]
    for name in taken:
        signal.signal(getattr(signal, name), end)
    try:
        yield
    finally:
        for name in taken:
            signal.signal(getattr(signal, name), signal.SIG_DFL)


def _sentence(trouble: Exception) -> str:
    if isinstance(trouble, GlassgearError):
        return str(trouble)
    if isinstance(trouble, MemoryError):
        return "there isn't enough memory for this; a shorter context (--ctx) needs less"
    if isinstance(trouble, OSError):
        place = f" ({trouble.filename})" if trouble.filename else ""
        return f"the system refused: {trouble.strerror or trouble}{place}"
    return (
        f"this is a fault in Glassgear: {type(trouble).__name__}: {trouble}. "
        "Please report it with what GLASSGEAR_DEBUG=1 prints"
    )


def _let_go_of_stdout() -> None:
    """Python flushes stdout once more when it ends; that must not fail again."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@click.group(cls=App, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, "--version", message="glassgear %(version)s")
def app() -> None:
    """Run language models, and see every gear of them turn."""
