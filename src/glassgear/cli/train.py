"""`glassgear train`: make a model of texts."""

from __future__ import annotations

import contextlib
import errno
import importlib.util
import os
import shlex
import signal
import stat
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from glassgear.cli import console
from glassgear.cli.options import Command, as_text, option
from glassgear.cli.output import json_line
from glassgear.errors import GlassgearError, SettingError

if TYPE_CHECKING:
    from glassgear.cli.train_view import View
    from glassgear.train import Outcome, TrainSettings

__all__ = ["command"]

SET = "glassgear.train.set"  # where the context keeps what --set was given, word for word
EXAMPLES = """
glassgear train stories.toml
glassgear train stories.toml --steps 200 --set train.learning_rate=3e-3
glassgear train stories.toml --out runs/second --set model.layers=8
glassgear train stories.toml --json > log.jsonl        events, for programs
glassgear train stories.toml --export-only             write the model of the newest checkpoint

Two processes on one machine, which share the micro-batches of a step:
torchrun --nproc-per-node 2 -m glassgear train stories.toml --out runs/two --set train.accumulate=2
"""


def _changes(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> dict[str, Any]:
    """`train.steps=100` as a key and a value of TOML; what is no TOML is a text."""
    as_text(ctx, param, values)
    ctx.meta[SET] = values
    found: dict[str, Any] = {}
    for given in values:
        key, equals, text = given.partition("=")
        if not equals or not key.strip():
            raise click.BadParameter(f"{given!r} should be KEY=VALUE, such as train.learning_rate=1e-3")
        found[key.strip()] = _value(text)
    return found


def _value(text: str) -> Any:
    """One value of TOML; anything else is a text, and so are two values."""
    try:
        found = tomllib.loads(f"x = {text}")
    except (ValueError, RecursionError):  # no TOML, a number of thousands of digits, brackets without end
        return text
    return found["x"] if found.keys() == {"x"} else text


@click.command(cls=Command, short_help="Train a model on texts of your own.", examples=EXAMPLES)
@click.argument("config", type=click.Path(dir_okay=False))
@option("--out", metavar="FOLDER", section="Run", help="The run's folder. [default: as CONFIG says]")
@option("--steps", type=click.IntRange(min=1), metavar="N", section="Run", help="How many in all.")
@option("--until", type=click.IntRange(min=1), metavar="N", section="Run",
        help="Pause after step N. Unlike --steps it leaves the course of the rate as it is.")  # fmt: skip
@option("--set", "changes", multiple=True, metavar="KEY=VALUE", callback=_changes, section="Run",
        help="Change a setting of CONFIG, as train.batch=8. May be given several times.")  # fmt: skip
@option("--device", metavar="NAME", section="Run",
        help="cpu, cuda, cuda:1, ... [default: a GPU if there is one]")  # fmt: skip
@option("--export-only", is_flag=True, section="Run",
        help="Don't train: write the model of the newest checkpoint.")  # fmt: skip
@option("--json", "as_json", is_flag=True, section="Output",
        help="Events as JSON, one on each line; the last one tells where the model is.")  # fmt: skip
@option("--plot", is_flag=True, section="Output", help="Draw the losses as FOLDER/loss.png at the end.")
@option("--quiet", is_flag=True, section="Output", help="Say nothing but the end.")
def command(config: str, changes: dict[str, Any], **given: Any) -> None:
    """Train the model that CONFIG describes, on the texts that it names.

    CONFIG is a TOML file; docs/training.md lists all that it can say. A run lives in a folder: ids,
    checkpoints, metrics.jsonl, and at the end `model`, a Hugging Face folder that `glassgear run`
    takes. Ctrl-C, SIGTERM or a terminal that is closed saves first; the same command then goes on where it
    stopped.

    Exit code 0: done, or paused; 129, 130 or 143: interrupted by SIGHUP, Ctrl-C or SIGTERM, and saved; 1: it
    failed, or diverged (the last good checkpoint stays).
    """
    if int(os.environ.get("LOCAL_RANK", "0")):
        _be_silent()
    _check_packages(given)
    settings = _settings(config, changes, given)
    if given["export_only"]:
        from glassgear.train import export

        _finish(settings, export(settings), given)
        return
    outcome = _trained(settings, given)
    if outcome.reason == "done" and outcome.model is not None:
        _finish(settings, outcome.model, given)
    elif outcome.reason == "past":
        _say_past(outcome, settings, config, given)
    elif outcome.reason != "done":
        _unfinished(outcome, config, given)
    _end_among_others()


def _be_silent() -> None:
    """Of the processes on a machine the first alone speaks."""
    nowhere = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115  # lives as long as the program
    sys.stdout = sys.stderr = nowhere


def _end_among_others() -> None:
    """End a process of several at once, when all is written.

    gloo's threads now and then abort a process that is being taken down in order ("terminate called
    without an active exception"), and torchrun would take the whole run for failed.
    """
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)


def _check_packages(given: dict[str, Any]) -> None:
    """What is missing should be said before hours have passed."""
    if importlib.util.find_spec("torch") is None:
        raise SettingError('training needs PyTorch: pip install "glassgear[torch]"')
    if given["plot"] and importlib.util.find_spec("matplotlib") is None:
        raise SettingError('--plot needs matplotlib: pip install "glassgear[plot]"')


