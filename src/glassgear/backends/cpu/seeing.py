"""Running a program so that a hook sees, and may change, every value between its steps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from glassgear.backends.base import PAGE, Chunk, Hook
from glassgear.backends.cpu.fields import STEP_FIELDS, Frame, Step
from glassgear.backends.cpu.program import Mark
from glassgear.backends.reference.softmax import softmax

if TYPE_CHECKING:
    from glassgear.backends.cpu.machine import CPU, Span

__all__ = ["SHORT", "show"]

Floats = NDArray[np.float32]
SHORT = 8  # rows up to which a step counts as short


def show(
    cpu: CPU,
    program: NDArray[np.int64],
    marks: Sequence[Mark],
    hook: Hook,
    chunks: Sequence[Chunk],
    spans: Sequence[Span],
    logits: Floats | None,
) -> None:
    """Run `program` up to each mark and give its value to `hook`; what it returns is written back.

    A hook that says which values it wants (`Watcher`) sees these where they are, and the program isn't
    stopped for others.
    """
    done, start = 0, int(program.ctypes.data)
    frame, short = int(cpu._frame.ctypes.data), bool(cpu._frame[Frame.ROWS] <= SHORT)
    watches = hasattr(hook, "wants")
    for mark in marks:
        if watches and not _wanted(mark, hook):
            continue
        kept = _scores(cpu, program, mark, chunks, spans) if mark.kind == "scores" else []
        if mark.steps > done:
            cpu._team.run(start + done * STEP_FIELDS * 8, mark.steps - done, frame, short)
            done = mark.steps
        if mark.kind == "scores":
            _show_scores(cpu, mark, hook, chunks, spans, kept)
            program[mark.steps - 1, Step.G] = 0
            continue
        if mark.kind == "experts":
            _show_experts(cpu, mark, hook)
            continue
        where = _value(cpu, mark, logits)
        value = where.reshape(len(where), *mark.shape)
        changed = hook(mark.path, value if watches else value.copy())
        if changed is not None:
            where[:] = np.asarray(changed, np.float32).reshape(where.shape)
    if len(program) > done:
        cpu._team.run(start + done * STEP_FIELDS * 8, len(program) - done, frame, short)


def _wanted(mark: Mark, hook: Hook) -> bool:
    """Whether the program has to stop at a mark. Experts are run there, whoever looks on."""
    wants = hook.wants  # type: ignore[attr-defined]
    if mark.kind == "scores":
        return bool(wants(f"{mark.path}.scores") or wants(f"{mark.path}.weights"))
    return mark.kind == "experts" or bool(wants(mark.path))


def _show_experts(cpu: CPU, mark: Mark, hook: Hook) -> None:
    """Run each expert that has a weight on its rows alone, and add its results to the mark's value."""
    assert mark.value is not None and mark.nest is not None
    rows = int(cpu._frame[Frame.ROWS])
    x, weights, out = (cpu._memory.array(v, rows) for v in (mark.nest.x, mark.nest.weights, mark.value))
    out[:] = 0
    for number in np.flatnonzero((weights != 0).any(axis=0)):
        chosen = np.flatnonzero(weights[:, number])
        inner = mark.nest.program(int(number))
        cpu._memory.array(inner.x, len(chosen))[:] = x[chosen]
        cpu._frame[Frame.ROWS] = len(chosen)
        try:
            show(cpu, inner.program, inner.marks, hook, (), (), None)
        finally:
            cpu._frame[Frame.ROWS] = rows
        out[chosen] += weights[chosen, number, None] * cpu._memory.array(inner.result, len(chosen))


def _value(cpu: CPU, mark: Mark, logits: Floats | None) -> Floats:
    if mark.value is None:
        assert logits is not None
        return logits
    field = Frame.WANTED if mark.kind == "wanted" else Frame.ROWS
    return cpu._memory.array(mark.value, int(cpu._frame[field]))


def _scores(
    cpu: CPU, program: NDArray[np.int64], mark: Mark, chunks: Sequence[Chunk], spans: Sequence[Span]
) -> list[Floats]:
    """Room for the scores of each sequence, [heads, t, S], which the next run fills."""
    heads = mark.shape[0]
    sizes = [(heads, s.rows, chunks[s.chunk].track.length + s.rows) for s in spans]
    flat = np.full(sum(h * t * n for h, t, n in sizes), -np.inf, np.float32)
    program[mark.steps - 1, Step.G] = flat.ctypes.data
    out, at = [], 0
    for i, (h, t, n) in enumerate(sizes):
        cpu._spans[i, 3] = at
        out.append(flat[at : at + h * t * n].reshape(h, t, n))
        at += h * t * n
    return out


def _show_scores(
    cpu: CPU, mark: Mark, hook: Hook, chunks: Sequence[Chunk], spans: Sequence[Span], kept: Sequence[Floats]
) -> None:
    """Show scores and weights of each sequence; if the hook changes them, mix the values anew."""
    assert mark.value is not None
    rows = cpu._memory.array(mark.value, int(cpu._frame[Frame.ROWS]))
    for span, scores in zip(spans, kept, strict=True):
        changed = hook(f"{mark.path}.scores", scores)
        weights = softmax(scores if changed is None else np.asarray(changed, np.float32))
        replaced = hook(f"{mark.path}.weights", weights)
        if changed is None and replaced is None:
            continue
        weights = weights if replaced is None else np.asarray(replaced, np.float32)
        track = chunks[span.chunk].track
        length = track.length + span.rows
        values = cpu._cache.read_values(mark.layer, track.pages[: -(-length // PAGE)], length)
        heads, head_dim = mark.shape
        group = heads // values.shape[1]
        grouped = weights.reshape(values.shape[1], group * span.rows, length) @ values.transpose(1, 0, 2)
        mixed = grouped.reshape(heads, span.rows, head_dim).transpose(1, 0, 2)
        rows[span.row : span.row + span.rows] = mixed.reshape(span.rows, -1)
