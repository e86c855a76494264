"""Reads a config so that no key goes unnoticed.

Every key is taken, or ignored by name; `finish` refuses whatever is left. A family states in
one function what it knows, and a checkpoint with one key more says so instead of running wrong.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar, overload

from glassgear.errors import FormatError, UnsupportedError

__all__ = ["Settings"]

T = TypeVar("T", int, float, bool, str)


class Settings:
    """The keys of one config, each to be accounted for.

    Args:
        values: the config.
        path: the file it came from, for messages.
        prefix: what stands before every key in the file (`llama.` in GGUF), for messages.
    """

    def __init__(self, values: Mapping[str, Any], path: str, prefix: str = "") -> None:
        self._values = dict(values)
        self._left = {key for key, value in values.items() if value is not None}  # null says nothing
        self.path = path
        self.prefix = prefix

    def completed(self, defaults: Mapping[str, Any]) -> Settings:
        """All keys anew, with what a family takes an absent one for; one that is null stays null."""
        return Settings({**defaults, **self._values}, self.path, self.prefix)

    @overload
    def take(self, key: str, kind: type[T]) -> T: ...
    @overload
    def take(self, key: str, kind: type[T], default: T) -> T: ...
    @overload
    def take(self, key: str, kind: type[T], default: None) -> T | None: ...
    def take(self, key: str, kind: type[T], default: Any = ...) -> Any:
        """The value of `key`; `default` where it is absent or null, an error without one."""
        self._left.discard(key)
        value = self._values.get(key)
        if value is None:
            if default is ...:
                raise FormatError(self.path, f"`{self.prefix}{key}` is missing")
            return default
        return self._as(key, value, kind)

    def size(self, key: str, default: int | None = None, *, least: int = 1, most: int = 2**31) -> int:
        """A whole number between `least` and `most`, as sizes of a model are; `default` where absent."""
        value = self.take(key, int) if default is None else self.take(key, int, default)
        if not least <= value <= most:
            raise FormatError(self.path, f"`{self.prefix}{key}` is {value}, outside {least} to {most}")
        return value

    def epsilon(self, key: str, default: float) -> float:
        """What keeps a norm from dividing by 0: above 0, and small."""
        value = self.take(key, float, default)
        if not 0 < value <= 1:
            raise FormatError(self.path, f"`{self.prefix}{key}` is {value:g}, outside 0 to 1")
        return value

    def words(self, key: str) -> tuple[str, ...] | None:
        """A list of names, or None."""
        self._left.discard(key)
        value = self._values.get(key)
        if value is None:
            return None
        if not isinstance(value, list | tuple) or not all(isinstance(v, str) for v in value):
            raise FormatError(
                self.path, f"`{self.prefix}{key}` should be a list of names, found {value!r:.60}"
            )
        return tuple(value)

    def mapping(self, key: str) -> Mapping[str, Any] | None:
        """A nested object, or None."""
        self._left.discard(key)
        value = self._values.get(key)
        if value is not None and not isinstance(value, Mapping):
            raise FormatError(self.path, f"`{self.prefix}{key}` should be an object, found {value!r:.60}")
        return value

    def items(self, key: str) -> list[Any]:
        """A list; empty where it is absent or null."""
        self._left.discard(key)
        value = self._values.get(key)
        if value is not None and not isinstance(value, list | tuple):
            raise FormatError(self.path, f"`{self.prefix}{key}` should be a list, found {value!r:.60}")
        return list(value or ())

    def ignore(self, keys: Iterable[str]) -> None:
        """Keys that say nothing about the forward pass."""
        self._left.difference_update(keys)

    def only(self, key: str, *allowed: Any) -> None:
        """A key whose other values ask for something this version doesn't do."""
        self._left.discard(key)
        value = self._values.get(key)
        if value is not None and value not in allowed:
            wants = " or ".join(repr(a) for a in allowed)
            raise UnsupportedError(
                self.path, f"`{self.prefix}{key}` is {value!r:.80}; only {wants} can be run"
            )

    def is_false(self, key: str) -> bool:
        """Whether a flag is there and off; the key still has to be accounted for."""
        return self._values.get(key) is False

    def has(self, key: str) -> bool:
        """Whether the key is there and not null."""
        return self._values.get(key) is not None

    def finish(self) -> None:
        """Refuse keys that nobody took."""
        if self._left:
            names = ", ".join(f"`{self.prefix}{key}`" for key in sorted(self._left)[:8])
            raise UnsupportedError(
                self.path,
                f"has settings that this model family doesn't know: {names}. "
                "They may change what the model computes, so it is not run without them",
            )

    def _as(self, key: str, value: Any, kind: type[T]) -> T:
        if kind is float and isinstance(value, int | float) and not isinstance(value, bool):
            if math.isfinite(value):
                return kind(value)
        elif kind is int and isinstance(value, float) and value.is_integer():
            return kind(value)
        elif isinstance(value, kind) and (kind is bool or not isinstance(value, bool)):
            return value
        raise FormatError(self.path, f"`{self.prefix}{key}` should be a {kind.__name__}, found {value!r:.60}")
