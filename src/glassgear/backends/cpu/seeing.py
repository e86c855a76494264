"""Running a program so that a hook sees, and may change, every value between its steps."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import numpy as np
from numpy.typing import NDArray

from glassgear.backends.base import PAGE, Chunk, Hook, Watcher
from glassgear.backends.cpu.fields import STEP_FIELDS, Frame, Step
from glassgear.backends.cpu.program import Mark
from glassgear.backends.reference.softmax import softmax

if TYPE_CHECKING:
    from glassgear.backends.cpu.machine import CPU, Span

__all__ = ["SHORT", "show"]

Floats = NDArray[np.float32]
SHORT = 8  # rows up to which a step counts as short
FEW = 2 << 20  # bytes of scores that one thread turns into weights, all in one go
BLOCK = 256  # rows whose hidden scores are left out together; short calls of two threads hinder each other
WIDE = 1 << 16  # bytes of a head's scores that are worth a thread's turn
HELD = 32 << 20  # bytes of scores that wait to be shown
COUNTS = {"rows": Frame.ROWS, "wanted": Frame.WANTED}  # kind of a mark -> how many rows its value has


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
    stopped for others. If it only reads, steps of the program copy them, and it isn't stopped at all.
    """
    run = _Run(cpu, program)
    try:
        if hasattr(hook, "wants"):
            _watch(run, marks, cast(Watcher, hook), chunks, spans, logits)
            return
        for mark in marks:
            _stop(run, mark, hook, chunks, spans, logits, copied=True)
        run.upto(len(program))
    except (
        BaseException
    ):  # of a hook, or an interrupt: the next run must not write scores to where these went
        for mark in marks:
            if mark.kind == "scores":
                program[mark.steps - 1, Step.G] = 0
        raise


@dataclass(eq=False)
class _Run:
    """A program that is run piece by piece."""

    cpu: CPU
    program: NDArray[np.int64]
    done: int = 0

    def __post_init__(self) -> None:
        self.start, self.frame = int(self.program.ctypes.data), int(self.cpu._frame.ctypes.data)
        self.short = bool(self.cpu._frame[Frame.ROWS] <= SHORT)

    def upto(self, steps: int) -> None:
        """Run what is left of the first `steps` steps."""
        if steps > self.done:
            at = self.start + self.done * STEP_FIELDS * 8
            self.cpu._team.run(at, steps - self.done, self.frame, self.short)
            self.done = steps


@dataclass(frozen=True, eq=False)
class _Plan:
    """What a hook wants of a program.

    Attributes:
        marks: where to stop, or to copy scores.
        scores: those of scores.
        copies: numbers of the steps that copy.
        address: of token 0's row, for each of them.
        stride: bytes from row to row.
    """

    marks: list[Mark]
    scores: list[Mark]
    copies: NDArray[np.int64]
    address: NDArray[np.int64]
    stride: NDArray[np.int64]


def _watch(
    run: _Run, marks: Sequence[Mark], hook: Watcher, chunks: Sequence[Chunk], spans: Sequence[Span],
    logits: Floats | None,
) -> None:  # fmt: skip
    """Show the values that a hook wants, with as few stops as it allows."""
    frame, program = run.cpu._frame, run.program
    # Of several sequences rows don't lie where a single one's would.
    key = run.start, len(spans) == 1, bool(frame[Frame.WANTED] == frame[Frame.ROWS])
    if key not in hook.plans:
        hook.plans[key] = _plan(marks, hook, one=key[1], all_rows=key[2])
    plan: _Plan = hook.plans[key]
    first = chunks[spans[0].chunk].track.length if spans else 0
    together = hook.reads_only and len(plan.scores) <= _room_for_scores(plan, chunks, spans)
    later: list[tuple[Mark, list[Floats]]] = []
    placed: list[tuple[Mark, Floats]] = []
    try:
        program[plan.copies, Step.OUTPUT] = plan.address + first * plan.stride
        program[plan.copies, Step.OUTPUT_STRIDE] = plan.stride
        program[plan.copies, Step.PANELS] = program[plan.copies, Step.UNITS]
        program[plan.copies, Step.BARRIER] = program[plan.copies, Step.D]
        for mark in plan.marks:
            if (place := _stays(mark, hook, chunks, spans)) is not None:
                _scores(run.cpu, program, mark, chunks, spans, place)
                placed.append((mark, place))
            elif together and mark.kind == "scores":
                later.append((mark, _scores(run.cpu, program, mark, chunks, spans)))
            else:
                _stop(run, mark, hook, chunks, spans, logits, copied=False)
        run.upto(len(program))
    finally:
        program[plan.copies, Step.PANELS] = program[plan.copies, Step.BARRIER] = 0
        for mark, _ in [*later, *placed]:
            program[mark.steps - 1, Step.G] = 0
    if later:
        _show_later(hook, later)
    _add_weights(hook, placed, run.cpu.threads, first if run.cpu.model.causal else None)


