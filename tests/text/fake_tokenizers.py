"""Small tokenizers for tests of what is built on the `Tokenizer` interface alone."""

from __future__ import annotations

import re
from collections.abc import Sequence

from glassgear.text.base import Tokenizer

CHATML = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")


class Pieces(Tokenizer):
    """One id for each given piece of bytes or text; control tokens are marked by a tuple of texts."""

    kind = "fake"

    def __init__(
        self, pieces: Sequence[bytes | str], special: Sequence[str] = (), leading_space: bool = False
    ) -> None:
        self.pieces = [p.encode() if isinstance(p, str) else p for p in pieces]
        self.vocab_size = len(self.pieces)
        self.special = {text: self.pieces.index(text.encode()) for text in special}
        self._leading = leading_space

    @property
    def leading_space(self) -> bool:
        return self._leading

    def token_bytes(self, token: int) -> bytes:
        return self.pieces[token]

    def piece(self, token: int) -> str:
        return self.pieces[token].decode(errors="replace")

    def encode(self, text: str, add_special: bool = False, parse_special: bool = False) -> list[int]:
        """The longest piece from the left, again and again."""
        pattern = "|".join(map(re.escape, sorted(self.special, key=len, reverse=True))) or "(?!)"
        ids = [self.bos_id] if add_special and self.adds_bos and self.bos_id is not None else []
        data = b" " * self.leading_space
        at = 0
        for found in re.finditer(pattern, text) if parse_special else ():
            ids += self._longest(data + text[at : found.start()].encode())
            ids.append(self.special[found.group()])
            data, at = b"", found.end()
        return ids + self._longest(data + text[at:].encode())

    def _longest(self, data: bytes) -> list[int]:
        ids = []
        while data:
            fitting = [
                i for i, p in enumerate(self.pieces) if p and data.startswith(p) and not self.is_special(i)
            ]
            ids.append(max(fitting, key=lambda i: len(self.pieces[i])))
            data = data[len(self.pieces[ids[-1]]) :]
        return ids


def byte_tokenizer(special: Sequence[str] = CHATML, words: Sequence[str] = (), **kw: bool) -> Pieces:
    """All bytes, some words, and control tokens; ids of bytes are their values."""
    return Pieces([*(bytes([i]) for i in range(256)), *words, *special], special, **kw)
