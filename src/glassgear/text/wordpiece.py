"""WordPiece: BERT and the models after it.

In: a `Vocabulary` as GGUF holds it (a piece that begins a word has U+2581 in front, one that
goes on has nothing) or as `vocab.txt` does (one that goes on has `##` in front). Out: ids. Text is
cleaned, mostly lower-cased and stripped of accents, cut at white space, punctuation and CJK characters,
and each word is covered by the longest pieces from the left (Devlin et al. 2018; google-research/bert,
`tokenization.py`). What can't be covered is one unknown token, so text doesn't survive the round
trip. `tokenizers` does the work.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from glassgear.errors import FormatError
from glassgear.text.backend import encoded
from glassgear.text.frames import Frame
from glassgear.text.spm import SPACE
from glassgear.text.vocabulary import Kind, Vocabulary, VocabularyTokenizer

if TYPE_CHECKING:
    from tokenizers import Tokenizer as Backend
    from tokenizers.normalizers import Normalizer

__all__ = ["GOES_ON", "WordPieceTokenizer"]

GOES_ON = "##"


class WordPieceTokenizer(VocabularyTokenizer):
    """See the module.

    Args:
        vocabulary: pieces and kinds.
        lowercase: text is lower-cased.
        strips_accents: accents go; None: as `lowercase`.
        splits_chinese: every CJK character is a word.
        hashes: pieces are spelled as in `vocab.txt`.

    Raises:
        FormatError: there is no unknown token.
    """

    kind = "wordpiece"
    joins = False

    def __init__(
        self,
        vocabulary: Vocabulary,
        *,
        lowercase: bool = True,
        strips_accents: bool | None = None,
        splits_chinese: bool = True,
        hashes: bool = False,
    ) -> None:
        super().__init__(vocabulary)
        self._hashes = hashes
        roles = vocabulary.roles
        first, last = roles.get("cls", roles.get("bos")), roles.get("sep", roles.get("eos"))
        self._head = () if first is None else (first,)
        self._tail = () if last is None else (last,)
        if first is not None and last is not None:
            self._pair = Frame(head=((first, 0),), middle=((last, 0),), tail=((last, 1),))
        self.adds_bos = False
        accents = lowercase if strips_accents is None else strips_accents
        self._backend = _backend(vocabulary, hashes)
        self._backend.normalizer = _normalizer(lowercase, accents, splits_chinese)
        case = ("lower case" * lowercase, "accents go" * accents, "unknown words lost")
        cleaned = "white space and control characters cleaned"
        self.normalises = ", ".join(filter(None, (*case[:2], cleaned, case[2])))

    def decode(self, ids: Sequence[int], skip_special: bool = True) -> str:
        """The text of `ids`, with spaces put between words and taken from before punctuation."""
        kept = [self._checked(token) for token in ids if not (skip_special and self.is_special(token))]
        text: str = self._backend.decode(kept, skip_special_tokens=False)
        return text

    def token_bytes(self, token: int) -> bytes:
        """A space and the word, or the end of a word alone; see `Tokenizer.token_bytes`."""
        piece = self.piece(token)
        if self.is_special(token):
            return piece.encode()
        word, goes_on = _word(piece, self._hashes)
        return (word if goes_on else f" {word}").encode()

    @property
    def leading_space(self) -> bool:
        """Every word's first piece carries the space in front of it."""
        return True

    def _encode_text(self, text: str, starts: bool) -> list[int]:
        return encoded(self._backend, text)


def _word(piece: str, hashes: bool) -> tuple[str, bool]:
    """What a piece says, and whether it goes on with a word."""
    if hashes:
        return piece.removeprefix(GOES_ON), piece.startswith(GOES_ON)
    return piece.removeprefix(SPACE), not piece.startswith(SPACE)


def _backend(vocabulary: Vocabulary, hashes: bool) -> Backend:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    pieces, roles = vocabulary.pieces, vocabulary.roles
    if "unk" not in roles:
        raise FormatError(vocabulary.path, "holds a WordPiece vocabulary without an unknown token")
    ids: dict[str, int] = {}
    for token, (piece, kind) in enumerate(zip(pieces, vocabulary.kinds, strict=True)):
        if kind in (Kind.CONTROL, Kind.UNKNOWN):
            ids.setdefault(piece, token)
        else:
            word, goes_on = _word(piece, hashes)
            ids.setdefault(f"{GOES_ON}{word}" if goes_on else word, token)
    backend = Tokenizer(models.WordPiece(ids, unk_token=pieces[roles["unk"]], max_input_chars_per_word=100))
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.decoder = decoders.WordPiece(prefix=GOES_ON, cleanup=True)
    return backend


def _normalizer(lowercase: bool, strips_accents: bool, splits_chinese: bool) -> Normalizer:
    from tokenizers import normalizers

    return normalizers.BertNormalizer(
        clean_text=True,
        handle_chinese_chars=splits_chinese,
        strip_accents=strips_accents,
        lowercase=lowercase,
    )
