"""Functions as people give them for tools: the good become schemas, the others are refused."""

from __future__ import annotations

import enum
from typing import Any, Literal, Optional, Union


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


def multiply(x: float, y: float = 2.0):
    """Multiply two numbers.

    Args:
        x: the first
        y: the second, which goes on
            in a deeper line: with a colon
    """


def everything(
    city: str,
    unit: Literal["c", "f", 3] = "c",
    count: int | None = None,
    numbers: list[int] = [],  # noqa: B006
    shares: dict[str, float] = {},  # noqa: B006
    pair: tuple[int, str] = (1, ""),
    either: Union[int, str] = 1,  # noqa: UP007
    nested: Optional[Union[list[int], str]] = None,  # noqa: UP007, UP045
    colour: Colour = Colour.RED,
    whatever: Any = 1,
    bare: list = [],  # type: ignore[type-arg]  # noqa: B006
) -> list[str]:
    """
    Look at many things.
    In two lines.

    And a paragraph.

    Args:
        city (str): the city (choices: ["Paris ", "Rome"])
        unit: unit
        count: count
        numbers: numbers
        shares: shares
        pair: pair
        either: either
        nested: nested
        colour: colour

        whatever: whatever
        bare: bare

    Returns:
        Texts: many of them

    Raises:
        ValueError: never
    """
    return []


def nothing() -> dict:  # type: ignore[type-arg]
    """Takes nothing."""
    return {}


class Device:
    def switch(self, on: bool) -> Device:
        """Switch it.

        Args:
            on: whether it is to run
        Returns:
            itself
        """
        return self


def undocumented(x: int) -> None: ...


def undescribed(x: int, y: int) -> None:
    """Half described.

    Args:
        x: this one
    """


def unhinted(x) -> None:  # type: ignore[no-untyped-def]
    """Without a hint.

    Args:
        x: what
    """


def odd(x: Device) -> None:
    """With a class of its own.

    Args:
        x: what
    """


def bad_choices(x: str) -> None:
    """With choices that can't be read.

    Args:
        x: what (choices: [a, b])
    """


def forward(x: Missing) -> None:  # type: ignore[name-defined]  # noqa: F821
    """With a hint that leads nowhere.

    Args:
        x: what
    """


GOOD = [multiply, everything, nothing, Device().switch, Device.switch]
BAD = [
    (undocumented, "no docstring"),
    (undescribed, "describe the argument y"),
    (unhinted, "x of the tool unhinted has no type hint"),
    (odd, "no JSON type"),
    (bad_choices, "aren't JSON"),
    (forward, "can't be read"),
]
