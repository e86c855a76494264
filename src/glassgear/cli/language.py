"""The language of what a command says: `--lang zh`. Without it English, whatever the machine's locale is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import click

from glassgear.cli import console
from glassgear.cli.options import option
from glassgear.errors import GlassgearError
from glassgear.languages import LANGUAGES, words_in

if TYPE_CHECKING:
    from glassgear.languages import Words

__all__ = ["language_option", "speaking"]

F = TypeVar("F", bound=Callable[..., Any])


def language_option(section: str) -> Callable[[F], F]:
    """`--lang`; becomes the argument `lang`."""
    return option(
        "--lang",
        type=click.Choice(LANGUAGES),
        default="en",
        section=section,
        help="The language of what is shown: English or Chinese. [default: en]",
    )


@contextmanager
def speaking(language: str) -> Iterator[Words]:
    """Words in a language, in which notes and errors are said, too."""
    words = words_in(language)
    if language != "en":
        console.speak(words)
    try:
        yield words
    except GlassgearError as error:
        error.args = (words(str(error)), *error.args[1:])
        raise
    except click.UsageError as error:
        vars(error)["message"] = words(error.message)  # declared final, but this is the same message
        raise
