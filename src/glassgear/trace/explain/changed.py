"""Values of a run that is interfered with: set to zero, replaced, or sums with a part left out."""

from __future__ import annotations

import math

from glassgear.trace.explain.desk import Desk
from glassgear.trace.explain.explanation import Made, Step
from glassgear.trace.explain.replaced import Replacing
from glassgear.trace.explain.terms import Term, Terms
from glassgear.trace.flow import Node

__all__ = ["as_run"]

ZEROED = "this run sets this number to 0 (ablation)"
BEFORE = "what the gear made of its inputs, which nobody reads"
REPLACED = "this run puts this number in the place of what the gear made (change)"
CUT = "this run leaves out what came along the stream (ablation): what the sublayer says goes on alone"
LEFT_OUT = "what came along the stream"
ROUNDING = 1e-5  # of the sum of absolute terms: so near a number is what its gear made


def as_run(desk: Desk, node: Node, token: int, index: tuple[int, ...], made: Made) -> Made:
    """How a number came about in this run; `made` is how its gear makes it."""
    zeroing = desk.zeroing
    if zeroing is None or not zeroing.changes(node.path):
        return made
    if isinstance(zeroing, Replacing):
        return _replaced(desk, node, token, index, made)
    if zeroing.zeroed(node.path, index):
        # The mask of scores stays.
        return made if made.result == -math.inf and node.kind.endswith("scores") else _zeroed(made.result)
    return _cut(made) if node.path in zeroing.cuts else made


def _zeroed(before: float) -> Made:
    steps = (Step("set to zero", ZEROED), Step("without that", BEFORE, before))
    return Made(0.0, steps=steps, order="the change")


def _replaced(desk: Desk, node: Node, token: int, index: tuple[int, ...], made: Made) -> Made:
    """A number of a value that a function gave: it may have left this one as it was."""
    row = desk.row(node.path, token)
    value = float(row.values.reshape(row.shape)[index])
    same = value == made.result or (math.isnan(value) and math.isnan(made.result))
    if same or abs(value - made.result) <= ROUNDING * made.magnitude:
        return made
    if not value:
        return _zeroed(made.result)
    steps = (Step("replaced", REPLACED, value), Step("without that", BEFORE, made.result))
    return Made(value, steps=steps, order="the change")


def _cut(made: Made) -> Made:
    """A residual sum of which the second input is all that is left."""
    stream, branch = made.inputs
    terms = Terms.of([Term(branch.name, (0,), (), branch.value, branch.value)])
    steps = (Step("cut", CUT), Step("left out", LEFT_OUT, stream.value))
    return Made(branch.value, (branch,), terms, steps, (), abs(branch.value), "a copy", summed="the inputs")
