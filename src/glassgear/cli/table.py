"""Columns of text, and sizes as people read them."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Collection, Sequence

from glassgear.cli import console

__all__ = ["count", "flop", "room", "size", "table"]


def room() -> int | None:
    """Columns of the terminal that results go to; None where nobody looks on and no width is set."""
    if not console.is_terminal(sys.stdout) and not os.environ.get("COLUMNS"):
        return None
    return shutil.get_terminal_size().columns


def table(head: Sequence[str], rows: Sequence[Sequence[str]], right: Collection[int] = ()) -> str:
    """Rows below a dim head, columns aligned.

    Args:
        head: the columns' names.
        rows: their cells, plain text; of several lines where there are line breaks.
        right: columns that end at the same place rather than begin there: numbers.
    """
    cells = [[console.visible(cell) for cell in row] for row in rows]
    parts = [[part for row in [list(head), *cells] for part in row[i].split("\n")] for i in range(len(head))]
    widths = [max(map(console.cells, column)) for column in parts]

    def lines(row: Sequence[str]) -> list[str]:
        """A row; as many lines as its longest cell has."""
        parts = [cell.split("\n") for cell in row]
        most = range(max(map(len, parts), default=1))
        return [line([part[i] if i < len(part) else "" for part in parts]) for i in most]

    def line(row: Sequence[str]) -> str:
        parts = (
            console.padded(cell, w, right=i in right)
            for i, (cell, w) in enumerate(zip(row, widths, strict=True))
        )
        return "  ".join(parts).rstrip()

    return "\n".join([console.style(line(head), dim=True), *(one for row in cells for one in lines(row))])


def size(nbytes: float) -> str:
    """Bytes as a person reads them, in powers of a thousand: `98.4 MB`."""
    return _short(nbytes, ["kB", "MB", "GB", "TB", "PB"], "B")


def count(number: float) -> str:
    """A large number as a person reads it: `134.5 M`."""
    return _short(number, ["k", "M", "G", "T", "P"], "").rstrip()


def flop(number: float) -> str:
    """Operations as a person reads them: `134.5 MFLOP`, `8 FLOP`."""
    return _short(number, ["k", "M", "G", "T", "P"], "") + "FLOP"


def _short(amount: float, units: Sequence[str], first: str) -> str:
    unit = first
    for larger in units:
        if amount < 999.95:
            break
        amount, unit = amount / 1000, larger
    return f"{amount:.0f} {unit}" if unit == first else f"{amount:.1f} {unit}"
