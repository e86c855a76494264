"""The drawing of a tree of gears: a line for each, blocks that are alike once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

import click

from glassgear.cli import console
from glassgear.cli.table import size
from glassgear.model.gears import Gear, Head, Model, Rope

if TYPE_CHECKING:
    from glassgear.model.ledger import Row

__all__ = ["tree_lines"]


@dataclass(frozen=True)
class Line:
    """One line of the drawing.

    Attributes:
        branch: what leads from the left edge to the name.
        name: the gear's name among its neighbours.
        gear: its kind.
        shape: of its tensors, or what it is set to.
        rows: its tensors and those of its parts.
        own: whether it holds tensors itself; otherwise the figures are sums.
    """

    branch: str
    name: str
    gear: str
    shape: str
    rows: tuple[Row, ...]
    own: bool

    @property
    def columns(self) -> tuple[str, ...]:
        """Gear, shape, parameters, bytes, types."""
        if not self.rows:
            return self.gear, self.shape, "", "", ""
        parameters = sum(row.parameters for row in self.rows)
        nbytes = sum(row.nbytes for row in self.rows)
        types = " ".join(dict.fromkeys(row.type for row in self.rows)) if self.own else ""
        return self.gear, self.shape, f"{parameters:,}", size(nbytes), types


def tree_lines(model: Model, rows: Sequence[Row], every: bool = False) -> list[str]:
    """The drawing.

    Args:
        model: the tree.
        rows: the parameter tensors, from the ledger.
        every: draw blocks that are alike one by one.
    """
    lines = list(_branches(model, "", "", rows, every))
    tree = max(console.cells(line.branch + line.name) for line in lines)
    widths = [max(console.cells(line.columns[i]) for line in lines) for i in range(5)]
    drawn = []
    for line in lines:
        gear, shape, parameters, nbytes, types = line.columns
        name = console.style(line.branch, dim=True) + console.style(line.name, bold=line.own)
        cells = [
            console.style(console.padded(gear, widths[0]), dim=True),
            console.padded(shape, widths[1]),
            console.style(console.padded(parameters, widths[2], right=True), dim=not line.own),
            console.style(console.padded(nbytes, widths[3], right=True), dim=not line.own),
            console.style(types, fg="cyan") if types else "",
        ]
        space = " " * (tree - console.cells(line.branch + line.name))
        while cells and not click.unstyle(cells[-1]).strip():
            cells.pop()
        drawn.append(f"{name}{space}  {'  '.join(cells)}")
    return drawn


def _branches(gear: Gear, path: str, indent: str, rows: Sequence[Row], every: bool) -> Iterable[Line]:
    groups = _groups(gear, path, rows, every)
    for index, (names, part) in enumerate(groups):
        last = index == len(groups) - 1
        full = f"{path}.{names[0]}" if path else names[0]
        inside = tuple(row for row in rows if row.path.startswith(f"{full}."))
        own = [row for row in inside if row.path.rpartition(".")[0] == full]
        branch, below = ("\u2514\u2500 ", "   ") if last else ("\u251c\u2500 ", "\u2502  ")
        yield Line(indent + branch, _name(names), type(part).__name__, _shape(part, own), inside, bool(own))
        yield from _branches(part, full, indent + below, inside, every)


def _groups(gear: Gear, path: str, rows: Sequence[Row], every: bool) -> list[tuple[list[str], Gear]]:
    """The parts of a gear; neighbours that are alike, and stored alike, come together."""
    groups: list[tuple[list[str], Gear]] = []
    before: object = None
    for name, part in gear.parts.items():
        full = f"{path}.{name}" if path else name
        stored = [
            (row.path.removeprefix(full), row.type, row.nbytes)
            for row in rows
            if row.path.startswith(f"{full}.")
        ]
        alike = part, stored
        if groups and alike == before and "." in name and not every:
            groups[-1][0].append(name)
        else:
            groups.append(([name], part))
        before = alike
    return groups


def _name(names: Sequence[str]) -> str:
    """`blocks.0` to `blocks.29` as `blocks.0-29 (x30)`."""
    if len(names) == 1:
        return names[0]
    return f"{names[0]}-{names[-1].rpartition('.')[2]} (\u00d7{len(names)})"


def _shape(gear: Gear, rows: Sequence[Row]) -> str:
    """The shapes of a gear's own tensors; else what it is set to."""
    if rows:
        return " + ".join("[" + ", ".join(map(str, row.shape)) + "]" for row in rows)
    if isinstance(gear, Head):
        return "the embedding's table (tied)"
    if isinstance(gear, Rope):
        scaling = f", {gear.scaling.kind} scaling" if gear.scaling else ""
        return f"theta {gear.theta:,g}, {gear.pairing}{scaling}"
    facts = [
        f"{f.name.replace('_', ' ')} {value}"
        for f in fields(gear)
        if isinstance(value := getattr(gear, f.name), int | str) and not isinstance(value, bool)
    ]
    return ", ".join(facts)
