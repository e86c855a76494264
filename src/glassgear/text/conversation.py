"""What a caller passes to a chat template, as plain data of our own.

In: messages, tools, documents and extra variables, in whatever mappings and objects the caller
has them. Out: `Conversation`: dicts, lists and scalars that nobody else holds, so a template can
neither reach nor change anything of the caller's. The rules for messages are those of
transformers 5 (null fields count as missing, older names of the reasoning field are filled in),
with one addition: a content made of text parts becomes one text.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from glassgear.errors import SettingError, TemplateError
from glassgear.text.tool_schema import tool_schema

__all__ = ["REASONING", "Conversation", "make_conversation"]

DEEPEST = 100  # levels of nesting; JSON schemas of tools have about ten
REASONING = ("reasoning_content", "thinking", "reasoning")
TOOL_ROLES = ("tool", "ipython", "function")  # their content may be any JSON value
SIMPLE = re.compile(r"[\w.$ -]*", re.ASCII)  # a word, as roles and field names are


@dataclasses.dataclass(frozen=True)
class Conversation:
    """Plain copies of what the caller passed.

    Attributes:
        messages: in order.
        tools, documents: None where none were given.
        extra: further variables of the template.
    """

    messages: list[dict[str, Any]]
    tools: list[Any] | None
    documents: list[Any] | None
    extra: dict[str, Any]

    @property
    def size(self) -> int:
        """Characters of all strings, about."""
        return sum(map(len, self.strings()))

    def strings(self) -> list[str]:
        """Every string in it, keys included."""
        return list(_strings([self.messages, self.tools, self.documents, self.extra]))

    def changed(self, change: Callable[[str], str]) -> Conversation:
        """The same with every string changed, but for words that structure it.

        A role or key that is a single word stays: templates look fields up by their keys, and
        build turns from roles.
        """
        messages = [_changed(message, change) for message in self.messages]
        for message, old in zip(messages, self.messages, strict=True):
            role = old.get("role")
            if isinstance(role, str) and SIMPLE.fullmatch(role):
                message["role"] = role
        return Conversation(
            messages,
            _changed(self.tools, change),
            _changed(self.documents, change),
            _changed(self.extra, change),
        )


def make_conversation(
    messages: Sequence[Any],
    tools: Sequence[Any] | None = None,
    documents: Sequence[Any] | None = None,
    extra: Mapping[str, Any] | None = None,
) -> Conversation:
    """Copy and check what a caller passed.

    Args:
        messages: mappings, or objects that have fields, with `role` and `content`.
        tools: JSON schemas as dicts, or Python functions (see `tool_schema`).
        documents: dicts, for templates that cite them.
        extra: further variables of the template.

    Raises:
        SettingError: something isn't what it should be, or isn't plain data.
        TemplateError: a content that isn't text.
    """
    if isinstance(messages, (str, bytes, Mapping)) or not isinstance(messages, Iterable):
        raise SettingError("messages must be a list of messages, each with a role and a content")
    checked = [_message(place, message) for place, message in enumerate(messages, 1)]
    if not checked:
        raise SettingError("messages is empty: a conversation needs at least one message")
    for document in documents or ():
        if not isinstance(document, Mapping):
            raise SettingError(f"a document must be a dict, found {type(document).__name__}")
    return Conversation(
        checked,
        None if tools is None else [_tool(tool) for tool in tools],
        None if documents is None else _plain(list(documents), "documents"),
        {name: _plain(value, name) for name, value in (extra or {}).items()},
    )


def _message(place: int, message: Any) -> dict[str, Any]:
    where = f"message {place}"
    plain = _plain(message, where)
    if not isinstance(plain, dict):
        raise SettingError(f"{where} must have a role and a content, found {type(message).__name__}")
    role = plain.get("role")
    if isinstance(role, str):
        where += f" ({role[:30]})"
    if "content" in plain and plain["content"] is None and role in ("system", "user", "developer"):
        raise TemplateError(f"{where} has the content null: a text is needed")
    out = {name: value for name, value in plain.items() if value is not None}
    if "content" in out:
        out["content"] = _content(out["content"], where, role in TOOL_ROLES)
    thought = next((out[name] for name in REASONING if name in out), None)
    if thought is not None:
        out = {"thinking": thought, **out, "reasoning_content": thought}
    return out


def _content(content: Any, where: str, any_json: bool) -> Any:
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        texts = [_part(part) for part in content]
        if None not in texts:
            return "".join(text for text in texts if text is not None)
        place = texts.index(None)
        found = (
            content[place].get("type") if isinstance(content[place], dict) else type(content[place]).__name__
        )
        trouble = f"has a part of the type {found!r} (number {place + 1}); only text parts can be used"
    else:
        trouble = f"has a content of the type {type(content).__name__}; it must be text"
    if any_json:
        return content
    raise TemplateError(f"{where} {trouble}")


def _part(part: Any) -> str | None:
    """The text of a part, or None if it is something else."""
    if isinstance(part, str):
        return part
    if isinstance(part, dict) and part.get("type", "text") == "text" and isinstance(part.get("text"), str):
        return str(part["text"])
    return None


def _tool(tool: Any) -> Any:
    if isinstance(tool, Mapping):
        return _plain(tool, "a tool")
    if inspect.isfunction(tool) or inspect.ismethod(tool):
        return tool_schema(tool)
    raise SettingError(
        f"a tool must be a Python function or a dict with its JSON schema, found {type(tool).__name__}"
    )


def _plain(value: Any, where: str, depth: int = 0) -> Any:
    """A deep copy in plain dicts, lists and scalars."""
    if value is None or type(value) in (str, int, float, bool):
        return value
    if depth > DEEPEST:
        raise SettingError(f"{where} is nested more than {DEEPEST} levels deep")
    for kind in (str, int, float):  # subclasses, such as enums, may carry methods: only the value stays
        if isinstance(value, kind):
            return kind.__str__(value) if kind is str else kind(value)
    if isinstance(value, Mapping):
        return {_key(key, where): _plain(item, where, depth + 1) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item, where, depth + 1) for item in value]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
        return _plain(fields, where, depth + 1)
    for method in ("model_dump", "item"):  # pydantic's models; NumPy's scalars
        found = getattr(value, method, None)
        if callable(found) and not isinstance(value, type) and getattr(value, "shape", ()) == ():
            return _plain(found(), where, depth + 1)
    raise SettingError(
        f"{where} holds a value of the type {type(value).__name__}: "
        "a template takes texts, numbers, lists and dicts"
    )


def _key(key: Any, where: str) -> Any:
    if isinstance(key, str):
        return str.__str__(key)
    if key is None or type(key) in (int, float, bool):
        return key
    raise SettingError(f"{where} holds a key of the type {type(key).__name__}; keys must be texts")


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, (list, dict)):
        for item in value:
            yield from _strings(item)
        if isinstance(value, dict):
            yield from _strings(list(value.values()))


def _changed(value: Any, change: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return change(value)
    if isinstance(value, list):
        return [_changed(item, change) for item in value]
    if isinstance(value, dict):
        return {
            change(key) if isinstance(key, str) and not SIMPLE.fullmatch(key) else key: _changed(item, change)
            for key, item in value.items()
        }
    return value
