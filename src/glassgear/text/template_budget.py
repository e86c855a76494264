"""What one rendering of a chat template may spend: computing time and memory.

A template comes with a model file, so it is a stranger's program. The sandbox (`sandbox.py`)
lets every operation of a template pass one of a few doors; each door asks here before it
opens. Time is the thread's own processor time, looked at on each step. Memory is every byte
that operations produced, kept or not. An operation that no step can interrupt is refused
beforehand if its result would be too large: `'x' * 10**9`, `9 ** 9 ** 9`, a `replace` that
multiplies, a list that holds itself forty times over.
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from contextvars import ContextVar
from typing import Any

from jinja2.exceptions import TemplateRuntimeError
from jinja2.utils import Namespace

__all__ = ["CHECKS", "Budget", "TooExpensive", "begin", "current_budget"]

SECONDS = 1.0
BYTES = 100 << 20
BYTES_PER_INPUT_BYTE = 500  # templates that build a conversation message by message copy it often
BITS = 4096  # of an integer
STEPS = 50_000_000  # characters compared or scanned by one operation
PIECE = 80  # bytes of a short string, for operations that make many


class TooExpensive(TemplateRuntimeError):
    """A template asks for more than a rendering may cost."""


class Budget:
    """Time and memory left.

    Args:
        size: bytes of what the caller passed in; more memory is granted for more of it.
    """

    def __init__(self, size: int = 0) -> None:
        self._deadline = time.thread_time() + SECONDS
        self._bytes = BYTES + BYTES_PER_INPUT_BYTE * size
        self._steps = STEPS + BYTES_PER_INPUT_BYTE * size
        self._sizes: dict[int, tuple[object, int]] = {}

    def tick(self) -> None:
        """Look at the clock."""
        if time.thread_time() > self._deadline:
            raise TooExpensive(f"the template computes for more than {SECONDS:g} s")

    def require(self, amount: int) -> None:
        """Refuse a result of so many bytes if they aren't there."""
        if amount > self._bytes:
            raise TooExpensive("the template makes a text or list that is too big")

    def work(self, steps: int) -> None:
        """Refuse an operation of so many elementary steps."""
        if steps > self._steps:
            raise TooExpensive("the template asks for an operation that is too big")

    def bits(self, count: int) -> None:
        """Refuse an integer of so many bits."""
        if count > BITS:
            raise TooExpensive("the template computes with a number that is too big")

    def charge(self, value: Any) -> Any:
        """Pay for a value that an operation made; returns it."""
        if isinstance(value, (str, list, tuple, dict, bytes)):
            size = sys.getsizeof(value)
            self.require(size)
            self._bytes -= size
        return value

    def measure(self, value: Any) -> int:
        """Characters of a value written out in full; refuses what is too big to write or compare.

        A list that is reached along several ways counts each time, as it would be written.
        """
        if isinstance(value, str):
            return len(value)
        if isinstance(value, int):
            self.bits(value.bit_length())
            return 8
        if not isinstance(value, (list, tuple, dict, Namespace)):
            return 8
        known = self._sizes.get(id(value))
        if known is not None and known[0] is value:
            return known[1]
        size = self._measure_all(value)
        self.work(size)
        if not isinstance(value, Namespace):  # the one kind of value that a template can change
            self._sizes[id(value)] = (value, size)
        return size

    def _measure_all(self, value: Any) -> int:
        self.tick()
        items: Iterable[Any] = value
        if isinstance(value, Namespace):
            value = object.__getattribute__(value, "_Namespace__attrs")
        if isinstance(value, dict):
            items = [*value.keys(), *value.values()]
        return 8 + sum(self.measure(item) for item in items)


_BUDGET: ContextVar[Budget | None] = ContextVar("template_budget", default=None)


def current_budget() -> Budget:
    """The budget of the rendering in progress."""
    budget = _BUDGET.get()
    if budget is None:
        budget = Budget()
        _BUDGET.set(budget)
    return budget


def begin(size: int) -> Budget:
    """Start a new budget for this thread (or task)."""
    budget = Budget(size)
    _BUDGET.set(budget)
    return budget


