"""The terminal's views of a trace: figures of values, growth, where heads look, what layers would say.

What is shown comes from `trace.views`; here it becomes tables.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from glassgear.cli import console
from glassgear.cli.table import room

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table
    from rich.text import Text

    from glassgear.languages import Words
    from glassgear.trace.trace import Trace, Value
    from glassgear.trace.views import Growth, Layer, Look, Summary

__all__ = [
    "Name",
    "Said",
    "cut",
    "figure",
    "fit",
    "is_slim",
    "is_tight",
    "kinds",
    "left_out",
    "new_table",
    "only",
    "shape_text",
    "share",
    "show",
    "show_figures",
    "show_growth",
    "show_heads",
    "show_lens",
]

Name = Callable[[int], str]
"""What a token is called: its text, quoted."""

WIDE = 200  # columns where nobody looks on
LEAST = 40  # columns that everything is printed in at least: with fewer, words would break into letters
SLIM = 64  # columns that are too few for every figure
MIDDLING = 110  # columns that are enough for long names
NARROW = 19  # letters of a name that there is always room for
BLOCKS = "blocks.*."
BAR = 16  # cells of the longest bar
TOKEN = 12  # width of a token in a table
BEFORE = 32  # columns that stand before tokens
TIGHT = 48  # columns that are too few for a rank beside a probability
SHORT = 7  # width of a token there, where another one stands beside it


def show(*parts: RenderableType) -> None:
    """Print tables and texts on stdout, as wide as the terminal, in its colours."""
    from rich.console import Console

    colours = None if console.may_colour() is False else "auto"
    width = max(room() or WIDE, LEAST)
    out = Console(file=sys.stdout, width=width, color_system=colours, highlight=False)  # type: ignore[arg-type]
    for part in parts:
        if is_slim() and not isinstance(part, str):
            fit(part, out)
        out.print(part, markup=False)


def left_out(heads: Sequence[str], words: Words) -> Iterator[Text]:
    """A line that names the columns that a terminal has no room for, if there are any."""
    from rich.text import Text

    if heads:
        yield Text(words(f"no room for: {', '.join(map(words, heads))}"), style="dim")


def is_slim() -> bool:
    """Whether the terminal has little room."""
    return (room() or WIDE) < SLIM


def is_tight() -> bool:
    """Whether it has even less."""
    return (room() or WIDE) < TIGHT


def fit(part: Any, out: Any) -> None:
    """Give a table's columns widths at which whole words fold; it stays as it is if there are none."""
    from rich.measure import Measurement
    from rich.table import Table

    if not isinstance(part, Table):
        return
    part.padding = (0, 1, 0, 0)
    cells = [[column.header, *column.cells] for column in part.columns]
    sizes = [[Measurement.get(out, out.options, cell) for cell in column] for column in cells]
    least = [max(size.minimum for size in column) for column in sizes]
    widths = [max(size.maximum for size in column) for column in sizes]
    least = [wide if c.no_wrap else low for c, low, wide in zip(part.columns, least, widths, strict=True)]
    room_for = out.width - len(widths) + 1
    if sum(least) > room_for:
        return
    while sum(widths) > room_for:
        spare = [wide if wide > low else 0 for wide, low in zip(widths, least, strict=True)]
        widths[spare.index(max(spare))] -= 1
    for column, width in zip(part.columns, widths, strict=True):
        column.width = width


def new_table(*heads: str, right: Sequence[int] = ()) -> Table:
    """A table without lines. Names fold where there is little room, numbers (`right`) don't."""
    from rich.table import Table

    made = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for number, head in enumerate(heads):
        side = number in right
        made.add_column(head, justify="right" if side else "left", no_wrap=side, overflow="fold")
    return made


def figure(value: float) -> str:
    """Three digits, as short as they go."""
    if math.isnan(value):
        return "-"
    text = f"{value:.2e}" if 0 < abs(value) < 0.001 else f"{value:.3g}"
    return text.replace("e-0", "e-").replace("e+0", "e+")


