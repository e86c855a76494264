"""From logits to a probability, and from all of them to the id that was taken."""

from __future__ import annotations

import math
from dataclasses import fields
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glassgear.errors import SettingError
from glassgear.sampling import Draw, Sampler, Sampling, Stage
from glassgear.trace.explain.desk import Desk, Row
from glassgear.trace.explain.explanation import Made, Step
from glassgear.trace.explain.terms import Terms
from glassgear.trace.flow import Node

__all__ = ["probability", "sampled", "taken"]

Floats = NDArray[np.float32]
KNOWN = {entry.name for entry in fields(Sampling)}


def probability(desk: Desk, node: Node, token: int, index: tuple[int, ...]) -> Made:
    """exp(logit - max) / sum of the same, before any setting."""
    logits, entry = desk.row(node.reads["logits"], token), index[0]
    values = logits.values
    e = np.exp(values - values.max())
    total = float(e.sum(dtype=np.float64))
    inputs = logits.inputs(range(len(values)), lambda i: f"logit of {_piece(desk, i)}")
    terms = Terms.columns(partial(_piece, desk), np.arange(len(values)), (("logit", values),), e)
    rank = int((values > values[entry]).sum()) + 1
    steps = (
        Step("logit", f"of {_piece(desk, entry)}, number {rank} by size", float(values[entry])),
        Step("maximum", f"the logit of {_piece(desk, int(values.argmax()))}", float(values.max())),
        Step("exponential", "of logit less maximum", float(e[entry])),
        Step("sum", f"of all {len(values):,} exponentials", total),
        Step("probability", "exponential / sum", float(e[entry]) / total),
        Step("log-probability", "its natural logarithm", _log(float(e[entry]) / total)),
    )
    return Made(float(e[entry]) / total, inputs, terms, steps, (), 1.0,
                "exponentials in float32, their sum in float64", summed="the exponentials")  # fmt: skip


def _log(value: float) -> float:
    return math.log(value) if value > 0 else -math.inf


def sampled(desk: Desk, node: Node, token: int, index: tuple[int, ...]) -> Made:
    """Every stage that removes or changes ids, the random number, and where it fell."""
    if not desk.model.causal:
        raise SettingError("this model reads a text in both directions: it samples nothing")
    settings, first = _settings(desk), desk.trace.prompt - 1
    if token < first:
        raise SettingError(
            f"nothing was sampled after token {token}: the prompt goes on there. The first id that was "
            f"chosen comes after token {first}"
        )
    logits = desk.row(node.reads["logits"], token)
    chosen = Sampling(**settings)
    sampler, history = Sampler(chosen), list(desk.trace.ids[: token + 1])
    stages = sampler.stages(logits.values, history)
    drawn, made = None, taken(desk, token)
    if chosen.greedy:
        made = int(stages[-1].ids[0])
    elif chosen.seed is not None:
        sampler.skip(token - first)
        drawn = sampler.draw(logits.values, history)
        assert drawn is not None
        made = drawn.id
    if made is None:
        raise SettingError("no id was made here, and the settings don't say a seed: it could be any")
    last = stages[-1]
    ends = np.cumsum(last.probabilities)
    inputs = logits.inputs(last.ids.tolist(), lambda at: f"logit of {_piece(desk, int(last.ids[at]))}")
    factors = (("logit", logits.values[last.ids]), ("after all stages", last.logits))
    terms = Terms.columns(
        lambda at: _piece(desk, int(last.ids[at])),
        np.arange(len(last.ids)),
        factors,
        last.probabilities,
        ends,
    )
    steps = [*_stages(desk, stages, made), *_chosen(desk, logits, last, made, drawn, chosen.greedy)]
    return Made(float(made), inputs, terms, tuple(steps), (), 1.0, "the sampler's own stages",
                summed="probabilities of the ids that are left")  # fmt: skip


def _settings(desk: Desk) -> dict[str, Any]:
    """Sampling settings of the run: greedy unless the trace says otherwise."""
    return {"temperature": 0.0} | {k: v for k, v in desk.trace.settings.items() if k in KNOWN}


def taken(desk: Desk, token: int) -> int | None:
    """The id that the trace has after a token; None if no id was made there."""
    place = token + 1
    made = desk.trace.prompt <= place < len(desk.trace.ids)
    return desk.trace.ids[place] if made else None


def _stages(desk: Desk, stages: list[Stage], made: int) -> list[Step]:
    """What each stage left, and what became of the id that was taken."""
    steps, before = [], stages[0]
    for stage in stages:
        at = np.flatnonzero(stage.ids == made)
        mine = f"probability of {_piece(desk, made)}"
        share = float(stage.probabilities[at[0]]) if len(at) else 0.0
        removed = len(before.ids) - len(stage.ids)
        what = f"{len(stage.ids):,} ids are left" + (f", {removed:,} removed" if removed else "")
        name = f"{stage.name} {stage.setting}".strip()
        steps.append(Step(name, f"{what}; {mine}", share))
        before = stage
    return steps


def _chosen(desk: Desk, logits: Row, last: Stage, made: int, drawn: Draw | None, greedy: bool) -> list[Step]:
    if greedy:
        values = logits.values
        order = np.argsort(-values, kind="stable")[:2]
        second = int(order[1]) if len(order) > 1 else made
        margin = float(values[order[0]] - values[second])
        return [Step("margin", f"the largest logit, less the next: that of {_piece(desk, second)}", margin)]
    ends = np.cumsum(last.probabilities)
    at = int(np.flatnonzero(last.ids == made)[0])
    low, high = float(ends[at - 1]) if at else 0.0, float(ends[at])
    number = Step("random number", "isn't known: the trace holds no seed")
    if drawn is not None:
        number = Step("random number", "drawn from [0, 1)", drawn.number)
        low, high = drawn.low, drawn.high
    where = f"ids in rising order share [0, 1): {_piece(desk, made)} has [{low:.9f}, {high:.9f})"
    return [number, Step("interval", where)]


def _piece(desk: Desk, token: int) -> str:
    return f"id {token} {desk.piece(token)!r}" if desk.piece is not None else f"id {token}"
