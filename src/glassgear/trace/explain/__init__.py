"""Explaining one number: where it came from, with every factor, in the backend's own arithmetic.

`explain(desk, path, token, index)` finds how a value is made (`trace.flow`), computes the one number
again from the traced numbers and the weights, and compares. On the CPU backend the operations are
those of its kernels, in their order (`kernels.py`), so the result has the traced bits; NumPy and
PyTorch add matrix products in an order that they don't tell, so there the difference is said.

One file for each kind of gear; each function takes (desk, node, token, index) and answers with a `Made`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from glassgear.backends.base import Backend
from glassgear.errors import SettingError
from glassgear.model.gears import Attention
from glassgear.trace.changes import Zeroing
from glassgear.trace.explain import attention, changed, experts, latent, linear, norms, plain, sampled
from glassgear.trace.explain.desk import Cache, Desk
from glassgear.trace.explain.explanation import Block, Explanation, Made, Step
from glassgear.trace.explain.replaced import Replacing
from glassgear.trace.explain.terms import Input, Term, Terms
from glassgear.trace.explain.words import formula, gear_name
from glassgear.trace.flow import PROBABILITY, SAMPLED, Node, flow
from glassgear.trace.trace import Trace
from glassgear.weights.tensor import StoredTensor

__all__ = [
    "Block",
    "Desk",
    "Explanation",
    "Input",
    "Made",
    "Replacing",
    "Step",
    "Term",
    "Terms",
    "desk_for",
    "explain",
    "needed",
]

Make = Callable[[Desk, Node, int, tuple[int, ...]], Made]

MAKERS: dict[str, Make] = {
    "activated": plain.activated,
    "head": linear.head,
    "latent mixed": latent.mixed,
    "latent scores": latent.scores,
    "linear": linear.linear,
    "mixed": attention.mixed,
    "mixture": experts.mixture,
    "neighbours": linear.neighbours,
    "norm": norms.norm,
    "product": plain.product,
    "residual": plain.residual,
    "rotated": attention.rotated,
    "router": experts.router,
    "router scores": experts.router_scores,
    "row": plain.row,
    "same": plain.same,
    "scores": attention.scores,
    "sum": plain.sum_of,
    "tanh": plain.tanh,
    "weights": attention.softmax_weight,
    PROBABILITY: sampled.probability,
    SAMPLED: sampled.sampled,
}


def explain(desk: Desk, path: str, token: int = -1, index: int | Sequence[int] | None = None) -> Explanation:
    """How one number came about.

    Args:
        desk: the run.
        path: of the value; `probability` and `sampled` follow from the logits.
        token: its token; negative ones count from the end.
        index: place in the token's value: channel, or head and channel, or head and seen token;
            negative ones count from the end. None: the number of the largest size.

    Raises:
        SettingError: there is no such value, token or number; the message says what there is.
    """
    node = desk.node(path)
    token = desk.token(token)
    axes, shape = desk.axes(node, token)
    place = _place(desk, node, token, index, axes, shape)
    made = changed.as_run(desk, node, token, place, MAKERS[node.kind](desk, node, token, place))
    words, source = formula(node)
    weights = tuple((role, desk.about(name)) for role, name in node.weights.items())
    return Explanation(
        path, token, desk.text(token), place, axes, desk.trace.backend, gear_name(node), words, source,
        weights, made, _traced(desk, node, token, place),
        lambda path, token, index: explain(desk, path, token, index),
    )  # fmt: skip


def desk_for(
    backend: Backend, tensors: Mapping[str, StoredTensor], run: Trace | Callable[[Sequence[str]], Trace],
    path: str, *, piece: Callable[[int], str] | None = None, change: Zeroing | Replacing | None = None,
) -> Desk:  # fmt: skip
    """A desk for explaining a value.

    Args:
        backend: what ran, or would run, the model.
        tensors: its weights.
        run: a trace, or a function that runs the model and records the paths that it is given.
        path: what will be explained first; of a run it is recorded with what it is computed from.
        piece: what an id stands for.
        change: what the run does differently from its model; a function is the one that `run` hands on.

    Raises:
        SettingError: the model has no such value, or the trace is another model's.
    """
    chart = flow(backend.model)
    form: Cache = getattr(backend, "cache_form", "float32")
    empty = Trace((), (), 0, "", backend.name, backend.model.family)
    desk = Desk(backend.model, tensors, chart, empty, form, piece=piece, zeroing=change)
    paths = needed(desk, path)
    if isinstance(run, Trace):
        desk.trace = run
        strange = next((p for p in run if p not in chart), None)
        if strange is not None:
            raise SettingError(f"this trace holds {strange}, which this model doesn't have: it is another's")
    else:
        desk.again = run
        desk.need(paths)
    if desk.trace.backend != backend.name:
        desk.cache = "float32"  # the other backend's form of a cache says nothing about this trace
    return desk


def needed(desk: Desk, path: str) -> tuple[str, ...]:
    """The paths that must be recorded to explain a value, its own among them."""
    node = desk.node(path)
    paths = (*node.inputs, *((path,) if node.shown else ()))
    if node.kind == "mixed":  # kernels don't keep weights: they go from queries, keys and values
        paths += desk.flow[node.reads["scores"][0]].inputs
    return tuple(p for p in paths if desk.flow[p].shown)


def _traced(desk: Desk, node: Node, token: int, index: tuple[int, ...]) -> float | None:
    if node.kind == SAMPLED:
        made = sampled.taken(desk, token)
        return None if made is None else float(made)
    if not node.shown:
        return None
    row = desk.row(node.path, token)
    return float(row.values.reshape(row.shape)[index])


def _place(
    desk: Desk, node: Node, token: int, index: int | Sequence[int] | None, axes: tuple[str, ...],
    shape: tuple[int, ...],
) -> tuple[int, ...]:  # fmt: skip
    """An index as it was given, brought to the value's shape."""
    if index is None:
        return _largest(desk, node, token, shape)
    given = _numbers(index)
    if len(given) == 2 and len(shape) == 1:
        given = _by_head(node, given)
    fits = len(given) == len(shape) and all(-n <= i < n for i, n in zip(given, shape, strict=True))
    if not fits:
        have = ", ".join(f"{name} 0 to {n - 1}" for name, n in zip(axes, shape, strict=True))
        asked = ", ".join(map(str, given)) or "nothing"
        raise SettingError(
            f"{node.path} has no number at {asked}: it has {have or 'one number, which takes no index'}"
        )
    return tuple(int(i) % n for i, n in zip(given, shape, strict=True))


