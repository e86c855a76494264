"""How values and traces look in a notebook: small tables, and heatmaps as PNG, made without other packages.

Blue is below 0, red above; the strongest colour is the largest size of a number among the finite ones.
What is no number, or infinite, is black. A wide value is shown in stretches, each by its largest number.
"""

from __future__ import annotations

import base64
import struct
import zlib
from html import escape
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from glassgear.trace.trace import Trace, Value

__all__ = ["heatmap", "png", "trace_html", "value_html"]

Floats = NDArray[np.float32]
WIDTH, HEIGHT = 512, 128  # most cells of a heatmap
CELL = 640  # pixels that a heatmap is wide at least, as far as its cells stay below BIG
BIG = 12  # pixels of a side
HEADS = 16  # small heatmaps of heads
ROWS = 60  # of a trace's table, of kinds of gears
LOW, HIGH = np.array([33, 102, 172.0]), np.array([178, 24, 43.0])  # blue, red
STYLE = "style='text-align:{};padding:1px 8px;font-family:monospace;white-space:pre'"


def png(pixels: NDArray[np.uint8]) -> bytes:
    """A PNG of [height, width, 3] bytes of red, green and blue (RFC 2083)."""
    height, width, _ = pixels.shape
    lines = np.zeros((height, 1 + 3 * width), np.uint8)  # each begins with 0: no filter
    lines[:, 1:] = pixels.reshape(height, -1)

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    body = zlib.compress(lines.tobytes(), 6)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", body) + chunk(b"IEND", b"")


def heatmap(rows: Floats) -> NDArray[np.uint8]:
    """Numbers [rows, columns] as colours, [rows, columns, 3]; the largest size has the strongest."""
    finite = np.isfinite(rows)
    top = float(np.abs(rows, where=finite, out=np.zeros_like(rows)).max(initial=0)) or 1.0
    share = np.where(finite, rows / top, 0)[..., None].astype(np.float64)
    end = np.where(share < 0, LOW, HIGH)
    colours = 255 + (end - 255) * np.abs(share)
    return np.where(finite[..., None], np.rint(colours), 0).astype(np.uint8)


