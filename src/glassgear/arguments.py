"""What callers hand over, checked: each mistake is a `SettingError` that says what was found.

Python would take `True` for the id 1 and bytes for a list of ids, and run something else than was
meant.
"""

from __future__ import annotations

import difflib
import operator
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

from glassgear.errors import SettingError

__all__ = ["hook", "ids", "is_batch", "known_options", "messages", "whole"]

H = TypeVar("H")


def whole(name: str, value: object, least: int, most: int | None = None) -> int:
    """A whole number from `least` on; NumPy's count too, `True` and 5.0 don't."""
    try:
        if isinstance(value, bool):
            raise TypeError
        number = operator.index(value)  # type: ignore[arg-type]  # what isn't one raises
    except TypeError:
        raise SettingError(f"{name} must be a whole number, found {value!r:.60}") from None
    if number < least:
        raise SettingError(f"{name} must be {least} or more, found {number}")
    if most is not None and number > most:
        raise SettingError(f"{name} must be {most:,} or less, found {number:,}")
    return number


def hook(name: str, given: H) -> H:
    """A function of a path and a value, or None."""
    if given is not None and not callable(given):
        raise SettingError(f"{name} must be a function of a path and a value, found {given!r:.60}")
    return given


def is_batch(prompt: object) -> bool:
    """Whether a prompt is several texts."""
    if isinstance(prompt, str | bytes | Mapping) or not isinstance(prompt, Sequence):
        return False
    return any(isinstance(one, str) for one in prompt)


def ids(prompt: object) -> list[int]:
    """A prompt that isn't text: a list, tuple or array of token ids."""
    if isinstance(prompt, bytes | bytearray | Mapping | set) or not isinstance(prompt, Iterable):
        raise SettingError(f"a prompt is text or a list of ids, found {prompt!r:.60}")
    return [whole("a token id", token, -(2**63)) for token in prompt]  # the vocabulary sets the range


def messages(given: object) -> Sequence[Any]:
    """The messages of a conversation: mappings with `role` and `content`."""
    if isinstance(given, str | bytes | Mapping) or not isinstance(given, Sequence):
        raise SettingError(
            f'messages are a list such as [{{"role": "user", "content": "Hello"}}], found {given!r:.60}'
        )
    for i, message in enumerate(given):
        if not isinstance(message, Mapping) or not isinstance(message.get("role"), str):
            raise SettingError(f"message {i} should be a mapping with a `role`, found {message!r:.80}")
        if "content" not in message and "tool_calls" not in message:
            raise SettingError(f"message {i} has neither `content` nor `tool_calls`: {dict(message)!r:.80}")
    return given


def known_options(given: Iterable[str], known: Iterable[str]) -> None:
    """Refuse options that nobody knows, with the nearest name."""
    known = sorted(known)
    for name in given:
        if name not in known:
            near = difflib.get_close_matches(name, [*known, "max_new_tokens"], 1)
            meant = "max_tokens" if near == ["max_new_tokens"] else near[0] if near else None
            hint = f"did you mean `{meant}`?" if meant else f"known are {', '.join(known)}"
            raise SettingError(f"no option is called `{name}`: {hint}")
