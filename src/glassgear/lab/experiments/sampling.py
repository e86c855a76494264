"""Temperature, top-k and top-p on one distribution, and in texts that a model makes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

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
from glassgear.lab.models import model_of, start_ids, title
from glassgear.language_model import LanguageModel
from glassgear.sampling import Sampler, Sampling

__all__ = ["EXPERIMENT", "Texts", "distinct", "repeated"]

# Seven words: 40, 25, 15, 10, 6, 3 and 1 percent.
SHARES = (0.40, 0.25, 0.15, 0.10, 0.06, 0.03, 0.01)
OFF: dict[str, Any] = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0}
WAYS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("greedy", {"temperature": 0.0}), ("T 0.5", {"temperature": 0.5}), ("T 1", {}),
    ("T 1.5", {"temperature": 1.5}), ("top-k 3", {"top_k": 3}), ("top-p 0.5", {"top_p": 0.5}),
    ("top-p 0.9", {"top_p": 0.9}), ("min-p 0.1", {"min_p": 0.1}),
)  # fmt: skip
TEXTS = (*WAYS[:4], ("top-k 40", {"top_k": 40}), ("top-p 0.9", {"top_p": 0.9}))


@dataclass(frozen=True)
class Texts(Settings):
    """What texts are made of and how many."""

    model: str | None = option(None, "The model that makes texts. [default: tiny-stories]")
    tokens: int = option(120, "Tokens of each text.", small=80, least=16)
    texts: int = option(4, "Texts for each way.", small=3, least=1)
    draws: int = option(5000, "Draws from the one distribution.", small=2000, least=100)


def _on_one(settings: Texts) -> list[tuple[Any, ...]]:
    """Each way on seven words: what is kept, how probable the first is, entropy, and a check by drawing."""
    logits = np.log(np.array(SHARES, np.float32))
    rows = []
    for name, changed in WAYS:
        sampler = Sampler(Sampling(**(OFF | changed), seed=settings.seed))
        p = sampler.probabilities(logits, [])
        drawn = np.bincount([sampler.next(logits, []) for _ in range(settings.draws)], minlength=len(p))
        apart = float(np.abs(drawn / settings.draws - p).max())
        bits = float(-sum(v * math.log2(v) for v in p if v > 0))
        rows.append((name, int((p > 0).sum()), *(float(v) for v in p[:3]), bits, apart))
    return rows


def distinct(texts: Sequence[Sequence[int]], n: int = 2) -> float:
    """Different runs of n tokens, as a share of all in all texts."""
    runs = [tuple(ids[i : i + n]) for ids in texts for i in range(len(ids) - n + 1)]
    return len(set(runs)) / max(1, len(runs))


def repeated(texts: Sequence[Sequence[int]], n: int = 4) -> float:
    """The share of runs of n tokens that their own text has had before."""
    again = total = 0
    for ids in texts:
        seen: set[tuple[int, ...]] = set()
        for i in range(len(ids) - n + 1):
            run = tuple(ids[i : i + n])
            again, total = again + (run in seen), total + 1
            seen.add(run)
    return again / max(1, total)


def _text(model: LanguageModel, start: list[int], count: int, options: dict[str, Any]) -> list[int]:
    """New ids of one text."""
    pieces = model.generate(start, max_tokens=count, ignore_eos=True, **options)
    return [token for piece in pieces for token in piece.ids]


def _in_texts(model: LanguageModel, settings: Texts) -> list[tuple[Any, ...]]:
    """Texts in each way, all of one length: end tokens don't end them."""
    rows = []
    start = start_ids(model)
    for name, changed in TEXTS:
        made = [
            _text(model, start, settings.tokens, OFF | changed | {"seed": settings.seed + number})
            for number in range(settings.texts)
        ]
        losses = [float(np.mean(-model.score(start + ids).logprobs[len(start) - 1 :])) for ids in made]
        rows.append((name, distinct(made), repeated(made), distinct(made, 1), float(np.mean(losses))))
    return rows


