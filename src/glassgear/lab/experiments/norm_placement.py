"""Where a block's norms stand, and how deep a network learns: curves, spikes, runs that break down."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from glassgear.errors import SettingError
from glassgear.lab.frame import (
    INNER_GEARS,
    Cell,
    Claim,
    Column,
    Experiment,
    Figure,
    Outcome,
    Result,
    Settings,
    Table,
    Verdict,
    option,
)
from glassgear.lab.training import Course, Recipe, Text, text_of, train

__all__ = ["EXPERIMENT", "Placement", "Run", "numbers", "verdict"]

PLACES = ("pre", "post", "sandwich", "none")
LEARNT = 0.9  # a loss so many times that of letters by their frequency: something more was learnt
SHALLOW, DEEP = 12, 24  # the claim's numbers
POINTS = 8  # of a curve, in the table
SMALL_BRANCHES = "post, small branches"


@dataclass(frozen=True)
class Placement(Settings):
    """The grid, and how each network is trained."""

    layers: str = option("6,12,48", "Depths, by commas.", small="4,28")
    warmups: str = option("0,15", "Steps of warm-up, by commas.", small="15")
    seeds: int = option(2, "How often each is trained, from other weights.", small=1, least=1)
    steps: int = option(80, "Steps of a training.", small=60, least=30)
    dim: int = option(32, "Width of the networks.", least=8)
    rate: float = option(5e-3, "The peak of the learning rate.", least=1e-6)
    text: str | None = option(None, "A file to learn. [default: stories by rule]")


@dataclass(frozen=True)
class Run:
    """A network that was trained.

    Attributes:
        layers: its depth.
        place: of its norms.
        warmup: steps.
        course: how it went.
        learnt: whether it knows more than how often letters occur.
    """

    layers: int
    place: str
    warmup: int
    course: Course
    learnt: bool

    @property
    def fine(self) -> bool:
        """Whether it learnt, without a spike."""
        return self.learnt and not self.course.spikes


def numbers(text: str, name: str, least: int, most: int) -> list[int]:
    """Numbers between commas, each once, in order.

    Raises:
        SettingError: something else, or one out of range.
    """
    try:
        found = sorted({int(part) for part in text.split(",")})
    except ValueError:
        raise SettingError(f"{name} should be whole numbers with commas between, found {text!r}") from None
    if found[0] < least or found[-1] > most:
        raise SettingError(f"{name} lie between {least} and {most}, found {text!r}")
    return found


def _trained(
    settings: Placement, text: Text, layers: int, place: str, warmup: int,
    change: Mapping[str, Any] | None = None, *, by_depth: bool = False,
) -> list[Run]:  # fmt: skip
    """A network from each seed. Streams begin at size 1: embeddings are drawn with a deviation of 0.02."""
    design: dict[str, Any] = {
        "dim": settings.dim, "layers": layers, "head": "own", "positions": "learned", "embedding_scale": 50,
        "attention": {"heads": 2}, "ffn": "plain",
        "norm": "none" if place == "none" else {"kind": "layernorm", "place": place}, **(change or {}),
    }  # fmt: skip
    recipe = Recipe(
        steps=settings.steps, rate=settings.rate, warmup=warmup, context=32, batch=4, by_depth=by_depth
    )
    runs = []
    for seed in range(settings.seed, settings.seed + settings.seeds):
        course, _ = train(design, text, recipe, seed)
        learnt = not course.diverged and course.held_out < LEARNT * text.by_frequency
        runs.append(Run(layers, place, warmup, course, learnt))
    return runs


def run(settings: Placement) -> Result:
    """Train the grid, then what else decides at its deepest."""
    depths = numbers(settings.layers, "layers", 1, 1000)
    warmups = numbers(settings.warmups, "warmups", 0, settings.steps)
    if settings.dim % 2:
        raise SettingError(f"dim should be even, found {settings.dim}")
    text = text_of(settings.text, settings.seed)
    grid = {
        (layers, place, warmup): _trained(settings, text, layers, place, warmup)
        for layers in depths for place in PLACES for warmup in warmups
    }  # fmt: skip
    others = _others(settings, text, depths[-1], warmups[-1])
    rows = tuple((layers, place, warmup, *_row(runs)) for (layers, place, warmup), runs in grid.items())
    return Result(
        verdict(grid, others),
        (
            Table(
                f"Trainings of {settings.steps} steps, {settings.seeds} of each",
                (Column("layers", "d"), Column("norms"), Column("warm", "d"), *_columns()), rows,
            ),
            Table(
                f"{depths[-1]} layers, warm-up {warmups[-1]}: what else decides",
                (Column("network"), *_columns()), tuple((name, *_row(runs)) for name, runs in others.items()),
            ),
            _curves(grid, settings.steps),
        ),
        (Figure("curves", lambda canvas: _draw(canvas, grid, depths, text)),),
        _facts(grid, others, text),
        (
            f"Text: {text.name}, {text.vocab} letters; their frequencies alone cost {text.by_frequency:.2f} "
            f"nats; learnt: held-out loss below {LEARNT:g} times that.",
            f"Width {settings.dim}, LayerNorm, plain GELU networks, AdamW at {settings.rate:g}, gradients "
            "clipped to 1, 128 tokens a step; all matrices begin alike, as in the first transformers.",
            "Loss: of held-out text, mean and half the range of the seeds; a spike is 1.25 times the median "
            "of the 20 steps before; steepest: the longest gradient of any step, before it is clipped.",
            "Small branches: what is added to the stream begins with its deviation divided by the root of "
            "the number of sums, as GPT-2 and `glassgear train` have it.",
            "Small networks and short trainings show what happens at the beginning; what stays where it is "
            "here may get going later, and large models meet spikes that need thousands of steps to come.",
        ),
    )  # fmt: skip


def _others(settings: Placement, text: Text, layers: int, warmup: int) -> dict[str, list[Run]]:
    bare = {"residual": False}
    found = {
        "pre, no residual": _trained(settings, text, layers, "pre", warmup, bare),
        SMALL_BRANCHES: _trained(settings, text, layers, "post", warmup, by_depth=True),
    }
    if not settings.small:
        found["pre, small branches"] = _trained(settings, text, layers, "pre", warmup, by_depth=True)
        found["none, small branches"] = _trained(settings, text, layers, "none", warmup, by_depth=True)
    return found


# --------------------------------------------------------------------------------------------
# What came out


def _columns() -> tuple[Column, ...]:
    return (
        Column("learnt"), Column("broke", "d"), Column("loss", ".2f"), Column("+-", ".2f"),
        Column("spikes", "d"), Column("steepest", ".0e"),
    )  # fmt: skip


def _row(runs: list[Run]) -> tuple[Cell, ...]:
    """Learnt, diverged, mean and half range of held-out losses, spikes, largest gradient of a step."""
    losses = [r.course.held_out for r in runs if not r.course.diverged]
    norms = [norm for r in runs for norm in r.course.norms if math.isfinite(norm)]
    return (
        f"{sum(r.learnt for r in runs)} of {len(runs)}", sum(r.course.diverged for r in runs),
        float(np.mean(losses)) if losses else None, float(np.ptp(losses)) / 2 if len(losses) > 1 else None,
        sum(len(r.course.spikes) for r in runs), max(norms) if norms else None,
    )  # fmt: skip


Grid = Mapping[tuple[int, str, int], list[Run]]


def _mean_curve(runs: list[Run]) -> list[float]:
    """Mean of the seeds' losses as far as all went."""
    length = min(len(r.course.losses) for r in runs)
    return [float(v) for v in np.mean([r.course.losses[:length] for r in runs], axis=0)]


