"""What `decoder` and `normalizer` of a `tokenizer.json` amount to.

In: the description. Out: how a piece is spelled as bytes, if the decoder only joins the bytes of
pieces; and in words, what the normaliser changes for good.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from glassgear.text.byte_letters import letters_to_bytes

__all__ = ["Spelling", "changes", "spelling"]

_BYTE = re.compile(r"<0x([0-9A-Fa-f]{2})>")
_LOSSY = {
    "NFC": "characters are composed (NFC)",
    "NFD": "characters are taken apart (NFD)",
    "NFKC": "characters become plain ones and are composed (NFKC)",
    "NFKD": "characters become plain ones and are taken apart (NFKD)",
    "Lowercase": "lower case",
    "StripAccents": "accents go",
    "Strip": "white space at the edges goes",
    "Nmt": "control characters and unusual spaces are cleaned",
    "Precompiled": "characters are rewritten by the model's own table",
    "BertNormalizer": "lower case without accents, white space and control characters cleaned",
}


@dataclass(frozen=True)
class Spelling:
    """How the bytes of a text come from its pieces.

    Attributes:
        by_letters: pieces are written in the letters of byte-level BPE.
        replaced: texts inside pieces and what they stand for, in order.
        byte_pieces: `<0x0A>` is a byte.
        takes_first_space: decoding takes one space off the start.
    """

    by_letters: bool = False
    replaced: tuple[tuple[str, str], ...] = ()
    byte_pieces: bool = False
    takes_first_space: bool = False

    def plain(self, piece: str) -> bytes:
        """The bytes of a piece of the model."""
        if self.by_letters:
            spelled = letters_to_bytes(piece)
            return piece.encode() if spelled is None else spelled
        for old, new in self.replaced:
            piece = piece.replace(old, new)
        if self.byte_pieces and (match := _BYTE.fullmatch(piece)):
            return bytes([int(match[1], 16)])
        return piece.encode()

    def added(self, text: str) -> bytes:
        """The bytes of a token that was added to the model, which is written as it is."""
        return text.encode() if self.by_letters else self.plain(text)


def spelling(description: Mapping[str, Any]) -> Spelling | None:
    """How pieces are spelled; None if the decoder does more than joining bytes."""
    steps = list(_steps(description.get("decoder"), "decoders"))
    kinds = [step.get("type") for step in steps]
    if kinds == ["ByteLevel"]:
        return Spelling(by_letters=True)
    replaced: list[tuple[str, str]] = []
    takes_first_space = fused = False
    for step in steps:
        match step:
            case {"type": "Replace", "pattern": {"String": str(old)}, "content": str(new)} if old:
                replaced.append((old, new))
            case {"type": "Metaspace", "replacement": str(old)}:
                replaced.append((old, " "))
                takes_first_space = _prepends(step)
            case {"type": "ByteFallback" | "Fuse"}:
                pass
            case {"type": "Strip", "content": " ", "start": 0 | 1 as start, "stop": 0} if fused:
                takes_first_space = bool(start)
            case _:
                return None
        fused = fused or step.get("type") == "Fuse"
    if not steps:  # then the library puts spaces between pieces
        return None
    return Spelling(
        replaced=tuple(replaced), byte_pieces="ByteFallback" in kinds, takes_first_space=takes_first_space
    )


def _prepends(step: Mapping[str, Any]) -> bool:
    scheme = step.get("prepend_scheme")
    return scheme != "never" if isinstance(scheme, str) else step.get("add_prefix_space") is not False


def changes(description: Mapping[str, Any]) -> str:
    """What encoding changes in a text for good, in words; empty for nothing."""
    found: list[str] = []
    for step in _steps(description.get("normalizer"), "normalizers"):
        kind = step.get("type")
        if kind == "Replace":
            found.append(_replacement(step))
        elif kind == "BertNormalizer" and step.get("lowercase") is False:
            found.append("white space and control characters cleaned")
        elif isinstance(kind, str) and kind in _LOSSY:
            found.append(_LOSSY[kind])
    for step in _steps(description.get("pre_tokenizer"), "pretokenizers"):
        if step.get("type") == "Metaspace":
            found.append("U+2581 becomes a space")
        elif step.get("type") in ("BertPreTokenizer", "Whitespace", "WhitespaceSplit"):
            found.append("white space is lost")
    return "; ".join(dict.fromkeys(found))


def _replacement(step: Mapping[str, Any]) -> str:
    match step:
        case {"pattern": {"String": " "}, "content": str(new)} if len(new) == 1:
            return f"U+{ord(new):04X} becomes a space"
        case {"pattern": {"String": old}, "content": str(new)} | {
            "pattern": {"Regex": old},
            "content": str(new),
        }:
            return f"{old!r} becomes {new!r}"
        case _:
            return "characters are replaced"


def _steps(component: Any, inside: str) -> Iterator[Mapping[str, Any]]:
    """The steps of a component, those inside sequences in their place."""
    todo = [component]
    while todo:
        step = todo.pop()
        if not isinstance(step, dict):
            continue
        if step.get("type") == "Sequence":
            within = step.get(inside)
            todo += reversed(within) if isinstance(within, list) else []
        else:
            yield step
