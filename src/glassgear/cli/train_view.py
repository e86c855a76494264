"""What a training run shows: a live panel on a terminal, else a line now and then, or JSON lines.

In: events of `train.Trainer`. Nothing is computed here but what a person wants to read.
"""

from __future__ import annotations

import sys
import time
from collections import deque
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Protocol

from glassgear.cli import console
from glassgear.cli.output import json_line

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.live import Live

    from glassgear.train import TrainSettings

__all__ = ["Lines", "Panel", "View", "sparkline", "view_for"]

Event = dict[str, Any]
BARS = "▁▂▃▄▅▆▇█"
WIDTH = 48  # of the sparkline, in cells


class View(Protocol):
    """Is told events."""

    def event(self, event: Event) -> None:
        """Show one."""

    def close(self) -> None:
        """Nothing more comes."""


def view_for(settings: TrainSettings, *, as_json: bool, quiet: bool) -> View:
    """The view that fits where the output goes."""
    if as_json:
        return Json()
    if quiet:
        return Silent()
    return Panel(settings) if console.is_terminal(sys.stderr) else Lines(settings)


class Json:
    """Every event on a line of its own."""

    def event(self, event: Event) -> None:
        """Print it."""
        json_line(event)

    def close(self) -> None:
        """Nothing: every line is closed."""


class Silent:
    """Nothing but what must be known."""

    def event(self, event: Event) -> None:
        """Say what went wrong."""
        _warn(event)

    def close(self) -> None:
        """Nothing was opened."""


def _warn(event: Event) -> None:
    if event["event"] == "damaged":
        console.note(f"{event['why']}; the checkpoint before it is taken instead")
    elif event["event"] == "dropped":
        console.note(f"{event['path']} was damaged and is deleted: {event['whole']} is whole")
    elif event["event"] == "remade":
        console.note(f"{event['why']}; tokenizer and ids are made anew from the texts")
    elif event["event"] == "skipped":
        console.note(f"step {event['step']:,}: loss or gradient isn't finite, so the step is skipped")


class Lines:
    """A line for what is worth one, on stderr.

    Args:
        settings: of the run.
    """

    def __init__(self, settings: TrainSettings) -> None:
        self._settings = settings
        self._doing = ""

    def event(self, event: Event) -> None:
        """Say it, if there is something to say."""
        _warn(event)
        said = self._said(event)
        if said:
            console.say(said)

    def close(self) -> None:
        """Nothing: every line is closed."""

    def _said(self, event: Event) -> str:
        kind = event["event"]
        if kind == "data":
            new, self._doing = event["what"] != self._doing, event["what"]
            return f"{capital(event['what'])} ..." if new else ""
        if kind == "start":
            return start_line(event)
        if kind == "resumed":
            return resumed(self._settings, event)
        if kind == "step":
            left = time_left(self._settings, event)
            return (
                f"step {event['step']:>7,}  loss {number(event['loss'])}  {speed(event)}"
                + (f"  {left} left" if left else "")
            )  # fmt: skip
        if kind == "validation":
            return f"step {event['step']:>7,}  {held_out(event)}"
        if kind == "sample":
            return f"step {event['step']:>7,}  it says: {one_line(event['text'], 300)}"
        return ""