Check = Callable[..., None]
"""Gets the budget, the value an operation is done on, and its arguments; raises `TooExpensive`."""


def _width(budget: Budget, _value: Any, width: Any = 0, *_: Any, **__: Any) -> None:
    if isinstance(width, int):
        budget.require(width * 4)


def _times(budget: Budget, value: Any, *given: Any, **named: Any) -> None:
    """The value, as long as it is, times an argument, as large or as long as it is."""
    arguments = [*given, *named.values()]
    if isinstance(value, (str, bytes)) and arguments:
        sizes = [abs(a) if isinstance(a, int) else budget.measure(a) for a in arguments]
        budget.require((len(value) + 1) * max(sizes))


def _scan(budget: Budget, value: Any, *given: Any, **_: Any) -> None:
    """Searches from the right, and stripping of a set, take the product of both lengths."""
    for argument in given:
        if isinstance(value, (str, bytes)) and isinstance(argument, (str, bytes)):
            budget.work(len(value) * len(argument))


def _replace(budget: Budget, value: Any, old: Any = "", new: Any = "", *_: Any, **named: Any) -> None:
    old, new = named.get("old", old), named.get("new", new)
    if all(isinstance(one, str) for one in (value, old, new)):
        budget.require(len(value) + value.count(old) * len(new) * 4)


def _pieces(budget: Budget, value: Any, separator: Any = None, *_: Any, **__: Any) -> None:
    if isinstance(value, (str, bytes)):
        count = value.count(separator) if separator else len(value)
        budget.require(count * PIECE)


def _joined(budget: Budget, separator: Any, items: Any = (), *_: Any, **__: Any) -> None:
    if isinstance(items, (list, tuple, dict, str)):
        budget.require(budget.measure(items) + len(items) * len(separator))


def _indent(budget: Budget, value: Any, width: Any = 4, *_: Any, **__: Any) -> None:
    size = abs(width) if isinstance(width, int) else budget.measure(width)
    budget.require((str(value).count("\n") + 1) * size)


def _json(budget: Budget, _value: Any, *given: Any, **named: Any) -> None:
    indent = named.get("indent") or (given[1] if len(given) > 1 else None) or 0
    if (indent if isinstance(indent, int) else budget.measure(indent)) > 100:
        raise TooExpensive("tojson is asked for an indent of more than 100")


def _start(_budget: Budget, _value: Any, _attribute: Any = None, start: Any = 0, *_: Any) -> None:
    if not isinstance(start, (int, float)):
        raise TooExpensive("sum adds up numbers only")


def _short(budget: Budget, value: Any, *given: Any, **_: Any) -> None:
    """Slow whatever the arguments: for short texts only."""
    budget.work(500 * budget.measure(value))
    _times(budget, value, *given)


PERCENT = re.compile(r"%[^a-zA-Z%]*(?:\*|\d{5,})")
BRACES = re.compile(r"\{[^{}]*(?:\{|\d{5,})")


def _format(budget: Budget, value: Any, *given: Any, **named: Any) -> None:
    text = str(value)
    if PERCENT.search(text) or BRACES.search(text):
        raise TooExpensive("a format asks for a width of its own that is too big, or computed")
    longest = max((budget.measure(item) for item in [*given, *named.values()]), default=0)
    budget.require((text.count("%") + text.count("{")) * longest + len(text))


CHECKS: Mapping[str, Check] = {
    "center": _width, "ljust": _width, "rjust": _width, "zfill": _width, "to_bytes": _width,
    "batch": _width, "slice": _width,
    "expandtabs": _times, "translate": _times,
    "strip": _scan, "lstrip": _scan, "rstrip": _scan, "trim": _scan,
    "rfind": _scan, "rindex": _scan, "rsplit": _scan, "rpartition": _scan,
    "replace": _replace, "split": _pieces, "splitlines": _pieces, "list": _pieces,
    "join": _joined, "indent": _indent, "tojson": _json, "sum": _start,
    "wordwrap": _short, "striptags": _short, "urlize": _short, "xmlattr": _short, "pprint": _short,
    "format": _format, "format_map": _format,
}  # fmt: skip
