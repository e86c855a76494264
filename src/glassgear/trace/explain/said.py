"""An explanation in another language: its words are said anew, numbers and paths stay."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from glassgear.languages import Words
from glassgear.trace.explain.page import Section

__all__ = ["said", "said_section"]

SENTENCES = ("gear", "formula", "source", "verdict", "order", "sum_of")


def said(found: Mapping[str, Any], words: Words) -> dict[str, Any]:
    """What `Explanation.to_json` gave, with its sentences and names in another language.

    Args:
        found: the explanation as data; it isn't changed.
        words: says a sentence, see `languages.words_in`.
    """

    def named(entry: Mapping[str, Any], *fields: str) -> dict[str, Any]:
        return {**entry, **{field: words(entry[field]) for field in fields}}

    def keyed(entry: Mapping[str, Any]) -> dict[str, Any]:
        return {words(name): value for name, value in entry.items()}

    return {
        **named(found, *SENTENCES),
        "weights": keyed(found["weights"]),
        "inputs": [named(one, "name") for one in found["inputs"]],
        "terms": [named(term, "name") | {"factors": keyed(term["factors"])} for term in found["terms"]],
        "steps": [named(step, "name", "words") for step in found["steps"]],
        "blocks": [{**block, "stored": keyed(block["stored"])} for block in found["blocks"]],
    }


def said_section(section: Section, words: Words) -> Section:
    """A part of the page of text in another language."""
    return replace(
        section,
        title=words(section.title),
        lines=tuple(words(line) for line in section.lines),
        head=tuple(words(name) for name in section.head),
        rows=tuple(tuple(words(cell) for cell in row) for row in section.rows),
    )
