"""A vocabulary as files hold it, and what all tokenizers that are built on one share.

In: pieces with their kinds, whatever file they came from. Out: the encoding of text that may
hold control tokens, the framing by BOS and the like, and decoding; how plain text becomes ids
is left to `spm.py`, `bpe.py` and `wordpiece.py`.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import ClassVar

from glassgear.errors import TokenizerError
from glassgear.text.base import Tokenizer
from glassgear.text.ends import end_ids
from glassgear.text.frames import Frame, Inputs, framed
from glassgear.text.written import WrittenToken, WrittenTokens, join_parts

__all__ = ["FramedTokenizer", "Kind", "Vocabulary", "VocabularyTokenizer"]


class Kind:
    """What a piece is for. SentencePiece and GGUF use the same numbers."""

    NORMAL: ClassVar[int] = 1
    UNKNOWN: ClassVar[int] = 2  # stands for what the vocabulary can't spell
    CONTROL: ClassVar[int] = 3  # never text
    USER_DEFINED: ClassVar[int] = 4  # text that always is one token
    UNUSED: ClassVar[int] = 5  # taken apart again when merging makes it
    BYTE: ClassVar[int] = 6  # `<0x0A>`: one byte of a character that has no piece


@dataclass(frozen=True)
class Vocabulary:
    """Pieces and settings, from GGUF, SentencePiece or llama2.c.

    Attributes:
        path: the file, for messages.
        pieces: one for each id, as the file spells them.
        kinds: one of `Kind` for each.
        scores: one for each, higher merges first; empty for kinds of tokenizers without.
        roles: `bos`, `eos`, `unk`, `pad`, `sep`, `cls`, `mask`, `eot`, `eom` -> id.
        adds_bos, adds_eos: what `add_special=True` puts around a text.
        space_prefix: encoding puts a space in front of a text.
        squeezes_spaces: runs of spaces become one, and those at the edges go.
        chat_template: as in `Tokenizer`.
        warnings: as in `Tokenizer`.
    """

    path: str
    pieces: Sequence[str]
    kinds: Sequence[int]
    scores: Sequence[float] = ()
    roles: Mapping[str, int] = field(default_factory=dict)
    adds_bos: bool = False
    adds_eos: bool = False
    space_prefix: bool = False
    squeezes_spaces: bool = False
    chat_template: str | Mapping[str, str] | None = None
    warnings: tuple[str, ...] = ()

    @cached_property
    def _by_kind(self) -> dict[int, list[int]]:
        """Kind -> ids; the normal ones, which are most, are left out."""
        found: dict[int, list[int]] = {}
        for token, kind in enumerate(self.kinds):
            if kind != 1:  # Kind.NORMAL, spelled out since vocabularies are long
                found.setdefault(kind, []).append(token)
        return found

    def of_kind(self, *kinds: int) -> list[int]:
        """The ids of the pieces of these kinds, in order; not for normal pieces."""
        assert Kind.NORMAL not in kinds
        return sorted(token for kind in kinds for token in self._by_kind.get(kind, ()))


class FramedTokenizer(Tokenizer):
    """Encodes text with control tokens in it, and puts BOS and the like around it.

    Subclasses set `_written`, `_head` and `_tail`, and encode plain text.

    Attributes:
        _written: the tokens that are found by their text.
        _head, _tail: the ids that `add_special=True` puts around a text.
        _pair: what stands around and between two texts, or None if nothing says so.
    """

    _written: WrittenTokens
    _head: tuple[int, ...] = ()
    _tail: tuple[int, ...] = ()
    _pair: Frame | None = None

    @abstractmethod
    def _encode_text(self, text: str, starts: bool) -> list[int]:
        """Ids of text that holds no token by its name.

        Args:
            text: never empty, and free of surrogates.
            starts: whether it is the beginning of the whole text; else a token stands before it.
        """

    def encode(self, text: str, add_special: bool = False, parse_special: bool = False) -> list[int]:
        """See `Tokenizer.encode`.

        Raises:
            TokenizerError: the text holds half a surrogate pair, or a character that the
                vocabulary has no way to spell.
        """
        return self.encode_parts(((text, parse_special),), add_special)

    def encode_parts(self, parts: Iterable[tuple[str, bool]], add_special: bool = False) -> list[int]:
        """See `Tokenizer.encode_parts`. Text is encoded across the borders of parts."""
        text, trusted = join_parts(parts)
        _check_unicode(text)
        ids: list[int] = []
        starts = True
        for found in self._written.cut(text, trusted):
            if isinstance(found, int):
                ids.append(found)
            else:
                ids += self._encode_text(found, starts)
            starts = False
        return self._framed(ids) if add_special else ids

    def framed(
        self, first: Sequence[int], second: Sequence[int] | None = None, *, most: int | None = None
    ) -> Inputs:
        """See `Tokenizer.framed`."""
        if second is None:
            head, tail = (tuple((token, 0) for token in side) for side in (self._head, self._tail))
            return framed(Frame(head, tail), first, None, most)
        if self._pair is None:
            raise TokenizerError(f"this tokenizer ({self.kind}) has no form for pairs of texts")
        return framed(self._pair, first, second, most)

    def _framed(self, ids: list[int]) -> list[int]:
        head, tail = list(self._head), list(self._tail)
        if head and ids[: len(head)] == head:
            head = []
        if tail and ids[len(ids) - len(tail) :] == tail:
            tail = []
        return head + ids + tail


class VocabularyTokenizer(FramedTokenizer):
    """What tokenizers on a `Vocabulary` share: its attributes, and which id is what."""

    def __init__(self, vocabulary: Vocabulary, *, user_defined: Iterable[int] | None = None) -> None:
        """Set up all that doesn't depend on how text is cut.

        Args:
            vocabulary: the pieces.
            user_defined: the ids that are always found by their text; None: all of that kind.
        """
        pieces, roles = vocabulary.pieces, vocabulary.roles
        self._vocabulary = vocabulary
        self.vocab_size = len(pieces)
        self.bos_id, self.eos_id = roles.get("bos"), roles.get("eos")
        self.adds_bos = vocabulary.adds_bos and self.bos_id is not None
        self.adds_eos = vocabulary.adds_eos and self.eos_id is not None
        control = vocabulary.of_kind(Kind.CONTROL, Kind.UNKNOWN)
        self._control = frozenset(control)
        self.special = {pieces[token]: token for token in reversed(control) if pieces[token]}
        if user_defined is None:
            user_defined = vocabulary.of_kind(Kind.USER_DEFINED)
        self._written = WrittenTokens(
            {pieces[token]: WrittenToken(token) for token in user_defined},
            {text: WrittenToken(token) for text, token in self.special.items()},
        )
        self._head = (self.bos_id,) if self.adds_bos and self.bos_id is not None else ()
        self._tail = (self.eos_id,) if self.adds_eos and self.eos_id is not None else ()
        self.end_ids = end_ids(self.special, roles)
        self.chat_template = vocabulary.chat_template
        self.special_tokens = {
            f"{role}_token": pieces[roles[role]]
            for role in ("bos", "eos", "unk", "pad", "sep", "cls", "mask")
            if role in roles
        }
        self.warnings = vocabulary.warnings

    def piece(self, token: int) -> str:
        """The vocabulary entry as the file spells it."""
        return self._vocabulary.pieces[self._checked(token)]

    def _checked(self, token: int) -> int:
        if not 0 <= token < self.vocab_size:
            raise TokenizerError(f"id {token} is outside the vocabulary, 0 to {self.vocab_size - 1}")
        return token

    def _special_ids(self) -> frozenset[int]:
        return self._control


def _check_unicode(text: str) -> None:
    if text.isascii():
        return
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise TokenizerError(
            f"character {error.start} of the text, U+{ord(text[error.start]):04X}, is half of a surrogate "
            "pair, which is no character: decode the text again from its bytes, or replace it"
        ) from None
