"""Activations: curves, slopes, a row before and after; and in training, dead units and the loss."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from glassgear.backends.reference.activation import ACTIVATIONS
from glassgear.lab.frame import (
    BY_HAND,
    INNER_GEARS,
    Cell,
    Claim,
    Column,
    Experiment,
    Figure,
    NotHereError,
    Outcome,
    Result,
    Settings,
    Table,
    Verdict,
    option,
)
from glassgear.lab.training import Course, Recipe, Text, text_of, train
from glassgear.lab.units import FLAT, STEP, Units, kill, slope, units_of
from glassgear.model.designs import design as designed
from glassgear.model.gears import Activation
from glassgear.model.ledger import ledger

if TYPE_CHECKING:
    from glassgear.backends.torch import ModelModule

__all__ = ["EXPERIMENT", "Curves", "Trained", "design_of", "slope"]

Floats = NDArray[np.float32]
KINDS: tuple[tuple[str, Activation], ...] = (
    ("ReLU", "relu"), ("GELU", "gelu"), ("GELU, tanh form", "gelu_tanh"), ("SiLU", "silu"),
)  # fmt: skip
POINTS = (-4.0, -1.0, -0.3, 0.4, 1.0, 4.0)
WIDENED = (0.401, 0.343, -0.315, -1.038, 0.945, 0.366, -1.031, 0.872)
GATED = "SwiGLU"
DEEP = (3.0, 6.0)  # how far below zero units are pushed
KILLED = 0.5  # the share of them


@dataclass(frozen=True)
class Curves(Settings):
    """Where curves are looked at, and what is trained."""

    reach: float = option(6.0, "Curves go from minus this to this.", least=4)
    inputs: int = option(200_000, "Normal numbers whose range and slopes are counted.", small=20_000,
                         least=1000)  # fmt: skip
    dim: int = option(48, "Width of the models that are trained.", small=32, least=8)
    layers: int = option(2, "Their layers.", small=1, least=1)
    steps: int = option(240, "Steps of training.", small=60, least=20)
    rate: float = option(3e-3, "The peak of the learning rate.", small=1.5e-2, least=0)
    seeds: int = option(3, "Trainings of each; they tell what is chance.", small=2, least=2)
    text: str | None = option(None, "A file to train on. [default: stories by rule]")


def run(settings: Curves) -> Result:
    """Tabulate the engine's own activations, then train with each."""
    grid = np.linspace(-settings.reach, settings.reach, 1 + 2 * int(settings.reach * 100), dtype=np.float32)
    normal = np.random.default_rng(settings.seed).standard_normal(settings.inputs, np.float32)
    row = np.array(WIDENED, np.float32)
    after = ACTIVATIONS["silu"](row)
    apart = float(np.abs(ACTIVATIONS["gelu"](grid) - ACTIVATIONS["gelu_tanh"](grid)).max())
    facts = _facts(row, after) | {"gelu_forms_apart": apart}
    lowest = float(grid[np.argmin(ACTIVATIONS["silu"](grid))])
    good = bool(facts["narrower"]) and bool(facts["order_of_positive_kept"]) and apart < 1e-3
    notes = [
        f"The two forms of GELU are at most {apart:.1g} apart.",
        "SiLU isn't limited to 0..1, and so neither is the gate of SwiGLU.",
    ]
    trained: list[Trained] = []
    try:
        trained = _train_all(settings, text_of(settings.text, settings.seed))
        facts |= _trained_facts(trained)
        notes.append(
            f"Pushed down: the biases of {KILLED:.0%} of the units become -{DEEP[0]:g} or -{DEEP[1]:g} "
            "before the first step, where the inputs' deviation is some 0.6. A unit has come back if some "
            "held-out token makes its input positive in the end; it is flat if the slope stays below "
            f"{FLAT:g} for all."
        )
    except NotHereError as trouble:
        notes.append(f"nothing was trained: {trouble}")
    return Result(
        _verdict(good, facts, row, after, lowest), (*_curve_tables(settings, normal, row, after),
                                                    *_trained_tables(trained, settings)),
        (Figure("curves", lambda canvas: _draw(canvas, grid, trained)),), facts, tuple(notes),
    )  # fmt: skip


