"""The choice of experts against its definition, ties and odd numbers included."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from glassgear.backends.cpu.builder import float_bits
from glassgear.backends.cpu.fields import GROUP, STEP_FIELDS, TILE, Frame, Step
from glassgear.backends.reference.experts import choose
from glassgear.model.gears import Router

from .support import Floats, run


def routed(
    router: Router, scores: Floats, correction: Floats, threads: int
) -> tuple[Floats, NDArray[np.int64]]:
    """Weights [rows, count] and the plan, by the kernel."""
    rows, wide = len(scores), -(-router.count // 16) * 16
    room, out = np.zeros((rows, wide), np.float32), np.zeros((rows, wide), np.float32)
    room[:, : router.count] = scores
    more = np.zeros(wide, np.float32)
    more[: router.count] = correction
    plan = np.zeros(2 * router.count + 2 * rows * router.used, np.int64)
    scratch, counter = np.zeros(threads * 4096, np.uint8), np.zeros(1, np.int64)
    step, frame = np.zeros(STEP_FIELDS, np.int64), np.zeros(len(Frame), np.int64)
    frame[Frame.ROWS], frame[Frame.SHARED_OUT] = rows, 1
    frame[Frame.SCRATCH], frame[Frame.SCRATCH_BYTES] = scratch.ctypes.data, 4096
    frame[Frame.COUNTERS] = counter.ctypes.data
    step[Step.INPUT], step[Step.INPUT_STRIDE] = room.ctypes.data, room.strides[0]
    step[Step.OUTPUT], step[Step.OUTPUT_STRIDE] = out.ctypes.data, out.strides[0]
    step[Step.WEIGHTS] = more.ctypes.data if router.correction else 0
    step[Step.COLUMNS], step[Step.A], step[Step.G] = router.count, router.used, plan.ctypes.data
    step[Step.C], step[Step.D] = router.groups, router.groups_kept
    step[Step.E], step[Step.F] = router.group_score == "max", router.normalize
    step[Step.H] = float_bits(router.scale)
    run(("experts", "route"), step, frame, threads)
    return out[:, : router.count], plan


def expected(router: Router, scores: Floats, correction: Floats) -> Floats:
    chosen = choose(router, scores + correction if router.correction else scores)
    weights = np.take_along_axis(scores, chosen, axis=1)
    if router.normalize:
        weights = weights / (weights.sum(axis=1, keepdims=True) + np.float32(1e-20))
    out = np.zeros_like(scores)
    np.put_along_axis(out, chosen, weights * np.float32(router.scale), axis=1)
    return out


@st.composite
def routers(draw: Any) -> Router:
    groups = draw(st.sampled_from([1, 2, 4]))
    count = groups * draw(st.integers(1, 9))
    kept = draw(st.integers(1, groups))
    used = draw(st.integers(1, min(8, kept * (count // groups))))
    return Router(
        8, count, used, correction=draw(st.booleans()), groups=groups, groups_kept=kept,
        group_score=draw(st.sampled_from(["top2", "max"])), normalize=draw(st.booleans()), scale=2.5,
    )  # fmt: skip


@given(routers(), st.integers(1, 40), st.integers(1, 3), st.integers(0, 999))
@settings(max_examples=150, deadline=None)
def test_experts_are_chosen_as_in_the_reference(router: Router, rows: int, threads: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    # Few different values: many ties, which the lower number wins.
    scores = rng.integers(1, 6, (rows, router.count)).astype(np.float32) / 8
    correction = rng.integers(-4, 4, router.count).astype(np.float32) / 8
    got, plan = routed(router, scores, correction, threads)
    want = expected(router, scores, correction)
    np.testing.assert_allclose(got, want, rtol=1e-6)
    firsts, numbers = plan[: router.count], plan[router.count : 2 * router.count]
    assert np.array_equal(numbers, (want != 0).sum(axis=0))
    assert (firsts % GROUP == 0).all()
    choices = plan[2 * router.count :].reshape(rows, 2, router.used)
    taken: set[int] = set()
    for row, (experts, slots) in enumerate(choices):
        assert np.array_equal(experts, np.flatnonzero(want[row]))
        for expert, slot in zip(experts, slots, strict=True):
            assert firsts[expert] <= slot < firsts[expert] + numbers[expert]
            assert slot not in taken
            taken.add(int(slot))
    busy = np.flatnonzero(numbers)
    # What tiles write behind an expert's rows must not be another's.
    assert (np.diff(firsts[busy]) >= numbers[busy][:-1] + TILE).all()


def test_scores_that_are_not_numbers_choose_experts_all_the_same() -> None:
    router = Router(8, 8, 3, groups=2, groups_kept=1)
    scores = np.full((2, 8), np.nan, np.float32)
    scores[1, 5:] = 0.5
    got, plan = routed(router, scores, np.zeros(8, np.float32), 1)
    assert plan[8:16].sum() == 6
    assert np.isnan(got[0]).any() and np.isfinite(got[1, 5:]).all()
