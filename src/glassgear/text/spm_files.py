"""Vocabularies with scores, from the two kinds of files that hold nothing else.

In: bytes. Out: a `Vocabulary`.
- llama2.c `tokenizer.bin`: int32 length of the longest piece, then for each piece float32 score,
  int32 length, bytes; all little-endian (karpathy/llama2.c at 350e04f, `tokenizer.py`).
- SentencePiece `tokenizer.model`: protocol buffer `ModelProto` (google/sentencepiece,
  `sentencepiece_model.proto`); the few fields that matter are read here.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from glassgear.errors import FormatError, UnsupportedError
from glassgear.text.json_settings import Settings
from glassgear.text.vocabulary import Kind, Vocabulary

__all__ = ["looks_like_sentencepiece", "read_llama2c", "read_sentencepiece", "with_settings"]

Field = int | bytes

# llama2.c's programs have these ids built in.
_LLAMA2C_ROLES = {"unk": 0, "bos": 1, "eos": 2}
_LLAMA2C_FIRST_BYTE = 3
_LONGEST_PIECE = 1 << 16  # bytes; real ones have some dozens

_SMALL_TYPES = ("unigram", "bpe", "word", "char")  # numbered from 1
_BPE = 2


def read_llama2c(path: Path, data: bytes) -> Vocabulary:
    """The vocabulary in a llama2.c `tokenizer.bin`.

    Raises:
        FormatError: cut off, damaged, or no such file.
    """
    pieces: list[str] = []
    scores: list[float] = []
    at = 4
    while at < len(data):
        if at + 8 > len(data):
            raise FormatError(path, f"ends inside piece {len(pieces)}: it is cut off, so fetch it again")
        score, length = struct.unpack_from("<fi", data, at)
        at += 8
        if not 0 <= length <= min(_LONGEST_PIECE, len(data) - at):
            raise FormatError(
                path,
                f"piece {len(pieces)} claims {length:,} bytes where {len(data) - at:,} are left: "
                "it is cut off or damaged, or no llama2.c tokenizer",
            )
        pieces.append(_utf8(path, data[at : at + length], len(pieces)))
        scores.append(score)
        at += length
    if len(pieces) <= _LLAMA2C_FIRST_BYTE:
        raise FormatError(path, f"holds {len(pieces)} pieces, fewer than llama2.c's three control tokens")
    return Vocabulary(
        str(path),
        [_llama2c_name(piece, token) for token, piece in enumerate(pieces)],
        [_llama2c_kind(piece, token) for token, piece in enumerate(pieces)],
        scores,
        roles=_LLAMA2C_ROLES,
        adds_bos=True,
        space_prefix=True,
    )


def _llama2c_name(piece: str, token: int) -> str:
    """The exporter wraps BOS and EOS in line ends, for its program's output."""
    return piece.strip("\n") if token in _LLAMA2C_ROLES.values() else piece


def _llama2c_kind(piece: str, token: int) -> int:
    if token == _LLAMA2C_ROLES["unk"]:
        return Kind.UNKNOWN
    if token in _LLAMA2C_ROLES.values():
        return Kind.CONTROL
    # The program takes these ids for bytes, whatever they are called.
    named = _LLAMA2C_FIRST_BYTE <= token < _LLAMA2C_FIRST_BYTE + 256
    return Kind.BYTE if named and piece == f"<0x{token - _LLAMA2C_FIRST_BYTE:02X}>" else Kind.NORMAL


def looks_like_sentencepiece(data: bytes) -> bool:
    """Whether bytes begin with a SentencePiece piece: field 1 that holds its own field 1."""
    return data[:1] == b"\n" and data[1:2] != b"\0" and data[2:3] == b"\n"


def read_sentencepiece(path: Path, data: bytes) -> Vocabulary:
    """The vocabulary in a SentencePiece `tokenizer.model`.

    Raises:
        FormatError: cut off, damaged, or no such file.
        UnsupportedError: not BPE, or with a table that rewrites characters.
    """
    pieces: list[str] = []
    kinds: list[int] = []
    scores: list[float] = []
    trainer: dict[int, Field] = {}
    normalizer: dict[int, Field] = {}
    for number, value in _fields(path, data):
        if number == 1:
            entry = dict(_fields(path, _message(path, value)))
            pieces.append(_utf8(path, _message(path, entry.get(1, b"")), len(pieces)))
            scores.append(_float(path, entry.get(2, bytes(4))))
            kinds.append(_number(path, entry.get(3, Kind.NORMAL)))
        elif number in (2, 3):
            (trainer if number == 2 else normalizer).update(_fields(path, _message(path, value)))
    if not pieces:
        raise FormatError(path, "holds no pieces: it is no SentencePiece model, or damaged")
    _refuse_other_kinds(path, trainer, normalizer)
    return Vocabulary(
        str(path),
        pieces,
        kinds,
        scores,
        roles=_roles(path, trainer, len(pieces)),
        adds_bos=True,
        space_prefix=bool(_number(path, normalizer.get(3, 1))),
        squeezes_spaces=bool(_number(path, normalizer.get(4, 1))),
    )


