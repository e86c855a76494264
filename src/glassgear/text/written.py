"""Find tokens that are written out in a text, before anything else is done to it.

In: a text, and which stretches of it are trusted. Out: the text between such tokens, and their
ids. Tokens that are text like any other (`user-defined`) are found everywhere, control tokens
only where they lie wholly inside a trusted stretch: whatever a user types stays text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

__all__ = ["WrittenToken", "WrittenTokens", "join_parts"]

Span = tuple[int, int]


@dataclass(frozen=True, slots=True)
class WrittenToken:
    """A token that is found by its text, with the options of Hugging Face's `AddedToken`.

    Attributes:
        id: its id.
        takes_left, takes_right: swallows the white space on that side.
        whole_word: counts only where no letter, digit or underscore touches it.
    """

    id: int
    takes_left: bool = False
    takes_right: bool = False
    whole_word: bool = False


class WrittenTokens:
    """The leftmost token wins, and the longest of those that begin there.

    Args:
        anywhere: text -> token, found in every text.
        trusted: text -> token, found in trusted stretches only.
    """

    def __init__(
        self,
        anywhere: Mapping[str, WrittenToken] | None = None,
        trusted: Mapping[str, WrittenToken] | None = None,
    ) -> None:
        self._anywhere = {text: token for text, token in (anywhere or {}).items() if text}
        self._trusted = {text: token for text, token in (trusted or {}).items() if text}
        self._opening = _opening(self._anywhere)
        self._opening_trusted = _opening([*self._anywhere, *self._trusted])
        self._lengths = _lengths([*self._anywhere, *self._trusted])

    def cut(self, text: str, trusted: Sequence[Span] = ()) -> Iterator[str | int]:
        """The text in order, as stretches of text (never empty) and ids.

        Args:
            text: any text.
            trusted: stretches [start, stop) in which control tokens count, in order.
        """
        done = search = 0
        for begin, limit, opening in self._stretches(len(text), trusted):
            search = max(search, begin)
            while opening is not None and (match := opening.search(text, search, limit)):
                found = self._longest(text, match.start(), limit if opening is self._opening_trusted else 0)
                if found is None:
                    search = match.start() + 1
                    continue
                length, token = found
                start, stop = _swallow(text, match.start(), match.start() + length, token, done)
                if start > done:
                    yield text[done:start]
                yield token.id
                done = search = stop
        if done < len(text):
            yield text[done:]

    def _stretches(
        self, size: int, trusted: Sequence[Span]
    ) -> Iterator[tuple[int, int, re.Pattern[str] | None]]:
        """The whole text in order: where a stretch begins and ends, and what may begin a token there."""
        at = 0
        for start, stop in trusted:
            yield at, start, self._opening
            yield start, stop, self._opening_trusted
            at = stop
        yield at, size, self._opening

    def _longest(self, text: str, start: int, limit: int) -> tuple[int, WrittenToken] | None:
        """The longest token at a place; control tokens only if they end by `limit`."""
        for length in self._lengths[text[start]]:
            written = text[start : start + length]
            token = self._anywhere.get(written)
            if token is None and start + length <= limit:
                token = self._trusted.get(written)
            if token is not None and not (token.whole_word and _touched(text, start, start + length)):
                return length, token
        return None


def join_parts(parts: Iterable[tuple[str, bool]]) -> tuple[str, list[Span]]:
    """One text from parts, and its trusted stretches, neighbouring ones as one."""
    texts: list[str] = []
    spans: list[Span] = []
    size = 0
    for text, trusted in parts:
        if trusted and text:
            start = spans.pop()[0] if spans and spans[-1][1] == size else size
            spans.append((start, size + len(text)))
        texts.append(text)
        size += len(text)
    return "".join(texts), spans


def _opening(texts: Iterable[str]) -> re.Pattern[str] | None:
    letters = sorted({text[0] for text in texts})
    return re.compile("[" + "".join(map(re.escape, letters)) + "]") if letters else None


def _lengths(texts: Iterable[str]) -> dict[str, tuple[int, ...]]:
    """First letter -> lengths of the tokens that begin with it, longest first."""
    found: dict[str, set[int]] = {}
    for text in texts:
        found.setdefault(text[0], set()).add(len(text))
    return {letter: tuple(sorted(lengths, reverse=True)) for letter, lengths in found.items()}


def _swallow(text: str, start: int, stop: int, token: WrittenToken, done: int) -> Span:
    while token.takes_left and start > done and text[start - 1].isspace():
        start -= 1
    while token.takes_right and stop < len(text) and text[stop].isspace():
        stop += 1
    return start, stop


def _touched(text: str, start: int, stop: int) -> bool:
    return any(c.isalnum() or c == "_" for c in text[max(start - 1, 0) : start] + text[stop : stop + 1])
