"""Small vocabularies, and the files they come in, made by hand."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from typing import Any

from glassgear.text.byte_letters import LETTER_OF

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6

Piece = tuple[str, float, int]

HEAD: list[Piece] = [("<unk>", 0.0, UNKNOWN), ("<s>", 0.0, CONTROL), ("</s>", 0.0, CONTROL)]
BYTES: list[Piece] = [(f"<0x{byte:02X}>", 0.0, BYTE) for byte in range(256)]


def varint(value: int) -> bytes:
    value &= (1 << 64) - 1
    out = bytearray()
    while value >= 128:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


def field(number: int, value: int | float | bytes | str) -> bytes:
    """One field of a protocol-buffer message."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    if isinstance(value, float):
        return varint(number << 3 | 5) + struct.pack("<f", value)
    data = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(data)) + data


def sentencepiece_model(
    pieces: Iterable[Piece],
    *,
    kind: int = 2,
    dummy_prefix: bool = True,
    squeeze: bool = False,
    byte_fallback: bool = True,
    charsmap: bytes = b"",
    unk: int = 0,
    bos: int = 1,
    eos: int = 2,
    pad: int = -1,
) -> bytes:
    """A SentencePiece `tokenizer.model`."""
    out = b"".join(field(1, field(1, text) + field(2, score) + field(3, k)) for text, score, k in pieces)
    trainer = field(3, kind) + field(35, int(byte_fallback)) + field(40, unk)
    trainer += field(41, bos) + field(42, eos) + field(43, pad)
    normalizer = (
        field(1, "identity") + field(2, charsmap) + field(3, int(dummy_prefix)) + field(4, int(squeeze))
    )
    return out + field(2, trainer) + field(3, normalizer + field(5, 1))


def llama2c_bin(pieces: Iterable[tuple[bytes, float]]) -> bytes:
    """A llama2.c `tokenizer.bin`."""
    pieces = list(pieces)
    longest = max(len(text) for text, _ in pieces)
    return struct.pack("<i", longest) + b"".join(
        struct.pack("<fi", score, len(text)) + text for text, score in pieces
    )


def small_llama2c_bin() -> bytes:
    head = [(b"<unk>", 0.0), (b"\n<s>\n", 0.0), (b"\n</s>\n", 0.0)]
    words = [(b" ", -9.0), (b"a", -8.0), (b"b", -7.0), (b" a", -1.0), (b"ab", -2.0), ("é".encode(), -3.0)]
    return llama2c_bin([*head, *((text.encode(), score) for text, score, _ in BYTES), *words])


def byte_level_metadata(
    merges: Sequence[str | tuple[str, str]] = ("h e", "l l", "he ll", "hell o", "Ġ w"),
    *,
    pre: str | None = "gpt-2",
    control: Sequence[str] = ("<|endoftext|>", "<|im_end|>"),
    user_defined: Sequence[str] = (),
    more: Sequence[str] = (),
    **settings: Any,
) -> dict[str, Any]:
    """GGUF metadata of a byte-level vocabulary: 256 letters, what merges make, and what is asked for."""
    made = ["".join(merge.split(" ") if isinstance(merge, str) else merge) for merge in merges]
    tokens = list(dict.fromkeys([*LETTER_OF.values(), *made, *more]))
    kinds = [NORMAL] * len(tokens) + [CONTROL] * len(control) + [USER_DEFINED] * len(user_defined)
    tokens += [*control, *user_defined]
    found: dict[str, Any] = {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": kinds,
        "tokenizer.ggml.merges": list(merges),
    }
    if pre is not None:
        found["tokenizer.ggml.pre"] = pre
    return found | {f"tokenizer.ggml.{key}": value for key, value in settings.items()}
