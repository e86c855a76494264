"""Activations: curves, slopes, and what a row looks like before and after."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glassgear.backends.reference.activation import ACTIVATIONS
from glassgear.lab.frame import (
    BY_HAND,
    Claim,
    Column,
    Experiment,
    Figure,
    Result,
    Settings,
    Table,
    Verdict,
    option,
)
from glassgear.model.gears import Activation

__all__ = ["EXPERIMENT", "Curves", "slope"]

Floats = NDArray[np.float32]
KINDS: tuple[tuple[str, Activation], ...] = (
    ("ReLU", "relu"), ("GELU", "gelu"), ("GELU, tanh form", "gelu_tanh"), ("SiLU", "silu"),
)  # fmt: skip
POINTS = (-4.0, -1.0, -0.3, 0.4, 1.0, 4.0)
WIDENED = (0.401, 0.343, -0.315, -1.038, 0.945, 0.366, -1.031, 0.872)
STEP = 2.0**-7


@dataclass(frozen=True)
class Curves(Settings):
    """Where curves are looked at."""

    reach: float = option(6.0, "Curves go from minus this to this.", least=4)
    inputs: int = option(200_000, "Normal numbers whose range and slopes are counted.", small=20_000,
                         least=1000)  # fmt: skip


def slope(kind: Activation, x: Floats) -> Floats:
    """The derivative, by central differences; at the corner of ReLU their mean."""
    run, step = ACTIVATIONS[kind], np.float32(STEP)
    return (run(x + step) - run(x - step)) / (2 * step)


def run(settings: Curves) -> Result:
    """Tabulate the engine's own activations."""
    grid = np.linspace(-settings.reach, settings.reach, 1 + 2 * int(settings.reach * 100), dtype=np.float32)
    normal = np.random.default_rng(settings.seed).standard_normal(settings.inputs, np.float32)
    points, row = np.array(POINTS, np.float32), np.array(WIDENED, np.float32)
    after = ACTIVATIONS["silu"](row)
    apart = float(np.abs(ACTIVATIONS["gelu"](grid) - ACTIVATIONS["gelu_tanh"](grid)).max())
    facts = _facts(row, after) | {"gelu_forms_apart": apart}
    lowest = float(grid[np.argmin(ACTIVATIONS["silu"](grid))])
    good = bool(facts["narrower"]) and bool(facts["order_of_positive_kept"]) and apart < 1e-3
    return Result(
        Verdict(
            "confirmed" if good else "refuted",
            f"SiLU narrows the row from {row.min():.3f} .. {row.max():.3f} to {after.min():.3f} .. "
            f"{after.max():.3f}, keeps the order of positive numbers and keeps {facts['kept_of_-0.315']:.0%} "
            f"of -0.315 but {facts['kept_of_-1.038']:.0%} of -1.038; below {lowest:.2f} it rises again, so "
            "negative numbers may change places, and it lets slopes through where ReLU has none.",
            f"SiLU 把这一行的范围从 {row.min():.3f} .. {row.max():.3f} 收窄到 {after.min():.3f} .. "
            f"{after.max():.3f}，正数次序不变，-0.315 保留 {facts['kept_of_-0.315']:.0%}，-1.038 只保留 "
            f"{facts['kept_of_-1.038']:.0%}；在 {lowest:.2f} 以下它又回升，负数的次序可能改变；"
            "ReLU 没有梯度的地方，它仍有梯度。",
        ),
        (
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
        ),
        (Figure("curves", lambda canvas: _draw(canvas, grid)),),
        facts,
        (
            f"The two forms of GELU are at most {apart:.1g} apart.",
            "SiLU isn't limited to 0..1, and so neither is the gate of SwiGLU.",
        ),
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


def _draw(canvas: Any, grid: Floats) -> None:
    left, right = canvas.subplots(1, 2)
    for name, kind in KINDS:
        style = "--" if kind == "gelu_tanh" else "-"
        left.plot(grid, ACTIVATIONS[kind](grid), style, label=name)
        right.plot(grid, slope(kind, grid), style, label=name)
    left.set(title="value", xlabel="x", ylim=(-0.5, 3), xlim=(-4, 3))
    right.set(title="slope", xlabel="x", xlim=(-4, 4))
    for axes in (left, right):
        axes.axhline(0, color="grey", lw=0.6)
        axes.legend()


EXPERIMENT = Experiment(
    "activations",
    "What do ReLU, GELU and SiLU do to a row, and where do they have a slope?",
    Claim(
        "SiLU narrows a row's range, keeps the order of positive numbers, squeezes negative ones unevenly, "
        "and lets a little gradient through below zero",
        BY_HAND,
    ),
    Curves,
    run,
)
