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

__all__ = ["show"]

Floats = NDArray[np.float32]


def show(
    cpu: CPU,
    program: NDArray[np.int64],
    marks: Sequence[Mark],
    hook: Hook,
    chunks: Sequence[Chunk],
    spans: Sequence[Span],
    logits: Floats,
) -> None:
    """Run `program` up to each mark and give its value to `hook`; what it returns is written back."""
    done = 0
    for mark in marks:
        kept = _scores(cpu, program, mark, chunks, spans) if mark.kind == "scores" else []
        if mark.steps > done:
            _run(cpu, program, done, mark.steps)
            done = mark.steps
        if mark.kind == "scores":
            _show_scores(cpu, mark, hook, chunks, spans, kept)
            program[mark.steps - 1, Step.G] = 0
            continue
        where = _value(cpu, mark, logits)
        changed = hook(mark.path, where.reshape(len(where), *mark.shape).copy())
        if changed is not None:
            where[:] = np.asarray(changed, np.float32).reshape(where.shape)
    _run(cpu, program, done, len(program))


def _run(cpu: CPU, program: NDArray[np.int64], first: int, last: int) -> None:
    if last > first:
        address = program.ctypes.data + first * STEP_FIELDS * 8
        cpu._team.run(address, last - first, cpu._frame.ctypes.data)


def _value(cpu: CPU, mark: Mark, logits: Floats) -> Floats:
    if mark.value is None:
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
