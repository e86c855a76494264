"""The drawing of a tree of gears: a line for each, with columns beside it."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from glassgear.cli import console
from glassgear.cli.gear_words import words
from glassgear.cli.table import room
from glassgear.model.gears import Shape
from glassgear.model.outline import numbers

if TYPE_CHECKING:
    from glassgear.model.outline import Node

__all__ = ["Cell", "Column", "draw", "shape_of"]

GAP = "  "
NEEDED = 9  # of columns that are never left out
LEAST = 16  # width of a column that wraps


@dataclass(frozen=True)
class Cell:
    """What stands in a column of one line: text, and how click styles it."""

    text: str = ""
    dim: bool = False
    fg: str | None = None


@dataclass(frozen=True)
class Column:
    """One column.

    Attributes:
        cell: of a node.
        right: whether its texts end at the same place: numbers.
        needed: columns with a lower number are left out first where the terminal is narrow.
        title: what stands above it; drawings none of whose columns has one have no head.
        wraps: whether it becomes narrower, its texts of several lines, where there is little room.
    """

    cell: Callable[[Node], Cell]
    right: bool = False
    needed: int = NEEDED
    title: str = ""
    wraps: bool = False


@dataclass(frozen=True)
class Line:
    """One line.

    Attributes:
        branch: what leads from the left edge to the name.
        name: the gear's name.
        node: the gear.
        below: what leads past a second line of the same gear.
    """

    branch: str
    name: str
    node: Node
    below: str


def shape_of(node: Node) -> str:
    """The shapes of a gear's own tensors; else what it is set to."""
    if not node.tensors:
        return words(node.gear)
    text = " + ".join(map(_shape, node.tensors.values()))
    more = words(node.gear)
    return f"{text}, {more}" if more else text


def _shape(shape: Shape) -> str:
    return "[" + ", ".join(map(str, shape)) + "]"


def draw(
    root: Node, columns: Sequence[Column], shown: Callable[[Node], bool] = lambda node: True
) -> list[str]:
    """The lines of a drawing, styled.

    Args:
        root: the model's node, which has no line of its own.
        columns: what stands beside each gear.
        shown: whether a node has a line.
    """
    lines = list(_branches(root, "", shown))
    tree = max(console.cells(line.branch + line.name) for line in lines)
    cells = [[column.cell(line.node) for column in columns] for line in lines]
    widths = [
        max([len(column.title), *(console.cells(row[i].text) for row in cells)])
        for i, column in enumerate(columns)
    ]
    kept, widths = _fitting(columns, widths, tree)
    drawn = [_head(columns, widths, kept, tree)] if any(column.title for column in columns) else []
    for line, row in zip(lines, cells, strict=True):
        texts = {i: textwrap.wrap(row[i].text, widths[i]) or [""] for i in kept}
        for part in range(max([1, *map(len, texts.values())])):
            name, branch = (line.name, line.branch) if part == 0 else ("", line.below)
            space = " " * (tree - console.cells(branch + name))
            now = [replace(row[i], text=texts[i][part] if part < len(texts[i]) else "") for i in kept]
            beside = _cells(now, [(widths[i], columns[i].right) for i in kept])
            styled = console.style(branch, dim=True) + console.style(name, bold=bool(line.node.tensors))
            drawn.append(GAP.join([styled + space, *beside]) if beside else styled)
    return drawn


def _cells(cells: Sequence[Cell], forms: Sequence[tuple[int, bool]]) -> list[str]:
    """Styled cells of one line; empty ones at its end are left out, and so are spaces."""
    last = max((i for i, cell in enumerate(cells) if cell.text), default=-1)
    made = []
    for i, (cell, (width, right)) in enumerate(zip(cells[: last + 1], forms, strict=False)):
        text = console.padded(cell.text, width, right=right)
        made.append(console.style(text.rstrip() if i == last else text, dim=cell.dim, fg=cell.fg))
    return made


def _head(columns: Sequence[Column], widths: Sequence[int], kept: Sequence[int], tree: int) -> str:
    titles = [console.padded(columns[i].title, widths[i], right=columns[i].right) for i in kept]
    return console.style(GAP.join([" " * tree, *titles]).rstrip(), dim=True)


def _fitting(columns: Sequence[Column], widths: Sequence[int], tree: int) -> tuple[list[int], list[int]]:
    """The columns that there is room for, and their widths; all of them where nobody looks on."""
    kept, limit = list(range(len(columns))), room()
    if limit is None:
        return kept, list(widths)
    for i in sorted(kept, key=lambda i: columns[i].needed):
        if _total(widths, kept, tree) <= limit or columns[i].needed >= NEEDED:
            break
        kept.remove(i)
    over = max(0, _total(widths, kept, tree) - limit)
    narrowed = [w - over if i in kept and columns[i].wraps else w for i, w in enumerate(widths)]
    folded = [max(LEAST, width) if columns[i].wraps else width for i, width in enumerate(narrowed)]
    if _total(folded, kept, tree) > limit:  # then what gears hold counts more than how they are shaped
        kept = [i for i in kept if not columns[i].wraps]
    return kept, folded


def _total(widths: Sequence[int], kept: Sequence[int], tree: int) -> int:
    return tree + sum(len(GAP) + widths[i] for i in kept)


def _branches(node: Node, indent: str, shown: Callable[[Node], bool]) -> Iterator[Line]:
    parts = [part for part in node.parts if shown(part)]
    for index, part in enumerate(parts):
        last = index == len(parts) - 1
        branch, below = ("\u2514\u2500 ", "   ") if last else ("\u251c\u2500 ", "\u2502  ")
        more = "\u2502" if any(map(shown, part.parts)) else ""
        yield Line(indent + branch, _name(part.names), part, indent + below + more)
        yield from _branches(part, indent + below, shown)


def _name(names: tuple[str, ...]) -> str:
    """`blocks.0` to `blocks.29` as `blocks.0-29 (×30)`."""
    return names[0] if len(names) == 1 else f"{numbers(names)} (\u00d7{len(names)})"