def run(settings: Texts) -> Result:
    """Seven words first, then a model if there is one."""
    one = _on_one(settings)
    bits = {row[0]: row[5] for row in one}
    kept = {row[0]: row[1] for row in one}
    by_total = kept["top-p 0.5"] == 2 and kept["top-p 0.9"] == 4
    apart = max(row[6] for row in one)
    ordered = bits["greedy"] <= bits["T 0.5"] <= bits["T 1"] <= bits["T 1.5"]
    facts: dict[str, Any] = {
        "top_p_by_total": by_total, "most_apart": apart,
        **{f"bits_{name}": value for name, value in bits.items()},
    }  # fmt: skip
    good = by_total and ordered and apart < 4 / math.sqrt(settings.draws)
    tables = [
        Table(
            "Seven words of 40, 25, 15, 10, 6, 3 and 1 percent",
            (Column("way"), Column("kept", "d"), Column("first", ".1%"), Column("second", ".1%"),
             Column("third", ".1%"), Column("bits", ".2f"), Column("draws off by", ".1%")), tuple(one),
        ),
    ]  # fmt: skip
    notes = ["top-p keeps the smallest set of the likeliest words whose total reaches p: 0.5 keeps two "
             "(40 + 25), though neither reaches 0.5 by itself."]  # fmt: skip
    model = model_of(settings, settings.model)
    texts = [] if model is None else _in_texts(model, settings)
    english = chinese = ""
    if texts and model is not None:
        by = {row[0]: row for row in texts}
        greedy, free = by["greedy"], by["T 1.5"]
        clear = greedy[1] <= by["T 1"][1] <= free[1] and greedy[4] < free[4]
        facts |= {f"distinct_{name}": row[1] for name, row in by.items()}
        facts |= {f"repeated_{name}": row[2] for name, row in by.items()}
        facts |= {f"nats_{name}": row[4] for name, row in by.items()}
        columns = (
            Column("way"), Column("distinct pairs", ".0%"), Column("fours repeated", ".1%"),
            Column("distinct tokens", ".0%"), Column("nats a token", ".2f"),
        )  # fmt: skip
        tables.append(
            Table(
                f"{settings.texts} texts of {settings.tokens} tokens by {title(model)}; T is the temperature",
                columns,
                tuple(texts),
            )
        )
        notes.append(
            "Pairs and tokens are those of all texts together; greedy makes the same text each time."
        )
        english = (
            f" In texts, {greedy[1]:.0%} of pairs are different when the likeliest token is taken, "
            f"{by['T 1'][1]:.0%} at temperature 1 and {free[1]:.0%} at 1.5; {greedy[2]:.1%} and "
            f"{free[2]:.1%} of runs of four repeat at the ends."
        )
        chinese = (
            f"生成的文本中，贪心时 {greedy[1]:.0%} 的相邻词元对互不相同，温度 1 时为 {by['T 1'][1]:.0%}，"
            f"1.5 时为 {free[1]:.0%}；首尾两种方式的四词元片段重复率为 {greedy[2]:.1%} 和 {free[2]:.1%}。"
        )
        if not clear:
            notes.append(
                "In these texts diversity doesn't rise with temperature: they may be too few or short."
            )
    else:
        notes.append("no texts were made: name a model with --model")
    return Result(
        _verdict(good, bits, english, chinese),
        tuple(tables),
        (Figure("ways", lambda canvas: _draw(canvas, texts)),),
        facts,
        tuple(notes),
    )


def _verdict(good: bool, bits: dict[str, float], english: str, chinese: str) -> Verdict:
    low, high = bits["T 0.5"], bits["T 1.5"]
    if not good:
        return Verdict(
            "refuted",
            f"on seven words temperature or top-p don't do what they should: see the table.{english}",
            f"在七个词上，温度或 top-p 的行为与说法不符，见表。{chinese}",
        )
    return Verdict(
        "depends",
        f"temperature is as said: the seven words have {low:.2f} bits at 0.5 and {high:.2f} at 1.5; top-p "
        f"isn't: it goes by the total of the likeliest words, not by each word's own share.{english}",
        f"温度的说法成立：七个词的熵由温度 0.5 时的 {low:.2f} 比特变为 1.5 时的 {high:.2f} 比特；"
        f"top-p 的说法不成立：它看的是累计概率，不是单个词的概率。{chinese}",
    )


def _draw(canvas: Any, texts: list[tuple[Any, ...]]) -> None:
    left, right = canvas.subplots(1, 2)
    logits = np.log(np.array(SHARES, np.float32))
    for i, (name, changed) in enumerate(WAYS[1:6]):
        p: NDArray[np.float64] = Sampler(Sampling(**(OFF | changed), seed=0)).probabilities(logits, [])
        left.bar(np.arange(len(p)) + 0.16 * (i - 2), p, 0.15, label=name)
    left.set(title="seven words", xlabel="word", ylabel="probability")
    left.legend(fontsize=8)
    if texts:
        names = [row[0] for row in reversed(texts)]
        right.barh(names, [row[1] for row in reversed(texts)])
        right.set(title="texts", xlabel="distinct pairs, of all", xlim=(0, 1))
    else:
        right.set_axis_off()


EXPERIMENT = Experiment(
    "sampling",
    "What do temperature, top-k and top-p do to one distribution, and to texts?",
    Claim(
        "temperature divides the logits before softmax, so that texts become freer or safer; top-p keeps the "
        "words whose own probability passes a threshold",
        READING,
    ),
    Texts,
    run,
)
