"""Mixture of experts: scores, the choice with its weights, and the sum of what was chosen."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from glassgear.backends.reference.activation import sigmoid
from glassgear.backends.reference.experts import choose
from glassgear.backends.reference.softmax import softmax
from glassgear.model.gears import Experts, Router
from glassgear.trace.explain import kernels
from glassgear.trace.explain.desk import Desk
from glassgear.trace.explain.explanation import Made, Step
from glassgear.trace.explain.terms import Input, Term, Terms
from glassgear.trace.flow import Node

__all__ = ["mixture", "router", "router_scores"]

Floats = NDArray[np.float32]


def router_scores(desk: Desk, node: Node, token: int, index: tuple[int, ...]) -> Made:
    """An expert's logit as a score."""
    gear, expert = node.gear, index[0]
    assert isinstance(gear, Router)
    x = desk.row(node.reads["logits"], token)
    order = "the CPU kernel's float32 operations" if desk.cpu else "NumPy's float32 operations"
    if gear.score == "sigmoid":
        one = x.input(expert, f"logit of expert {expert}")
        result = (kernels.sigmoid(x.values) if desk.cpu else sigmoid(x.values))[expert]
        step = Step("sigmoid", "1 / (1 + e^-x) of the logit", one.value)
        return Made(float(result), (one,), steps=(step,), magnitude=1.0, order=order)
    e, total = kernels.softmax(x.values) if desk.cpu else _softmax(x.values)
    result = (e / total)[expert] if desk.cpu else softmax(x.values[None])[0, expert]
    inputs = tuple(x.input(i, f"logit of expert {i}") for i in range(gear.count))
    terms = Terms.columns(lambda i: f"expert {i}", np.arange(gear.count), (("logit", x.values),), e)
    steps = (
        Step("maximum", "of all logits, taken off each", float(x.values.max())),
        Step("exponential", f"of expert {expert}", float(e[expert])),
        Step("sum", "of all exponentials", float(total)),
        Step("score", "exponential / sum"),
    )
    return Made(float(result), inputs, terms, steps, (), 1.0, order, summed="the exponentials")


def _softmax(x: Floats) -> tuple[Floats, np.float32]:
    e = np.exp(x - x.max())
    return e, np.float32(e.sum())


def router(desk: Desk, node: Node, token: int, index: tuple[int, ...]) -> Made:
    """The weight of an expert: 0 unless it is one of the best."""
    gear, expert = node.gear, index[0]
    assert isinstance(gear, Router)
    x = desk.row(node.reads["scores"], token)
    scores = x.values
    judged = scores + desk.vector(node.weights["correction"]) if gear.correction else scores
    chosen = [int(i) for i in choose(gear, judged[None])[0]]
    inputs = tuple(x.input(i, f"score of expert {i}") for i in range(gear.count))
    steps = [*_groups(gear, judged), Step("chosen", f"experts {', '.join(map(str, chosen))}, best first")]
    if gear.correction:
        steps.insert(0, Step("choice by", "score + stored correction, which doesn't enter the weight",
                             float(judged[expert])))  # fmt: skip
    if expert not in chosen:
        rank = int((judged > judged[expert]).sum()) + 1
        steps.append(Step("rank", f"number {rank} of {gear.count} by score: not chosen, so its weight is 0"))
        return Made(0.0, inputs, steps=tuple(steps), order="the choice")
    terms = [Term(f"expert {i}", (i,), (), float(scores[i])) for i in chosen] if gear.normalize else []
    weight, total = scores[expert], None
    steps.append(Step("score", f"of expert {expert}", float(weight)))
    if gear.normalize:
        total = _sum(desk, scores, chosen) + np.float32(1e-20)
        weight = weight / total
        steps.append(Step("sum", "of the chosen experts' scores, divides it", float(total)))
    if gear.scale != 1:
        steps.append(Step("scale", "is multiplied", gear.scale))
    result = np.float32(weight * np.float32(gear.scale))
    summed = "the chosen experts' scores" if gear.normalize else ""
    return Made(
        float(result), inputs, Terms.of(terms), tuple(steps), (), abs(float(result)),
        "float32, in the order of the choice", summed=summed,
    )  # fmt: skip


def _sum(desk: Desk, scores: Floats, chosen: list[int]) -> np.float32:
    """The kernel adds in the order of the choice; NumPy's sum is of one short row."""
    if not desk.cpu:
        return np.float32(scores[chosen].sum())
    total = np.float32(0)
    for i in chosen:
        total = np.float32(total + scores[i])
    return total


def _groups(gear: Router, judged: Floats) -> list[Step]:
    """What the choice of groups leaves."""
    if gear.groups == 1:
        return []
    grouped = np.sort(judged.reshape(gear.groups, -1), axis=1)[:, ::-1]
    worth = grouped[:, :2].sum(axis=1) if gear.group_score == "top2" else grouped[:, 0]
    kept = sorted(int(g) for g in np.argsort(-worth, kind="stable")[: gear.groups_kept])
    by = "the sum of its two best" if gear.group_score == "top2" else "its best"
    return [
        Step("groups", f"of {gear.count // gear.groups} experts, worth {by}: "
                       f"{', '.join(f'{w:.4g}' for w in worth)}"),
        Step("open groups", ", ".join(map(str, kept))),
    ]  # fmt: skip


def mixture(desk: Desk, node: Node, token: int, index: tuple[int, ...]) -> Made:
    """The sum over a token's experts of weight times output, and the shared expert's."""
    gear, channel = node.gear, index[0]
    assert isinstance(gear, Experts)
    weights = desk.row(node.reads["router"], token)
    total = np.float32(0)
    inputs: list[Input] = []
    terms: list[Term] = []
    for number in desk.chosen(weights.path, token):
        y = desk.row(node.reads[f"expert {number}"], token).input(channel, f"output of expert {number}")
        w = weights.input(number, f"weight of expert {number}")
        share = np.float32(w.value) * np.float32(y.value)
        total = np.float32(total + share)
        at = len(inputs)
        inputs += [w, y]
        factors = (("weight", w.value), ("output", y.value))
        terms.append(Term(f"expert {number}", (at, at + 1), factors, float(share), float(total)))
    if gear.shared is not None:
        one = desk.row(node.reads["shared"], token).input(channel, "output of the shared expert")
        total = np.float32(total + np.float32(one.value))
        terms.append(Term("shared expert", (len(inputs),), (), one.value, float(total)))
        inputs.append(one)
    magnitude = math.fsum(abs(term.value) for term in terms)
    return Made(float(total), tuple(inputs), Terms.of(terms), (), (), magnitude,
                "float32, by rising number of the expert, the shared one last",
                summed="weight times output")  # fmt: skip
