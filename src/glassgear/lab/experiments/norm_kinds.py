"""What norms cost, whether there is a mean to take off, and what training makes of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
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
    NotHereError,
    Outcome,
    Result,
    Settings,
    Table,
    Verdict,
    option,
)
from glassgear.lab.models import model_of, random_model, require_torch, start_ids, title
from glassgear.lab.norm_losses import RATE, Beside, Trained, beside, trained
from glassgear.lab.training import text_of
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
    model: str | None = option(None, "The model whose streams are looked at. [default: tiny-stories]")
    prompt: str = option(PROMPT, "The text that it reads.")
    steps: int = option(200, "Steps of a training.", small=40, least=20)
    seeds: int = option(3, "How often each is trained, from other weights.", small=1, least=1)
    text: str | None = option(None, "A file to learn. [default: stories by rule]")


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


@dataclass(frozen=True)
class Means:
    """What was found out about the means of what norms read, and how it is said.

    Attributes:
        english: a sentence for the verdict.
        chinese: the same.
        near: whether they are near 0; None where no model was at hand.
        shares: see `mean_shares`.
        tables: of the streams.
        facts: by name.
        notes: for the reader.
    """

    english: str = " No model was at hand to look for means."
    chinese: str = "没有可用的模型来检查均值。"
    near: bool | None = None
    shares: tuple[tuple[str, float, float], ...] = ()
    tables: tuple[Table, ...] = ()
    facts: Mapping[str, float] = field(default_factory=dict)
    notes: tuple[str, ...] = ("no model was looked into: name one with --model",)


def _means(settings: Norms) -> Means:
    """Look for means in what the norms of a model read."""
    model = model_of(settings, settings.model)
    if model is None:
        return Means()
    shares = mean_shares(model, _ids(model, settings))
    largest, typical = max(r[1] for r in shares), float(np.median([r[1] for r in shares]))
    chance = float(np.sqrt(2 / np.pi) / model.gears.dim**0.5)
    near = float(np.median([r[2] for r in shares])) < 0.02
    english = (
        f" In {title(model)} the mean is {typical:.1%} of a row's size ({largest:.0%} at most; chance "
        f"gives {chance:.1%}): {'near 0, as said' if near else 'not near 0'}."
    )
    chinese = (
        f"{title(model)} 中均值是一行大小的 {typical:.1%}（最多 {largest:.0%}，纯随机为 {chance:.1%}）："
        f"{'的确接近 0' if near else '并不接近 0'}。"
    )
    facts = {"mean_over_rms": typical, "largest_mean_over_rms": largest, "by_chance": chance}
    return Means(english, chinese, near, tuple(shares), (_streams(title(model), shares),), facts, ())


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
        "machine move by some percent.",
        "BatchNorm runs with stored statistics and needs no sums; it could be folded into the next matrix.",
    ]
    means = _means(settings)
    tables += means.tables
    facts |= means.facts
    notes += means.notes
    english, chinese = means.english, means.chinese
    learnt = _learnt(settings)
    if learnt is None:
        notes.append('nothing was trained: that needs PyTorch, pip install "glassgear[torch]"')
    else:
        tables += learnt.tables()
        facts |= learnt.facts()
        notes += [
            f"Trained: two pre-norm blocks of width 32, {settings.steps} steps of 128 bytes of "
            f"{learnt.name}, {settings.seeds} of each kind from other weights, AdamW at {RATE:g} and at four "
            "times that.",
            "Eight pieces of 4 to 32 bytes, in one batch that is filled up, and one at a time; then the "
            "longest beside others, and with another second half: how far its logits (those of its first "
            "half) move, in their deviations.",
        ]
        english, chinese = english + learnt.english(), chinese + learnt.chinese()
    outcome: Outcome = "confirmed" if 0.1 <= saved <= 0.3 else "depends"
    if saved <= 0 or means.near is False:
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
        (Figure("cost", lambda canvas: _draw(canvas, cost, means.shares, learnt)),),
        facts,
        tuple(notes),
    )


@dataclass(frozen=True)
class Learnt:
    """What training made of each kind; BatchNorm's company also with the statistics that are stored.

    Attributes:
        name: of the text.
        trained: by kind.
        company: by kind, in training mode; `stored`: BatchNorm otherwise.
    """

    name: str
    trained: dict[str, Trained]
    company: dict[str, Beside]

    def tables(self) -> list[Table]:
        """Losses, and what company does."""
        rows = tuple(
            (kind, _mean(one.losses), _half_range(one.losses), _mean(one.faster), _half_range(one.faster))
            for kind, one in self.trained.items()
        )  # fmt: skip
        names = {"batchnorm": "batchnorm, training", "stored": "batchnorm, stored"}
        company = tuple(
            (names.get(kind, kind), one.padded, one.alone, one.neighbours, one.later)
            for kind, one in self.company.items()
        )
        return [
            Table(
                "Held-out loss after training, nats a byte, and half the seeds' range",
                (Column("norm"), Column("loss", ".3f"), Column("+-", ".3f"), Column("4x the rate", ".3f"),
                 Column("+-", ".3f")), rows,
            ),
            Table(
                "The same pieces in other company",
                (Column("norm"), Column("filled up", ".3f"), Column("alone", ".3f"),
                 Column("other neighbours", ".1%"), Column("later bytes", ".1%")), company,
            ),
        ]  # fmt: skip

    def facts(self) -> dict[str, float]:
        """By kind."""
        found = {f"loss_{kind}": _mean(one.losses) for kind, one in self.trained.items()}
        found |= {f"loss_faster_{kind}": _mean(one.faster) for kind, one in self.trained.items()}
        found |= {"spread_of_seeds": self.spread}
        for kind, one in self.company.items():
            found |= {
                f"padded_{kind}": one.padded, f"alone_{kind}": one.alone,
                f"neighbours_{kind}": one.neighbours, f"later_{kind}": one.later,
            }  # fmt: skip
        return found

    @property
    def spread(self) -> float:
        """The widest range of a kind's seeds."""
        return max(float(np.ptp(one.losses)) for one in self.trained.values())

    @property
    def apart(self) -> dict[str, float]:
        """Losses less LayerNorm's."""
        start = _mean(self.trained["layernorm"].losses)
        return {kind: _mean(one.losses) - start for kind, one in self.trained.items()}

    @property
    def loss_of_rate(self) -> dict[str, float]:
        """What four times the rate adds to the loss."""
        return {kind: _mean(one.faster) - _mean(one.losses) for kind, one in self.trained.items()}

    def english(self) -> str:
        """For the verdict."""
        apart, batch = self.apart, self.company["batchnorm"]
        seeds = f", where seeds are {self.spread:.3f} apart" if self.spread else " (one seed)"
        return (
            f" Trained alike, losses differ from LayerNorm's by {apart['rmsnorm']:+.3f} (RMSNorm), "
            f"{apart['scalenorm']:+.3f} (ScaleNorm) and {apart['batchnorm']:+.3f} (BatchNorm){seeds}. At "
            f"four times the rate ScaleNorm's loss changes by {self.loss_of_rate['scalenorm']:+.3f}, "
            f"LayerNorm's by {self.loss_of_rate['layernorm']:+.3f}. In training BatchNorm moves a text's "
            f"logits by {batch.neighbours:.0%} with other neighbours, and by {batch.later:.1%} with other "
            f"bytes behind them, which no token should see; in a filled-up batch it costs "
            f"{batch.padded:.2f} nats a byte, alone {batch.alone:.2f}. The others look at one row, and "
            "nothing moves."
        )

    def chinese(self) -> str:
        """The same."""
        apart, batch = self.apart, self.company["batchnorm"]
        seeds = f"（种子之间相差 {self.spread:.3f}）" if self.spread else "（一个种子）"
        return (
            f"同样训练后，与 LayerNorm 的损失之差：RMSNorm {apart['rmsnorm']:+.3f}，ScaleNorm "
            f"{apart['scalenorm']:+.3f}，BatchNorm {apart['batchnorm']:+.3f}{seeds}。学习率乘 4 时，"
            f"ScaleNorm 变动 {self.loss_of_rate['scalenorm']:+.3f}，"
            f"LayerNorm {self.loss_of_rate['layernorm']:+.3f}。"
            f"训练模式下换掉邻居，BatchNorm 的 logits 就变动 {batch.neighbours:.0%}；只换后面的字节也变动 "
            f"{batch.later:.1%}，而这本不该被前面看到；补齐成一批时每字节 {batch.padded:.2f} nat，"
            f"单独处理时 {batch.alone:.2f}。"
            "其余三种只看一行，结果不变。"
        )