def _plan(marks: Sequence[Mark], hook: Watcher, one: bool, all_rows: bool) -> _Plan:
    """Where to stop, and what to copy.

    Args:
        marks: of the program.
        hook: wants some of them.
        one: the pass is of a single sequence.
        all_rows: each of its rows gives output.
    """
    stops: list[Mark] = []
    copies: list[tuple[int, ...]] = []
    last: Mark | None = None  # that is copied
    copied = set()  # kinds
    if one and hook.reads_only:
        copied = {"rows", "wanted"} if all_rows else {"rows"}
    for mark in marks:
        if not _wanted(mark, hook):
            continue
        copy = mark.copied and mark.kind in copied
        if copy and last is not None and _again(mark, last):
            hook.same(mark.path, last.path)
            continue
        place = hook.place(mark.path, mark.shape) if copy else None
        if place is None:
            stops.append(mark)
        else:
            copies.append((mark.steps, *place))
            last = mark
    numbers = np.array(copies, np.int64).reshape(-1, 3)
    return _Plan(stops, [mark for mark in stops if mark.kind == "scores"], *numbers.T.copy())


def _again(mark: Mark, last: Mark) -> bool:
    """Whether a mark shows what the one before it showed: no step lies between them but that one's copy."""
    return mark.steps == last.steps + 1 and (
        (mark.value, mark.shape, mark.kind) == (last.value, last.shape, last.kind)
    )


def _room_for_scores(plan: _Plan, chunks: Sequence[Chunk], spans: Sequence[Span]) -> int:
    """How many gears' scores can wait until the program has run."""
    if len(spans) != 1:  # where those of a sequence begin depends on the gear
        return 0
    seen = spans[0].rows * (chunks[spans[0].chunk].track.length + spans[0].rows)
    heads = max((mark.shape[0] for mark in plan.scores), default=1)
    return HELD // (4 * heads * seen)


def _show_later(hook: Watcher, later: Sequence[tuple[Mark, list[Floats]]]) -> None:
    """Show the scores and weights of one sequence, of all layers: those that are alike in one go."""
    scores = [kept[0] for _, kept in later]
    alike = len({one.shape for one in scores}) == 1
    weights = softmax(np.stack(scores)) if alike else [softmax(one) for one in scores]
    for (mark, _), one, other in zip(later, scores, weights, strict=True):
        for path, value in ((f"{mark.path}.scores", one), (f"{mark.path}.weights", other)):
            if hook.wants(path):
                hook(path, value)


def _stop(
    run: _Run, mark: Mark, hook: Hook, chunks: Sequence[Chunk], spans: Sequence[Span],
    logits: Floats | None, *, copied: bool,
) -> None:  # fmt: skip
    """Run up to a mark and show its value, or a copy of it."""
    cpu, program = run.cpu, run.program
    kept = _scores(cpu, program, mark, chunks, spans) if mark.kind == "scores" else []
    run.upto(mark.steps)
    if mark.kind == "scores":
        _show_scores(cpu, mark, hook, chunks, spans, kept)
        program[mark.steps - 1, Step.G] = 0
        return
    if mark.kind == "experts":
        _show_experts(cpu, mark, hook)
        return
    where = _value(cpu, mark, logits)
    value = where.reshape(len(where), *mark.shape)
    if mark.value is None and not copied and cast(Watcher, hook).take(mark.path, value):
        return
    changed = hook(mark.path, value.copy() if copied else value)
    if changed is not None:
        where[:] = np.asarray(changed, np.float32).reshape(where.shape)


