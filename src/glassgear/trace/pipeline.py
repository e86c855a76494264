"""From what a user typed to what a model reads: messages, rendered text, pieces, ids, and what to watch for.

In: a tokenizer, and a text or a conversation with the template that writes it. Out: every step on the
way as plain data, for terminals and the page alike. Encoding is the ordinary one (`Tokenizer.encode`,
`encode_chat`): the ids are those of a run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from glassgear.errors import SettingError

if TYPE_CHECKING:
    from glassgear.text.base import Tokenizer
    from glassgear.text.chat import ChatTemplate

__all__ = ["Piece", "Pipeline", "pieces_of", "pipeline", "text_of"]

Message = Mapping[str, Any]
NAMED = 4  # control tokens that a warning names
DOUBLE = "the text begins with {} (BOS) {} times: models are trained to see it once"


@dataclass(frozen=True)
class Piece:
    """One id.

    Attributes:
        id: the id.
        text: what it stands for; bytes that are no character by themselves as `<E4>`.
        piece: how the vocabulary spells it.
        special: whether it is a control token.
    """

    id: int
    text: str
    piece: str
    special: bool


@dataclass(frozen=True)
class Pipeline:
    """The way of a prompt.

    Attributes:
        messages: the conversation; empty for a plain text.
        text: the plain text, or what the template made of the messages.
        pieces: in order.
        warnings: sentences for people.
    """

    messages: tuple[Message, ...]
    text: str
    pieces: tuple[Piece, ...]
    warnings: tuple[str, ...]

    @property
    def ids(self) -> list[int]:
        """What the model reads."""
        return [piece.id for piece in self.pieces]

    @property
    def rendered(self) -> str | None:
        """What the template made; None for a plain text."""
        return self.text if self.messages else None

    def to_json(self) -> dict[str, Any]:
        """The steps as plain data; warnings apart."""
        specials = [(i, piece) for i, piece in enumerate(self.pieces) if piece.special]
        return {
            "messages": [dict(message) for message in self.messages],
            "template": self.rendered,
            "specials": [{"index": i, "id": piece.id, "text": piece.text} for i, piece in specials],
            "pieces": [vars(piece) for piece in self.pieces],
        }


def pipeline(
    tokenizer: Tokenizer,
    prompt: str | Sequence[Message],
    *,
    template: ChatTemplate | None = None,
    add_special: bool = True,
    parse_special: bool = False,
    most: int | None = None,
    context: int | None = None,
) -> Pipeline:
    """Every step from a prompt to its ids.

    Args:
        tokenizer: of the model.
        prompt: a text, or messages (`{"role": ..., "content": ...}`).
        template: writes messages; needed for them.
        add_special: for a text: add what the model expects around it.
        parse_special: for a text: read control tokens written in it as what they are.
        most: how many ids stay; what is cut off is said.
        context: most tokens that the model sees; a longer prompt is warned of.

    Raises:
        SettingError: half a character, or messages without a template.
        TemplateError: see `ChatTemplate.render`.
    """
    messages = () if isinstance(prompt, str) else tuple(prompt)
    _check_text(prompt if isinstance(prompt, str) else "".join(str(m.get("content")) for m in messages))
    if isinstance(prompt, str):
        text = prompt
        ids = tokenizer.encode(text, add_special=add_special, parse_special=parse_special)
        notes = [] if parse_special else _spelt(tokenizer, text)
    else:
        text, ids, notes = _chat(tokenizer, messages, template)
    warnings = [*tokenizer.warnings, *notes, *_doubled(tokenizer, ids)]
    if most is not None and len(ids) > most:
        warnings.append(f"truncated: {_tokens(len(ids) - most)} left out, {_tokens(most)} kept")
        ids = _cut(tokenizer, text, most, parse_special) if add_special and not messages else ids[:most]
    if context is not None and len(ids) > context:
        warnings.append(
            f"{_tokens(len(ids))}, but the context holds {context:,}: a run refuses this, so shorten it"
        )
    return Pipeline(messages, text, pieces_of(tokenizer, ids), tuple(dict.fromkeys(warnings)))


def pieces_of(tokenizer: Tokenizer, ids: Sequence[int]) -> tuple[Piece, ...]:
    """What ids stand for."""
    return tuple(Piece(i, text_of(tokenizer, i), tokenizer.piece(i), tokenizer.is_special(i)) for i in ids)


def _check_text(text: str) -> None:
    if any("\ud800" <= c <= "\udfff" for c in text):
        raise SettingError("the text holds half a character (a lone surrogate)")


def _chat(
    tokenizer: Tokenizer, messages: Sequence[Message], template: ChatTemplate | None
) -> tuple[str, list[int], list[str]]:
    """Rendered text, ids and warnings of a conversation."""
    from glassgear.text.chat import control_text_notes, encode_chat

    if template is None:
        raise SettingError("messages need a chat template that writes them")
    notes = control_text_notes(tokenizer, messages) if tokenizer.special else []
    return template.render(messages), encode_chat(tokenizer, template, messages), notes


def _cut(tokenizer: Tokenizer, text: str, most: int, parse_special: bool) -> list[int]:
    """The first ids of a text with what stands around it, as many as may be."""
    from glassgear.errors import TokenizerError

    inside = tokenizer.encode(text, parse_special=parse_special)
    try:
        return list(tokenizer.framed(inside, most=most).ids)
    except TokenizerError:  # it has no form for that: nothing stands behind a text
        return tokenizer.encode(text, add_special=True, parse_special=parse_special)[:most]


def _spelt(tokenizer: Tokenizer, text: str) -> list[str]:
    """A warning if a text spells control tokens."""
    found = [control for control in tokenizer.special if control and control in text]
    if not found:
        return []
    more = f" and {len(found) - NAMED} more" if len(found) > NAMED else ""
    return [f"the text spells {', '.join(found[:NAMED])}{more}: read as plain text, not as control tokens"]


def _doubled(tokenizer: Tokenizer, ids: Sequence[int]) -> list[str]:
    """A warning if a text begins with its first token more than once."""
    bos, count = tokenizer.bos_id, 0
    while bos is not None and count < len(ids) and ids[count] == bos:
        count += 1
    return [DOUBLE.format(tokenizer.piece(ids[0]), count)] if count > 1 else []


def _tokens(count: int) -> str:
    return f"{count:,} {'token' if count == 1 else 'tokens'}"


def text_of(tokenizer: Tokenizer, token: int) -> str:
    """What an id stands for, as it can be shown: bytes that are no character by themselves as `<E4>`."""
    text = tokenizer.token_bytes(token).decode("utf-8", "surrogateescape")
    return "".join(f"<{ord(c) - 0xDC00:02X}>" if "\udc80" <= c <= "\udcff" else c for c in text)
