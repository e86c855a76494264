"""WordPiece's `vocab.txt`: a piece a line, its id the number of the line. BERT's first form.

In: the file, and what the files beside it say. Out: a tokenizer. Source: google-research/bert
`tokenization.py`; the settings are those of transformers' BertTokenizer.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from glassgear.errors import FormatError, UnsupportedError
from glassgear.reading import utf8_text
from glassgear.text.files import read_json
from glassgear.text.json_settings import Settings, read_settings
from glassgear.text.vocabulary import Kind, Vocabulary
from glassgear.text.wordpiece import WordPieceTokenizer

__all__ = ["looks_like_vocab_txt", "read_vocab_txt"]

NAMES = {"unk": "[UNK]", "sep": "[SEP]", "pad": "[PAD]", "cls": "[CLS]", "mask": "[MASK]"}
CLASSES = ("BertTokenizer", "MobileBertTokenizer", "DistilBertTokenizer", "ElectraTokenizer")
_LOOKED_AT = 1 << 20  # bytes: control tokens stand near the beginning


def looks_like_vocab_txt(data: bytes) -> bool:
    """Whether some line is BERT's unknown token, and nothing before it is binary."""
    head = data[:_LOOKED_AT].replace(b"\r\n", b"\n")
    return b"\0" not in head and b"\n[UNK]\n" in b"\n" + head + b"\n"


def read_vocab_txt(path: Path, data: bytes) -> WordPieceTokenizer:
    """The tokenizer in a `vocab.txt`.

    Args:
        path: the file; `tokenizer_config.json`, `special_tokens_map.json` and `added_tokens.json` beside it
            are read too.
        data: what the file holds.

    Raises:
        FormatError: not UTF-8, a piece twice, or added tokens whose ids don't follow.
        UnsupportedError: the config names a tokenizer of another kind.
    """
    settings = read_settings(path)
    beside = path.parent / "tokenizer_config.json"
    config = read_json(beside) if beside.is_file() else {}
    kind = config.get("tokenizer_class")
    if isinstance(kind, str) and kind.removesuffix("Fast") not in CLASSES:
        raise UnsupportedError(path, f"belongs to a {kind[:60]}, which isn't plain WordPiece")
    pieces = _pieces(path, data)
    control = _added(path, pieces, settings)
    known = {piece: token for token, piece in enumerate(pieces)}
    roles = {
        role: known[text]
        for role, name in NAMES.items()
        if (text := settings.special_tokens.get(f"{role}_token", name)) in known
    }
    control |= set(roles.values()) | {known[text] for text in settings.special_texts if text in known}
    kinds = [Kind.CONTROL if token in control else Kind.NORMAL for token in range(len(pieces))]
    return WordPieceTokenizer(
        Vocabulary(
            str(path),
            pieces,
            kinds,
            roles=roles,
            chat_template=settings.chat_template,
            warnings=settings.warnings,
        ),
        lowercase=_flag(beside, config, "do_lower_case", True) is True,
        strips_accents=_flag(beside, config, "strip_accents", None),
        splits_chinese=_flag(beside, config, "tokenize_chinese_chars", True) is True,
        hashes=True,
    )


def _pieces(path: Path, data: bytes) -> list[str]:
    # Other characters that Python takes for line ends are pieces.
    pieces = [line.removesuffix("\r") for line in utf8_text(path, data).removesuffix("\n").split("\n")]
    if len(set(pieces)) < len(pieces):
        twice = next(piece for piece, count in Counter(pieces).items() if count > 1)
        raise FormatError(path, f"holds the piece {twice!r:.40} twice: which id counts is anyone's guess")
    return pieces


def _added(path: Path, pieces: list[str], settings: Settings) -> set[int]:
    """Append the added tokens that aren't in the file; the ids of those that are control tokens."""
    control = set()
    for entry in sorted(settings.added, key=lambda entry: int(entry["id"])):
        token, text = entry["id"], entry["content"]
        if token == len(pieces):
            pieces.append(text)
        elif not 0 <= token < len(pieces) or pieces[token] != text:
            raise FormatError(path, f"doesn't agree with the added token {text!r:.40}, whose id is {token}")
        if entry.get("special", True) is not False:
            control.add(token)
    return control


def _flag(path: Path, config: dict[str, Any], key: str, default: bool | None) -> bool | None:
    value = config.get(key)
    if value is None:
        return default
    if not isinstance(value, bool):
        raise FormatError(path, f"`{key}` should be true or false, found {value!r:.40}")
    return value