def _mean(values: tuple[float, ...]) -> float:
    return float(np.mean(values))


def _half_range(values: tuple[float, ...]) -> float | None:
    """Of several seeds; one alone says nothing of it."""
    return float(np.ptp(values)) / 2 if len(values) > 1 else None


def _learnt(settings: Norms) -> Learnt | None:
    """Train each kind; None without PyTorch."""
    try:
        require_torch()
    except NotHereError:
        return None
    text = text_of(settings.text, settings.seed)
    seeds = range(settings.seed, settings.seed + settings.seeds)
    made = {kind: trained(kind, text, settings.steps, seeds) for kind in KINDS}
    company = {kind: beside(one.module, text, own_batch=True) for kind, one in made.items()}
    company["stored"] = beside(made["batchnorm"].module, text, own_batch=False)
    return Learnt(text.name, made, company)


def _ids(model: LanguageModel, settings: Norms) -> list[int]:
    from glassgear.errors import TokenizerError

    try:
        return model.encode(settings.prompt)
    except TokenizerError:
        return start_ids(model) + random_ids(model.gears.vocab, 15, settings.seed)


def _streams(name: str, shares: Sequence[tuple[str, float, float]]) -> Table:
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


def _draw(
    canvas: Any,
    cost: list[tuple[Any, ...]],
    shares: Sequence[tuple[str, float, float]],
    learnt: Learnt | None,
) -> None:
    left, middle, right = canvas.subplots(1, 3)
    left.barh([row[0] for row in cost], [row[2] for row in cost])
    left.set(title="ns a row, alone", xlabel="ns")
    if shares:
        middle.plot([row[1] for row in shares], "o-")
        middle.set(title="|mean| / size of what norms read", xlabel="place, from the embedding on",
                   ylim=(0, None))  # fmt: skip
    else:
        middle.set_axis_off()
    if learnt is None:
        right.set_axis_off()
        return
    for i, one in enumerate(learnt.trained.values()):
        right.plot(one.losses, [i] * len(one.losses), "o", color="C0", label=None if i else "rate")
        right.plot(one.faster, [i] * len(one.faster), "x", color="C1", label=None if i else "4x the rate")
    right.set_yticks(range(len(KINDS)), KINDS)
    right.set(title="held-out loss, by seed", xlabel="nats a byte")
    right.legend(fontsize=8)


EXPERIMENT = Experiment(
    "norm-kinds",
    "What does RMSNorm save, is there a mean to take off, and which norm trains well?",
    Claim(
        "RMSNorm drops the mean, since it is near 0 in text features: about 20 % less computation than "
        "LayerNorm and nearly its quality; ScaleNorm is cheapest but sensitive; text wants LayerNorm, images "
        "BatchNorm",
        INNER_GEARS,
    ),
    Norms,
    run,
)