def share(value: float) -> str:
    """A probability."""
    return f"{value:.1%}"


def shape_text(values: Sequence[Value]) -> str:
    """The shape of values that are alike; sizes in which they differ as a range."""
    shapes = [value.array.shape for value in values]
    sizes = [(min(n), max(n)) for n in zip(*shapes, strict=True)]
    return "[" + ", ".join(str(low) if low == high else f"{low}-{high}" for low, high in sizes) + "]"


def kinds(trace: Trace) -> dict[str, list[Value]]:
    """The values of a trace by kind of gear: `blocks.*.ffn.down` for all blocks."""
    from glassgear.trace.trace import kind_of

    found: dict[str, list[Value]] = {}
    for path, value in trace.items():
        found.setdefault(kind_of(path), []).append(value)
    return found


def only(value: Value, token: int) -> Value | None:
    """A value with the row of one token alone; None if it has none."""
    from dataclasses import replace

    rows = [i for i, position in enumerate(value.positions.tolist()) if position == token]
    if not rows:
        return None
    array = value.array.take(rows, value.axes.index("token"))
    return replace(value, array=array, positions=value.positions[rows])


# --- figures ----------------------------------------------------------------------------------


def show_figures(rows: Sequence[tuple[Summary, int, str]], words: Words = str) -> None:
    """A row for each value, or for a gear's values in all blocks.

    Args:
        rows: figures, how many values they are of, and the shape as text.
        words: the language of the table.
    """
    from rich.text import Text

    heads: tuple[str, ...] = ("value", "shape", "mean", "std", "min", "max", "norm", "zeros")
    slim = is_slim()
    missing = ("shape", "min", "max", "zeros") if slim else ()
    heads = tuple(head for head in heads if head not in missing)
    made = new_table(*map(words, heads), right=range(1 if slim else 2, len(heads)))
    made.columns[1].no_wrap = True
    if (room() or WIDE) < MIDDLING:
        made.padding = (0, 1, 0, 0)
    blocks = 0  # as many as the rows are about
    for row, count, shape in rows:
        inside = row.path.startswith(BLOCKS)
        if inside and not blocks:
            blocks = count
            made.add_row(Text(words(f"in {count} blocks:" if count > 1 else "in a block:"), style="dim"))
        path = _name(row.path.removeprefix(BLOCKS) if inside else row.path, inside)
        if count > 1 and count != blocks:
            path.append(f" \u00d7{count}", style="dim")
        bad = words(_bad(row))
        if bad:
            path.append(f"\n  {bad}", style="bold red")
        numbers = [figure(n) for n in (row.mean, row.std, row.min, row.max, row.norm)]
        style = "red" if bad else ""
        mean, std, low, high, norm = (Text(n, style=style) for n in numbers)
        whole = (shape, mean, std, low, high, norm, _percent(row.zeros))
        made.add_row(path, *((mean, std, norm) if slim else whole))
    show(made, *left_out(missing, words))


def _name(path: str, inside: bool) -> Text:
    """A path; where there is little room, a long one on two lines."""
    from rich.text import Text

    indent = "  " if inside else ""
    if len(path) > NARROW and (room() or WIDE) < MIDDLING:
        before, dot, after = path.rpartition(".")
        path = f"{before}{dot}\n{indent}  {after}"
    return Text(indent + console.visible(path))


def _bad(row: Summary) -> str:
    found = [f"{n:,} {name}" for n, name in ((row.nan, "NaN"), (row.inf, "Inf")) if n]
    return ", ".join(found)


def _percent(value: float) -> str:
    return "0" if not value else "<1%" if value < 0.01 else f"{value:.0%}"


# --- the stream -------------------------------------------------------------------------------