def _numbers(index: object) -> tuple[int, ...]:
    """An index as a caller gave it, checked."""
    if isinstance(index, np.ndarray) and index.ndim < 2:
        index = index.reshape(-1).tolist()
    parts = index if isinstance(index, tuple | list) else (index,)
    if not all(isinstance(part, int | np.integer) and not isinstance(part, bool) for part in parts):
        raise SettingError(f"index must be a whole number, or several such as (4, 5), found {index!r:.60}")
    return tuple(int(part) for part in parts)


def _by_head(node: Node, given: tuple[int, ...]) -> tuple[int, ...]:
    """Head and channel of a projection whose heads lie in one row."""
    owner, name = node.owner, node.path.rpartition(".")[2]
    if not isinstance(owner, Attention) or name not in ("query", "key", "value"):
        return given
    heads = owner.heads if name == "query" else owner.kv_heads
    head, channel = given
    if not (-heads <= head < heads and -owner.head_dim <= channel < owner.head_dim):
        raise SettingError(
            f"{node.path} has no number at {head}, {channel}: it has head 0 to {heads - 1}, "
            f"channel 0 to {owner.head_dim - 1}"
        )
    return (head % heads * owner.head_dim + channel % owner.head_dim,)


def _largest(desk: Desk, node: Node, token: int, shape: tuple[int, ...]) -> tuple[int, ...]:
    """The number of the largest size that is finite; of logits and probabilities the largest."""
    if not shape:
        return ()
    stream = node.reads["logits"] if node.kind == PROBABILITY else (node.path,)
    row = desk.row(stream if node.kind != "sum" else node.reads["x"], token)
    values = row.values if node.kind in (PROBABILITY, "head") else np.abs(row.values)
    finite = np.where(np.isfinite(values), values, -np.inf)
    return tuple(int(i) for i in np.unravel_index(int(finite.argmax()), row.shape))
