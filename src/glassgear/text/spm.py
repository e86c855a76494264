"""SentencePiece BPE with byte fallback: Llama 2, Mistral, Gemma, and llama2.c's own models.

In: a `Vocabulary` whose pieces have scores. Out: ids. Text is cut into characters, and the two
neighbours whose joined piece has the best score become one, until no joined pair is a piece; the
leftmost of equals goes first (Sennrich et al. 2016; Kudo and Richardson 2018). Ids are those of
`sentencepiece` and, for llama2.c's `tokenizer.bin`, of its program.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from heapq import heappop, heappush
from itertools import chain
from math import isnan
from operator import neg

from glassgear.errors import FormatError, TokenizerError
from glassgear.text.vocabulary import Kind, Vocabulary, VocabularyTokenizer
from glassgear.text.written import WrittenToken, WrittenTokens

__all__ = ["SPACE", "SentencePieceTokenizer"]

SPACE = "\u2581"
"""What SentencePiece writes for a space: LOWER ONE EIGHTH BLOCK."""

_CACHED_WORDS = 1 << 15
_CACHED_LENGTH = 40
_BYTE = re.compile(r"<0x([0-9A-Fa-f]{2})>")


class SentencePieceTokenizer(VocabularyTokenizer):
    """See the module.

    Args:
        vocabulary: pieces, kinds and scores.
        space: how pieces spell a space; llama2.c's files have a real one.
        freezes: user-defined pieces are found after spaces have been replaced, as
            `sentencepiece` does it; else in the text as it is, and what follows them begins like
            a new text, as llama.cpp does it.
    """

    kind = "spm"

    def __init__(self, vocabulary: Vocabulary, *, space: str = SPACE, freezes: bool = False) -> None:
        super().__init__(vocabulary, user_defined=() if freezes else None)
        self._space = space
        self._freezes = freezes
        self._unknown = vocabulary.roles.get("unk")
        self._ids, self._costs = _mergeable(vocabulary), _costs(vocabulary)
        self._bytes = _byte_ids(vocabulary)
        self._unused = frozenset(vocabulary.pieces[t] for t in vocabulary.of_kind(Kind.UNUSED))
        frozen = vocabulary.of_kind(Kind.USER_DEFINED) if freezes else []
        self._frozen = WrittenTokens(
            {vocabulary.pieces[token].replace(" ", space): WrittenToken(token) for token in frozen}
        )
        self._word_border = _word_border(vocabulary, space)
        self._cache: dict[str, list[int]] = {}
        self._spelled: dict[int, bytes] = {}
        self.normalises = _changes(vocabulary, space)

    @property
    def leading_space(self) -> bool:
        """Whether encoding puts a space in front, which decoding takes off the start of a text."""
        return self._vocabulary.space_prefix

    def token_bytes(self, token: int) -> bytes:
        """See `Tokenizer.token_bytes`."""
        found = self._spelled.get(token)
        if found is None:
            found = self._spelled[token] = self._spell(self._checked(token))
        return found

    def _spell(self, token: int) -> bytes:
        piece, kind = self._vocabulary.pieces[token], self._vocabulary.kinds[token]
        if kind == Kind.BYTE:
            return bytes([_byte_value(piece)])
        if kind in (Kind.CONTROL, Kind.UNKNOWN) or (kind == Kind.USER_DEFINED and not self._freezes):
            return piece.encode()
        return piece.replace(self._space, " ").encode()

    def _encode_text(self, text: str, starts: bool) -> list[int]:
        squeezes = self._vocabulary.squeezes_spaces
        if squeezes:
            text = re.sub(" +", " ", text.lstrip(" "))
        if self._vocabulary.space_prefix:  # behind a control token too, as llama.cpp does it
            text = " " + text
        text = text.replace(" ", self._space)
        if squeezes:
            text = text.rstrip(self._space)
        ids: list[int] = []
        for found in self._frozen.cut(text):
            if isinstance(found, int):
                ids.append(found)
            else:
                for word in self._word_border.split(found) if self._word_border else [found]:
                    more = self._encode_word(word)
                    run_goes_on = ids and more and ids[-1] == more[0] == self._unknown
                    ids += more[1:] if run_goes_on else more
        return ids

    def _encode_word(self, word: str) -> list[int]:
        """Ids of a stretch of text across whose borders no piece can reach."""
        found = self._cache.get(word)
        if found is not None:
            return found
        ids: list[int] = []
        for piece in self._merge(word):
            token = self._ids.get(piece)
            if token is not None and piece not in self._unused:
                ids.append(token)
            else:
                self._spell_out(piece, ids)
        if len(word) <= _CACHED_LENGTH:
            if len(self._cache) >= _CACHED_WORDS:
                self._cache.clear()
            self._cache[word] = ids
        return ids

    def _merge(self, word: str) -> Sequence[str]:
        """The pieces of a word, in O(n log n): a heap of joinable neighbours over a linked list."""
        ids, costs, unused = self._ids, self._costs, self._unused
        symbols: list[str] = list(word)
        end = len(symbols)
        after, before = list(range(1, end + 1)), list(range(-1, end - 1))
        heap: list[tuple[float, int, int, int]] = []
        sources: dict[str, tuple[str, str]] = {}

        def consider(left: int, right: int) -> None:
            joined = symbols[left] + symbols[right]
            token = ids.get(joined)
            if token is not None:
                heappush(heap, (costs[token], left, right, len(joined)))
                if joined in unused:
                    sources[joined] = (symbols[left], symbols[right])

        for right in range(1, end):
            consider(right - 1, right)
        while heap:
            _, left, right, length = heappop(heap)
            first, second = symbols[left], symbols[right]
            if not first or not second or len(first) + len(second) != length:
                continue  # one of the two has become part of another piece meanwhile
            symbols[left], symbols[right] = first + second, ""
            following, previous = after[right], before[left]
            after[left] = following
            if following < end:
                before[following] = left
                consider(left, following)
            if previous >= 0:
                consider(previous, left)
        left_over = [piece for piece in symbols if piece]
        return (
            list(chain.from_iterable(_taken_apart(p, sources) for p in left_over)) if sources else left_over
        )

    def _spell_out(self, piece: str, ids: list[int]) -> None:
        """Add the bytes of a character that has no piece, or the unknown token, once for a run."""
        tokens = [self._bytes.get(byte) for byte in piece.encode()]
        if None not in tokens:
            ids += [token for token in tokens if token is not None]
        elif self._unknown is None:
            raise TokenizerError(
                f"the vocabulary can't spell {piece!r}: it has no piece, no bytes and no unknown token for it"
            )
        elif not ids or ids[-1] != self._unknown:
            ids.append(self._unknown)


def _mergeable(vocabulary: Vocabulary) -> dict[str, int]:
    """Piece -> id for what text may become, so neither control tokens nor bytes."""
    pieces = vocabulary.pieces
    # Backwards, so that the first of equal pieces counts.
    ids = dict(zip(reversed(pieces), range(len(pieces) - 1, -1, -1), strict=True))
    for token in vocabulary.of_kind(Kind.CONTROL, Kind.UNKNOWN, Kind.BYTE):
        if ids.get(pieces[token]) == token:
            del ids[pieces[token]]
    ids.pop("", None)
    return ids


def _costs(vocabulary: Vocabulary) -> list[float]:
    """What making each piece costs: the lowest goes first."""
    if not vocabulary.scores:
        return [0.0] * len(vocabulary.pieces)
    costs = list(map(neg, vocabulary.scores))
    if any(map(isnan, costs)):
        raise FormatError(vocabulary.path, "holds a vocabulary with a score that is NaN: it is damaged")
    return costs


def _byte_ids(vocabulary: Vocabulary) -> dict[int, int]:
    found: dict[int, int] = {}
    for token in vocabulary.of_kind(Kind.BYTE):
        match = _BYTE.fullmatch(vocabulary.pieces[token])
        if match is None:
            raise FormatError(
                vocabulary.path,
                f"piece {token} should be a byte, such as `<0x0A>`, but is {vocabulary.pieces[token]!r:.40}",
            )
        found.setdefault(int(match[1], 16), token)
    return found


def _byte_value(piece: str) -> int:
    return int(piece[3:5], 16)


def _word_border(vocabulary: Vocabulary, space: str) -> re.Pattern[str] | None:
    """Where text can be cut without changing the ids: in front of a space, mostly.

    That holds behind every letter that no piece has in front of a space inside it. Merging
    then works on words, not on whole texts, and words come again. With unused pieces it
    doesn't hold: `sentencepiece` takes them all apart as it last made one of them.
    """
    if Kind.UNUSED in vocabulary.kinds:
        return None
    pieces = "\0".join(vocabulary.pieces)
    inside = set(re.findall(f"(.){re.escape(space)}", pieces, re.DOTALL))
    if pieces.count("\0") < len(vocabulary.pieces):
        inside.discard("\0")  # it only stands between pieces
    letters = "".join(map(re.escape, sorted(inside | {space})))
    return re.compile(f"(?<=[^{letters}])(?={re.escape(space)})")


def _taken_apart(piece: str, sources: dict[str, tuple[str, str]]) -> list[str]:
    """An unused piece in the parts that it was merged from, as far down as they are unused too."""
    out: list[str] = []
    todo = [piece]
    while todo:
        part = todo.pop()
        if part in sources:
            first, second = sources[part]
            todo += [second, first]
        else:
            out.append(part)
    return out


def _changes(vocabulary: Vocabulary, space: str) -> str:
    changes = []
    if space != " ":
        changes.append(f"U+{ord(space):04X} becomes a space")
    if vocabulary.squeezes_spaces:
        changes.append("runs of spaces become one, and those at the edges go")
    return "; ".join(changes)