def show_growth(rows: Sequence[Growth], token: int | None, words: Words = str) -> None:
    """How long the residual stream is behind each block, and what was added: of a token, or on average."""
    steps = list(dict.fromkeys(step for row in rows for step in row.steps))
    heads = ("block", *(f"+ {step}" for step in steps), "stream", "")
    made = new_table(*map(words, heads), right=range(1, len(steps) + 2))
    lengths = [_length(row, row.stream, token) for row in rows]
    top, bar = max(lengths, default=0.0) or 1.0, BAR // 4 if is_slim() else BAR
    for row, length in zip(rows, lengths, strict=True):
        added = [figure(_length(row, row.steps[step], token)) if step in row.steps else "" for step in steps]
        made.add_row(row.path, *added, figure(length), "\u2588" * max(1, round(bar * length / top)))
    whose = "all tokens, on average" if token is None else f"token {token}"
    show(words(f"Length of the residual stream ({whose})"), made)


def _length(row: Growth, norms: Any, token: int | None) -> float:
    if token is None:
        return float(norms.mean())
    return float(norms[row.tokens.index(token)])


# --- attention --------------------------------------------------------------------------------


def show_heads(
    found: Mapping[str, Sequence[Sequence[Look]]], token: int, ids: Sequence[int], name: Name,
    words: Words = str,
) -> None:  # fmt: skip
    """For each head the tokens that one reads most, with the weight of each."""
    made = new_table(*map(words, ("attention", "head", "weight, token")), right=[1])
    made.columns[2].no_wrap = True
    for path, each in found.items():
        called = path.removesuffix(".attention") if is_tight() else path
        for head, looks in enumerate(each):
            cells = [(look.weight, f"{look.token} {cut(name(ids[look.token]))}", "") for look in looks]
            made.add_row(called if head == 0 else "", str(head), _likely(cells))
    show(words(f"What token {token}, {name(ids[token])}, looks at"), made)


def _likely(cells: Sequence[tuple[float, str, str]]) -> Text:
    """Probabilities, what has them, and how it looks: side by side, on as many lines as that takes."""
    from rich.text import Text

    fits = max(1, ((room() or WIDE) - BEFORE) // (TOKEN + 9))
    out = Text()
    for number, (p, text, style) in enumerate(cells):
        last = number + 1 == len(cells) or (number + 1) % fits == 0
        cell = f"{share(p):>6} {text}"
        out.append(cell if last else console.padded(cell, TOKEN + 9), style=style)
        out.append("\n" if last and number + 1 < len(cells) else "")
    return out


def cut(text: str, width: int = TOKEN) -> str:
    """What a token is called, in so many cells at most."""
    return text if console.cells(text) <= width else text[: width - 2] + "\u2026"


# --- layers -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Said:
    """What all layers would say after a token."""

    layers: Sequence[Layer]
    decided: int
    token: int
    ids: Sequence[int]


def show_lens(said: Said, name: Name, words: Words = str) -> None:
    """The likeliest tokens behind each layer, and the probability of the one that wins in the end."""
    final = said.layers[-1].top[0][0]
    heads: tuple[str, ...] = ("block", f"p({cut(name(final))})", "place", "likeliest")
    if is_tight():
        heads = ("block", f"p({cut(name(final), SHORT)})", "likeliest")
    made = new_table(*map(words, heads), right=range(1, len(heads) - 1))
    made.columns[-1].no_wrap = True
    for number, layer in enumerate(said.layers):
        cells = _likely([(p, cut(name(i)), "bold" if i == final else "") for i, p in layer.top])
        style = "green" if number >= said.decided else None
        place = () if is_tight() else (str(layer.rank + 1),)
        made.add_row(layer.path, share(layer.final), *place, cells, style=style)
    path = said.layers[said.decided].path
    show(
        words(f"What each layer would say after token {said.token}, {name(said.ids[said.token])}"),
        made,
        *left_out(("place",) if is_tight() else (), words),
        words(f"{path} decided: from it on, {name(final)} is the likeliest."),
    )
