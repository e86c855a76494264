"""The alphabet in which byte-level BPE writes bytes: each of the 256 is one printable letter.

Radford et al. 2019, `encoder.py` of openai/gpt-2: printable Latin-1 stands for itself, the
other bytes for the letters from U+0100 on.
"""

from __future__ import annotations

__all__ = ["BYTE_OF", "LETTER_OF", "letters_to_bytes"]

_PRINTABLE = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
_OTHERS = [byte for byte in range(256) if byte not in _PRINTABLE]

LETTER_OF: dict[int, str] = {byte: chr(byte) for byte in _PRINTABLE} | {
    byte: chr(256 + place) for place, byte in enumerate(_OTHERS)
}
"""byte -> its letter"""

BYTE_OF: dict[str, int] = {letter: byte for byte, letter in LETTER_OF.items()}
"""letter -> its byte"""

# For `str.translate`. What is no letter of the alphabet is moved out of Latin-1's reach.
_TO_LATIN1 = {ord(letter): byte for letter, byte in BYTE_OF.items()} | {
    byte: 0xFFFF for byte in range(256) if chr(byte) not in BYTE_OF
}


def letters_to_bytes(piece: str) -> bytes | None:
    """The bytes that a piece spells; None if it has a letter that stands for no byte."""
    try:
        return piece.translate(_TO_LATIN1).encode("latin-1")
    except UnicodeEncodeError:
        return None
