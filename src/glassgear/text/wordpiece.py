"""WordPiece: BERT and the models after it.

In: a `Vocabulary` as GGUF holds it (a piece that begins a word has U+2581 in front, one that
goes on has nothing). Out: ids. Text is cleaned, mostly lower-cased and stripped of accents, cut
at white space, punctuation and CJK characters, and each word is covered by the longest pieces
from the left (Devlin et al. 2018; google-research/bert, `tokenization.py`). What can't be
covered is one unknown token, so text doesn't survive the round trip. `tokenizers` does the work.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from glassgear.errors import FormatError
from glassgear.text.backend import encoded
from glassgear.text.spm import SPACE
from glassgear.text.vocabulary import Kind, Vocabulary, VocabularyTokenizer

if TYPE_CHECKING:
    from tokenizers import Tokenizer as Backend

__all__ = ["WordPieceTokenizer"]


class WordPieceTokenizer(VocabularyTokenizer):
    """See the module.

    Args:
        vocabulary: pieces and kinds.
        lowercase: text is lower-cased and stripped of accents.

    Raises:
        FormatError: there is no unknown token.
    """

    kind = "wordpiece"
    joins = False

    def __init__(self, vocabulary: Vocabulary, *, lowercase: bool = True) -> None:
        super().__init__(vocabulary)
        roles = vocabulary.roles
        first, last = roles.get("cls", roles.get("bos")), roles.get("sep", roles.get("eos"))
        self._head = () if first is None else (first,)
        self._tail = () if last is None else (last,)
        self.adds_bos = False
        self._backend = _backend(vocabulary, lowercase)
        case = "lower case without accents, " if lowercase else ""
        self.normalises = f"{case}white space and control characters cleaned, unknown words lost"

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
        return piece.replace(SPACE, " ").encode()

    @property
    def leading_space(self) -> bool:
        """Every word's first piece carries the space in front of it."""
        return True

    def _encode_text(self, text: str, starts: bool) -> list[int]:
        return encoded(self._backend, text)


def _backend(vocabulary: Vocabulary, lowercase: bool) -> Backend:
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers

    pieces, roles = vocabulary.pieces, vocabulary.roles
    if "unk" not in roles:
        raise FormatError(vocabulary.path, "holds a WordPiece vocabulary without an unknown token")
    ids: dict[str, int] = {}
    for token, (piece, kind) in enumerate(zip(pieces, vocabulary.kinds, strict=True)):
        if kind in (Kind.CONTROL, Kind.UNKNOWN):
            ids.setdefault(piece, token)
        else:
            ids.setdefault(piece[1:] if piece.startswith(SPACE) else f"##{piece}", token)
    backend = Tokenizer(models.WordPiece(ids, unk_token=pieces[roles["unk"]], max_input_chars_per_word=100))
    backend.normalizer = normalizers.BertNormalizer(
        clean_text=True, handle_chinese_chars=True, strip_accents=lowercase, lowercase=lowercase
    )
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.decoder = decoders.WordPiece(prefix="##", cleanup=True)
    return backend
