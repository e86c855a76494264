"""Chat templates: messages -> the text that a model was trained to see.

In: the Jinja source that comes with a model, and a conversation. Out: text (`render`), or ids in
which control tokens come from the template alone (`encode_chat`, in `chat_encoding.py`). Text is
equal to what transformers' `apply_chat_template` makes. The template runs in a sandbox with
bounds on time and memory (`sandbox.py`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any

from glassgear.errors import GlassgearError, SettingError, TemplateError
from glassgear.text.chat_encoding import control_text_notes, encode_chat
from glassgear.text.conversation import REASONING, Conversation, make_conversation

if TYPE_CHECKING:
    from jinja2.environment import Template

    from glassgear.text.base import Tokenizer

__all__ = ["BUILT_IN", "ChatTemplate", "control_text_notes", "encode_chat", "template_for"]

BUILT_IN: Mapping[str, str] = {
    "chatml": (
        "{% for message in messages %}"
        "{{ '<|im_start|>' + message['role'] + '\\n' + (message['content'] or '') + '<|im_end|>\\n' }}"
        "{% endfor %}"
        "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
    ),
}
# A loop over the parts of a message's content, which takes the text of each; a test of what it is.
LOOPS = re.compile(
    r"""for\s+(\w+)\s+in\s+\w+(?:\.content|\[['"]content['"]\])\s*(?:-?%\}|if\b)"""
    r""".*?\b\1(?:\.text\b|\[['"]text['"]\])""",
    re.DOTALL,
)
TESTS = re.compile(r"\bis\s+(?:not\s+)?(?:string|iterable|mapping|sequence)\b")
NEEDS: Mapping[str, tuple[str, ...]] = {"chatml": ("<|im_start|>", "<|im_end|>")}

Source = str | Mapping[str, str] | Sequence[Mapping[str, str]]


class ChatTemplate:
    """A compiled chat template, or several by name.

    Args:
        source: Jinja source; or sources by name; or a list of `{"name": ..., "template": ...}`.
            With names, `tool_use` is taken where tools are given, otherwise `default`.
        special_tokens: variables that every template sees (`bos_token`, `eos_token`, ...).

    Attributes:
        sources: name -> source.

    Raises:
        TemplateError: a source has an error, and where.
    """

    def __init__(self, source: Source, **special_tokens: str) -> None:
        self.sources = _named(source)
        self.special_tokens = special_tokens
        self._compiled: dict[str, Template] = {}
        from glassgear.text.sandbox import compile_template

        for name, text in self.sources.items():
            with _explained():
                self._compiled[name] = compile_template(text)

    def render(
        self,
        messages: Sequence[Any],
        *,
        add_generation_prompt: bool | None = None,
        continue_final_message: bool | str = False,
        tools: Sequence[Any] | None = None,
        documents: Sequence[Any] | None = None,
        template: str | None = None,
        **extra: Any,
    ) -> str:
        """The text of a conversation.

        Args:
            messages: `{"role": ..., "content": ...}` in order. Never changed.
            add_generation_prompt: open the answer's turn; None: yes, unless the last message
                is continued.
            continue_final_message: end inside the last message, so that the model goes on with
                it; a text names the field that is continued, otherwise `content`.
            tools: functions the model may call: JSON schemas as dicts, or Python functions.
            documents: dicts, for templates that cite them.
            template: which of several templates to use.
            **extra: further variables of the template; they win over `special_tokens`.

        Raises:
            TemplateError: the template refuses the messages (with its own words), fails, or
                takes more than a second or too much memory.
            SettingError: an argument isn't what it should be.
        """
        talk = make_conversation(messages, tools, documents, extra)
        return self.render_conversation(talk, add_generation_prompt, continue_final_message, template)

    def render_conversation(
        self,
        talk: Conversation,
        add_generation_prompt: bool | None = None,
        continue_final_message: bool | str = False,
        template: str | None = None,
    ) -> str:
        """As `render`, of a conversation that is checked already."""
        if continue_final_message and add_generation_prompt:
            raise SettingError(
                "add_generation_prompt opens a new message, continue_final_message goes on with the last: "
                "choose one"
            )
        if add_generation_prompt is None:
            add_generation_prompt = not continue_final_message
        name = self._choose(talk.tools, template)
        if not continue_final_message:
            return self._run(name, talk, talk.messages, add_generation_prompt)
        field = continue_final_message if isinstance(continue_final_message, str) else "content"
        return self._continued(name, talk, field)

    @cached_property
    def literals(self) -> frozenset[str]:
        """Every string of two characters or more in the sources."""
        from glassgear.text.sandbox import string_literals

        return frozenset().union(*map(string_literals, self.sources.values()))

    def _choose(self, tools: object, wanted: str | None) -> str:
        if wanted is None:
            wanted = "tool_use" if tools is not None and "tool_use" in self.sources else "default"
        if wanted not in self.sources:
            raise SettingError(
                f"the model has no chat template {wanted!r}; it has {', '.join(map(repr, self.sources))}"
            )
        return wanted

    def _run(self, name: str, talk: Conversation, messages: list[dict[str, Any]], opened: bool) -> str:
        from glassgear.text.template_budget import begin

        if _reads_parts(self.sources[name]):
            messages = [_in_parts(message) for message in messages]
        with _explained():
            begin(talk.size)
            return self._compiled[name].render(
                {
                    **self.special_tokens,
                    **talk.extra,
                    "messages": messages,
                    "tools": talk.tools,
                    "documents": talk.documents,
                    "add_generation_prompt": opened,
                }
            )

    def _continued(self, name: str, talk: Conversation, field: str) -> str:
        """Mark the end of the last message, render, and cut at the mark (as transformers does)."""
        last = talk.messages[-1]
        text = last.get(field)
        if not isinstance(text, str):
            raise SettingError(f"the last message has no {field} to continue")
        fields = [one for one in REASONING if last.get(one) == text] if field in REASONING else [field]
        if not any(one in self.sources[name] for one in fields):
            raise SettingError(f"the chat template doesn't use {field}, so it can't be continued")
        mark = "[the message goes on here]"
        while any(mark in one for one in talk.strings()) or mark in self.sources[name]:
            mark = f"[{mark}]"
        marked = last | {one: f"{text}{mark} " for one in fields}
        out = self._run(name, talk, [*talk.messages[:-1], marked], False)
        if text.strip() not in out or mark not in out:
            raise TemplateError(
                "the chat template drops or changes part of the last message, so it can't be continued"
            )
        before, after = out[: out.rindex(mark)], out[out.rindex(mark) + len(mark) :]
        # A template that trims the message took away the space after the mark, too.
        return before if after.startswith(" ") else before.rstrip()


def _reads_parts(source: str) -> bool:
    """Whether a template takes contents as lists of parts and nothing else.

    Given a text it would walk through its letters and find no part in them: an empty turn.
    """
    return LOOPS.search(source) is not None and TESTS.search(source) is None


def _in_parts(message: dict[str, Any]) -> dict[str, Any]:
    content = message.get("content")
    return (
        {**message, "content": [{"type": "text", "text": content}]} if isinstance(content, str) else message
    )


def template_for(tokenizer: Tokenizer, template: str | None = None) -> ChatTemplate:
    """The chat template of a model, or another that is asked for.

    Args:
        tokenizer: has the model's template, if the model came with one.
        template: None: the model's own; a name: one of `BUILT_IN` (`chatml`); or Jinja source.

    Raises:
        TemplateError: the model has none, or lacks the control tokens that the one asked for
            writes, or the source has an error.
    """
    special_tokens = {**_special_tokens(tokenizer), **tokenizer.special_tokens}
    if template is None:
        if not tokenizer.chat_template:
            fitting = [name for name in BUILT_IN if not _missing(tokenizer, name)]
            advice = f"choose template={fitting[0]!r}, or give" if fitting else "give"
            raise TemplateError(
                "this model came without a chat template, so how it expects a conversation to be written "
                f"isn't known: {advice} a Jinja template, or continue a plain prompt instead"
            )
        return ChatTemplate(tokenizer.chat_template, **special_tokens)
    if template in BUILT_IN:
        if missing := _missing(tokenizer, template):
            raise TemplateError(
                f"the template {template!r} writes {' and '.join(missing)}, "
                "which this model's vocabulary lacks"
            )
        return ChatTemplate(BUILT_IN[template], **special_tokens)
    if "{" not in template:
        raise TemplateError(
            f"no chat template is called {template!r:.60}: choose {', '.join(BUILT_IN)}, or give Jinja source"
        )
    return ChatTemplate(template, **special_tokens)


def _missing(tokenizer: Tokenizer, name: str) -> list[str]:
    return [text for text in NEEDS[name] if text not in tokenizer.special]


def _special_tokens(tokenizer: Tokenizer) -> dict[str, str]:
    texts = {token: text for text, token in tokenizer.special.items()}
    ids = {"bos_token": tokenizer.bos_id, "eos_token": tokenizer.eos_id}
    return {name: texts[token] for name, token in ids.items() if token is not None and token in texts}


def _named(source: Source) -> dict[str, str]:
    if isinstance(source, str):
        return {"default": source}
    if not isinstance(source, Mapping):
        try:
            source = {one["name"]: one["template"] for one in source}
        except (KeyError, TypeError) as error:
            raise TemplateError("a list of chat templates must give each a name and a template") from error
    if not source or not all(isinstance(text, str) for pair in source.items() for text in pair):
        raise TemplateError("the chat templates must be texts, each under its name")
    return dict(source)


@contextmanager
def _explained() -> Iterator[None]:
    """Turn whatever a template provokes into a `TemplateError` with its words."""
    from jinja2.exceptions import TemplateSyntaxError

    from glassgear.text.sandbox import Refusal
    from glassgear.text.template_budget import TooExpensive

    try:
        yield
    except GlassgearError:
        raise
    except Refusal as error:
        raise TemplateError(f"the chat template refuses these messages: {error.message}") from error
    except TemplateSyntaxError as error:
        raise TemplateError(f"the chat template is broken at line {error.lineno}: {error.message}") from error
    except TooExpensive as error:
        raise TemplateError(f"the chat template was stopped: {error.message}") from error
    except RecursionError as error:
        raise TemplateError(
            "the chat template was stopped: it is nested, or calls itself, too deeply"
        ) from error
    except Exception as error:  # a template is a program: it may fail in any way
        raise TemplateError(f"the chat template failed: {error or type(error).__name__}") from error