def _stays(mark: Mark, hook: Watcher, chunks: Sequence[Chunk], spans: Sequence[Span]) -> Floats | None:
    """Where the scores of the only sequence stay, if the hook has a place for them."""
    if (
        mark.kind != "scores"
        or len(spans) != 1
        or not hook.reads_only
        or not hook.wants(f"{mark.path}.scores")
    ):
        return None
    rows, before = spans[0].rows, chunks[spans[0].chunk].track.length
    return hook.seen(f"{mark.path}.scores", (mark.shape[0], rows, before + rows))


def _add_weights(
    hook: Watcher, placed: Sequence[tuple[Mark, Floats]], threads: int, before: int | None
) -> None:
    """Weights for the scores that are in their places, shared out among threads."""
    gears: list[tuple[Floats, Floats]] = []
    for mark, scores in placed:
        path = f"{mark.path}.weights"
        if not hook.wants(path):
            continue
        into = hook.seen(path, scores.shape)
        if into is None:
            hook(path, softmax(scores))
        else:
            gears.append((scores, into))
    if sum(scores.nbytes for scores, _ in gears) < FEW and len({s.shape for s, _ in gears}) == 1:
        for weights, (_, into) in zip(softmax(np.stack([s for s, _ in gears])), gears, strict=True):
            into[:] = weights
        return
    apart = any(scores[0].nbytes > WIDE for scores, _ in gears)
    work = [pair for gear in gears for pair in zip(*gear, strict=True)] if apart else gears
    shares = [work[i::threads] for i in range(threads)]
    others = [threading.Thread(target=_soften, args=(share, before)) for share in shares[1:] if share]
    for thread in others:
        thread.start()
    _soften(shares[0], before)
    for thread in others:
        thread.join()


def _soften(work: Sequence[tuple[Floats, Floats]], before: int | None) -> None:
    """Softmax of scores [.., rows, seen] into arrays alike; of many rows, without what they can't see.

    Args:
        work: scores, and where weights go.
        before: tokens before the first row; None: each row sees all.
    """
    for scores, into in work:
        rows = scores.shape[-2]
        if before is None or rows < 2 * BLOCK:
            softmax(scores, into)
            continue
        for first in range(0, rows, BLOCK):
            stop, block = before + first + BLOCK, slice(first, first + BLOCK)
            seen, weights = scores[..., block, :stop], into[..., block, :]
            e = np.subtract(seen, seen.max(-1, keepdims=True), out=weights[..., :stop])
            np.exp(e, out=e)
            weights[..., stop:] = 0
            e /= weights.sum(-1, keepdims=True)  # over whole rows: the same bits as of all at once


def _wanted(mark: Mark, hook: Watcher) -> bool:
    """Whether a mark matters. Experts are run there, whoever looks on."""
    if mark.kind == "scores":
        return any([hook.wants(f"{mark.path}.scores"), hook.wants(f"{mark.path}.weights")])
    return mark.kind == "experts" or hook.wants(mark.path)


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
    return cpu._memory.array(mark.value, int(cpu._frame[COUNTS[mark.kind]]))


def _scores(
    cpu: CPU, program: NDArray[np.int64], mark: Mark, chunks: Sequence[Chunk], spans: Sequence[Span],
    place: Floats | None = None,
) -> list[Floats]:  # fmt: skip
    """Room for the scores of each sequence, [heads, t, S], which the next run fills.

    `place` is the only sequence's, if there is one.
    """
    heads = mark.shape[0]
    sizes = [(heads, s.rows, chunks[s.chunk].track.length + s.rows) for s in spans]
    total = sum(h * t * n for h, t, n in sizes)
    flat = np.empty(total, np.float32) if place is None else place.reshape(total)
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
