"""What Glassgear says in words, in other languages than English.

English sentences stand where they are made. Here is a catalogue of them: each as a template, with its form
in the other language. A sentence that isn't in it stays English.

    catalogue.py      recognises a sentence by its template, and fills the other language's form
    zh_explain.py     Chinese: explanations of numbers, formulas and their sources
    zh_serve.py       Chinese: gears, stages, warnings, and what goes wrong
    zh_terminal.py    Chinese: tables of the commands
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Literal, get_args

from glassgear.languages.catalogue import Catalogue

__all__ = ["LANGUAGES", "Catalogue", "Language", "Words", "catalogue", "words_in"]

Language = Literal["en", "zh"]
Words = Callable[[str], str]
"""A sentence in English -> in the language that was chosen."""

LANGUAGES: tuple[Language, ...] = get_args(Language)


@cache
def catalogue() -> Catalogue:
    """The Chinese catalogue."""
    from glassgear.languages import zh_explain, zh_serve, zh_terminal

    return Catalogue([zh_explain.SENTENCES, zh_serve.SENTENCES, zh_terminal.SENTENCES])


def words_in(language: str) -> Words:
    """What says a sentence in a language; for another than those of `LANGUAGES` it stays English."""
    return catalogue().say if language == "zh" else _english


def _english(text: str) -> str:
    return text
