"""Streams and messages: results go to stdout, everything else to stderr.

Results are UTF-8 with bare line feeds on every system. Colours, status lines and bars only
where a person looks on: never in a pipe, and no colours under `NO_COLOR` or `TERM=dumb`.
"""

from __future__ import annotations

import io
import os
import shutil
import sys
import threading
import unicodedata
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO

import click

from glassgear.errors import FileError, GlassgearError
from glassgear.reading import system_errors

__all__ = [
    "Status",
    "cells",
    "compiling",
    "decoded",
    "error",
    "in_english",
    "in_words",
    "is_terminal",
    "may_colour",
    "note",
    "padded",
    "prepare_streams",
    "read_file",
    "read_line",
    "read_stdin",
    "say",
    "speak",
    "status",
    "style",
    "visible",
    "write",
]

STATUS_AFTER = 0.5  # seconds before a status line shows: what is quicker needs none
STDIN = "standard input"

_words: list[Callable[[str], str]] = []  # of the language in which notes and errors are said; none: English


def speak(words: Callable[[str], str] | None) -> None:
    """Say notes and errors in another language from now on; None: in English."""
    _words[:] = [] if words is None else [words]


def in_english() -> bool:
    """Whether notes and errors are said as they are written."""
    return not _words


def in_words(text: str) -> str:
    """A sentence in the language of notes and errors."""
    return _words[0](text) if _words else text


def prepare_streams() -> None:
    """Make all three UTF-8, whatever the locale says; nothing printed can then fail."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors="replace", newline="\n")
    if isinstance(sys.stdin, io.TextIOWrapper):
        sys.stdin.reconfigure(encoding="utf-8", errors="replace")


def may_colour() -> bool | None:
    """False where colours aren't wanted; None leaves it to whether the stream is a terminal."""
    return False if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb" else None


def is_terminal(stream: Any) -> bool:
    """Whether a person looks at this stream."""
    try:
        return bool(stream.isatty())
    except (AttributeError, ValueError):
        return False


def style(text: str, **looks: Any) -> str:
    """Text with a colour or weight; `click.echo` takes it off again where it has no place."""
    return click.style(text, **looks)


def write(text: str) -> None:
    """Put a piece of a result on stdout at once.

    On a terminal, control characters other than newline and tab become visible: what a model
    says must not move the cursor or set the title.
    """
    if text:
        if is_terminal(sys.stdout):
            text = visible(text)
        sys.stdout.write(text)
        sys.stdout.flush()


def visible(text: str) -> str:
    """Text whose control characters can be seen and do nothing."""
    if text.isprintable():
        return text
    return "".join(_visible(c) for c in text)


def _visible(character: str) -> str:
    if unicodedata.category(character) != "Cc" or character in "\n\t":
        return character
    code = ord(character)
    if code < 0x20:
        return chr(0x2400 + code)  # the control pictures of Unicode
    return "\u2421" if code == 0x7F else "\ufffd"


def padded(text: str, width: int, *, right: bool = False) -> str:
    """Text filled up with spaces to a width in terminal cells; a wide character takes two."""
    space = " " * max(0, width - cells(text))
    return space + text if right else text + space


def cells(text: str) -> int:
    """How many cells of a terminal a text takes."""
    if text.isascii():
        return len(text)
    narrow = [c for c in text if not unicodedata.combining(c)]
    return len(narrow) + sum(unicodedata.east_asian_width(c) in "WF" for c in narrow)


def say(text: str = "", **looks: Any) -> None:
    """A line for the person on stderr: progress, figures, notices."""
    click.echo(style(text, **looks) if looks else text, err=True, color=may_colour())


def note(text: str) -> None:
    """Something the user should know, on stderr."""
    say(_labelled("note:", text, fg="yellow"))


def error(text: str) -> None:
    """What went wrong, in one sentence, on stderr."""
    say(_labelled("error:", text, fg="red", bold=True))


def _labelled(label: str, text: str, **looks: Any) -> str:
    told = in_words(label)
    space = " " if told.isascii() else ""  # a wide colon has its own
    return f"{style(told, **looks)}{space}{visible(in_words(text))}"


class Status:
    """A line on the terminal that says what is going on, and leaves no trace.

    Where nobody looks on, it is never shown. Nothing else may be printed until it is closed.
    """

    def __init__(self, text: str) -> None:
        self._text = text
        self._width = 0  # cells that are to be cleared; 0: nothing is shown
        self._open = is_terminal(sys.stderr)
        self._lock = threading.Lock()
        self._timer = threading.Timer(STATUS_AFTER, self.show)
        self._timer.daemon = True
        if self._open:
            self._timer.start()

    def show(self, text: str | None = None) -> bool:
        """Show the line now, with another text if one is given; whether it could."""
        with self._lock:
            if self._open:
                self._text = text or self._text
                line = visible(self._text)[: max(20, shutil.get_terminal_size().columns - 1)]
                shown = style(padded(line, self._width), dim=True)
                self._width = cells(line)
                click.echo(f"\r{shown}", nl=False, err=True, color=may_colour())
            return self._open

    def close(self) -> None:
        """Take the line away for good."""
        self._timer.cancel()
        with self._lock:
            if self._width:
                click.echo(f"\r{' ' * self._width}\r", nl=False, err=True, color=may_colour())
            self._open, self._width = False, 0


_status: list[Status] = []  # those that are open; the last one counts
_told: set[str] = set()


@contextmanager
def status(text: str) -> Iterator[Status]:
    """Show a line while something takes long; it is closed afterwards at the latest."""
    line = Status(text)
    _status.append(line)
    try:
        yield line
    finally:
        line.close()
        _status.remove(line)


def compiling(text: str) -> None:
    """Say that kernels are being compiled: in the status line, or once where there is no terminal.

    In the middle of a text nothing is said, for it would stand in the text.
    """
    if _status and _status[-1].show(f"{text[:1].upper()}{text[1:]}"):
        return
    what = text.partition(":")[0]
    if what not in _told and not is_terminal(sys.stderr):
        _told.add(what)
        note(what)


def read_stdin() -> str:
    """All of standard input as text.

    Raises:
        FileError: it isn't UTF-8.
    """
    return decoded(_stdin().read(), STDIN)


def read_line() -> str:
    """The next line of standard input without its newline; EOFError at the end.

    Raises:
        FileError: it isn't UTF-8.
    """
    line = _stdin().readline()
    if not line:
        raise EOFError
    return decoded(line, STDIN).removesuffix("\n").removesuffix("\r")


def _stdin() -> BinaryIO:
    binary: BinaryIO | None = getattr(sys.stdin, "buffer", None)
    if binary is None:  # as under pythonw
        raise GlassgearError("there is no standard input to read")
    return binary


def read_file(path: str) -> str:
    """A text file that the user named.

    Raises:
        FileError: it isn't there, can't be read, or isn't UTF-8.
    """
    with system_errors(path), open(path, "rb") as file:
        raw = file.read()
    return decoded(raw, path)


def decoded(raw: bytes, source: str) -> str:
    """UTF-8 bytes as text, without the byte-order mark that Windows programs put in front.

    Raises:
        FileError: they aren't UTF-8; the message says where.
    """
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as trouble:
        raise FileError(
            source,
            f"isn't UTF-8 text: byte 0x{raw[trouble.start]:02x} at offset {trouble.start:,}. "
            "Convert it, for instance with `iconv -t utf-8`",
        ) from None
