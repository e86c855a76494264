"""Make a tokenizer from whatever a model brings: GGUF metadata, a folder, or a file.

What a file is, is told by its first bytes, never by its name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from glassgear.errors import FormatError, NotFoundError, UnsupportedError
from glassgear.text.base import Tokenizer
from glassgear.text.files import read_bytes

__all__ = ["tokenizer_from_file", "tokenizer_from_metadata"]

FILES = ("tokenizer.json", "tokenizer.model", "tokenizer.bin", "vocab.txt")
_SLOW_FILES = ("vocab.json", "tekken.json", "tiktoken.model", "spiece.model")


def tokenizer_from_metadata(metadata: Mapping[str, Any], path: str) -> Tokenizer | None:
    """The tokenizer that GGUF metadata describe, or None if they hold none.

    Args:
        metadata: key -> value, as `weights.gguf.read` gives them.
        path: the file, for messages.

    Raises:
        FormatError: lists that are missing or don't fit together.
        UnsupportedError: a kind of tokenizer that this version doesn't know.
    """
    kind = metadata.get("tokenizer.ggml.model")
    if kind is None or kind in ("no_vocab", "none"):
        return None
    if kind == "llama":
        return _sentencepiece(metadata, path)
    if kind == "gpt2":
        return _byte_level(metadata, path)
    if kind == "bert":
        return _wordpiece(metadata, path)
    raise UnsupportedError(
        path, f"has a tokenizer of the kind {kind!r:.40}; this version knows llama, gpt2 and bert"
    )


def _sentencepiece(metadata: Mapping[str, Any], path: str) -> Tokenizer:
    from glassgear.text.gguf_vocabulary import read_vocabulary
    from glassgear.text.spm import SentencePieceTokenizer

    vocabulary = read_vocabulary(metadata, path, adds_bos=True)
    return SentencePieceTokenizer(vocabulary, freezes=not vocabulary.space_prefix)


def _byte_level(metadata: Mapping[str, Any], path: str) -> Tokenizer:
    from glassgear.text.bpe import ByteLevelTokenizer
    from glassgear.text.gguf_vocabulary import merges_of, read_vocabulary, word_rule

    rule, guess = word_rule(metadata)
    vocabulary = read_vocabulary(metadata, path, adds_bos=rule.adds_bos)
    if guess is not None:
        vocabulary = replace(vocabulary, warnings=(guess, *vocabulary.warnings))
    return ByteLevelTokenizer(vocabulary, merges_of(metadata, path), rule)


def _wordpiece(metadata: Mapping[str, Any], path: str) -> Tokenizer:
    from glassgear.text.gguf_vocabulary import read_vocabulary
    from glassgear.text.wordpiece import WordPieceTokenizer

    lowercase = metadata.get("tokenizer.ggml.normalizer.lowercase", True)
    return WordPieceTokenizer(read_vocabulary(metadata, path), lowercase=bool(lowercase))


def tokenizer_from_file(path: Path) -> Tokenizer | None:
    """The tokenizer in a file, or the one in a folder; None if a folder holds none.

    Args:
        path: a `tokenizer.json` or WordPiece's `vocab.txt` (what lies beside them is read too), a
            SentencePiece `tokenizer.model`, a llama2.c `tokenizer.bin`, or a folder with one of them.

    Raises:
        NotFoundError: nothing is there.
        FormatError: damaged, or no tokenizer.
        UnsupportedError: a valid file of a kind that this version doesn't read.
    """
    if path.is_dir():
        return _from_folder(path)
    data = read_bytes(path)
    if data.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] == b"{" and b"\0" not in data[:4]:
        from glassgear.text.tokenizer_json import read_tokenizer_json

        return read_tokenizer_json(path, data)
    from glassgear.text.spm import SentencePieceTokenizer
    from glassgear.text.spm_files import (
        looks_like_sentencepiece,
        read_llama2c,
        read_sentencepiece,
        with_settings,
    )
    from glassgear.text.vocab_txt import looks_like_vocab_txt, read_vocab_txt

    if data[:4] in (b"GGUF", b"FUGG"):
        raise FormatError(path, "is a GGUF file, where a file with a tokenizer alone is needed")
    if looks_like_sentencepiece(data):
        from glassgear.text.json_settings import read_settings

        vocabulary = with_settings(read_sentencepiece(path, data), read_settings(path))
        return SentencePieceTokenizer(vocabulary, freezes=True)
    if looks_like_vocab_txt(data):
        return read_vocab_txt(path, data)
    if data[2:4] != b"\0\0":  # llama2.c's files begin with the length of the longest piece
        raise FormatError(
            path,
            "is no tokenizer: its first bytes fit neither a tokenizer.json, nor SentencePiece's "
            "tokenizer.model, nor WordPiece's vocab.txt, nor llama2.c's tokenizer.bin",
        )
    return SentencePieceTokenizer(read_llama2c(path, data), space=" ")


def _from_folder(path: Path) -> Tokenizer | None:
    for name in FILES:
        if (path / name).is_file():
            return tokenizer_from_file(path / name)
    if slow := [name for name in _SLOW_FILES if (path / name).is_file()]:
        raise UnsupportedError(
            path,
            f"holds its tokenizer as {slow[0]} only: make a tokenizer.json of it, for example with "
            "transformers' `AutoTokenizer.from_pretrained(...).save_pretrained(...)`",
        )
    if not path.exists():
        raise NotFoundError(path, "there is no such folder")
    return None
