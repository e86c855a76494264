"""From what a user typed to ids, with every step on the way, and what to know about it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from glassgear.errors import SettingError, TokenizerError
from glassgear.language_model import LanguageModel
from glassgear.text.base import Tokenizer
from glassgear.trace.pipeline import Pipeline, pieces_of
from glassgear.trace.pipeline import pipeline as walked
from glassgear.trace.pipeline import text_of as shown

__all__ = ["Prepared", "pipeline", "prepare", "text_of", "tokenizer_of"]


@dataclass(frozen=True)
class Prepared:
    """A prompt.

    Attributes:
        ids: what the model reads.
        way: how it came about; None for a prompt of ids.
    """

    ids: list[int]
    way: Pipeline | None

    @property
    def warnings(self) -> list[str]:
        """Sentences for people."""
        return [] if self.way is None else list(self.way.warnings)


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
    if tokenizer is None:
        return _plain_ids(model, prompt, chat)
    if chat:
        messages = [{"role": "system", "content": system}] if system else []
        messages.append({"role": "user", "content": prompt})
        way = walked(tokenizer, messages, template=model.chat_template)
        return Prepared(way.ids, way)
    if system:
        raise SettingError("a system message is part of a chat: a plain text has none")
    if prompt:
        way = walked(tokenizer, prompt)
    else:
        way = Pipeline((), "", pieces_of(tokenizer, model.encode(None)), tuple(tokenizer.warnings))
    return Prepared(way.ids, way)


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
    return Prepared(model.encode([int(word) for word in words]), None)


def text_of(tokenizer: Tokenizer | None, token: int) -> str:
    """What an id stands for, as it can be shown: bytes that are no character by themselves as `<E4>`."""
    if tokenizer is None or not 0 <= token < tokenizer.vocab_size:
        return f"#{token}"
    return shown(tokenizer, token)


def pipeline(prepared: Prepared) -> dict[str, Any]:
    """The steps as the page shows them: messages, rendered template, specials, pieces."""
    if prepared.way is not None:
        return prepared.way.to_json()
    pieces = [{"id": i, "text": f"#{i}", "piece": f"#{i}", "special": False} for i in prepared.ids]
    return {"messages": [], "template": None, "specials": [], "pieces": pieces}