def _curve_tables(settings: Curves, normal: Floats, row: Floats, after: Floats) -> tuple[Table, ...]:
    points = np.array(POINTS, np.float32)
    return (
        Table(
            "Values", (Column("activation"), *(Column(f"{x:g}", ".3f") for x in POINTS)),
            tuple((name, *map(float, ACTIVATIONS[kind](points))) for name, kind in KINDS),
        ),
        Table(
            "Slopes", (Column("activation"), *(Column(f"{x:g}", ".3f") for x in POINTS)),
            tuple((name, *map(float, slope(kind, points))) for name, kind in KINDS),
        ),
        _ranges(normal, settings.seed),
        Table(
            "The worked example's widened row, before and after SiLU",
            (Column("before", ".3f"), Column("after", ".3f"), Column("kept", ".0%")),
            tuple((float(x), float(y), float(y / x)) for x, y in zip(row, after, strict=True)),
        ),
    )  # fmt: skip


def _verdict(good: bool, facts: dict[str, float], row: Floats, after: Floats, lowest: float) -> Verdict:
    """What curves say, then what training says where there was any."""
    outcome: Outcome = "confirmed" if good else "refuted"
    english = (
        f"SiLU narrows the row from {row.min():.3f} .. {row.max():.3f} to {after.min():.3f} .. "
        f"{after.max():.3f}, keeps the order of positive numbers and keeps {facts['kept_of_-0.315']:.0%} "
        f"of -0.315 but {facts['kept_of_-1.038']:.0%} of -1.038; below {lowest:.2f} it rises again, so "
        "negative numbers may change places, and it lets slopes through where ReLU has none."
    )
    chinese = (
        f"SiLU 把这一行的范围从 {row.min():.3f} .. {row.max():.3f} 收窄到 {after.min():.3f} .. "
        f"{after.max():.3f}，正数次序不变，-0.315 保留 {facts['kept_of_-0.315']:.0%}，-1.038 只保留 "
        f"{facts['kept_of_-1.038']:.0%}；在 {lowest:.2f} 以下它又回升，负数的次序可能改变；"
        "ReLU 没有梯度的地方，它仍有梯度。"
    )
    if "gate_gain" not in facts:
        return Verdict(outcome, english, chinese)
    near, far = (f"{facts[f'back_{d:g}_SiLU']:.0%}" for d in DEEP)
    relu = f"{facts[f'back_{DEEP[0]:g}_ReLU']:.0%}"
    gain, plain, spread = facts["gate_gain"], facts["silu_gain"], facts["spread_of_seeds"]
    english += (
        f" In training {near} of the units that were pushed to -{DEEP[0]:g} come back with SiLU and {relu} "
        f"with ReLU, of those at -{DEEP[1]:g} {far}. With equal parameters the loss is {-gain:+.3f} with "
        f"SwiGLU and {-plain:+.3f} with SiLU against ReLU, where seeds are up to {spread:.3f} apart: "
        f"{_both(gain, plain, spread)[0]}."
    )
    chinese += (
        f"训练中，被压到 -{DEEP[0]:g} 的单元用 SiLU 有 {near} 复活，用 ReLU 为 {relu}；"
        f"压到 -{DEEP[1]:g} 的为 {far}。参数相同时，与 ReLU 相比 SwiGLU 的损失为 {-gain:+.3f}，"
        f"SiLU 为 {-plain:+.3f}，种子之间最多相差 {spread:.3f}："
        f"{_both(gain, plain, spread)[1]}。"
    )
    back = facts[f"back_{DEEP[0]:g}_SiLU"] > 0.02 + facts[f"back_{DEEP[0]:g}_ReLU"]
    everywhere = back and facts[f"back_{DEEP[1]:g}_SiLU"] > 0.5 and min(gain, plain) > spread
    if good and not everywhere:
        outcome = "depends"  # a part holds: the curves
    return Verdict(outcome, english, chinese)


def _both(gain: float, plain: float, spread: float) -> tuple[str, str]:
    """Two gains, in one word where they come to the same."""
    (one, one_zh), (other, other_zh) = _compared(gain, spread), _compared(plain, spread)
    if one == other:
        return f"with both {one}", f"两者都{one_zh}"
    return f"{one}, and {other}", f"前者{one_zh}，后者{other_zh}"