def _curves(grid: Grid, steps: int) -> Table:
    """Losses at some steps, the mean of the seeds."""
    points = [steps * (i + 1) // POINTS for i in range(POINTS)]
    rows = []
    for (layers, place, warmup), runs in grid.items():
        curve = _mean_curve(runs)
        rows.append(
            (
                layers, place, warmup,
                *(_at(curve, p) for p in points),
            )
        )  # fmt: skip
    columns = (
        Column("layers", "d"),
        Column("norms"),
        Column("warm", "d"),
        *(Column(f"{p}", ".2f") for p in points),
    )
    return Table("Loss of training by step (-: broke down, or is past 99)", columns, tuple(rows))


def _at(curve: list[float], step: int) -> float | None:
    """The mean of the five steps up to this one."""
    mean = float(np.mean(curve[max(0, step - 5) : step])) if step <= len(curve) else math.inf
    return mean if mean <= 99 else None


def _of(grid: Grid, place: str, least: int, most: int) -> list[Run]:
    return [r for (n, p, _), runs in grid.items() if p == place and least <= n <= most for r in runs]


def _facts(grid: Grid, others: Mapping[str, list[Run]], text: Text) -> dict[str, Cell]:
    facts: dict[str, Cell] = {"by_frequency": text.by_frequency}
    for place in PLACES:
        for layers in sorted({key[0] for key in grid}):
            runs = _of(grid, place, layers, layers)
            facts[f"learnt_{place}_{layers}"] = sum(r.learnt for r in runs) / len(runs)
            facts[f"diverged_{place}_{layers}"] = sum(r.course.diverged for r in runs) / len(runs)
            facts[f"spikes_{place}_{layers}"] = sum(len(r.course.spikes) for r in runs)
    for name, runs in others.items():
        facts[f"learnt_{name}"] = sum(r.learnt for r in runs) / len(runs)
    seconds = [r.course.seconds for runs in (*grid.values(), *others.values()) for r in runs]
    return facts | {"cpu_seconds": sum(seconds)}


def verdict(grid: Grid, others: Mapping[str, list[Run]]) -> Verdict:
    """What the grid says: confirmed where each half of the claim holds however weights begin.

    Without networks of both depths that the claim speaks of, it depends.
    """
    deepest = max(key[0] for key in grid)
    shallow, deep = _of(grid, "post", 1, SHALLOW), _of(grid, "post", DEEP + 1, deepest)
    pre, bare, small = _of(grid, "pre", deepest, deepest), others["pre, no residual"], others[SMALL_BRANCHES]
    rescued = all(r.learnt for r in small)
    if not deep or not shallow:
        outcome: Outcome = "depends"
    elif all(r.fine for r in deep):
        outcome = "refuted"
    else:
        whole = all(r.fine for r in (*shallow, *pre)) and sum(r.fine for r in deep) * 2 < len(deep)
        outcome = "confirmed" if whole and not rescued else "depends"
    return Verdict(
        outcome,
        f"with post-norm {_share(shallow)} learn up to {SHALLOW} layers and {_share(deep)} past {DEEP}; with "
        f"pre-norm {_share(pre)} at {deepest} layers ({_spiked(pre)} with spikes), without residual "
        f"{_share(bare)}. Where branches begin smaller in deeper networks, {_share(small)} learn with "
        f"post-norm at {deepest} layers{': how weights begin decides as well' if rescued else ''}.",
        f"后归一化：{SHALLOW} 层以内 {_parts(shallow)} 次学会，超过 {DEEP} 层 {_parts(deep)} 次；"
        f"前归一化：{deepest} 层 {_parts(pre)} 次学会（{_spiked(pre)} 次有尖峰），"
        f"去掉残差则为 {_parts(bare)} 次。若按深度缩小各分支的初始权重，后归一化在 {deepest} 层 "
        f"{_parts(small)} 次学会{'：初始化同样起决定作用' if rescued else ''}。",
    )


def _share(runs: list[Run]) -> str:
    return f"{sum(r.learnt for r in runs)} of {len(runs)} runs"


def _parts(runs: list[Run]) -> str:
    return f"{sum(r.learnt for r in runs)}/{len(runs)}"


def _spiked(runs: list[Run]) -> int:
    return sum(bool(r.course.spikes) for r in runs)


def _draw(canvas: Any, grid: Grid, depths: list[int], text: Text) -> None:
    colours = dict(zip(PLACES, ("C0", "C3", "C2", "C7"), strict=True))
    warmups = sorted({key[2] for key in grid})
    panels = np.atleast_1d(canvas.subplots(1, len(depths), sharey=True))
    for axes, depth in zip(panels, depths, strict=True):
        axes.axhline(text.by_frequency, color="k", lw=0.6, ls="--")
        for (layers, place, warmup), runs in grid.items():
            if layers == depth:
                style = "-" if warmup == warmups[-1] else ":"
                label = place if warmup == warmups[-1] else None
                axes.plot(_smooth(_mean_curve(runs)), style, color=colours[place], label=label)
        axes.set(title=f"{depth} layers", xlabel="step", ylim=(1.8, 4.2))
    panels[0].legend(fontsize=8, title="norms")
    name = f"loss, nats (dotted: warm-up {warmups[0]})" if len(warmups) > 1 else "loss, nats"
    canvas.supylabel(f"{name}; dashed: letters by frequency", fontsize=8)


def _smooth(curve: list[float]) -> list[float]:
    return [float(np.mean(curve[max(0, i - 4) : i + 1])) for i in range(len(curve))]


EXPERIMENT = Experiment(
    "norm-placement",
    "How deep does a network learn with its norms before, behind or around steps?",
    Claim(
        "post-norm is fine to 12 layers and its loss unsteady past 24; with pre-norm 100 layers go down "
        "steadily; 100 layers train with residual and don't without",
        INNER_GEARS,
    ),
    Placement,
    run,
)
