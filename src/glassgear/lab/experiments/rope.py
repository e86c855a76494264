"""Rotary positions: lengths stay, scores see distances alone, and what scaling does further out."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glassgear.backends.reference.rope import rotate
from glassgear.lab.frame import (
    READING,
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
from glassgear.lab.models import model_of, stories, title
from glassgear.language_model import LanguageModel
from glassgear.loading import with_gears
from glassgear.model.gears import Attention, Model, Rope, RopeScaling, Sublayer, walk
from glassgear.model.rope import inverse_frequencies, yarn_attention_factor

__all__ = ["EXPERIMENT", "Rotation", "with_scaling"]

Floats = NDArray[np.float32]
LONGER = 4  # how many times the trained length is looked at
MOST = 8192  # tokens that a model reads here
SHIFTS = (1, 7, 100, 1000)


@dataclass(frozen=True)
class Rotation(Settings):
    """What is rotated, and which model reads on."""

    head_dim: int = option(64, "Channels of a head.", small=16, least=2)
    trained: int = option(512, "Tokens that a model was trained for.", small=128, least=16)
    model: str | None = option(None, "A model that reads past its trained length.")
    length: float = option(2.0, "How many times its context that model reads.", small=1.25, least=1.1)


def _relative(rope: Rope, settings: Rotation) -> tuple[list[tuple[int, float, float]], float]:
    """For shifts of both positions: the largest change of any score. And that of a vector's length."""
    rng = np.random.default_rng(settings.seed)
    count = 32
    q, k = (rng.standard_normal((count, 1, rope.dim), np.float32) for _ in range(2))
    places = np.arange(count, dtype=np.int64)

    def scores(shift: int) -> Floats:
        a, b = (rotate(rope, x, places + shift)[:, 0] for x in (q, k))
        made: Floats = a @ b.T / np.float32(math.sqrt(rope.dim))
        return made

    still = scores(0)
    rows = []
    for shift in SHIFTS:
        both = float(np.abs(scores(shift) - still).max())
        a = rotate(rope, q, places + shift)[:, 0]  # the queries alone: distances change
        one = float(np.abs(a @ rotate(rope, k, places)[:, 0].T / math.sqrt(rope.dim) - still).max())
        rows.append((shift, both, one))
    lengths = np.linalg.norm(rotate(rope, q, places + SHIFTS[-1]), axis=-1) / np.linalg.norm(q, axis=-1)
    return rows, float(np.abs(lengths - 1).max())


def _scalings(trained: int) -> dict[str, RopeScaling | None]:
    yarn = RopeScaling("yarn", LONGER, trained, attention_factor=yarn_attention_factor(LONGER))
    return {
        "none": None, "linear": RopeScaling("linear", LONGER),
        "llama3": RopeScaling("llama3", LONGER, trained, 1.0, 4.0), "yarn": yarn,
    }  # fmt: skip


def _reach(rope: Rope, trained: int) -> list[tuple[str, float, float, float, int]]:
    """For each scaling: how far angles go beyond those of training, and how much of the detail is left."""
    plain = np.array(inverse_frequencies(rope))
    seen = np.minimum(plain * (trained - 1), 2 * np.pi)  # a whole turn shows all there is
    rows = []
    for name, scaling in _scalings(trained).items():
        now = np.array(inverse_frequencies(replace(rope, scaling=scaling)))
        angles = np.minimum(now * (LONGER * trained - 1), 2 * np.pi)
        new = angles > seen * (1 + LONGER / trained)
        rows.append((name, float(new.mean()), float(now[0] / plain[0]), float(now[-1] / plain[-1]), len(now)))
    return rows


def with_scaling(model: Model, scaling: RopeScaling | None) -> Model:
    """The tree with another scaling in every rotation that has none yet."""

    def changed(gear: Sublayer) -> Sublayer:
        if isinstance(gear, Attention) and gear.rope is not None:
            return replace(gear, rope=replace(gear.rope, scaling=scaling))
        return gear

    blocks = tuple(
        replace(block, steps=tuple(replace(step, gear=changed(step.gear)) for step in block.steps))
        for block in model.blocks
    )
    return replace(model, blocks=blocks)


def _losses(model: LanguageModel, settings: Rotation) -> list[tuple[str, float, float, float]] | None:
    """Nats a token within the trained length and past it, of stories that the model tells itself."""
    ropes = {gear.rope for _, gear in walk(model.gears) if isinstance(gear, Attention)}
    if None in ropes or any(rope.scaling for rope in ropes if rope) or len(ropes) != 1:
        return None
    trained = model.gears.context
    count = round(trained * settings.length)
    if count > MOST:
        return None
    ids = stories(model, count, settings.seed)
    rows: list[tuple[str, float, float, float]] = []
    for name, scaling in _scalings(trained).items():
        changed = with_gears(model, with_scaling(model.gears, scaling))
        changed.context = len(ids)
        loss = -changed.score(ids).logprobs
        half = trained // 2
        near, far = float(loss[half:trained].mean()), float(loss[trained:].mean())
        rows.append((name, near, far, far - near))
    return rows


