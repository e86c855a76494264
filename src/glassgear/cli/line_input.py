"""Messages from a person at a terminal, or from a pipe: editing, history, several lines.

A line that ends in a backslash goes on in the next one; `\"\"\"` opens a message that goes on until
`\"\"\"` closes it. Editing and history are those of the standard library's `readline`; where
Python comes without it (Windows), the terminal's own editing serves.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import click

from glassgear.cli import console

__all__ = ["Keyboard", "message"]

QUOTES = '"""'
REMEMBERED = 1000  # lines of history


def message(read: Callable[[bool], str]) -> str:
    """One message.

    Args:
        read: gives the next line without its newline; it is told whether the message has
            begun already. Raises EOFError at the end.
    """
    line = read(False)
    if line.lstrip().startswith(QUOTES):
        return _quoted(line.lstrip().removeprefix(QUOTES), read)
    lines = []
    while line.endswith("\\"):
        lines.append(line[:-1])
        try:
            line = read(True)
        except EOFError:
            line = ""
    return "\n".join([*lines, line])


def _quoted(line: str, read: Callable[[bool], str]) -> str:
    lines = []
    with suppress(EOFError):
        while not line.rstrip().endswith(QUOTES):
            lines.append(line)
            line = read(True)
        lines.append(line.rstrip().removesuffix(QUOTES))
    return "\n".join(lines).strip("\n")


class Keyboard:
    """Messages that a person types, behind a prompt."""

    def __init__(self) -> None:
        # Without a terminal to show it on, `input` would put the prompt into the results.
        self._prompt_to_stderr = not console.is_terminal(sys.stdout)
        self._edits = False

    def read(self, begun: bool) -> str:
        """The next line; Ctrl-D raises EOFError, Ctrl-C KeyboardInterrupt."""
        prompt = ". " if begun else "> "
        coloured = console.style(prompt, fg="cyan", bold=True)
        if console.may_colour() is False:
            coloured = prompt
        if self._prompt_to_stderr:
            click.echo(coloured, nl=False, err=True, color=console.may_colour())
            return input()
        if self._edits and coloured != prompt:
            # readline counts what lies between \001 and \002 as taking no space.
            before, after = coloured.split(prompt)
            coloured = f"\001{before}\002{prompt}\001{after}\002"
        return input(coloured)

    @contextmanager
    def history(self, file: Path) -> Iterator[None]:
        """Remember what is typed from one chat to the next, in a file that others can't read."""
        try:
            import readline
        except ImportError:
            yield
            return
        self._edits = True
        with suppress(OSError):
            readline.read_history_file(file)
        readline.set_history_length(REMEMBERED)
        try:
            yield
        finally:
            with suppress(OSError):
                file.parent.mkdir(parents=True, exist_ok=True)
                os.close(os.open(file, os.O_CREAT | os.O_WRONLY, 0o600))
                readline.write_history_file(file)