def _compared(gain: float, spread: float) -> tuple[str, str]:
    if gain > spread:
        return "better by more than that", "更好，且超过种子间差异"
    if gain < -spread:
        return "worse by more than that", "更差，且超过种子间差异"
    return "no difference beyond that", "没有超过种子间差异的差别"


# --- training ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Trained:
    """One activation.

    Attributes:
        name: of it.
        parameters: of the model.
        losses: on held-out text for each seed, nats a token.
        flat: share of units that are flat after training.
        shut: share of those that no token opens.
        killed: depth -> of the units that were pushed down so far: share that came back, share that is
            flat at the end, and the loss.
    """

    name: str
    parameters: int
    losses: tuple[float, ...]
    flat: float
    shut: float
    killed: dict[float, tuple[float, float, float]]

    @property
    def mean(self) -> float:
        """Of the seeds."""
        return float(np.mean(self.losses))


def design_of(name: str, kind: Activation, dim: int, layers: int) -> dict[str, Any]:
    """A model whose networks have this activation; a gated one is 2/3 as wide inside."""
    ffn: dict[str, Any] = {"kind": "plain", "hidden": 4 * dim}
    if name == GATED:
        ffn = {"kind": "gated", "hidden": round(8 * dim / 3)}
    return {"dim": dim, "layers": layers, "attention": {"heads": 4},
            "ffn": {**ffn, "activation": kind, "bias": True}}  # fmt: skip


def _train_all(settings: Curves, text: Text) -> list[Trained]:
    found = []
    for name, kind in (*KINDS, (GATED, "silu")):
        design = design_of(name, kind, settings.dim, settings.layers)
        runs = [_run(settings, design, text, settings.seed + i) for i in range(settings.seeds)]
        counted = ledger(designed({"vocab": text.vocab, **design}, "design")).parameters
        killed = {}
        for depth in DEEP:
            course, units, which = _run(settings, design, text, settings.seed, depth)
            killed[depth] = (float(np.mean(~units.shut[which])), float(np.mean(units.flat[which])),
                             course.held_out)  # fmt: skip
        losses = tuple(course.held_out for course, _, _ in runs)
        untouched = runs[0][1]
        found.append(Trained(name, counted, losses, float(untouched.flat.mean()),
                             float(untouched.shut.mean()), killed))  # fmt: skip
    return found


def _run(
    settings: Curves, design: dict[str, Any], text: Text, seed: int, depth: float | None = None
) -> tuple[Course, Units, Any]:
    """Train one; which units were pushed down, if any."""
    which: list[Any] = [None]

    def begin(module: ModelModule) -> None:
        if depth is not None:
            which[0] = kill(module, KILLED, depth)

    recipe = Recipe(steps=settings.steps, rate=settings.rate)
    course, module = train(design, text, recipe, seed, begin=begin)
    return course, units_of(module, text.held_out), which[0]


def _trained_facts(trained: list[Trained]) -> dict[str, float]:
    by = {one.name: one for one in trained}
    facts = {
        "gate_gain": by["ReLU"].mean - by[GATED].mean, "silu_gain": by["ReLU"].mean - by["SiLU"].mean,
        "spread_of_seeds": max(max(one.losses) - min(one.losses) for one in trained),
    }  # fmt: skip
    for one in trained:
        facts |= {f"loss_{one.name}": one.mean, f"flat_{one.name}": one.flat}
        facts |= {f"back_{depth:g}_{one.name}": back for depth, (back, _, _) in one.killed.items()}
    return facts


def _trained_tables(trained: list[Trained], settings: Curves) -> tuple[Table, ...]:
    if not trained:
        return ()
    losses: list[tuple[Cell, ...]] = [
        (one.name, one.parameters, one.mean, min(one.losses), max(one.losses), one.flat, one.shut)
        for one in trained
    ]
    killed: list[tuple[Cell, ...]] = [
        (one.name, *(cell for depth in DEEP for cell in one.killed[depth])) for one in trained
    ]
    pushed = [
        column for depth in DEEP
        for column in (Column(f"-{depth:g}: back", ".0%"), Column(f"-{depth:g}: flat", ".0%"),
                       Column(f"-{depth:g}: loss", ".3f"))
    ]  # fmt: skip
    return (
        Table(
            f"{settings.steps} steps, equal parameters, {settings.seeds} seeds: loss held out, units after",
            (Column("activation"), Column("parameters", ",d"), Column("loss", ".3f"), Column("lowest", ".3f"),
             Column("highest", ".3f"), Column("flat", ".1%"), Column("never above 0", ".1%")), tuple(losses),
        ),
        Table(f"{KILLED:.0%} of the units pushed below zero before training", (Column("activation"), *pushed),
              tuple(killed)),
    )  # fmt: skip


