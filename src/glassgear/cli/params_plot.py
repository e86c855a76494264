"""The picture of `glassgear params --plot`: where the parameters of a model are."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from glassgear.cli.table import count
from glassgear.errors import FileError, SettingError
from glassgear.model.ledger import PURPOSES, purposes
from glassgear.weights.atomic import replacing

if TYPE_CHECKING:
    from glassgear.model.ledger import Ledger

__all__ = ["save_plot"]

# One colour a purpose, told apart also by those who see fewer of them (Okabe & Ito 2008).
COLOURS = dict(zip(PURPOSES, ("#56B4E9", "#E69F00", "#009E73", "#CC79A7", "#0072B2", "#999999"), strict=True))
ENDINGS = (".pdf", ".png", ".svg")


def save_plot(path: str, name: str, counted: Ledger) -> None:
    """Draw parameters by purpose, of the whole model and layer by layer.

    Raises:
        SettingError: matplotlib isn't there, or the file's ending names no picture.
        FileError: it can't be written.
    """
    if Path(path).suffix.lower() not in ENDINGS:
        raise SettingError(f"--plot {path}: the name should end in {', '.join(ENDINGS)}")
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        raise SettingError('drawing needs matplotlib: pip install "glassgear[plot]"') from None
    figure = Figure(figsize=(10, 4.5), layout="constrained")
    FigureCanvasAgg(figure)
    left, right = figure.subplots(1, 2, width_ratios=(2, 3))
    _whole(left, counted)
    _layers(right, counted)
    figure.suptitle(f"{name}: {counted.parameters:,} parameters")
    try:
        with replacing(Path(path)) as file:
            figure.savefig(file, dpi=150, format=Path(path).suffix[1:].lower())
    except OSError as trouble:
        raise FileError(path, f"can't be written: {trouble.strerror or trouble}") from trouble


def _whole(axes: Any, counted: Ledger) -> None:
    split = purposes(counted.model)
    names = list(split)[::-1]
    bars = axes.barh(names, [split[name] for name in names], color=[COLOURS[name] for name in names])
    labels = [f"{count(split[name])} ({split[name] / counted.parameters:.1%})" for name in names]
    axes.bar_label(bars, labels, padding=3)
    axes.margins(x=0.65)
    axes.set_title("in all")
    axes.xaxis.set_major_formatter(lambda value, _: count(value))


def _layers(axes: Any, counted: Ledger) -> None:
    kinds = {id(block): purposes(block) for block in {id(b): b for b in counted.model.blocks}.values()}
    splits = [kinds[id(block)] for block in counted.model.blocks]
    bottom = [0] * len(splits)
    for name, colour in COLOURS.items():
        heights = [split.get(name, 0) for split in splits]
        if any(heights):
            top = [a + b for a, b in zip(bottom, heights, strict=True)]
            axes.stairs(
                top,
                [i - 0.5 for i in range(len(top) + 1)],
                baseline=bottom,
                fill=True,
                color=colour,
                label=name,
            )
            bottom = top
    axes.set_title("layer by layer")
    axes.set_xlabel("layer")
    axes.yaxis.set_major_formatter(lambda value, _: count(value))
    axes.margins(y=0.25)
    axes.legend(loc="upper center", ncols=4)
