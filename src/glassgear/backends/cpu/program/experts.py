"""Mixture of experts: a router, and the networks that it chooses.

In the fast program all experts are one step, whose kernel runs each expert's own steps over the
rows that chose it. For hooks each of these experts is a program by itself, on its rows alone.
"""

from __future__ import annotations

from dataclasses import replace

from glassgear.backends.cpu.builder import Builder
from glassgear.backends.cpu.fields import GROUP, ROWS, TILE
from glassgear.backends.cpu.layouts import BLOCK
from glassgear.backends.cpu.memory import CAPACITY
from glassgear.backends.cpu.program.ffn import entries, network, units_of
from glassgear.backends.cpu.program.walk import Inner, Input, Nest, Target, Walk, add_up, linear, read
from glassgear.backends.cpu.values import Source, Units, Value, is_float
from glassgear.model.gears import Experts, Router

__all__ = ["experts"]


def experts(at: Walk, path: str, gear: Experts, x: Input, target: Target | None) -> Value:
    """The weighted sum of the chosen experts, and the shared one."""
    numbers = range(gear.router.count)
    inner = [f"experts.{i}.{name}" for i in numbers for name in entries(gear.expert)]
    shared = [f"shared.{name}" for name in entries(gear.shared)] if gear.shared else []
    source = read(at, x, at.matrices(path, ["router", *inner, *shared]), floats=at.seeing)
    plan = at.buffers.plan(2 * gear.router.count + 2 * CAPACITY * gear.router.used)
    weights = _router(at, f"{path}.router", gear.router, source, plan)
    if at.seeing:
        return _seen(at, path, gear, source, weights)
    other = None
    if gear.shared is not None:
        other = network(at, f"{path}.shared", gear.shared, source, None, "shared expert")
    results = _chosen(at, path, gear, source, plan)
    to = target or Target(at.buffers.rows("branch", gear.expert.down.outputs), False)
    at.builder.combine(results, weights, other, to.to, gear.router, plan, add=to.add)
    return to.to


def _router(at: Walk, path: str, router: Router, x: Source, plan: int) -> Value:
    """The weight of every expert, 0 for those that a row doesn't use."""
    logits, scores, weights = (
        at.buffers.rows(f"router {name}", router.count) for name in ("logits", "scores", "weights")
    )
    linear(at, path, x, logits)
    at.builder.barrier()
    at.mark(f"{path}.logits", logits)
    at.builder.score(logits, scores, router.score == "sigmoid")
    at.mark(f"{path}.scores", scores)
    at.builder.route(scores, weights, router, at.weights.vectors.get(f"{path}.correction", 0), plan)
    at.mark(path, weights)
    return weights


def _chosen(at: Walk, path: str, gear: Experts, x: Source, plan: int) -> Value:
    """Each chosen expert's results, in its slots."""
    router, hidden = gear.router, gear.expert.up.outputs
    # The fewest slots in which any choice finds room, and what tiles write past an expert's rows.
    slots = ROWS * router.used + min(router.count, ROWS * router.used) * (TILE + GROUP) + TILE
    gathered = _room(at, path, gear, "expert input", router.dim, entries(gear.expert), slots)
    at.builder.gather(x, gathered, router, plan)
    product = _room(at, path, gear, "expert product", hidden, ["down"], slots)
    first, last = at.builder.beside(), at.builder.beside()
    results = at.buffers.rows("expert results", gear.expert.down.outputs, count=slots)
    for number in range(router.count):
        inner = f"{path}.experts.{number}"
        _entry_steps(at, first, inner, gear, gathered, product, slots)
        _exit_steps(at, last, inner, product, results)
    units = units_of(hidden).total if hidden % BLOCK == 0 else 0
    at.builder.dispatch(first, router, units, plan)
    panels = at.weights.matrices[f"{path}.experts.0.down"].panels
    at.builder.dispatch(last, router, panels, plan)
    return results


def _room(at: Walk, path: str, gear: Experts, name: str, width: int, parts: list[str], slots: int) -> Source:
    """Slots for what the given parts of all experts read."""
    readers = [f"experts.{i}.{part}" for i in range(gear.router.count) for part in parts]
    return at.buffers.source(name, width, at.matrices(path, readers), private=False, count=slots)


def _entry_steps(
    at: Walk, steps: Builder, path: str, gear: Experts, x: Source, product: Source, slots: int
) -> None:
    """One expert's steps up to the product of its activation."""
    hidden, rows, biases = gear.expert.up.outputs, [], []
    for name in entries(gear.expert):
        matrix = at.weights.matrices[f"{path}.{name}"]
        rows.append(at.buffers.rows(f"expert {name}", hidden, count=slots))
        units = units_of(hidden) if hidden % BLOCK == 0 else Units(1, 0, matrix.panels)
        steps.matmul(matrix, x, rows[-1], units)
        biases.append(at.weights.vectors.get(f"{path}.{name}.bias", 0))
    second = rows[1] if len(rows) == 2 else None
    both = (biases[0], biases[1] if second else 0)
    down = at.weights.matrices[f"{path}.down"]
    to = Source(product.floats, None) if is_float(down) else Source(None, product.codes)
    steps.activate(gear.expert.activation, rows[0], second, to, units_of(hidden), biases=both)


def _exit_steps(at: Walk, steps: Builder, path: str, product: Source, to: Value) -> None:
    """One expert's last product."""
    matrix = at.weights.matrices[f"{path}.down"]
    units = Units(1, 0, matrix.panels)
    steps.matmul(matrix, product, to, units)
    bias = at.weights.vectors.get(f"{path}.down.bias", 0)
    if bias:
        steps.join(None, to, matrix.panels, units, bias=bias)


def _seen(at: Walk, path: str, gear: Experts, x: Source, weights: Value) -> Value:
    """The same sum for hooks: `seeing.py` runs the experts one by one, and adds them up."""
    out = at.buffers.rows("branch", gear.expert.down.outputs)
    assert x.floats is not None
    at.mark(f"{path}.experts", out)
    nest = Nest(x.floats, weights, lambda number: _alone(at, path, gear, number))
    at.marks[-1] = replace(at.marks[-1], kind="experts", nest=nest)
    if gear.shared is not None:
        other = network(at, f"{path}.shared", gear.shared, x, None, "shared expert")
        at.mark(f"{path}.shared", other)
        add_up(at, other, out)
    return out


def _alone(at: Walk, path: str, gear: Experts, number: int) -> Inner:
    """A program for one expert, with all that can be seen of it."""
    inner = f"{path}.experts.{number}"
    walk = replace(at, builder=at.builder.beside(alone=True), marks=[])
    x = at.buffers.rows("one expert's input", gear.router.dim)
    source = read(walk, Input(x), walk.matrices(inner, entries(gear.expert)), name="one expert's input")
    result = network(walk, inner, gear.expert, source, None, "one expert's result")
    walk.mark(inner, result)
    return Inner(walk.finished(walk.builder), walk.marks, x, result)
