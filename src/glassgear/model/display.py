"""How a gear looks in a notebook: the tree of its parts, those that are alike drawn once."""

from __future__ import annotations

import math
from html import escape
from itertools import groupby

from glassgear.model.gears import Gear, tensors

__all__ = ["gear_html"]

DEEPEST = 3  # levels that are open at first
FEW = 3  # names that are told one by one


def gear_html(gear: Gear) -> str:
    """The tree below a gear: names, kinds, shapes and parameters."""
    return f"<div style='font-family:monospace'>{_node((type(gear).__name__,), gear, 0)}</div>"


def _node(names: tuple[str, ...], gear: Gear, level: int) -> str:
    shapes = ", ".join(f"{name} {list(shape)}" for name, shape in gear.tensors.items())
    few = len(names) <= FEW
    title = ", ".join(names) if few else f"{names[0]} to {names[-1]} (\u00d7{len(names)})"
    kind = "" if level == 0 else f" <i>{escape(type(gear).__name__)}</i>"
    line = f"<b>{escape(title)}</b>{kind} {escape(shapes)} {_count(gear)}"
    parts = [(tuple(name for name, _ in same), part) for part, same in _alike(gear)]
    if not parts:
        return f"<div style='margin-left:1.2em'>{line}</div>"
    inside = "".join(_node(name, part, level + 1) for name, part in parts)
    opened = " open" if level < DEEPEST else ""
    return f"<details{opened} style='margin-left:1.2em'><summary>{line}</summary>{inside}</details>"


def _alike(gear: Gear) -> list[tuple[Gear, list[tuple[str, Gear]]]]:
    """Parts in order; neighbours that are equal together."""
    return [(part, list(same)) for part, same in groupby(gear.parts.items(), key=lambda pair: pair[1])]


def _count(gear: Gear) -> str:
    number = sum(map(math.prod, tensors(gear).values()))
    return f"<span style='color:#888'>{number:,}</span>" if number else ""
