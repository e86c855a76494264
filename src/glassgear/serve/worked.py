"""The worked example as a model that every server has: the file of `glassgear lab`, and its six words.

The model has no vocabulary file: its tokens are the words of one sentence, and `Words` is all that a
tokenizer has to be for them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from glassgear.errors import TokenizerError
from glassgear.text.base import Tokenizer

if TYPE_CHECKING:
    from glassgear.language_model import LanguageModel

__all__ = ["NAME", "PROMPT", "Words", "worked_example"]

NAME = "worked-example"
PROMPT = "西安今天的天气怎么样？"
OF_THE_MACHINE = ("backend", "threads", "cache_type", "on_compile", "device", "dtype")


def worked_example(options: Mapping[str, Any]) -> LanguageModel:
    """The model, loaded.

    Args:
        options: keyword arguments of `loading.load`; those that belong to another model (its tokenizer,
            its context) are left out.
    """
    from glassgear.lab.experiments.worked_example import MODEL, TOKENS
    from glassgear.loading import load

    chosen = {name: value for name, value in options.items() if name in OF_THE_MACHINE}
    return load(MODEL, Words(TOKENS), **chosen)


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
