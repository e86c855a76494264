"""An explanation laid out: the same sections as text, for the terminal and as HTML."""

from __future__ import annotations

import html
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from glassgear.trace.explain.explanation import Block, Explanation
from glassgear.trace.explain.terms import Term, total

__all__ = ["TOP", "Section", "as_html", "as_text", "number", "sections", "title"]

TOP = 12  # terms that are listed
CODES_ONLY = {"dot", "codes' sum", "unit", "backend's sum"}  # columns where inputs are codes too


@dataclass(frozen=True)
class Section:
    """A heading, and below it lines or a table.

    Attributes:
        title: the heading.
        lines: of text; before the table where there are both.
        head: names of the columns; empty: no table.
        rows: their cells.
        right: columns of numbers.
        sizes: what the first rows add, for bars beside them.
    """

    title: str
    lines: tuple[str, ...] = ()
    head: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()
    right: frozenset[int] = frozenset()
    sizes: tuple[float, ...] = ()


def number(value: float | None) -> str:
    """A float32 with all its digits, so that it can be read back."""
    if value is None:
        return ""
    return f"{value or 0.0:.9g}" if math.isfinite(value) else str(value)  # no -0


def _plus(value: float, more: str = "") -> str:
    return f" {'-' if value < 0 else '+'} {number(abs(value))}{more}"


def title(made: Explanation) -> str:
    """What is explained: `blocks.2.ffn.down[17] of token 3 ' the'`."""
    place = f"[{', '.join(map(str, made.index))}]" if made.index else ""
    text = f" {made.text!r}" if made.text else ""
    return f"{made.path}{place} of token {made.token}{text}"


def sections(
    made: Explanation, top: int = TOP, *, in_order: bool = False, block: int | None = None
) -> list[Section]:
    """The parts of an explanation in the order in which it is read.

    Args:
        made: the explanation.
        top: terms, and blocks, that are listed.
        in_order: list them as the backend adds them rather than by size.
        block: which block of quantised weights is shown in full; None: the one that adds most.
    """
    found = [_facts(made)]
    if made.terms:
        found.append(_terms(made, top, in_order))
    elif made.inputs:
        found.append(_inputs(made, top))
    if made.made.blocks:
        found.append(_blocks(made, top, in_order))
        found += _one_block(made, block)
    if made.made.steps:
        rows = tuple((s.name, s.words, number(s.value)) for s in made.made.steps)
        found.append(Section("steps", (), ("", "", "value"), rows, frozenset({2})))
    found.append(_result(made))
    return found


def _facts(made: Explanation) -> Section:
    source = f"  ({made.source})" if made.source else ""
    axes = ", ".join(f"{name} {i}" for name, i in zip(made.axes, made.index, strict=False))
    lines = [
        f"{made.gear}: {made.formula}{source}",
        f"backend {made.backend}" + (f", {axes}" if axes else ""),
    ]
    lines += [f"{role}: {about}" for role, about in made.weights]
    return Section("", tuple(lines))


def _terms(made: Explanation, top: int, in_order: bool) -> Section:
    terms = made.terms
    order = np.arange(len(terms)) if in_order else terms.by_size()
    listed, rest = [terms[int(i)] for i in order[:top]], order[top:]
    names = list(dict.fromkeys(name for term in listed for name, _ in term.factors))
    tracked = in_order and listed[0].running is not None
    head = ("input", "", *names, "term", "backend's sum" if tracked else "sum so far")
    rows, so_far = [], 0.0
    for term in listed:
        so_far += term.value
        rows.append(_term(term, names, term.running if tracked else so_far))
    if len(rest):
        value = total(terms.values[rest])
        last = terms[int(rest[-1])].running if tracked else so_far + value
        blank = ("",) * len(names)
        rows.append(("", f"{len(rest):,} more", *blank, number(value), number(last)))
    how = "in the backend's order" if in_order else "largest first"
    heading = f"{len(terms):,} terms, {how}: {made.made.summed}"
    sizes = tuple(term.value for term in listed)
    return Section(heading, (), head, tuple(rows), frozenset(range(2, len(head))), sizes)


def _term(term: Term, names: Sequence[str], running: float | None) -> tuple[str, ...]:
    factors = dict(term.factors)
    numbers = ",".join(map(str, term.inputs))
    return numbers, term.name, *(number(factors.get(n)) for n in names), number(term.value), number(running)


def _inputs(made: Explanation, top: int) -> Section:
    rows = [(str(i), one.name, number(one.value)) for i, one in enumerate(made.inputs[:top])]
    more = len(made.inputs) - top
    if more > 0:
        rows.append(("", f"{more:,} more", ""))
    return Section("inputs", (), ("input", "", "value"), tuple(rows), frozenset({2}))


