"""Linear layers one after the other, with and without a bend between them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glassgear.lab.frame import (
    BY_HAND,
    INNER_GEARS,
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
from glassgear.lab.models import random_model
from glassgear.language_model import LanguageModel

__all__ = ["EXPERIMENT", "Stack"]

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Stack(Settings):
    """Sizes of the networks."""

    dim: int = option(32, "Width of the networks.", small=8, least=2)
    layers: int = option(8, "Most networks one after the other, of two matrices each.", small=4, least=1)


def _network(settings: Stack, layers: int, activation: str) -> LanguageModel:
    """`layers` plain networks, no norm, no attention, no way past: the engine's own gears."""
    return random_model(
        {
            "name": "stack", "vocab": 8 * settings.dim, "dim": settings.dim, "layers": layers,
            "steps": ["ffn"], "residual": False, "norm": "none", "positions": "none", "head": "none",
            "context": 8 * settings.dim,
            "ffn": {"kind": "plain", "hidden": 4 * settings.dim, "activation": activation},
        },
        settings.seed,
    )  # fmt: skip


def _one_matrix(model: LanguageModel) -> Floats:
    """The product of all matrices: [dim, dim], to be multiplied from the right."""
    held = {path: tensor.float32().astype(np.float64) for path, tensor in model.checkpoint.tensors.items()}
    parts = [
        held[f"blocks.{i}.ffn.{part}.weight"].T
        for i in range(len(model.gears.blocks))
        for part in ("up", "down")
    ]
    return reduce(np.matmul, parts)


def _unexplained(x: Floats, y: Floats, matrix: Floats | None = None) -> float:
    """The share of y that no matrix (or this one) makes of x, in lengths: |y - x M| / |y|.

    The best matrix is found on one half of the rows and judged on the other.
    """
    half = len(x) // 2
    if matrix is None:
        both = np.concatenate([x, np.ones((len(x), 1))], axis=1)  # a constant may be added, too
        matrix = np.linalg.lstsq(both[:half], y[:half], rcond=None)[0]
        x = both
    return float(np.linalg.norm(y[half:] - x[half:] @ matrix) / np.linalg.norm(y[half:]))


def run(settings: Stack) -> Result:
    """Compare what the engine computes with one matrix, for more and more layers."""
    rows, counts = [], [n for n in (1, 2, 4, 8, 16, 32, 64) if n < settings.layers] + [settings.layers]
    for layers in counts:
        linear, bent = (_network(settings, layers, name) for name in ("identity", "silu"))
        ids = list(range(linear.gears.vocab))
        x = linear.checkpoint.tensors["embed.weight"].float32().astype(np.float64)
        y = linear.hidden(ids).astype(np.float64)
        z = bent.hidden(ids).astype(np.float64)
        rows.append((layers, 2 * layers, _unexplained(x, y, _one_matrix(linear)), _unexplained(x, z)))
    worst, least = max(row[2] for row in rows), min(row[3] for row in rows)
    good = worst < 1e-4 and least > 0.05
    columns = (
        Column("networks", "d"), Column("matrices", "d"), Column("identity: off the one matrix", ".1e"),
        Column("SiLU: off the best matrix", ".1%"),
    )  # fmt: skip
    return Result(
        Verdict(
            "confirmed" if good else "refuted",
            f"without a bend the product of all matrices gives the stack's output to {worst:.0e} of its "
            f"size; with SiLU the best single matrix misses {least:.0%} or more.",
            f"没有激活函数时，所有矩阵之积就给出整个堆叠的输出（相对误差 {worst:.0e}）；"
            f"加上 SiLU 后，最好的单个矩阵也至少差 {least:.0%}。",
        ),
        (Table("How far a stack is from one matrix, in lengths of its output", columns, tuple(rows)),),
        (Figure("distance", lambda canvas: _draw(canvas, rows)),),
        {"linear_error": worst, "silu_error": least},
        (
            "Both stacks have the same random weights and are run by the engine; the best matrix is fitted, "
            "with a constant, to half of the rows and judged on the others.",
        ),
    )  # fmt: skip


def _draw(canvas: Any, rows: list[tuple[int, int, float, float]]) -> None:
    axes = canvas.subplots()
    layers = [row[0] for row in rows]
    axes.semilogy(layers, [row[2] for row in rows], "o-", label="identity, against the product")
    axes.semilogy(layers, [row[3] for row in rows], "s-", label="SiLU, against the best matrix")
    axes.set(xlabel="networks", ylabel="distance / length", title="A stack and one matrix")
    axes.legend()


EXPERIMENT = Experiment(
    "linear-collapse",
    "Are stacked linear layers more than one matrix?",
    Claim("without an activation two linear layers are one", f"{INNER_GEARS}; {BY_HAND}"),
    Stack,
    run,
)
