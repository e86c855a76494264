"""Sentences by template: an English one is recognised, and filled into the form of the other language.

A template holds values as `{name:kind}`; the other form names them as `{name}`. Numbers, paths and texts
of tokens pass through as they are; a value of the kind `words` is a sentence itself, and is said in turn.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache

__all__ = ["Catalogue", "Template"]

KINDS = {
    "int": r"-?\d[\d,]*",
    "float": r"[-+]?(?:\d[\d,]*\.?\d*(?:e[-+]?\d+)?|inf|nan)",
    "ints": r"-?\d+(?:, -?\d+)*(?:, \.\.\.)?",
    "name": r"\S+?",  # a path, a type, a model
    "place": r"[\w.]+(?: \+ [\w.]+)*(?:\[[\d, ]+\])?",  # a path, or a sum of several, and an index
    "quoted": r"(?:'.*'|\".*\")",  # what Python's repr makes of a text
    "text": r".+?",  # anything
    "words": r".+?",  # a sentence of the catalogue
}
VALUE = re.compile(r"\{(\w+):(\w+)\}")
PATH = (
    r"(?:blocks\.\d+|embed|positions|token_types|neighbours|norm|head|transform|pooler|embed_norm)(?:\.\w+)*"
)
# The same in every language: numbers, paths, sums of paths, kinds of gears and of stored weights.
SAME = re.compile(
    rf"[^A-Za-z]*|{KINDS['float']}|{PATH}(?: \+ {PATH})*"
    r"|(?:[A-Z]+[a-z]*)+|[A-Z]+\d\w*"
)


@dataclass(frozen=True)
class Template:
    """A sentence with places for values, and its form in the other language."""

    english: str
    other: str

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        """What fits it: a whole sentence."""
        parts, at = [], 0
        for value in VALUE.finditer(self.english):
            parts += [re.escape(self.english[at : value.start()]), f"(?P<{value[1]}>{KINDS[value[2]]})"]
            at = value.end()
        return re.compile("".join(parts) + re.escape(self.english[at:]), re.DOTALL)

    @cached_property
    def kinds(self) -> dict[str, str]:
        """Name of each value -> its kind."""
        return dict(VALUE.findall(self.english))

    @cached_property
    def literal(self) -> int:
        """Letters that stand fast: the more, the less else the template fits."""
        return len(VALUE.sub("", self.english))

    @property
    def first(self) -> str | None:
        """The word that it begins with; None where that is a value."""
        word = self.english.partition(" ")[0]
        return None if "{" in word else word


class Catalogue:
    """Templates, found by the first word of a sentence.

    Args:
        parts: template in English -> form in the other language.
    """

    def __init__(self, parts: Iterable[Mapping[str, str]]) -> None:
        self.templates = [Template(*pair) for part in parts for pair in part.items()]
        self._by_word: dict[str | None, list[Template]] = {}
        for template in sorted(self.templates, key=lambda t: (-t.literal, t.english)):
            self._by_word.setdefault(template.first, []).append(template)
        self._found = lru_cache(maxsize=1 << 14)(self._search)

    def say(self, text: str) -> str:
        """A sentence in the other language; itself if the catalogue hasn't got it."""
        found = self._found(text)
        return text if found is None else found

    def has(self, text: str) -> bool:
        """Whether a sentence has a form, or is the same in every language."""
        return self._found(text) is not None

    def find(self, text: str) -> list[Template]:
        """The templates of a sentence: its own, and those of the sentences inside of it."""
        for template, fits in self._fitting(text):
            inside = [fits[name] for name, kind in template.kinds.items() if kind == "words"]
            return [template, *(one for part in inside for one in self.find(part))]
        return []

    def _search(self, text: str) -> str | None:
        for template, found in self._fitting(text):
            said = {name: self._value(kind, found[name]) for name, kind in template.kinds.items()}
            return template.other.format(**said)
        return text if SAME.fullmatch(text) else None

    def _value(self, kind: str, text: str) -> str:
        return self.say(text) if kind == "words" else text

    def _fitting(self, text: str) -> Iterator[tuple[Template, dict[str, str]]]:
        """Templates that a sentence fits, and so do all sentences inside of it; with their values."""
        word = text.partition(" ")[0]
        for template in [*self._by_word.get(word, ()), *self._by_word.get(None, ())]:
            fits = template.pattern.fullmatch(text)
            if fits is None:
                continue
            found = fits.groupdict()
            if all(kind != "words" or self.has(found[name]) for name, kind in template.kinds.items()):
                yield template, found