def run(settings: Rotation) -> Result:
    """Rotate vectors with the engine's own rotation, then stretch it."""
    rope = Rope(settings.head_dim - settings.head_dim % 2, 10000.0)
    shifts, bent = _relative(rope, settings)
    reach = _reach(rope, settings.trained)
    model = model_of(settings, settings.model, most=32 << 20)
    losses = None if model is None else _losses(model, settings)
    worst, least = max(row[1] for row in shifts), min(row[2] for row in shifts)
    fresh = {row[0]: row[1] for row in reach}
    good = worst < 1e-3 and bent < 1e-5 and least > 0.1 and fresh["linear"] == 0 < fresh["none"]
    facts: dict[str, Any] = {
        "shift_error": worst, "length_error": bent, "one_shifted": least,
        **{f"new_angles_{name}": share for name, share in fresh.items()},
    }  # fmt: skip
    tables = [
        Table(
            "Largest change of a score when positions move",
            (Column("by", "d"), Column("both move", ".1e"), Column("the query alone", ".2f")), tuple(shifts),
        ),
        Table(
            f"Trained on {settings.trained} tokens, used on {LONGER * settings.trained}",
            (Column("scaling"), Column("pairs with angles never seen", ".0%"), Column("fastest", ".2f"),
             Column("slowest", ".2f"), Column("pairs", "d")), tuple(reach),
        ),
    ]  # fmt: skip
    notes = ["fastest, slowest: how fast the first and last pair turn now, before = 1. Linear scaling slows "
             "all, llama3 and YaRN keep the fast ones, which tell neighbours apart."]  # fmt: skip
    further = ""
    chinese = ""
    if losses is not None and model is not None:
        facts |= {f"past_{name}": past for name, _, past, _ in losses}
        facts |= {f"within_{name}": within for name, within, _, _ in losses}
        plain, stretched = losses[0], losses[1:]
        best = min(stretched, key=lambda row: row[2])
        tables.append(
            Table(
                f"Nats a token of {title(model)}, trained for {model.gears.context:,} tokens",
                (Column("scaling"), Column("in the trained length", ".3f"), Column("past it", ".3f"),
                 Column("worse by", "+.3f")), tuple(losses),
            )
        )  # fmt: skip
        further = (
            f" {title(model)} loses {plain[3]:+.2f} nats a token past its trained length as it is; with "
            f"scaling, untrained, it is at {best[2]:.2f} there at best ({best[0]}), against {plain[2]:.2f}."
        )
        chinese = (
            f"{title(model)} 超出训练长度后每个词元的损失变化 {plain[3]:+.2f} nat；不经训练直接缩放，"
            f"最好的是 {best[0]}（{best[2]:.2f}），不缩放为 {plain[2]:.2f}。"
        )
    else:
        notes.append(
            f"no model read past its trained length: name one with --model whose rotations are plain, and "
            f"whose context times --length is at most {MOST:,} tokens"
        )
    return Result(
        Verdict(
            "confirmed" if good else "refuted",
            f"turning keeps lengths to {bent:.0e} and scores depend on the distance alone to {worst:.0e}; "
            f"four times the trained length brings angles never seen to {fresh['none']:.0%} of the pairs, "
            f"linear scaling to none, YaRN to {fresh['yarn']:.0%}.{further}",
            f"旋转不改变长度（误差 {bent:.0e}），注意力分数只取决于相对距离（误差 {worst:.0e}）；"
            f"长度为训练时四倍时，{fresh['none']:.0%} 的通道对出现从未见过的角度，线性缩放后没有，YaRN 为 "
            f"{fresh['yarn']:.0%}。{chinese}",
        ),
        tuple(tables),
        (Figure("rotation", lambda canvas: _draw(canvas, rope, settings.trained)),),
        facts,
        tuple(notes),
    )


def _draw(canvas: Any, rope: Rope, trained: int) -> None:
    left, right = canvas.subplots(1, 2)
    one = np.ones((1, 1, rope.dim), np.float32)
    far = np.arange(trained, dtype=np.int64)
    turned = rotate(rope, np.repeat(one, trained, 0), far)[:, 0]
    left.plot(far, turned @ one[0, 0] / rope.dim)
    left.set(title="score of two equal vectors, |x|^2 = 1", xlabel="distance", xscale="symlog")
    for name, scaling in _scalings(trained).items():
        right.semilogy(inverse_frequencies(replace(rope, scaling=scaling)), label=name)
    right.axhline(2 * math.pi / trained, color="grey", ls=":", label="one turn in the trained length")
    right.set(title="radians a position", xlabel="pair")
    right.legend(fontsize=8)


EXPERIMENT = Experiment(
    "rope",
    "Do scores depend on distance alone, and what happens past the trained length?",
    Claim(
        "RoPE turns pairs (2i, 2i+1) of queries and keys by position times 10000^(-2i/head_size), so that "
        "scores depend on relative positions",
        READING,
    ),
    Rotation,
    run,
)