def _blocks(made: Explanation, top: int, in_order: bool) -> Section:
    """The sum as kernels have it: block by block."""
    blocks, floats = made.made.blocks, made.made.blocks[0].unit is None
    listed = list(blocks) if in_order else sorted(blocks, key=lambda b: -abs(b.value))
    low = blocks[0].minimum is not None
    columns = [
        ("block", lambda b: str(b.number)),
        ("inputs", lambda b: f"{b.first}-{b.first + len(b.codes) - 1}"),
        ("dot", lambda b: str(b.dot)),
        ("scale", lambda b: number(b.scale)),
        ("minimum", lambda b: number(b.minimum)),
        ("codes' sum", lambda b: str(b.activation_sum)),
        ("unit", lambda b: number(b.unit)),
        ("adds", lambda b: number(b.value)),
        ("backend's sum", lambda b: number(b.running)),
    ]
    left_out = ({"minimum"} if not low else set()) | (CODES_ONLY if floats else set())
    kept: list[tuple[str, Callable[[Block], str]]] = [c for c in columns if c[0] not in left_out]
    head = tuple(name for name, _ in kept)
    rows = [tuple(cell(b) for _, cell in kept) for b in listed[:top]]
    if len(listed) > top:
        rest = math.fsum(b.value for b in listed[top:])
        last = {"inputs": f"{len(listed) - top} more", "adds": number(rest)}
        rows.append(tuple(last.get(name, "") for name in head))
    what = "scale * weights * inputs" if floats else "(scale * dot + minimum * codes' sum) * unit"
    what = what if low or floats else "scale * dot * unit"
    how = "in order" if in_order else "largest first"
    heading = f"{len(blocks)} blocks of {made.made.stored}, {how}: {what}"
    sizes = tuple(b.value for b in listed[:top])
    return Section(heading, (), head, tuple(rows), frozenset(range(2, len(head))), sizes)


def _one_block(made: Explanation, chosen: int | None) -> list[Section]:
    blocks = made.made.blocks
    if chosen is None:
        chosen = max(blocks, key=lambda b: abs(b.value)).number
    if not 0 <= chosen < len(blocks):
        return [Section("block", (f"there is no block {chosen}: the row has blocks 0 to {len(blocks) - 1}",))]
    b = blocks[chosen]
    lines = [f"{name}: {_shortened(value)}" for name, value in b.stored]
    shown = made.terms[b.first : b.first + len(b.codes)]
    rows = [_code(b, i, term) for i, term in enumerate(shown)]
    extra = ("input's code", "product of integers") if b.activations else ()
    head = ("input", "code", "level", "weight", "input's value", *extra, "adds")
    if b.minimum is None:
        lines.append(f"weight = {number(b.scale)} * level")
    else:
        lines.append(f"weight = {number(b.scale)} * level{_plus(b.minimum)}")
    if b.unit is not None:
        lines.append(f"input = {number(b.unit)} * its code, int8")
        low = "" if b.minimum is None else _plus(b.minimum, f" * {b.activation_sum}")
        lines.append(f"adds ({number(b.scale)} * {b.dot}{low}) * {number(b.unit)} = {number(b.value)}")
    heading = (
        f"block {b.number}, inputs {b.first} to {b.first + len(b.codes) - 1}, as {made.made.stored} stores it"
    )
    sizes = tuple(term.value for term in shown)
    return [Section(heading, tuple(lines), head, tuple(rows), frozenset(range(len(head))), sizes)]


def _shortened(text: str) -> str:
    return text if len(text) <= 150 else f"{text[:147]}..."


def _code(b: Block, i: int, term: Term) -> tuple[str, ...]:
    factors = dict(term.factors)
    extra = (str(b.activations[i]), str(b.levels[i] * b.activations[i])) if b.activations else ()
    return (
        str(b.first + i), str(b.codes[i]), str(b.levels[i]), number(factors["weight"]),
        number(factors["input"]), *extra, number(term.value),
    )  # fmt: skip


def _result(made: Explanation) -> Section:
    lines = [f"{number(made.result)}  {made.verdict}"]
    if made.made.order:
        lines.append(f"computed: {made.made.order}")
    if made.inputs:
        lines.append("an input's own explanation: --follow NUMBER, or .follow(NUMBER)")
    return Section("result", tuple(lines))


def as_text(made: Explanation, top: int = TOP) -> str:
    """All of it as plain text."""
    parts = [title(made)]
    for section in sections(made, top):
        lines = [section.title] if section.title else []
        lines += [f"  {line}" for line in section.lines]
        lines += [f"  {line}" for line in _aligned(section)]
        parts.append("\n".join(lines))
    return "\n\n".join(parts)


def _aligned(section: Section) -> list[str]:
    rows = [section.head, *section.rows] if section.head else []
    widths = [max(len(row[i]) for row in rows) for i in range(len(section.head))]
    return [
        "  ".join(
            cell.rjust(w) if i in section.right else cell.ljust(w)
            for i, (cell, w) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]  # fmt: skip


def as_html(made: Explanation, top: int = TOP) -> str:
    """All of it as HTML: no script, no content from elsewhere."""
    parts = [f"<h4><code>{html.escape(title(made))}</code></h4>"]
    for section in sections(made, top):
        if section.title:
            parts.append(f"<p><strong>{html.escape(section.title)}</strong></p>")
        parts += [f"<div>{html.escape(line)}</div>" for line in section.lines]
        if section.head:
            parts.append(_table(section))
    return f"<div class='glassgear-explanation'>{''.join(parts)}</div>"


def _table(section: Section) -> str:
    def row(cells: Sequence[str], tag: str) -> str:
        sides = ("right" if i in section.right else "left" for i in range(len(cells)))
        made = (
            f"<{tag} style='text-align:{side}'>{html.escape(cell)}</{tag}>"
            for side, cell in zip(sides, cells, strict=True)
        )
        return f"<tr>{''.join(made)}</tr>"

    body = "".join(row(cells, "td") for cells in section.rows)
    return f"<table><thead>{row(section.head, 'th')}</thead><tbody>{body}</tbody></table>"