def _strongest(rows: Floats, most: int, axis: int) -> Floats:
    """At most so many along an axis: of each stretch the number of the largest size."""
    count = rows.shape[axis]
    if count <= most:
        return rows
    moved = np.moveaxis(rows, axis, 0)
    cuts = [count * i // most for i in range(most + 1)]
    out = []
    for first, last in pairwise(cuts):
        part = moved[first:last]
        sizes = np.where(np.isfinite(part), np.abs(part), np.inf)
        out.append(np.take_along_axis(part, sizes.argmax(axis=0)[None], axis=0)[0])
    return np.moveaxis(np.stack(out), 0, axis)


def _image(rows: Floats, unseen: NDArray[np.bool_] | None = None, wide: int = CELL) -> str:
    """An inline picture of [rows, columns]; places that nobody sees are grey."""
    colours = heatmap(rows)
    if unseen is not None:
        colours[unseen] = 235
    side = max(1, min(BIG, wide // max(1, rows.shape[1])))
    data = base64.b64encode(png(colours)).decode()
    size = f"width:{side * rows.shape[1]}px;height:{max(side, 4) * rows.shape[0]}px"
    return f"<img style='{size};image-rendering:pixelated' src='data:image/png;base64,{data}'>"


def value_html(value: Value) -> str:
    """A value: its figures, and a heatmap of tokens x channels, or of tokens x tokens for each head."""
    from glassgear.trace.views import summary

    figures = summary(value)
    sizes = " x ".join(f"{n} {_many(a)}" for n, a in zip(value.array.shape, value.axes, strict=True))
    told = f"mean {figures.mean:.3g}, std {figures.std:.3g}, {figures.min:.3g} to {figures.max:.3g}"
    bad = [f"{n:,} {name}" for n, name in ((figures.nan, "NaN"), (figures.inf, "Inf")) if n]
    warning = f" <b style='color:#b2182b'>{', '.join(bad)}</b>" if bad else ""
    head = f"<div><b>{escape(value.path)}</b> ({escape(sizes)}): {told}{warning}</div>"
    return head + (_attention(value) if value.axes[-1] == "seen" else _rows(value))


def _many(axis: str) -> str:
    return {"seen": "seen", "entry": "entries"}.get(axis, f"{axis}s")


def _rows(value: Value) -> str:
    flat = value.array.reshape(len(value.array), -1)
    return _image(_strongest(_strongest(flat, HEIGHT, 0), WIDTH, 1)) if flat.size else ""


def _attention(value: Value) -> str:
    """A small picture for each head: rows are tokens that look, columns those that are looked at."""
    later = np.arange(value.array.shape[2]) > value.positions[:, None]
    hidden = later if (~np.isfinite(value.array[:, later]) | (value.array[:, later] == 0)).all() else None
    pictures = []
    for number, head in enumerate(value.array[:HEADS]):
        shown = np.where(hidden, 0, head).astype(np.float32) if hidden is not None else head
        small = _strongest(_strongest(shown, HEIGHT, 0), HEIGHT, 1)
        unseen = hidden if hidden is not None and small.shape == head.shape else None
        picture = _image(small, unseen, wide=150)
        pictures.append(f"<span style='display:inline-block;margin:4px'>{number}<br>{picture}</span>")
    more = len(value.array) - HEADS
    return f"<div>{''.join(pictures)}{f'and {more} more heads' if more > 0 else ''}</div>"


def trace_html(trace: Trace) -> str:
    """A trace: its text, and a table of its values by kind of gear."""
    from glassgear.trace.trace import kind_of
    from glassgear.trace.views import summary_of_all

    kinds: dict[str, list[Value]] = {}
    for path, value in trace.items():
        kinds.setdefault(kind_of(path), []).append(value)
    heads = ("value", "", "shape", "mean", "std", "min", "max", "norm", "zeros", "NaN", "Inf")
    rows = [_row(heads, "th")]
    for path, values in list(kinds.items())[:ROWS]:
        found = summary_of_all(path, values)
        shape = " x ".join(map(str, found.shape))
        numbers = [f"{n:.3g}" for n in (found.mean, found.std, found.min, found.max, found.norm)]
        count = f"\u00d7{len(values)}" if len(values) > 1 else ""
        bad = [str(n) if n else "" for n in (found.nan, found.inf)]
        rows.append(_row((path, count, shape, *numbers, f"{found.zeros:.1%}", *bad), "td"))
    more = len(kinds) - ROWS
    text = "".join(_token(text, i < trace.prompt) for i, text in enumerate(trace.texts))
    about = f"{escape(trace.model)} on {escape(trace.backend)}: {trace.tokens} tokens, {trace.nbytes:,} bytes"
    end = f"<div>and {more} more</div>" if more > 0 else ""
    return f"<div>{about}</div><div>{text}</div><table>{''.join(rows)}</table>{end}"


def _token(text: str, prompt: bool) -> str:
    """A token of the text; those that the model made are darker."""
    colour = "#eee" if prompt else "#cde"
    looks = f"background:{colour};color:#000;margin:1px;padding:0 2px;font-family:monospace"
    return f"<span style='{looks}'>{escape(text)}</span>"


def _row(cells: tuple[str, ...], kind: str) -> str:
    made = []
    for number, cell in enumerate(cells):
        style = STYLE.format("left" if number < 3 else "right")
        loud = number >= len(cells) - 2 and kind == "td" and cell
        text = f"<b style='color:#b2182b'>{escape(cell)}</b>" if loud else escape(cell)
        made.append(f"<{kind} {style}>{text}</{kind}>")
    return f"<tr>{''.join(made)}</tr>"