class Panel:
    """A panel that is drawn anew with each event, and stays when the run has ended.

    Args:
        settings: of the run.
    """

    def __init__(self, settings: TrainSettings) -> None:
        self._settings = settings
        self._losses: deque[float] = deque(maxlen=4096)
        self._last: dict[str, Event] = {}
        self._live: Live | None = None
        self._begun = time.monotonic()

    def event(self, event: Event) -> None:
        """Take it in and draw."""
        _warn(event)
        kind = event["event"]
        self._last[kind] = event
        if kind == "step" and event["loss"] is not None:
            self._losses.append(event["loss"])
        if self._live is None:
            self._live = _made()
            self._live.start()
        self._live.update(self._drawn(), refresh=kind in ("end", "exported"))

    def close(self) -> None:
        """Leave the last picture."""
        if self._live is not None:
            self._live.stop()
            self._live = None

    def _drawn(self) -> RenderableType:
        from rich import box
        from rich.panel import Panel as Frame
        from rich.table import Table
        from rich.text import Text

        grid = Table.grid(padding=(0, 2))
        grid.add_column(style="dim")
        grid.add_column()
        for name, value in self._rows():
            grid.add_row(name, Text(console.visible(value), overflow="fold"))
        title = f"glassgear train: {self._settings.out}"
        return Frame(grid, title=Text(title), box=box.ROUNDED, title_align="left")

    def _rows(self) -> list[tuple[str, str]]:
        last, rows = self._last, []
        if "start" not in last:
            doing = last.get("data")
            share = f" {doing['share']:.0%}" if doing and doing["share"] else ""
            return [("text", f"{capital(doing['what'])} ...{share}" if doing else "Looking at the texts ...")]
        rows.append(("model", start_line(last["start"])))
        if "resumed" in last:
            rows.append(("taken up", f"after step {last['resumed']['step']:,}"))
        step = last.get("step")
        if step is not None:
            done, of = step["step"], self._settings.steps
            left = time_left(self._settings, step)
            rows.append(("step", f"{done:,} of {of:,} ({done / of:.0%}){f', {left} left' if left else ''}"))
            rows.append(("loss", f"{number(step['loss'])}  {sparkline(list(self._losses), WIDTH)}"))
            rows.append(("speed", speed(step)))
        if "validation" in last:
            found = held_out(last["validation"]).removeprefix("held-out ")
            rows.append(("held out", f"{found}, step {last['validation']['step']:,}"))
        if "sample" in last:
            rows.append(("it says", one_line(last["sample"]["text"], 400)))
        if "saved" in last:
            rows.append(("saved", f"step {last['saved']['step']:,}"))
        if "skipped" in last:
            rows.append(("skipped", f"step {last['skipped']['step']:,}: no finite gradient"))
        return rows


def _made() -> Live:
    from rich.console import Console
    from rich.live import Live

    screen = Console(stderr=True, no_color=console.may_colour() is False)
    return Live(console=screen, refresh_per_second=4, redirect_stdout=False, redirect_stderr=True)


# --------------------------------------------------------------------------------------------
# Words


def capital(text: str) -> str:
    """The text with a capital in front."""
    return text[:1].upper() + text[1:]


def number(value: float | None) -> str:
    """A loss; None stands for one that isn't finite."""
    return "not finite" if value is None else f"{value:.4f}"


def start_line(event: Event) -> str:
    """What is trained on what, in a line."""
    processes = f", {event['processes']} processes" if event["processes"] > 1 else ""
    return (
        f"{event['parameters']:,} parameters, {event['train_tokens']:,} tokens to learn from, "
        f"{event['validation_tokens']:,} held out; {event['tokens_per_step']:,} tokens a step on "
        f"{event['device']}{processes}"
    )


def resumed(settings: TrainSettings, event: Event) -> str:
    """Where a run is taken up; nothing if it is past its end, which is said when it ends."""
    step = event["step"]
    if step == settings.steps:
        return f"All {step:,} steps are done already: the model is written, and nothing else is to do."
    return f"Going on after step {step:,}." if step < settings.steps else ""


def speed(event: Event) -> str:
    """Tokens a second, and how much of the machine's matrix products that is."""
    share = event["share_of_gemm"]
    told = "the machine is too busy for the GEMM rate" if share is None else f"{share:.0%} of the GEMM rate"
    return f"{event['tokens_per_second']:,.0f} tok/s, {told}"


def held_out(event: Event) -> str:
    """Loss on held-out text."""
    return f"held-out {number(event['loss'])} nats per token, {number(event['nats_per_byte'])} per byte"


def time_left(settings: TrainSettings, event: Event) -> str:
    """How long the rest takes at the speed of now; empty at the end."""
    steps = settings.steps - event["step"]
    if steps <= 0 or not event["tokens_per_second"]:
        return ""
    seconds = steps * settings.tokens_per_step / event["tokens_per_second"]
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02d} min"


def one_line(text: str, most: int) -> str:
    """A text in a line, cut if it is long."""
    text = " ".join(text.split())
    return text if len(text) <= most else text[: most - 1] + "…"


def sparkline(values: list[float], width: int) -> str:
    """The course of some numbers as bars of eight heights; groups of neighbours are averaged."""
    if not values:
        return ""
    columns = min(width, len(values))
    cuts = [len(values) * i // columns for i in range(columns + 1)]
    means = [sum(values[a:b]) / (b - a) for a, b in pairwise(cuts)]
    low, high = min(means), max(means)
    scale = (len(BARS) - 1) / (high - low) if high > low else 0.0
    return "".join(BARS[round((mean - low) * scale)] for mean in means)
