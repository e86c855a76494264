"""A vocabulary of a few whole words, as a model has that somebody made by hand."""

from __future__ import annotations

from collections.abc import Sequence

from glassgear.errors import TokenizerError
from glassgear.text.base import Tokenizer

__all__ = ["Words"]


class Words(Tokenizer):
    """A vocabulary of a few words: a text is read from left to right, the longest word first.

    Args:
        words: their places are the ids. Space between them is skipped.
    """

    kind = "words"

    def __init__(self, words: Sequence[str]) -> None:
        self._words = tuple(words)
        self._longest_first = sorted(self._words, key=len, reverse=True)
        self.vocab_size = len(self._words)
        self.special = {}
        self.normalises = "space between words goes"

    def encode(self, text: str, add_special: bool = False, parse_special: bool = False) -> list[int]:
        """Ids of a text; there is nothing special to add or to parse.

        Raises:
            TokenizerError: it holds something else than these words.
        """
        ids, rest = [], text.lstrip()
        while rest:
            word = next((one for one in self._longest_first if rest.startswith(one)), None)
            if word is None:
                raise TokenizerError(
                    f"this model knows the words {' '.join(self._words)} and no others: {rest[:12]!r} is none"
                )
            ids.append(self._words.index(word))
            rest = rest[len(word) :].lstrip()
        return ids

    def token_bytes(self, token: int) -> bytes:
        """The word, UTF-8."""
        return self.piece(token).encode()

    def piece(self, token: int) -> str:
        """The word."""
        if not 0 <= token < len(self._words):
            raise TokenizerError(f"there is no token {token}: the ids are 0 to {len(self._words) - 1}")
        return self._words[token]
