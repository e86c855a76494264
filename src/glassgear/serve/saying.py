"""Answers in the language that a page asks for: their sentences are said anew, names of things stay.

Names that the page looks up itself (of stages, paths, axes) aren't touched: it has its own table of them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import parse_qs

from glassgear.languages import Language, Words, words_in

__all__ = ["about", "asked", "candidates", "lens", "tree", "warnings"]


def asked(query: str) -> Words:
    """Words in the language that an address's query names (`lang=zh`); English if it names none."""
    return words_in(parse_qs(query).get("lang", ["en"])[0])


def about(found: Mapping[str, Any], language: Language) -> dict[str, Any]:
    """What the page asks first: notes on models."""
    words = words_in(language)
    models = [{**model, "note": words(model["note"])} for model in found["models"]]
    return {**found, "models": models}


def tree(drawn: bytes, language: Language) -> bytes:
    """A model's tree as JSON: the gears' formulas, and what is to be known about the model."""
    if language == "en":
        return drawn
    words, found = words_in(language), json.loads(drawn)
    for node in found["nodes"]:
        node["formula"] = words(node["formula"])
    found["notices"] = warnings(found["notices"], language)
    return json.dumps(found, ensure_ascii=False).encode()


def warnings(found: Sequence[str], language: Language) -> list[str]:
    """Sentences for people."""
    words = words_in(language)
    return [words(text) for text in found]


def candidates(found: Mapping[str, Any], language: Language) -> dict[str, Any]:
    """Sampling stages: what each was set to."""
    words = words_in(language)
    return {**found, "stages": [{**s, "setting": words(s["setting"])} for s in found["stages"]]}


def lens(found: Mapping[str, Any], language: Language) -> dict[str, Any]:
    """The logit lens: how it was computed."""
    return {**found, "computed_by": words_in(language)(found["computed_by"])}