def with_settings(vocabulary: Vocabulary, settings: Settings) -> Vocabulary:
    """The vocabulary with what the config beside a `tokenizer.model` adds to it."""
    pieces, kinds, scores = list(vocabulary.pieces), list(vocabulary.kinds), list(vocabulary.scores)
    known = set(pieces)
    for entry in sorted(settings.added, key=lambda entry: entry["id"]):
        text = entry["content"]
        if text in known or entry["id"] != len(pieces):
            continue
        special = entry.get("special") is True or text in settings.special_texts
        pieces.append(text)
        kinds.append(Kind.CONTROL if special else Kind.USER_DEFINED)
        scores.append(0.0)
    roles = {
        name.removesuffix("_token"): pieces.index(text)
        for name, text in settings.special_tokens.items()
        if text in pieces
    }
    return replace(
        vocabulary,
        pieces=pieces,
        kinds=kinds,
        scores=scores,
        roles={**vocabulary.roles, **roles},
        adds_bos=vocabulary.adds_bos if settings.adds_bos is None else settings.adds_bos,
        adds_eos=vocabulary.adds_eos if settings.adds_eos is None else settings.adds_eos,
        chat_template=settings.chat_template,
    )


def _refuse_other_kinds(path: Path, trainer: dict[int, Field], normalizer: dict[int, Field]) -> None:
    number = _number(path, trainer.get(3, 1))
    if number != _BPE:
        name = _SMALL_TYPES[number - 1] if 1 <= number <= len(_SMALL_TYPES) else str(number)
        raise UnsupportedError(path, f"is a SentencePiece model of type {name}; only bpe is read here")
    if _message(path, normalizer.get(2, b"")):
        name = _utf8(path, _message(path, normalizer.get(1, b"")), -1)
        raise UnsupportedError(
            path, f"rewrites characters before encoding (normalizer {name!r:.40}): use its tokenizer.json"
        )
    if not _number(path, normalizer.get(5, 1)):
        raise UnsupportedError(
            path, "keeps spaces as they are (escape_whitespaces off): use its tokenizer.json"
        )
    if _number(path, trainer.get(24, 0)):
        raise UnsupportedError(path, "writes spaces behind words: use its tokenizer.json")


def _roles(path: Path, trainer: dict[int, Field], count: int) -> dict[str, int]:
    """Fields 40 to 43 of the trainer's settings: ids of unk, bos, eos, pad; -1 for none."""
    found = {}
    for field, (role, default) in enumerate({"unk": 0, "bos": 1, "eos": 2, "pad": -1}.items(), start=40):
        token = _number(path, trainer.get(field, default))
        if token >= 1 << 63:  # a negative int32 is written as 64 bits
            continue
        if token >= count:
            raise FormatError(path, f"names {token} as its {role} token, but has {count} pieces")
        if token >= 0:
            found[role] = token
    return found


def _fields(path: Path, data: bytes) -> Iterator[tuple[int, Field]]:
    """The fields of a protocol-buffer message, in order: number, and an integer or bytes."""
    at = 0
    while at < len(data):
        tag, at = _varint(path, data, at)
        number, wire = tag >> 3, tag & 7
        if wire == 0:
            value, at = _varint(path, data, at)
            yield number, value
            continue
        if wire == 2:
            length, at = _varint(path, data, at)
        elif wire in (1, 5):
            length = 8 if wire == 1 else 4
        else:
            raise FormatError(
                path, f"holds a field of wire type {wire}: it is no SentencePiece model, or damaged"
            )
        if length > len(data) - at:
            raise FormatError(path, "ends inside a field: it is cut off or damaged, so fetch it again")
        yield number, data[at : at + length]
        at += length


def _varint(path: Path, data: bytes, at: int) -> tuple[int, int]:
    """A number of 7 bits a byte, lowest first, and where it ends."""
    value = 0
    for place, byte in enumerate(data[at : at + 10]):
        value |= (byte & 127) << (7 * place)
        if byte < 128:
            return value & ((1 << 64) - 1), at + place + 1
    raise FormatError(path, "holds a number that doesn't end: it is cut off or damaged")


def _message(path: Path, value: Field) -> bytes:
    if isinstance(value, bytes):
        return value
    raise FormatError(path, "holds a number where text should be: it is damaged")


def _number(path: Path, value: Field) -> int:
    if isinstance(value, int):
        return value
    raise FormatError(path, "holds text where a number should be: it is damaged")


def _float(path: Path, value: Field) -> float:
    if isinstance(value, bytes) and len(value) == 4:
        return float(struct.unpack("<f", value)[0])
    raise FormatError(path, "holds a score that isn't a float: it is damaged")


def _utf8(path: Path, data: bytes, token: int) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        shown = re.sub(rb"[^ -~]", b"?", data[:20]).decode()
        raise FormatError(path, f"piece {token} isn't UTF-8 text ({shown}): it is damaged") from None
