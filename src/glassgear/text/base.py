"""What every tokenizer offers, whatever it is built on.

In: text. Out: ids, and from ids text or bytes. Chat templates and streams build on this
interface alone (`chat.py`, `stream.py`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence

from glassgear.errors import TokenizerError
from glassgear.text.frames import Inputs

__all__ = ["Tokenizer"]


class Tokenizer(ABC):
    """Text <-> ids.

    Attributes:
        kind: `spm`, `bpe`, `wordpiece`: for people.
        vocab_size: number of ids; every id is below it.
        bos_id, eos_id: the ids that open and end a text, or None.
        end_ids: every id that ends an answer (`eos_id` and the end-of-turn kinds).
        special: control tokens, text -> id. They are produced from text only with
            `parse_special=True`, and never shown by `decode` unless asked for.
        adds_bos: whether `add_special=True` puts `bos_id` in front.
        warnings: what a user should know about how it was loaded (an unknown `pre` name, say).
        normalises: how a round trip may change text, in words; empty where it never does.
        joins: whether `decode` is the joined `token_bytes`; if not, streams decode short windows.
        chat_template: the Jinja source that came with the vocabulary, or several by name
            (`{"default": ..., "tool_use": ...}`), or None.
        special_tokens: texts that a chat template may use, by the names it uses: `bos_token`,
            `eos_token`, `pad_token`, `unk_token`, ...
    """

    kind: str = ""
    vocab_size: int = 0
    bos_id: int | None = None
    eos_id: int | None = None
    end_ids: frozenset[int] = frozenset()
    special: dict[str, int]
    adds_bos: bool = False
    adds_eos: bool = False
    warnings: tuple[str, ...] = ()
    normalises: str = ""
    joins: bool = True
    chat_template: str | Mapping[str, str] | None = None
    special_tokens: Mapping[str, str] = {}

    @abstractmethod
    def encode(self, text: str, add_special: bool = False, parse_special: bool = False) -> list[int]:
        """Ids of `text`.

        Args:
            text: any Unicode text.
            add_special: put the ids around it that the model expects (BOS, or [CLS] and [SEP]);
                a BOS that the text already gives with `parse_special` is not doubled.
            parse_special: read control tokens written in the text as what they are. Only for
                text you trust: never for what a user typed.
        """

    def encode_parts(self, parts: Iterable[tuple[str, bool]], add_special: bool = False) -> list[int]:
        """Ids of a text of which only some parts are trusted, such as a rendered chat.

        Args:
            parts: pieces of one text in order, each with whether control tokens written in it are
                read as what they are. One that reaches into a part that isn't trusted stays text.
            add_special: as in `encode`.

        The tokenizers of this package encode text across the borders of parts, so that the ids
        are those of the whole text, less the control tokens that nobody vouches for. This plain
        version cuts at every border.
        """
        ids: list[int] = []
        for text, trusted in parts:
            ids += self.encode(text, add_special and not ids, trusted)
        return ids

    def framed(
        self, first: Sequence[int], second: Sequence[int] | None = None, *, most: int | None = None
    ) -> Inputs:
        """What an encoder takes in of a text, or of a pair: control tokens around them, token types.

        Args:
            first: ids of the text, as `encode` gives them without `add_special`.
            second: ids of a second text.
            most: how many ids there may be in all; see `frames.framed`.

        Raises:
            TokenizerError: the tokenizer has no form for this.
            SettingError: `most` leaves no room for the control tokens.
        """
        raise TokenizerError(f"this tokenizer ({self.kind}) doesn't say what stands around a text")

    @property
    def mask_id(self) -> int | None:
        """The id that stands for a word that is to be guessed, or None."""
        for text in (self.special_tokens.get("mask_token"), "[MASK]", "<mask>"):
            if text in self.special:
                return self.special[text]
        return None

    @abstractmethod
    def token_bytes(self, token: int) -> bytes:
        """The bytes an id stands for inside a text (a control token: its own text, UTF-8).

        Joined over ids they are the text's UTF-8, up to `leading_space` and what `normalises`
        says. Where `joins` is False they are only a close guess.

        Raises:
            TokenizerError: the vocabulary has no such id.
        """

    @abstractmethod
    def piece(self, token: int) -> str:
        """The vocabulary entry as the file spells it (`▁the`, `Ġthe`, `<0x0A>`)."""

    @property
    def leading_space(self) -> bool:
        """Whether encoding puts a space in front, which decoding takes off the start of a text."""
        return False

    def is_special(self, token: int) -> bool:
        """Whether an id is a control token, which `decode` leaves out."""
        return token in self._special_ids()

    def decode_bytes(self, ids: Iterable[int], skip_special: bool = True) -> bytes:
        """The bytes of a whole text; `leading_space` taken off once, at its start."""
        hidden = self._special_ids() if skip_special else frozenset()
        out = b"".join(self.token_bytes(token) for token in ids if token not in hidden)
        return out[1:] if self.leading_space and out.startswith(b" ") else out

    def decode(self, ids: Sequence[int], skip_special: bool = True) -> str:
        """The text of `ids`. Bytes that form no character become U+FFFD."""
        return self.decode_bytes(ids, skip_special).decode("utf-8", errors="replace")

    def _special_ids(self) -> frozenset[int]:
        cached: frozenset[int] | None = self.__dict__.get("_special_cache")
        if cached is None:
            cached = self.__dict__["_special_cache"] = frozenset(self.special.values())
        return cached