def _facts(before: Floats, after: Floats) -> dict[str, float]:
    above = before > 0
    same = np.array_equal(np.argsort(before[above]), np.argsort(after[above]))
    return {
        "low_before": float(before.min()), "low_after": float(after.min()),
        "high_before": float(before.max()), "high_after": float(after.max()),
        "narrower": float(np.ptp(after) < np.ptp(before)), "order_of_positive_kept": float(same),
        "kept_of_-0.315": float(after[2] / before[2]), "kept_of_-1.038": float(after[3] / before[3]),
    }  # fmt: skip


def _ranges(normal: Floats, seed: int) -> Table:
    """What becomes of normal numbers, and how many of the negative ones have no slope to learn by."""
    rows: list[tuple[str, float, float, float, float, float | None]] = []
    below = normal[normal < -STEP]
    for name, kind in KINDS:
        y = ACTIVATIONS[kind](normal)
        flat = float(np.mean(np.abs(slope(kind, below)) < 1e-6))
        rows.append((name, float(y.min()), float(y.max()), float(y.mean()), float(y.std()), flat))
    up = np.random.default_rng(seed + 1).standard_normal(len(normal), np.float32)
    y = ACTIVATIONS["silu"](normal) * up
    rows.append(("SwiGLU", float(y.min()), float(y.max()), float(y.mean()), float(y.std()), None))
    columns = (
        Column("activation"), Column("lowest", ".2f"), Column("highest", ".2f"), Column("mean", ".3f"),
        Column("deviation", ".3f"), Column("negative, no slope", ".0%"),
    )  # fmt: skip
    return Table("Normal numbers afterwards (SwiGLU: SiLU(a) b of two of them)", columns, tuple(rows))


def _draw(canvas: Any, grid: Floats, trained: list[Trained]) -> None:
    left, right, *below = np.ravel(canvas.subplots(2, 2) if trained else canvas.subplots(1, 2))
    for name, kind in KINDS:
        style = "--" if kind == "gelu_tanh" else "-"
        left.plot(grid, ACTIVATIONS[kind](grid), style, label=name)
        right.plot(grid, slope(kind, grid), style, label=name)
    left.set(title="value", xlabel="x", ylim=(-0.5, 3), xlim=(-4, 3))
    right.set(title="slope", xlabel="x", xlim=(-4, 4))
    for axes in (left, right):
        axes.axhline(0, color="grey", lw=0.6)
        axes.legend(fontsize=8)
    if trained:
        names = [one.name.replace(", ", ",\n") for one in trained]
        for i, depth in enumerate(DEEP):
            at = np.arange(len(names)) + 0.4 * i
            below[0].bar(at, [one.killed[depth][0] for one in trained], 0.4, label=f"pushed to -{depth:g}")
        below[0].set_xticks(np.arange(len(names)) + 0.2, names, fontsize=8)
        below[0].set(title="share of dead units that came back", ylim=(0, 1))
        below[0].legend(fontsize=8)
        for i, one in enumerate(trained):
            below[1].plot([i] * len(one.losses), one.losses, "o")
        below[1].set_xticks(range(len(names)), names, fontsize=8)
        below[1].set(title="loss with equal parameters, each seed", ylabel="nats a token")


EXPERIMENT = Experiment(
    "activations",
    "What do ReLU, GELU and SiLU do to a row, to dead units, to the loss?",
    Claim(
        "SiLU narrows a row's range, keeps the order of positive numbers, squeezes negative ones unevenly, "
        "and lets a little gradient through below zero, so that dead units can come back; SwiGLU, with its "
        "gate, is the choice of large models",
        f"{INNER_GEARS}; {BY_HAND}",
    ),
    Curves,
    run,
)
