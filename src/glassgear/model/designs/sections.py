"""Tables whose keys are all accounted for, and that can lie over others.

A block's `[ffn]` lies over the model's: what it doesn't say is taken from there, as far as it applies.
So a key is strange only if its own table has it and nobody ever asked for it.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from glassgear.errors import FormatError

__all__ = ["MOST", "Section", "View"]

MOST = 2**31  # of any size
REQUIRED: Any = object()


class Section:
    """One table of the file.

    Args:
        values: its keys.
        path: the file, for messages.
        name: where it is, `ffn.experts`; empty for the file itself.
        place: how its keys are named in messages: `block 2: `, `second [[blocks]]: `.
    """

    def __init__(self, values: Mapping[str, Any], path: str, name: str = "", place: str = "") -> None:
        self.values = values
        self.path = path
        self.name = name
        self.place = place
        self.asked: set[str] = set()
        self.reasons: dict[str, str] = {}  # why a key that exists doesn't apply here
        self._inner: dict[str, Section] = {}

    def key(self, key: str) -> str:
        """A key as messages name it."""
        return f"{self.place}`{self.name}.{key}`" if self.name else f"{self.place}`{key}`"

    def inner(self, key: str) -> Section | None:
        """The table under a key; a string stands for a table that says only its `kind`."""
        self.asked.add(key)
        value = self.values.get(key)
        if value is None:
            return None
        if key not in self._inner:
            if isinstance(value, str):
                value = {"kind": value}
            if not isinstance(value, Mapping):
                self.refuse(key, "should be a table, or the name of a kind")
            name = f"{self.name}.{key}" if self.name else key
            self._inner[key] = Section(value, self.path, name, self.place)
        return self._inner[key]

    def refuse(self, key: str, why: str) -> NoReturn:
        """Say what is wrong with the value of a key."""
        raise FormatError(self.path, f"{self.key(key)} {why}, found {_shown(self.values.get(key))}")

    def finish(self) -> None:
        """Refuse keys that nobody asked for, here and below."""
        for key in self.values:
            if key in self.asked:
                continue
            if key in self.reasons:
                raise FormatError(self.path, f"{self.key(key)} {self.reasons[key]}")
            near = difflib.get_close_matches(key, self.asked | set(self.reasons), n=1)
            meant = f" Did you mean `{near[0]}`?" if near else ""
            known = ", ".join(sorted(self.asked)) or "none"
            raise FormatError(
                self.path, f"{self.key(key)[:80]} is no key of this table.{meant} Its keys here: {known}"
            )
        for inner in self._inner.values():
            inner.finish()


def _shown(value: object) -> str:
    text = repr(value) if not isinstance(value, bool) else str(value).lower()
    return text if len(text) <= 60 else f"{text[:57]}..."


class View:
    """Tables one over the other: the first that has a key says its value.

    Args:
        sections: at least one; the first is the one that messages name for what is missing.
        name: as in `Section`, for messages where no section has the table at all.
    """

    def __init__(self, sections: Sequence[Section], path: str, name: str = "", place: str = "") -> None:
        self.sections = tuple(sections)
        self.path = path
        self.name = name
        self._place = place

    def inner(self, key: str) -> View:
        """The tables under a key, one over the other."""
        below = [inner for section in self.sections if (inner := section.inner(key)) is not None]
        return View(below, self.path, f"{self.name}.{key}" if self.name else key, self._place)

    def has(self, key: str) -> bool:
        """Whether any of the tables has the key."""
        return self._holder(key) is not None

    def together(self, one: str, other: str) -> bool:
        """Whether the same table says both."""
        return any(one in section.values and other in section.values for section in self.sections)

    def _holder(self, key: str) -> Section | None:
        holders = []
        for section in self.sections:
            section.asked.add(key)
            if key in section.values:
                holders.append(section)
        return holders[0] if holders else None

    def inapplicable(self, keys: Sequence[str], why: str) -> None:
        """Keys that would mean something elsewhere, should one of them be there and never be asked for."""
        for section in self.sections:
            section.reasons.update(dict.fromkeys(keys, why))

    def key(self, key: str) -> str:
        """A key as messages name it."""
        holder = next((s for s in self.sections if key in s.values), None)
        if holder is not None:
            return holder.key(key)
        return Section({}, self.path, self.name, self._place).key(key)

    def refuse(self, key: str, why: str) -> NoReturn:
        """Say what is wrong with the value of a key, or without it."""
        holder = self._holder(key)
        if holder is not None:
            holder.refuse(key, why)
        raise FormatError(self.path, f"{self.key(key)} {why}")

    def _value(self, key: str, default: Any, missing: str) -> tuple[Any, Section | None]:
        holder = self._holder(key)
        if holder is not None:
            return holder.values[key], holder
        if default is REQUIRED:
            raise FormatError(self.path, f"{self.key(key)} is missing: {missing}")
        return default, None

    def integer(
        self, key: str, default: Any = REQUIRED, what: str = "", *, least: int = 1, most: int = MOST
    ) -> int:
        """A whole number from `least` to `most`."""
        value, holder = self._value(key, default, what or "it must be a whole number")
        if holder is not None:
            if isinstance(value, bool) or not isinstance(value, int):
                holder.refuse(key, "should be a whole number")
            if not least <= value <= most:
                holder.refuse(key, f"should be from {least:,} to {most:,}")
        return int(value)

    def number(
        self, key: str, default: float, *, above: float = -math.inf, least: float = -math.inf
    ) -> float:
        """A finite number above `above` and at least `least`."""
        value, holder = self._value(key, default, "")
        if holder is None:
            return float(value)
        if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < 1e30:
            holder.refuse(key, "should be a number")
        if not (value > above and value >= least):
            holder.refuse(
                key, f"should be above {above:g}" if above > -math.inf else f"should be at least {least:g}"
            )
        return float(value)

    def flag(self, key: str, default: bool) -> bool:
        """True or false."""
        value, holder = self._value(key, default, "")
        if holder is not None and not isinstance(value, bool):
            holder.refuse(key, "should be true or false")
        return bool(value)

    def text(self, key: str, default: str) -> str:
        """A line of text."""
        value, holder = self._value(key, default, "")
        if holder is not None and not (isinstance(value, str) and len(value) <= 100 and value.isprintable()):
            holder.refuse(key, "should be a line of text of at most 100 characters")
        return str(value)

    def choice(
        self, key: str, options: Sequence[str], default: str, meanings: Mapping[str, str] | None = None
    ) -> str:
        """One of a few words.

        Args:
            key: the key.
            options: the words.
            default: what holds where it isn't said.
            meanings: words that people may write instead, and how to say what they mean.
        """
        value, holder = self._value(key, default, "")
        if holder is not None and value not in options:
            if isinstance(value, str) and meanings and (meant := meanings.get(value.lower())):
                holder.refuse(key, f"should be one of {', '.join(options)} ({value} is {meant})")
            near = difflib.get_close_matches(str(value), options, n=1)
            meant = f' (did you mean "{near[0]}"?)' if near and isinstance(value, str) else ""
            holder.refuse(key, f"should be one of {', '.join(options)}{meant}")
        return str(value)
