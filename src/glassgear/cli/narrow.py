"""Text and tables where the terminal has little room: folded texts, fewer digits, fewer columns."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace

from glassgear.cli import console

__all__ = ["narrowed", "wrapped"]

DIGITS = 9, 6, 4, 3
LEAST = 16  # cells of a column of text that long words don't make wider
GAP = 2  # cells between columns
# A Chinese line may end behind any character but an opening bracket, and begin with any but a closing one.
PIECE = re.compile(r"\s+|[（《]*(?:[^\s\u2e80-\uffff]+|[\u2e80-\uffff])")
CLOSING = re.compile("[，。：；、）》？！]")


def wrapped(text: str, width: int, indent: int = 2) -> list[str]:
    """A text in lines of so many cells that end between words; all but the first are indented.

    A word that is wider than a line has one of its own.
    """
    lines, now = [], ""
    for piece in PIECE.findall(text):
        full = console.cells(now + piece.rstrip()) > width
        if full and now.strip() and not CLOSING.fullmatch(piece):
            lines.append(now.rstrip())
            now = " " * indent + piece.lstrip()
        else:
            now += piece
    return [*lines, now.rstrip()]


@dataclass(frozen=True)
class Column:
    """A column of a table: its name, its cells, and whether they are numbers."""

    name: str
    cells: tuple[str, ...]
    right: bool

    @property
    def width(self) -> int:
        """Cells of the terminal that it takes."""
        lines = (line for cell in (self.name, *self.cells) for line in cell.split("\n"))
        return max(map(console.cells, lines))

    @property
    def least(self) -> int:
        """Those that it takes at least: texts may fold at words."""
        if self.right:
            return self.width
        words = (word for cell in (self.name, *self.cells) for word in cell.split())
        return min(self.width, max(LEAST, max(map(console.cells, words), default=0)))

    def rounded(self, digits: int) -> Column:
        """The same with fewer digits."""
        if not self.right:
            return self
        return replace(self, cells=tuple(_rounded(cell, digits) for cell in self.cells))

    def folded(self, width: int) -> Column:
        """The same with its texts in lines of this width."""
        return replace(self, cells=tuple("\n".join(wrapped(cell, width, 0)) for cell in self.cells))


def narrowed(
    head: Sequence[str], rows: Sequence[Sequence[str]], right: Collection[int], width: int
) -> tuple[tuple[str, ...], list[tuple[str, ...]], set[int], list[str]]:
    """A table that a terminal has room for, and the names of the columns that it leaves out.

    Long texts fold, and numbers lose digits; where that isn't enough, the running sum and then the factors
    before the last number are left out.

    Args:
        head: the columns' names.
        rows: their cells.
        right: columns of numbers.
        width: cells of the terminal.
    """
    columns = [Column(name, tuple(row[i] for row in rows), i in right) for i, name in enumerate(head)]
    for digits in DIGITS:
        made = [column.rounded(digits) for column in columns]
        if _least(made) <= width:
            break
    left_out: list[str] = []
    for number in _order(made):
        if _least(made) <= width:
            break
        left_out.append(made[number].name)
        del made[number]
    while _total(made) > width and _total(made) > _least(made):
        wide = max((c for c in made if c.width > c.least), key=lambda c: c.width)
        at = next(i for i, column in enumerate(made) if column is wide)
        made[at] = wide.folded(max(wide.least, wide.width - (_total(made) - width)))
        if made[at].width == wide.width:
            break
    cells = [tuple(column.cells[i] for column in made) for i in range(len(rows))]
    kept = {i for i, column in enumerate(made) if column.right}
    return tuple(column.name for column in made), cells, kept, left_out


def _order(columns: Sequence[Column]) -> Iterator[int]:
    """Places of the numbers in the order in which they are left out: the last, then those before the last."""
    numbers = [i for i, column in enumerate(columns) if column.right]
    if len(numbers) > 2:
        yield numbers[-1]
        yield from reversed(numbers[:-2])


def _total(columns: Sequence[Column]) -> int:
    return sum(column.width + GAP for column in columns) - GAP


def _least(columns: Sequence[Column]) -> int:
    return sum(column.least + GAP for column in columns) - GAP


def _rounded(cell: str, digits: int) -> str:
    if not re.fullmatch(r"-?\d*\.?\d+(e[-+]?\d+)?", cell) or cell.lstrip("-").isdigit():
        return cell
    return f"{float(cell):.{digits}g}"
