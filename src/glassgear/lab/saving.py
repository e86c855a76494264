"""A result as files: `NAME.json`, and `NAME.png` or `NAME-FIGURE.png` for each picture."""

from __future__ import annotations

import json
import os
from pathlib import Path

from glassgear.errors import FileError
from glassgear.lab.frame import Experiment, Figure, Result, Settings
from glassgear.weights.atomic import replacing

__all__ = ["WITHOUT_PLOT", "can_draw", "make_folder", "save"]

WITHOUT_PLOT = 'no picture was drawn: that needs matplotlib, pip install "glassgear[plot]"'


def can_draw() -> bool:
    """Whether matplotlib is there."""
    try:
        import matplotlib.figure  # noqa: F401
    except ImportError:
        return False
    return True


def make_folder(folder: Path) -> None:
    """Make a folder where it isn't there, before anything is computed for it.

    Raises:
        FileError: it can't be made, or nothing can be written into it.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as trouble:
        raise FileError(folder, f"can't be made: {trouble.strerror or trouble}") from trouble
    if not os.access(folder, os.W_OK):
        raise FileError(folder, "can't be written to: permission denied")


def save(
    experiment: Experiment, settings: Settings, result: Result, folder: Path, *, plot: bool = True
) -> list[Path]:
    """Write a result into a folder, which is made where it isn't there.

    Returns:
        The files.

    Raises:
        FileError: the folder can't be made, or a file can't be written.
    """
    make_folder(folder)
    try:
        found = json.dumps(experiment.to_json(settings, result), ensure_ascii=False, indent=1)
        written = [folder / f"{experiment.name}.json"]
        with replacing(written[0]) as file:
            file.write((found + "\n").encode("utf-8"))
        for figure in result.figures if plot and can_draw() else ():
            alone = len(result.figures) == 1
            written.append(folder / f"{experiment.name}{'' if alone else f'-{figure.name}'}.png")
            _draw(figure, written[-1])
    except OSError as trouble:
        raise FileError(folder, f"can't be written to: {trouble.strerror or trouble}") from trouble
    return written


def _draw(figure: Figure, path: Path) -> None:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure as Canvas

    canvas = Canvas(figsize=(9, 4.5), layout="constrained")
    FigureCanvasAgg(canvas)
    figure.draw(canvas)
    with replacing(path) as file:
        canvas.savefig(file, dpi=130, format="png")
