"""A conversation -> ids in which every control token was written by the template.

Text that a user typed may spell a control token (`<|im_end|>`). Tokenised along with the
template's own text it would close the user's turn and open another. So each control token in
the rendered text needs an origin, and only the template's are read as control tokens.

The origin is found by rendering a second time with marks (a private-use character that occurs
nowhere) inside everything that the caller passed: between all its characters, so that no two of
them stand next to each other, and at both its ends. What still reads as a control token in that
rendering consists of the template's characters alone; joins of two messages, or of a message and
the template's text, can't pass either. Templates look into messages, though (`trim`,
`'</think>' in content`, `startswith`), and must decide as they would without marks. So there
are none within or outside white space, and none inside a string that the template itself
mentions (but always one inside a control token). If, marks taken away, both renderings are
equal, the template hasn't noticed them, and the origins are certain.

If they differ, a second, sparse way of marking is tried: one mark inside every control token in
what the caller passed, whatever its case, and one at an end that could be joined into one. It
doesn't see a control token that the template itself puts together by deleting characters from
inside a message. If this rendering differs in turn (a template that counts characters, say), the
plain one is used where both show the same control tokens in the same order; otherwise the
marked one, in which control tokens are safe at the price of a text that the marks changed.

Roles and keys that are single words count as the template's: it builds turns from them
(`'<|' + role + '|>'`).

Without control text in the messages, the ids are those of the whole rendering encoded with
`parse_special=True`. With it, the stretches between the template's control tokens are encoded as
plain text, each in one go.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from glassgear.errors import TemplateError, TokenizerError
from glassgear.text.conversation import Conversation, make_conversation

if TYPE_CHECKING:
    from glassgear.text.base import Tokenizer
    from glassgear.text.chat import ChatTemplate

__all__ = ["control_text_notes", "encode_chat"]

PRIVATE_USE = (*range(0xE000, 0xF900), *range(0xF0000, 0xFFFFE))
WHITE = np.array([code for code in range(0x3001) if chr(code).isspace()], np.uint32)

Span = tuple[int, int]


def encode_chat(
    tokenizer: Tokenizer,
    template: ChatTemplate,
    messages: Sequence[Any],
    *,
    add_generation_prompt: bool | None = None,
    continue_final_message: bool | str = False,
    tools: Sequence[Any] | None = None,
    documents: Sequence[Any] | None = None,
    template_name: str | None = None,
    **extra: Any,
) -> list[int]:
    """Ids of a conversation; control tokens come from the template alone.

    The first id is the BOS where the tokenizer adds one, whether or not the template wrote it.

    Args:
        tokenizer: makes the ids.
        template: makes the text.
        messages: this and what follows as for `ChatTemplate.render`.
        add_generation_prompt: whether to open the answer's turn.
        continue_final_message: whether to end inside the last message.
        tools: functions the model may call.
        documents: dicts to cite.
        template_name: which of several templates to use.
        **extra: further variables of the template.

    Raises:
        TemplateError: see `ChatTemplate.render`.
        TokenizerError: the tokenizer makes a control token out of plain text.
    """
    talk = make_conversation(messages, tools, documents, extra)

    def render(talk: Conversation) -> str:
        return template.render_conversation(
            talk, add_generation_prompt, continue_final_message, template_name
        )

    text, spans = _trusted(render, talk, template, tuple(tokenizer.special))
    ids = _encode(tokenizer, text, spans)
    if tokenizer.adds_bos and tokenizer.bos_id is not None and ids[:1] != [tokenizer.bos_id]:
        ids.insert(0, tokenizer.bos_id)
    return ids


def control_text_notes(tokenizer: Tokenizer, messages: Sequence[Any]) -> list[str]:
    """A sentence for each message that spells control tokens, for people."""
    controls = _pattern(tuple(tokenizer.special))
    notes = []
    for place, message in enumerate(make_conversation(messages).messages, 1):
        alone = Conversation([message], None, None, {})
        found = dict.fromkeys(match for text in alone.strings() for match in controls.findall(text))
        if found:
            notes.append(
                f"message {place} ({message.get('role', 'no role')}) spells {', '.join(found)}: "
                "passed on as plain text, not as control tokens"
            )
    return notes


def _trusted(
    render: Callable[[Conversation], str], talk: Conversation, template: ChatTemplate, texts: tuple[str, ...]
) -> tuple[str, list[Span]]:
    """The text of a conversation, and where the template wrote control tokens in it."""
    plain = render(talk)
    taken = set(plain).union(*talk.strings(), *template.sources.values())
    mark = next(chr(code) for code in PRIVATE_USE if chr(code) not in taken)
    marker = _Marker(mark, texts, template.literals)
    try:
        marked = render(talk.changed(marker.dense))
    except TemplateError:  # the marks are in the template's way
        marked = ""
    if marked.replace(mark, "") != plain:
        marked = render(talk.changed(marker.sparse))
    controls = _pattern(texts)
    if marked.replace(mark, "") != plain and controls.findall(marked) == controls.findall(plain):
        marked = plain  # the marks changed the text, but nothing that matters here
    spans, marks, at = [], 0, 0
    for found in controls.finditer(marked):
        start, end = found.span()
        marks += marked.count(mark, at, start)
        spans.append((start - marks, end - marks))
        at = end
    return marked.replace(mark, ""), spans


class _Marker:
    """Puts marks into strings that the caller passed.

    Args:
        mark: a character that occurs nowhere else.
        texts: the control tokens.
        literals: strings that the template mentions, which it may look for.
    """

    def __init__(self, mark: str, texts: tuple[str, ...], literals: frozenset[str]) -> None:
        self._mark = mark
        self._texts = texts
        self._inside = _overlapping(texts)
        self._literals = [text for text in literals if not self._inside.search(text)]

    def dense(self, text: str) -> str:
        """Marks between all characters but for what the template may look at."""
        if not text or text.isspace():
            return text
        codes = _codes(text)
        solid = ~np.isin(codes, WHITE)
        gaps = np.zeros(len(codes) + 1, bool)  # gap i is before character i
        gaps[:-1] |= solid
        gaps[1:] |= solid
        core = np.flatnonzero(solid)
        for literal in self._literals:
            at = text.find(literal)
            while at >= 0:
                end = at + len(literal)
                gaps[at + 1 : end] = False
                gaps[at] &= at > core[0]
                gaps[end] &= end <= core[-1]
                at = text.find(literal, at + 1)
        return self._put(codes, gaps | self._breaks(text))

    def sparse(self, text: str) -> str:
        """Marks where a control token would otherwise be, or could be joined."""
        gaps = self._breaks(text)
        for control in self._texts:
            if text and text in control and text != control:
                gaps[0] = True
            for size in range(1, min(len(text), len(control) - 1) + 1):
                gaps[0] |= text.startswith(control[-size:])
                gaps[-1] |= text.endswith(control[:size])
        return self._put(_codes(text), gaps)

    def _breaks(self, text: str) -> NDArray[np.bool_]:
        gaps = np.zeros(len(text) + 1, bool)
        for found in self._inside.finditer(text):
            gaps[found.start() + 1] = True
        return gaps

    def _put(self, codes: NDArray[np.uint32], gaps: NDArray[np.bool_]) -> str:
        marked = np.insert(codes, np.flatnonzero(gaps), ord(self._mark))
        return marked.astype("<u4").tobytes().decode("utf-32-le", "surrogatepass")


def _encode(tokenizer: Tokenizer, text: str, spans: list[Span]) -> list[int]:
    controls = _pattern(tuple(tokenizer.special))
    if [found.span() for found in controls.finditer(text)] == spans:
        ids = tokenizer.encode(text, parse_special=True)
        if sum(map(tokenizer.is_special, ids)) <= len(spans):
            return ids
    ids, done = [], 0
    for start, end in spans:
        ids += _plain_ids(tokenizer, text[done:start], at_start=done == 0)
        ids.append(tokenizer.special[text[start:end]])
        done = end
    return ids + _plain_ids(tokenizer, text[done:], at_start=done == 0)


def _plain_ids(tokenizer: Tokenizer, text: str, at_start: bool) -> list[int]:
    """Ids of a stretch of plain text, at the start of a text or behind a control token."""
    if not text:
        return []
    ids = tokenizer.encode(text)
    if tokenizer.leading_space and not at_start and not _space_behind_controls(tokenizer):
        # Encoded behind a line break, whose ids are then taken off, a text gets no space of its own.
        opening = tokenizer.encode("\n")
        longer = tokenizer.encode("\n" + text)
        if longer[: len(opening)] == opening:
            ids = longer[len(opening) :]
    for token in ids:
        if tokenizer.is_special(token):
            raise TokenizerError(
                f"the tokenizer makes the control token {tokenizer.piece(token)!r} out of plain text, "
                "so this conversation can't be encoded safely"
            )
    return ids


def _space_behind_controls(tokenizer: Tokenizer) -> bool:
    """Whether the tokenizer puts its leading space behind a control token, too."""
    control = next(iter(tokenizer.special))
    return tokenizer.encode(control + "a", parse_special=True)[1:] == tokenizer.encode("a")


@lru_cache(maxsize=16)
def _pattern(texts: tuple[str, ...]) -> re.Pattern[str]:
    """Control tokens as a tokenizer finds them: from the left, the longest first."""
    return re.compile("|".join(map(re.escape, sorted(filter(None, texts), key=len, reverse=True))) or "(?!)")


@lru_cache(maxsize=16)
def _overlapping(texts: tuple[str, ...]) -> re.Pattern[str]:
    """Wherever a control token begins, in any case of its letters."""
    return re.compile(f"(?=(?:{_pattern(texts).pattern}))", re.IGNORECASE)


def _codes(text: str) -> NDArray[np.uint32]:
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), "<u4").astype(np.uint32)
