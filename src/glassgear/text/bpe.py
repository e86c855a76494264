"""Byte-level BPE, as GPT-2 began it: Llama 3, Qwen, SmolLM, Mistral's newer models and many others.

In: a `Vocabulary` and its merges. Out: ids. Text is cut into words by the family's rule
(`pretokenizers.py`), each word's bytes are written as letters, and neighbours are merged in the
order of the list of merges (Sennrich et al. 2016; Radford et al. 2019). `tokenizers` does the work.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from glassgear.errors import FormatError, TokenizerError
from glassgear.text.backend import encoded
from glassgear.text.byte_letters import BYTE_OF, LETTER_OF, letters_to_bytes
from glassgear.text.pretokenizers import WordRule, pre_tokenizer
from glassgear.text.vocabulary import Kind, Vocabulary, VocabularyTokenizer

if TYPE_CHECKING:
    from tokenizers import Tokenizer as Backend

__all__ = ["ByteLevelTokenizer", "Merge"]

Merge = tuple[str, str]

_NEVER_IN_UTF8 = frozenset((0xC0, 0xC1, *range(0xF5, 0x100)))


class ByteLevelTokenizer(VocabularyTokenizer):
    """See the module.

    Args:
        vocabulary: pieces and kinds.
        merges: pairs of pieces, in the order of merging.
        rule: how text is cut into words.

    Raises:
        FormatError: there are no merges.
    """

    kind = "bpe"

    def __init__(self, vocabulary: Vocabulary, merges: Sequence[Merge], rule: WordRule) -> None:
        super().__init__(vocabulary)
        if not merges:
            raise FormatError(
                vocabulary.path,
                "holds a BPE vocabulary without merges: every byte would be a token. Convert the model again",
            )
        ids = _reachable(vocabulary)
        self._backend, lost = _backend(vocabulary.path, ids, merges, rule)
        if lost:
            self.warnings += (f"{lost:,} of {len(merges):,} merges name pieces that aren't there: left out",)
        self._unspelled = frozenset(
            byte for byte, letter in LETTER_OF.items() if letter not in ids and byte not in _NEVER_IN_UTF8
        )
        if rule.composes:
            self.normalises = "characters are composed (NFC)"
        self._spelled: dict[int, bytes] = {}

    def token_bytes(self, token: int) -> bytes:
        """See `Tokenizer.token_bytes`."""
        found = self._spelled.get(token)
        if found is None:
            found = self._spelled[token] = self._spell(self._checked(token))
        return found

    def _spell(self, token: int) -> bytes:
        piece, kind = self._vocabulary.pieces[token], self._vocabulary.kinds[token]
        if kind in (Kind.CONTROL, Kind.UNKNOWN, Kind.USER_DEFINED):
            return piece.encode()
        spelled = letters_to_bytes(piece)
        return piece.encode() if spelled is None else spelled

    def _encode_text(self, text: str, starts: bool) -> list[int]:
        ids = encoded(self._backend, text)
        if self._unspelled:
            self._refuse_lost_bytes(text)
        return ids

    def _refuse_lost_bytes(self, text: str) -> None:
        """`tokenizers` leaves out letters that the vocabulary lacks without a word."""
        lost = self._unspelled.intersection(text.encode())
        if lost:
            raise TokenizerError(f"the vocabulary has no piece for the byte 0x{min(lost):02X} of the text")


def _reachable(vocabulary: Vocabulary) -> dict[str, int]:
    """Piece -> id for what text may become: control tokens are out of its reach."""
    pieces = vocabulary.pieces
    # Backwards, so that the first of equal pieces counts.
    ids = dict(zip(reversed(pieces), range(len(pieces) - 1, -1, -1), strict=True))
    for token in vocabulary.of_kind(Kind.CONTROL, Kind.UNKNOWN):
        if ids.get(pieces[token]) == token and pieces[token] not in BYTE_OF:
            del ids[pieces[token]]
    return ids


def _backend(path: str, ids: dict[str, int], merges: Sequence[Merge], rule: WordRule) -> tuple[Backend, int]:
    """The engine, and how many merges had to be left out."""
    from tokenizers import Tokenizer, models, normalizers

    lost = 0
    try:
        model = models.BPE(ids, list(merges), ignore_merges=rule.whole_words)
    except Exception:  # one merge that names a piece that isn't there makes it refuse them all
        kept = [(a, b) for a, b in merges if a in ids and b in ids and a + b in ids]
        lost = len(merges) - len(kept)
        if not kept:
            raise FormatError(path, "holds merges, but none of them joins pieces of its vocabulary") from None
        model = models.BPE(ids, kept, ignore_merges=rule.whole_words)
    backend = Tokenizer(model)
    backend.pre_tokenizer = pre_tokenizer(rule)
    if rule.composes:
        backend.normalizer = normalizers.NFC()
    return backend, lost