def _settings(config: str, changes: dict[str, Any], given: dict[str, Any]) -> TrainSettings:
    from glassgear.train import read_settings
    from glassgear.train.model import VocabularyError
    from glassgear.train.settings import check_changes

    if changes.keys() & {"out", "train.out"}:
        raise click.UsageError("the folder of the run is --out, not --set")
    try:
        check_changes(changes)
    except SettingError as trouble:
        raise click.BadParameter(str(trouble), param_hint="'--set'") from trouble
    mine = {f"train.{name}": given[name] for name in ("out", "steps", "device") if given[name] is not None}
    try:
        read_settings(config)  # what is wrong in the file itself isn't the command line's fault
    except VocabularyError as trouble:
        raise click.UsageError(str(trouble)) from trouble
    try:
        return read_settings(config, {**changes, **mine})
    except GlassgearError as trouble:
        raise click.UsageError(f"with what the options change: {trouble}") from trouble


def _trained(settings: TrainSettings, given: dict[str, Any]) -> Outcome:
    from glassgear.cli.train_view import view_for
    from glassgear.train import Trainer

    view = view_for(settings, as_json=given["as_json"], quiet=given["quiet"])

    def tell(event: dict[str, Any]) -> None:
        with _terminal_may_go():
            view.event(event)

    trainer = Trainer(settings, tell, given["until"])
    with _closing(view):
        try:
            return trainer.run()
        except OSError:
            view.close()
            _say_where(settings)
            raise


@contextlib.contextmanager
def _closing(view: View) -> Iterator[None]:
    try:
        yield
    finally:
        with _terminal_may_go():
            view.close()


@contextlib.contextmanager
def _terminal_may_go() -> Iterator[None]:
    """A terminal that was closed takes no more words: that must not end a run before it is saved."""
    try:
        yield
    except OSError as trouble:
        if trouble.errno != errno.EIO:
            raise
        nowhere = os.open(os.devnull, os.O_WRONLY)
        for stream in (1, 2):
            if stat.S_ISCHR(os.fstat(stream).st_mode):  # a file or a pipe is none
                os.dup2(nowhere, stream)
        os.close(nowhere)


def _say_where(settings: TrainSettings) -> None:
    """After a full disk, say: what was saved is still there."""
    from glassgear.train.checkpoint import newest_whole

    if found := newest_whole(Path(settings.out)):
        console.note(f"{found} is whole: the same command goes on from there")


def _finish(settings: TrainSettings, model: Path, given: dict[str, Any]) -> None:
    """Where the model is, and how to run it."""
    if int(os.environ.get("RANK", "0")):
        return
    plot = _plot(settings) if given["plot"] else None
    call = _run_command(settings, model)
    if given["as_json"]:
        json_line({"event": "model", "path": str(model), "run": call, "plot": plot and str(plot)})
        return
    click.echo(f"The model is in {_near(model)}. To run it: {call}")
    if plot:
        click.echo(f"The losses are drawn in {_near(plot)}.")


def _plot(settings: TrainSettings) -> Path:
    from glassgear.train.journal import plot_losses

    target = Path(settings.out) / "loss.png"
    plot_losses(Path(settings.out), target)
    return target


def _run_command(settings: TrainSettings, model: Path) -> str:
    words = ["glassgear", "run", str(_near(model))]
    if model.suffix == ".toml":
        words += ["--tokenizer", str(_near(model.with_name("tokenizer.json")))]
    return shlex.join([*words, settings.sample_prompt])


def _near(path: Path) -> Path:
    """A path as one would type it from here."""
    with contextlib.suppress(ValueError):
        return path.resolve().relative_to(Path.cwd())
    return path


def _say_past(outcome: Outcome, settings: TrainSettings, config: str, given: dict[str, Any]) -> None:
    """Fewer steps were asked for than are done."""
    if given["as_json"] or int(os.environ.get("RANK", "0")):
        return
    console.note(
        f"the run is at step {outcome.step:,} already, past the {settings.steps:,} asked for: nothing is to "
        f"do, and what is in {_near(outcome.folder)} stays as it is. More steps than that go on from there; "
        "--out gives a shorter run a folder of its own"
    )
    if not (outcome.folder / "model").exists():
        console.note(
            f"it has no model yet: {_export_command(config, given)} writes that of the newest checkpoint"
        )


def _unfinished(outcome: Outcome, config: str, given: dict[str, Any]) -> None:
    """A paused, interrupted or diverged run: what is there, and what to do."""
    if outcome.reason in ("paused", "interrupted"):
        if not given["as_json"]:
            with _terminal_may_go():
                console.say(_how_to_go_on(outcome, config, given))
        if outcome.reason == "paused":
            return
        sys.exit(128 + (signal.Signals[outcome.signal] if outcome.signal else signal.SIGTERM))
    from glassgear.train.checkpoint import newest_whole

    found = newest_whole(outcome.folder)
    good = f"The last good checkpoint is {_near(found)}" if found else "No checkpoint was written yet"
    raise GlassgearError(
        f"the run diverged: three steps in a row up to step {outcome.step:,} had no finite gradient. "
        f"{good}; try a smaller learning_rate or a longer warmup"
    )


def _how_to_go_on(outcome: Outcome, config: str, given: dict[str, Any]) -> str:
    """Of a run that was saved before its end, in sentences."""
    until, past = given["until"], ""
    if outcome.reason == "paused" and until < outcome.step:
        past = f"The run is already past step {until:,}. "
    without = " without --until" if outcome.reason == "paused" else ""
    return (
        f"{past}{outcome.reason.capitalize()} after step {outcome.step:,}, which is saved in "
        f"{_near(outcome.folder)}. The same command{without} goes on from there; "
        f"{_export_command(config, given)} writes its model."
    )


def _export_command(config: str, given: dict[str, Any]) -> str:
    words = ["glassgear", "train", config, "--export-only"]
    if given["out"] is not None:
        words += ["--out", given["out"]]
    for change in click.get_current_context().meta.get(SET, ()):
        words += ["--set", change]
    return shlex.join(words)
