"""A Python function -> the JSON schema by which a chat template describes it to a model.

In: a function with type hints and a docstring in Google's style. Out: a dict as OpenAI's API
takes it, the same that transformers makes (`get_json_schema`), so templates see what they were
written for.
"""

from __future__ import annotations

import inspect
import json
import re
import types
from collections.abc import Callable
from enum import Enum
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from glassgear.errors import SettingError

__all__ = ["tool_schema"]

Schema = dict[str, Any]

PLAIN: dict[Any, Schema] = {
    int: {"type": "integer"},
    float: {"type": "number"},
    str: {"type": "string"},
    bool: {"type": "boolean"},
    type(None): {"type": "null"},
    list: {"type": "array"},
    tuple: {"type": "array"},
    dict: {"type": "object"},
    Any: {},
}
SCALARS: dict[type, str] = {
    int: "integer",
    float: "number",
    str: "string",
    bool: "boolean",
    type(None): "null",
}

HEADING = re.compile(r"^[ \t]*(Args|Returns|Raises):[ \t]*\n?", re.MULTILINE)
ARGUMENT = re.compile(r"^([ \t]*)(\w+)(?:[ \t]*\([^()\n]*\))?:[ \t]*(.*)$")
CHOICES = re.compile(r"\(choices:\s*(.*?)\)\s*$", re.IGNORECASE)


def tool_schema(function: Callable[..., Any]) -> Schema:
    """The schema of a function.

    An argument's description may end in `(choices: ["a", "b"])`, which limits its values.

    Args:
        function: annotated, its docstring describing every argument under `Args:`.

    Raises:
        SettingError: no docstring, an argument without a hint or description, or a hint that
            JSON has no type for.
    """
    name = getattr(function, "__name__", "operation")
    text = (inspect.getdoc(function) or "").strip()
    if not text:
        raise SettingError(f"the tool {name} has no docstring to describe it")
    about, arguments, returns = _sections(text)
    parameters, result = _parameters(function, name)
    for argument, schema in parameters["properties"].items():
        if argument not in arguments:
            raise SettingError(f"the docstring of the tool {name} doesn't describe the argument {argument}")
        schema.update(_described(arguments[argument], name))
    described: Schema = {"name": name, "description": about, "parameters": parameters}
    if result is not None:
        described["return"] = result | ({"description": returns} if returns is not None else {})
    return {"type": "function", "function": described}


def _parameters(function: Callable[..., Any], name: str) -> tuple[Schema, Schema | None]:
    """The schema of the arguments, and of the result if its hint has one."""
    try:
        hints = get_type_hints(function)
        given = dict(inspect.signature(function).parameters)
    except (NameError, TypeError, ValueError) as error:
        raise SettingError(f"the type hints of the tool {name} can't be read: {error}") from error
    first = next(iter(given), "")
    if first in ("self", "cls") and given[first].annotation is inspect.Parameter.empty:
        del given[first]
    for argument, parameter in given.items():
        if parameter.annotation is inspect.Parameter.empty:
            raise SettingError(f"the argument {argument} of the tool {name} has no type hint")
    schema: Schema = {
        "type": "object",
        "properties": {argument: _hint(hints[argument], name) for argument in given},
    }
    if needed := [a for a, p in given.items() if p.default is inspect.Parameter.empty]:
        schema["required"] = needed
    try:
        # A model never writes the result, so a hint without a JSON type does no harm here.
        result = _hint(hints["return"], name) if "return" in hints else None
    except SettingError:
        result = None
    return schema, result


def _hint(hint: Any, name: str) -> Schema:
    """The schema of one type hint."""
    origin, inner = get_origin(hint), get_args(hint)
    if origin is None:
        if isinstance(hint, type) and issubclass(hint, Enum):
            return _one_of([member.value for member in hint], name)
        if hint in PLAIN:
            return dict(PLAIN[hint])
    elif origin is Union or origin is types.UnionType:
        return _union(inner, name)
    elif origin is Literal:
        return _one_of(list(inner), name)
    elif origin is list:
        return {"type": "array", "items": _hint(inner[0], name)}
    elif origin is tuple and len(inner) > 1 and ... not in inner:
        return {"type": "array", "prefixItems": [_hint(one, name) for one in inner]}
    elif origin is dict:
        return {"type": "object", "additionalProperties": _hint(inner[1], name)}
    raise SettingError(
        f"the tool {name} has the type hint {hint!r}, which has no JSON type: "
        "give the tool as a dict with its JSON schema instead"
    )


def _union(inner: tuple[Any, ...], name: str) -> Schema:
    parts = [_hint(one, name) for one in inner if one is not type(None)]
    if len(parts) == 1:
        out = parts[0]
    elif all(part.keys() == {"type"} and isinstance(part["type"], str) for part in parts):
        kinds = sorted({part["type"] for part in parts})
        out = {"type": kinds[0] if len(kinds) == 1 else kinds}
    else:
        out = {"anyOf": parts}
    return out | ({"nullable": True} if type(None) in inner else {})


def _one_of(values: list[Any], name: str) -> Schema:
    if not values or any(type(value) not in SCALARS for value in values):
        raise SettingError(f"the tool {name} limits an argument to {values}, which JSON can't write")
    kinds = list(dict.fromkeys(SCALARS[type(value)] for value in values))
    return {"type": kinds[0] if len(kinds) == 1 else kinds, "enum": values}


def _described(text: str, name: str) -> Schema:
    """The description of an argument, and the choices it may end in."""
    found = CHOICES.search(text)
    if not found:
        return {"description": text}
    try:
        choices = json.loads(found.group(1))
    except ValueError as error:
        raise SettingError(f"the tool {name} lists choices that aren't JSON: {found.group(1)}") from error
    values = [one.strip() if isinstance(one, str) else one for one in choices]
    return {"enum": values, "description": text[: found.start()].strip()}


def _sections(text: str) -> tuple[str, dict[str, str], str | None]:
    """What a docstring says before its first heading, of each argument, and of the result."""
    headings = list(HEADING.finditer(text))
    about = text[: headings[0].start()].strip() if headings else text
    parts: dict[str, str] = {}
    ends = [heading.start() for heading in headings[1:]] + [len(text)]
    for heading, end in zip(headings, ends, strict=False):
        parts.setdefault(heading.group(1), text[heading.end() : end])
    returns = parts.get("Returns")
    return about, _arguments(parts.get("Args", "")), returns.strip() if returns is not None else None


def _arguments(body: str) -> dict[str, str]:
    """`name (type): description`, which may go on in deeper lines."""
    out: dict[str, str] = {}
    depth, last = 0, ""
    for line in filter(str.strip, body.split("\n")):
        found = ARGUMENT.match(line)
        if found and (not out or len(found.group(1)) <= depth):
            depth, last = len(found.group(1)), found.group(2)
            out[last] = found.group(3).strip()
        elif last:
            out[last] = f"{out[last]} {line.strip()}".strip()
    return out
