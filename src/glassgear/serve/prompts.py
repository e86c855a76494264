"""From what a user typed to ids, with every step on the way, and what to know about it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from glassgear.errors import SettingError, TokenizerError
from glassgear.language_model import LanguageModel
from glassgear.text.base import Tokenizer

__all__ = ["Prepared", "prepare", "text_of"]


@dataclass(frozen=True)
class Prepared:
    """A prompt.

    Attributes:
        ids: what the model reads.
        rendered: the text that the chat template made, or None.
        warnings: sentences for people.
    """

    ids: list[int]
    rendered: str | None
    warnings: list[str]


def prepare(model: LanguageModel, prompt: str, *, chat: bool, system: str | None) -> Prepared:
    """Ids of a prompt: plain text to go on from, or a message to answer.

    Args:
        model: whose tokenizer and template are used. Without a tokenizer the prompt is ids ("1 2 3").
        prompt: the text; empty: from the model's first token on.
        chat: whether it is a message.
        system: a system message before it.

    Raises:
        GlassgearError: it can't be encoded, or is longer than the context.
    """
    tokenizer = tokenizer_of(model)
    for text in (prompt, system or ""):
        if any("\ud800" <= c <= "\udfff" for c in text):
            raise SettingError("the text holds half a character (a lone surrogate)")
    if tokenizer is None:
        return _plain_ids(model, prompt, chat)
    messages = [{"role": "system", "content": system}] if system else []
    messages.append({"role": "user", "content": prompt})
    warnings = list(tokenizer.warnings) + _control_text(tokenizer, messages)
    rendered = None
    if chat:
        from glassgear.text.chat import encode_chat

        rendered = model.chat_template.render(messages)
        ids = encode_chat(tokenizer, model.chat_template, messages)
    else:
        if system:
            raise SettingError("a system message is part of a chat: a plain text has none")
        ids = model.encode(prompt)
    if tokenizer.bos_id is not None and ids[:2] == [tokenizer.bos_id] * 2:
        warnings.append("the text begins with its first token (BOS) twice: models aren't trained for that")
    return Prepared(ids, rendered, warnings)


def tokenizer_of(model: LanguageModel) -> Tokenizer | None:
    """The tokenizer, or None."""
    try:
        return model.tokenizer
    except TokenizerError:
        return None


def _plain_ids(model: LanguageModel, prompt: str, chat: bool) -> Prepared:
    words = prompt.replace(",", " ").split()
    if chat or not words or not all(word.isdecimal() and len(word) < 10 for word in words):
        raise SettingError('this model has no tokenizer: give ids, such as "1 2 3"')
    return Prepared(model.encode([int(word) for word in words]), None, [])


def _control_text(tokenizer: Tokenizer, messages: Sequence[dict[str, Any]]) -> list[str]:
    from glassgear.text.chat import control_text_notes

    return control_text_notes(tokenizer, messages) if tokenizer.special else []


def text_of(tokenizer: Tokenizer | None, token: int) -> str:
    """What an id stands for, as it can be shown: bytes that are no character by themselves as `<E4 B8>`."""
    if tokenizer is None or not 0 <= token < tokenizer.vocab_size:
        return f"#{token}"
    raw = tokenizer.token_bytes(token)
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        return f"<{raw.hex(' ').upper()}>"


def pipeline(model: LanguageModel, prepared: Prepared) -> dict[str, Any]:
    """The steps as the page shows them: rendered template, specials, pieces."""
    tokenizer = tokenizer_of(model)
    pieces = [
        {
            "id": token,
            "text": text_of(tokenizer, token),
            "piece": tokenizer.piece(token) if tokenizer else f"#{token}",
            "special": bool(tokenizer and tokenizer.is_special(token)),
        }
        for token in prepared.ids
    ]
    specials = [
        {"index": index, "id": piece["id"], "text": piece["text"]}
        for index, piece in enumerate(pieces)
        if piece["special"]
    ]
    return {"template": prepared.rendered, "specials": specials, "pieces": pieces}
