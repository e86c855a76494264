"""The lines that a run leaves behind: metrics.jsonl, one object a line."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

from glassgear.errors import SettingError
from glassgear.weights.atomic import replacing

__all__ = ["Journal", "plot_losses", "read_journal"]

NAME = "metrics.jsonl"


class Journal:
    """Appends events of a run.

    Args:
        folder: the run's.
        step: steps done when it is taken up; lines of later steps are dropped, since they come again.
        writes: whether this process writes.
        tell: is told every event as well.
    """

    def __init__(self, folder: Path, step: int, writes: bool, tell: Callable[[dict[str, Any]], None]) -> None:
        self._path, self._writes, self._tell = folder / NAME, writes, tell
        if writes and self._path.is_file():
            kept = [event for event in read_journal(folder) if event.get("step", 0) <= step]
            kept = [event for event in kept if event["event"] != "end"]
            with replacing(self._path) as file:
                file.write("".join(json.dumps(event) + "\n" for event in kept).encode())

    def note(self, event: dict[str, Any]) -> None:
        """Write an event; numbers that aren't finite become null."""
        plain = {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in event.items()}
        if self._writes:
            with open(self._path, "a", encoding="utf-8") as file:
                file.write(json.dumps(plain) + "\n")
            self._tell(plain)


def read_journal(folder: Path) -> list[dict[str, Any]]:
    """The events of a run; a last line that was cut off is left out."""
    events = []
    for line in (folder / NAME).read_text(encoding="utf-8").splitlines():
        try:
            event = json.loads(line)
        except ValueError:
            continue
        if isinstance(event, dict) and "event" in event:
            events.append(event)
    return events


def plot_losses(folder: Path, target: Path) -> None:
    """Training and validation loss by step, as a PNG.

    Raises:
        SettingError: no matplotlib.
    """
    try:
        import matplotlib

        matplotlib.use("Agg")
        from matplotlib import pyplot
    except ImportError as trouble:
        raise SettingError('a plot needs matplotlib: pip install "glassgear[plot]"') from trouble
    events = read_journal(folder)
    figure, axes = pyplot.subplots(figsize=(8, 4.5))
    for kind, label in (("step", "training"), ("validation", "held-out text")):
        points = [(e["step"], e["loss"]) for e in events if e["event"] == kind and e["loss"] is not None]
        if points:
            axes.plot(
                *zip(*points, strict=True), label=label, lw=1.2, marker="o" if kind == "validation" else ""
            )
    axes.set_xlabel("step")
    axes.set_ylabel("loss, nats per token")
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(target, dpi=130, bbox_inches="tight", format="png")
    pyplot.close(figure)
