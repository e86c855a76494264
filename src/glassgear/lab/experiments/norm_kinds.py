"""What norms cost, alone and in a block, and whether there is a mean to take off."""

from __future__ import annotations

from dataclasses import dataclass
from time import perf_counter
from typing import Any

import numpy as np

from glassgear.backends.base import Chunk
from glassgear.lab.frame import (
    INNER_GEARS,
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
from glassgear.lab.models import model_of, random_model, start_ids, title
from glassgear.language_model import LanguageModel
from glassgear.measure import random_ids

__all__ = ["EXPERIMENT", "Norms", "mean_shares"]

KINDS = ("layernorm", "rmsnorm", "scalenorm", "batchnorm")
# Additions and products for each channel: sums of x and of (x - mean)^2, then (x - mean) / root * weight
# + bias; without the mean; with one number as weight; with sums that are stored.
OPERATIONS = {"layernorm": 8, "rmsnorm": 4, "scalenorm": 3, "batchnorm": 4}
PROMPT = "Once upon a time there was a little girl who lived in a village near the forest."


@dataclass(frozen=True)
class Norms(Settings):
    """Sizes, and the model whose streams are looked at."""

    dim: int = option(512, "Width of the rows.", small=256, least=32)
    tokens: int = option(64, "Rows that are normed at a time.", small=64, least=1)
    layers: int = option(24, "Blocks of the models that are timed.", small=16, least=1)
    repeats: int = option(25, "How often each is timed; the quickest counts.", small=20, least=1)
    model: str | None = option(None, "The model whose streams are looked at. [default: the smallest at hand]")
    prompt: str = option(PROMPT, "The text that it reads.")


def _seconds(models: dict[str, LanguageModel], ids: list[int], repeats: int) -> dict[str, float]:
    """The quickest step of each over one prompt; turn by turn, so that all meet the same noise."""
    best = dict.fromkeys(models, float("inf"))
    for _ in range(repeats + 1):  # the first one compiles and warms up
        for name, model in models.items():
            track = model.backend.open()
            start = perf_counter()
            model.backend.step([Chunk(track, ids, "none")])
            best[name] = min(best[name], perf_counter() - start)
            model.backend.close(track)
    return best


def _models(settings: Norms) -> dict[str, LanguageModel]:
    """Next to nothing but norms, of each kind and without; and whole blocks."""
    bare: dict[str, Any] = {
        "steps": ["ffn"], "ffn": {"kind": "plain", "hidden": 16, "activation": "identity"},
        "layers": settings.layers,
    }  # fmt: skip
    whole: dict[str, Any] = {"layers": 1, "attention": {"heads": 8}, "ffn": {"kind": "gated"}}
    wanted = {kind: bare | {"norm": kind} for kind in (*KINDS, "none")} | {"block": whole}
    fixed = {"vocab": 64, "dim": settings.dim, "context": 1024}
    return {
        name: random_model(fixed | design | {"name": name}, settings.seed, threads=1)
        for name, design in wanted.items()
    }


def _cost(settings: Norms) -> list[tuple[str, int, float, float, float]]:
    """For each kind: operations a channel, nanoseconds a row, and shares of LayerNorm's and of a block."""
    ids = random_ids(64, settings.tokens, settings.seed)
    seconds = _seconds(_models(settings), ids, settings.repeats)
    rows = settings.layers * settings.tokens
    cost = {kind: max(0.0, seconds[kind] - seconds["none"]) / rows * 1e9 for kind in KINDS}
    block = seconds["block"] / settings.tokens * 1e9
    return [
        (
            kind,
            OPERATIONS[kind],
            cost[kind],
            cost[kind] / max(cost["layernorm"], 1e-9),
            2 * cost[kind] / block,
        )
        for kind in KINDS
    ]


def mean_shares(model: LanguageModel, ids: list[int]) -> list[tuple[str, float, float]]:
    """What enters norms: its path, the median of |mean| / root mean square, and of the mean's share.

    The share is mean^2 / mean(x^2): what LayerNorm takes away and RMSNorm leaves.
    """
    trace = model.trace(ids, select=("embed", "blocks.*_residual"))
    rows = []
    for path, value in trace.items():
        x = value.array.astype(np.float64)
        size = np.sqrt(np.mean(x * x, axis=-1)) + 1e-30
        ratio = np.abs(x.mean(axis=-1)) / size
        rows.append((path, float(np.median(ratio)), float(np.median(ratio**2))))
    return rows


def run(settings: Norms) -> Result:
    """Time the engine's kernels, then look into a model."""
    cost = _cost(settings)
    by = {row[0]: row for row in cost}
    saved, in_block = 1 - by["rmsnorm"][3], by["layernorm"][4] - by["rmsnorm"][4]
    facts: dict[str, Any] = {
        "saved_alone": saved, "saved_in_block": in_block,
        **{f"nanoseconds_{kind}": row[2] for kind, row in by.items()},
    }  # fmt: skip
    columns = (
        Column("norm"), Column("operations a channel", "d"), Column("ns a row", ",.0f"),
        Column("of LayerNorm's", ".0%"), Column("two, of a block", ".2%"),
    )  # fmt: skip
    tables = [Table(f"Rows of {settings.dim}, {settings.tokens} at a time, one thread", columns,
                    tuple(cost))]  # fmt: skip
    notes = [
        "A norm alone: a model of next to nothing but norms, less the same without them; timings on a busy "
        "machine move by some percent. Trained quality isn't judged here.",
        "BatchNorm runs with stored statistics and needs no sums; it could be folded into the next matrix.",
    ]
    model = model_of(settings, settings.model)
    english, chinese, near = " No model was at hand to look for means.", "没有可用的模型来检查均值。", None
    shares: list[tuple[str, float, float]] = []
    if model is not None:
        shares = mean_shares(model, _ids(model, settings))
        largest, typical = max(r[1] for r in shares), float(np.median([r[1] for r in shares]))
        chance = float(np.sqrt(2 / np.pi) / model.gears.dim**0.5)
        near = float(np.median([r[2] for r in shares])) < 0.02
        facts |= {"mean_over_rms": typical, "largest_mean_over_rms": largest, "by_chance": chance}
        tables.append(_streams(title(model), shares))
        english = (
            f" In {title(model)} the mean is {typical:.1%} of a row's size ({largest:.0%} at most; chance "
            f"gives {chance:.1%}): {'near 0, as said' if near else 'not near 0'}."
        )
        chinese = (
            f"{title(model)} 中均值是一行大小的 {typical:.1%}（最多 {largest:.0%}，纯随机为 {chance:.1%}）："
            f"{'的确接近 0' if near else '并不接近 0'}。"
        )
    else:
        notes.append("no model was looked into: name one with --model")
    outcome: Outcome = "confirmed" if 0.1 <= saved <= 0.3 else "depends"
    if saved <= 0 or near is False:
        outcome = "refuted"
    return Result(
        Verdict(
            outcome,
            f"RMSNorm by itself takes {abs(saved):.0%} {'less' if saved > 0 else 'more'} time than "
            f"LayerNorm (20 % is said); of a block of this width that is {abs(in_block):.2%}, so speed "
            f"alone is no reason.{english}",
            f"RMSNorm 单独比 LayerNorm {'省' if saved > 0 else '多花'} {abs(saved):.0%} 的时间"
            f"（文中说 20%）；在这一宽度的整个块里只占 {abs(in_block):.2%}，速度本身不是理由。{chinese}",
        ),
        tuple(tables),
        (Figure("cost", lambda canvas: _draw(canvas, cost, shares)),),
        facts,
        tuple(notes),
    )


def _ids(model: LanguageModel, settings: Norms) -> list[int]:
    from glassgear.errors import TokenizerError

    try:
        return model.encode(settings.prompt)
    except TokenizerError:
        return start_ids(model) + random_ids(model.gears.vocab, 15, settings.seed)


def _streams(name: str, shares: list[tuple[str, float, float]]) -> Table:
    """At most a dozen places, from first to last."""
    step = max(1, len(shares) // 12)
    shown = shares[:: step if len(shares) > 12 else 1]
    return Table(
        f"What enters the norms of {name}, median of the tokens",
        (
            Column("stream behind"),
            Column("|mean| / size", ".1%"),
            Column("mean's share of the square", ".2%"),
        ),
        tuple(shown),
    )


def _draw(canvas: Any, cost: list[tuple[Any, ...]], shares: list[tuple[str, float, float]]) -> None:
    left, right = canvas.subplots(1, 2)
    left.barh([row[0] for row in cost], [row[2] for row in cost])
    left.set(title="ns a row, alone", xlabel="ns")
    if shares:
        right.plot([row[1] for row in shares], "o-")
        right.set(title="|mean| / size of what norms read", xlabel="place, from the embedding on",
                  ylim=(0, None))  # fmt: skip
    else:
        right.set_axis_off()


EXPERIMENT = Experiment(
    "norm-kinds",
    "What does RMSNorm save, and is there a mean to take off?",
    Claim(
        "RMSNorm drops the mean, since it is near 0 in text features: about 20 % less computation than "
        "LayerNorm",
        INNER_GEARS,
    ),
    Norms,
    run,
)
