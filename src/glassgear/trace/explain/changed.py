"""Values of a run that is interfered with: what was set to zero, and sums of which a part was left out."""

from __future__ import annotations

import math

from glassgear.trace.explain.desk import Desk
from glassgear.trace.explain.explanation import Made, Step
from glassgear.trace.explain.terms import Term, Terms
from glassgear.trace.flow import Node

__all__ = ["as_run"]

ZEROED = "this run sets this number to 0 (ablation)"
BEFORE = "what the gear made of its inputs, which nobody reads"
CUT = "this run leaves out what came along the stream (ablation): what the sublayer says goes on alone"
LEFT_OUT = "what came along the stream"


def as_run(desk: Desk, node: Node, token: int, index: tuple[int, ...], made: Made) -> Made:
    """How a number came about in this run; `made` is how its gear makes it."""
    zeroing = desk.zeroing
    if zeroing is None or not zeroing.changes(node.path):
        return made
    if zeroing.zeroed(node.path, index):
        # The mask of scores stays.
        return made if made.result == -math.inf and node.kind.endswith("scores") else _zeroed(made.result)
    return _cut(made) if node.path in zeroing.cuts else made


def _zeroed(before: float) -> Made:
    steps = (Step("set to zero", ZEROED), Step("without that", BEFORE, before))
    return Made(0.0, steps=steps, order="the change")


def _cut(made: Made) -> Made:
    """A residual sum of which the second input is all that is left."""
    stream, branch = made.inputs
    terms = Terms.of([Term(branch.name, (0,), (), branch.value, branch.value)])
    steps = (Step("cut", CUT), Step("left out", LEFT_OUT, stream.value))
    return Made(branch.value, (branch,), terms, steps, (), abs(branch.value), "a copy", summed="the inputs")
