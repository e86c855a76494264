from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray

from glassgear.errors import NonFiniteError, SettingError
from glassgear.sampling import RESOLUTION, Sampler, Sampling, logprobs, min_p, top_k, top_p

Logits = NDArray[np.float32]
NEUTRAL = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0, "seed": 1}


def log(*probabilities: float) -> Logits:
    with np.errstate(divide="ignore"):
        return np.log(np.array(probabilities)).astype(np.float32)


P = log(0.5, 0.3, 0.15, 0.05)


def sampler(**settings: object) -> Sampler:
    return Sampler(Sampling(**{**NEUTRAL, **settings}))  # type: ignore[arg-type]


def kept(logits: Logits, **settings: object) -> list[int]:
    return sampler(**settings).stages(logits, [])[-1].ids.tolist()


random_logits = arrays(
    np.float32,
    st.integers(1, 400),
    elements=st.floats(-30, 30, width=32),
)


# --- each setting at its edges


def test_temperature_0_takes_the_largest_whatever_the_seed() -> None:
    for seed in (*range(20), None):
        assert sampler(temperature=0, seed=seed).next(P, []) == 0


@pytest.mark.parametrize("settings", [{"temperature": 0}, {"top_k": 1}])
def test_ties_go_to_the_lowest_id(settings: dict[str, float]) -> None:
    assert sampler(**settings).next(np.array([1, 7, 7, 3, 7], np.float32), []) == 1


@pytest.mark.parametrize("temperature", [1e-6, 1e-30, 5e-324])
def test_a_tiny_temperature_overflows_nowhere(temperature: float) -> None:
    with np.errstate(over="raise", invalid="raise", divide="raise"):
        assert sampler(temperature=temperature).next(P, []) == 0
        assert sampler(temperature=temperature).next(np.array([3e38, -3e38], np.float32), []) == 0


def test_a_huge_temperature_makes_all_equal() -> None:
    assert sampler(temperature=1e30).probabilities(P, []) == pytest.approx([0.25] * 4)


@pytest.mark.parametrize(
    ("k", "ids"), [(0, [0, 1, 2, 3]), (-1, [0, 1, 2, 3]), (1, [0]), (2, [0, 1]), (3, [0, 1, 2])]
)
def test_top_k(k: int, ids: list[int]) -> None:
    assert kept(P, top_k=k) == ids


@pytest.mark.parametrize("k", [4, 5, 10**6])
def test_top_k_beyond_the_vocabulary_keeps_all(k: int) -> None:
    assert kept(P, top_k=k) == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("p", "ids"),
    [(0.5, [0]), (0.6, [0, 1]), (0.8, [0, 1]), (0.81, [0, 1, 2]), (1.0, [0, 1, 2, 3]), (0, [0]), (1e-9, [0])],
)
def test_top_p(p: float, ids: list[int]) -> None:
    assert kept(P, top_p=p) == ids


def test_top_p_1_keeps_all_although_the_float_total_falls_short() -> None:
    assert kept(log(0.7, 0.29999994), top_p=1.0) == [0, 1]
    flat = np.zeros(9, np.float32)
    assert kept(flat, top_p=1.0) == list(range(9))


def test_top_p_looks_at_what_top_k_left() -> None:
    assert kept(P, top_k=1, top_p=0.8) == [0]
    assert kept(P, top_k=2, top_p=0.62) == [0]  # .5 of .8 is .625
    assert kept(P, top_k=2, top_p=0.63) == [0, 1]


@pytest.mark.parametrize(
    ("share", "ids"), [(0, [0, 1, 2, 3]), (0.1, [0, 1, 2, 3]), (0.11, [0, 1, 2]), (0.7, [0]), (1, [0])]
)
def test_min_p(share: float, ids: list[int]) -> None:
    assert kept(P, min_p=share) == ids


def test_temperature_comes_last() -> None:
    """Temperature first, as in transformers and vLLM, would keep all four."""
    logits = log(0.6, 0.3, 0.05, 0.05)
    chosen = sampler(min_p=0.1, temperature=2)
    assert chosen.stages(logits, [])[-1].ids.tolist() == [0, 1]
    assert chosen.probabilities(logits, []) == pytest.approx([0.5857864, 0.4142136, 0, 0], abs=2e-7)


def test_minus_infinity_is_never_drawn() -> None:
    logits = log(0.4, 0, 0.6, 0)
    for settings in ({}, {"top_k": 4}, {"top_p": 0.99}, {"temperature": 100.0}, {"min_p": 1e-9}):
        chosen = sampler(**settings)
        assert {chosen.next(logits, []) for _ in range(300)} == {0, 2}
        assert chosen.probabilities(logits, [])[[1, 3]].tolist() == [0, 0]
    assert kept(logits, top_k=3) == [0, 2]


def test_one_possible_id_is_enough() -> None:
    logits = np.full(1000, -np.inf, np.float32)
    logits[77] = -5
    for settings in ({}, {"temperature": 0}, {"top_k": 40, "top_p": 0.5, "min_p": 0.5}):
        assert sampler(**settings).next(logits, []) == 77


@pytest.mark.parametrize("where", [0, 3, -1])
@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("temperature", [0, 1])
def test_a_bad_logit_is_an_error_and_never_an_id(where: int, bad: float, temperature: float) -> None:
    logits = np.zeros(100, np.float32)
    logits[where] = bad
    with pytest.raises(NonFiniteError, match=f"{bad} at id {where % 100}"):
        sampler(temperature=temperature).next(logits, [])


@pytest.mark.parametrize("fill", [np.nan, -np.inf])
def test_no_finite_logit_is_an_error(fill: float) -> None:
    for temperature in (0, 1):
        with pytest.raises(NonFiniteError):
            sampler(temperature=temperature).next(np.full(5, fill, np.float32), [])


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("temperature", -0.1), ("temperature", float("nan")), ("temperature", float("inf")),
        ("temperature", "1"),
        ("top_p", 1.01), ("top_p", -0.01), ("top_p", float("nan")),
        ("min_p", 1.5), ("min_p", -1),
        ("top_k", -2), ("top_k", 1.5), ("top_k", True), ("top_k", None),
        ("repetition_penalty", 0), ("repetition_penalty", -1), ("repetition_penalty", float("inf")),
        ("presence_penalty", float("nan")), ("frequency_penalty", float("inf")),
        ("penalty_window", -2), ("seed", -1), ("seed", 0.5),
        ("logit_bias", {-1: 1.0}), ("logit_bias", {1: float("nan")}), ("logit_bias", {1: float("inf")}),
    ],
)  # fmt: skip
def test_a_setting_out_of_range_is_refused_by_its_name(name: str, value: object) -> None:
    with pytest.raises(SettingError, match=name):
        sampler(**{name: value})


def test_whole_numbers_may_come_as_floats() -> None:
    assert Sampling(top_k=40.0).top_k == 40  # type: ignore[arg-type]


# --- bias, penalties, hook


def test_bias_adds_and_bans() -> None:
    chosen = sampler(logit_bias={0: -np.inf, 3: np.log(10.0)})
    assert chosen.probabilities(P, []) == pytest.approx([0, 0.3 / 0.95, 0.15 / 0.95, 0.5 / 0.95])
    assert sampler(logit_bias={3: 100.0}, temperature=0).next(P, []) == 3


def test_bias_outside_the_vocabulary_is_refused() -> None:
    with pytest.raises(SettingError, match="id 4"):
        sampler(logit_bias={4: 1.0}).next(P, [])


def test_repetition_penalty_divides_above_0_and_multiplies_below() -> None:
    logits = np.array([2, -2, 2, -2], np.float32)
    stage = sampler(repetition_penalty=2.0).stages(logits, [0, 1, 1])[-1]
    assert stage.logits.tolist() == [1, -4, 2, -2]


def test_presence_counts_once_and_frequency_each_time() -> None:
    logits = np.zeros(4, np.float32)
    stage = sampler(presence_penalty=0.5, frequency_penalty=0.25).stages(logits, [1, 1, 1, 2])[-1]
    assert stage.logits.tolist() == [0, -1.25, -0.75, 0]


@pytest.mark.parametrize(
    ("window", "expected"), [(2, [0, 0, -1, -1]), (-1, [-1, -1, -1, -1]), (100, [-1] * 4), (0, [0] * 4)]
)
def test_penalties_look_back_over_their_window(window: int, expected: list[float]) -> None:
    chosen = sampler(presence_penalty=1.0, penalty_window=window)
    assert chosen.stages(np.zeros(4, np.float32), [0, 1, 2, 3])[-1].logits.tolist() == expected


def test_penalties_leave_the_callers_logits_and_unknown_ids_alone() -> None:
    logits = np.zeros(4, np.float32)
    sampler(presence_penalty=1.0).next(logits, [0, 99, -3])
    assert logits.tolist() == [0, 0, 0, 0]


def test_a_hook_may_change_in_place_or_return_and_sees_the_history() -> None:
    seen: list[Sequence[int]] = []

    def in_place(logits: Logits, history: Sequence[int]) -> None:
        seen.append(list(history))
        logits[0] = -np.inf

    def returned(logits: Logits, history: Sequence[int]) -> Logits:
        return np.where(np.arange(4) == 2, logits, -np.inf).astype(np.float32)

    logits = P.copy()
    assert Sampler(Sampling(temperature=0), hook=in_place).next(logits, [5, 6]) == 1
    assert seen == [[5, 6]]
    assert np.array_equal(logits, P)
    assert Sampler(Sampling(), hook=returned).next(logits, []) == 2


def test_a_hook_comes_after_the_penalties() -> None:
    found: list[float] = []
    chosen = Sampler(Sampling(presence_penalty=1.0), hook=lambda logits, _: found.append(float(logits[0])))
    chosen.next(np.zeros(3, np.float32), [0])
    assert found == [-1]


def test_a_hook_that_leaves_nothing_or_nonsense_is_an_error() -> None:
    with pytest.raises(NonFiniteError, match="hook"):
        Sampler(Sampling(), hook=lambda logits, _: np.full_like(logits, -np.inf)).next(P, [])
    with pytest.raises(SettingError, match="hook"):
        Sampler(Sampling(), hook=lambda logits, _: logits[:2]).next(P, [])


# --- drawing


def draws(chosen: Sampler, logits: Logits, count: int) -> NDArray[np.int64]:
    return np.array([chosen.next(logits, []) for _ in range(count)])


def test_frequencies_agree_with_the_probabilities() -> None:
    """The distribution is fixed, so the draw alone is repeated."""
    from glassgear.sampling import _draw, _weights

    chosen, weights = sampler(seed=0), _weights(P)
    ids = [_draw(weights, chosen._uniform()) for _ in range(100_000)]
    shares = np.bincount(ids, minlength=len(P)) / 100_000
    assert np.abs(shares - np.exp(P)).max() < 0.01
    few = np.bincount(draws(sampler(seed=3, temperature=2, min_p=0.1), log(0.6, 0.3, 0.05, 0.05), 5_000))
    assert few / 5_000 == pytest.approx([0.5857864, 0.4142136], abs=0.03)


@pytest.mark.parametrize("seed", [0, 1, 2**63, 10**30])
def test_a_seed_repeats_its_draws(seed: int) -> None:
    logits = np.zeros(1000, np.float32)
    assert np.array_equal(draws(sampler(seed=seed), logits, 50), draws(sampler(seed=seed), logits, 50))


def test_seeds_differ_and_0_is_one_of_them() -> None:
    logits = np.zeros(1000, np.float32)
    runs = {tuple(draws(sampler(seed=seed), logits, 20)) for seed in (0, 1, 2, None, None)}
    assert len(runs) == 5


def test_an_open_seed_can_be_asked_for_and_repeated() -> None:
    logits = np.zeros(1000, np.float32)
    first = sampler(seed=None)
    ids = draws(first, logits, 20)
    assert np.array_equal(draws(sampler(seed=first.seed), logits, 20), ids)


def test_neighbours_do_not_change_each_others_draws() -> None:
    logits = np.zeros(1000, np.float32)
    alone = draws(sampler(seed=5), logits, 20)
    one, other = sampler(seed=5), sampler(seed=6)
    beside = []
    for _ in range(20):
        other.next(logits, [])
        beside.append(one.next(logits, []))
        other.next(logits, [])
    assert beside == alone.tolist()


def test_a_filter_that_removes_nothing_does_not_change_the_draw() -> None:
    logits = np.random.default_rng(0).standard_normal(500).astype(np.float32)
    assert np.array_equal(
        draws(sampler(seed=4), logits, 50), draws(sampler(seed=4, top_k=10**6, min_p=1e-12), logits, 50)
    )


def test_the_stream_of_random_numbers_is_pinned() -> None:
    """PCG64 seeded with 0, as NumPy promises to keep it: the first numbers of `Generator.random`."""
    chosen = sampler(seed=0)
    expected = np.random.Generator(np.random.PCG64(0)).random(5)
    assert [chosen._uniform() for _ in range(5)] == expected.tolist()
    assert expected[0] == pytest.approx(0.6369616873214543, abs=1e-15)


@given(random_logits, st.floats(0, 1, exclude_max=True))
def test_a_draw_is_the_place_where_the_running_total_passes(logits: Logits, uniform: float) -> None:
    from glassgear.sampling import _draw, _weights

    weights = _weights(logits)
    place = _draw(weights, uniform)
    totals = np.cumsum(weights, dtype=np.float64)
    goal = uniform * totals[-1]
    assert weights[place] > 0
    assert totals[place] >= goal * (1 - 1e-9)
    assert totals[place] - weights[place] <= goal * (1 + 1e-9)


def test_padding_beyond_the_vocabulary_is_never_chosen() -> None:
    chosen = Sampler(Sampling(temperature=0), vocab_size=3)
    assert chosen.next(np.array([0, 1, 0, 9], np.float32), []) == 1
    assert chosen.probabilities(np.array([0, 1, 0, 9], np.float32), []).tolist() == [0, 1, 0, 0]


# --- the stages as a table


def test_stages_show_what_each_step_left() -> None:
    chosen = Sampler(
        Sampling(
            temperature=0.5, top_k=3, top_p=0.9, min_p=0.05, logit_bias={3: -np.inf}, presence_penalty=0.1
        )
    )
    stages = chosen.stages(P, [1])
    assert [stage.name for stage in stages] == [
        "logits", "logit bias", "penalties", "top-k", "top-p", "min-p", "temperature",
    ]  # fmt: skip
    assert [len(stage.ids) for stage in stages] == [4, 3, 3, 3, 3, 3, 3]
    assert all(stage.probabilities.sum() == pytest.approx(1) for stage in stages)
    assert stages[0].probabilities == pytest.approx([0.5, 0.3, 0.15, 0.05])


def test_stages_that_are_off_are_not_listed() -> None:
    assert [stage.name for stage in sampler().stages(P, [])] == ["logits"]
    assert [stage.name for stage in sampler(temperature=0).stages(P, [])] == ["logits", "greedy"]


@given(random_logits, st.integers(0, 50), st.floats(0, 1), st.floats(0, 1), st.floats(0.1, 3))
def test_the_run_draws_from_the_last_stage(
    logits: Logits, k: int, p: float, share: float, temperature: float
) -> None:
    chosen = sampler(top_k=k, top_p=p, min_p=share, temperature=temperature)
    stages = chosen.stages(logits, [])
    assert all(len(stage.ids) >= 1 for stage in stages)
    assert all(set(after.ids) <= set(before.ids) for before, after in pairwise(stages))
    assert chosen.next(logits, []) in stages[-1].ids
    assert np.array_equal(np.flatnonzero(chosen.probabilities(logits, [])), _possible(stages[-1]))


def _possible(stage: object) -> NDArray[np.int64]:
    return stage.ids[stage.probabilities > 0]  # type: ignore[attr-defined, no-any-return]


# --- the filters against their definitions


@given(random_logits, st.integers(1, 500))
def test_top_k_equals_a_stable_sort(logits: Logits, k: int) -> None:
    assert top_k(logits, k).tolist() == sorted(np.argsort(-logits, kind="stable")[:k].tolist())


@pytest.mark.parametrize("size", [5_000, 49_152])
@pytest.mark.parametrize("k", [1, 2, 40, 64, 1000])
def test_top_k_of_large_vocabularies(size: int, k: int) -> None:
    rng = np.random.default_rng(size + k)
    for logits in (
        rng.standard_normal(size).astype(np.float32),
        rng.integers(0, 30, size).astype(np.float32),  # many equal
        np.zeros(size, np.float32),
        np.arange(size, dtype=np.float32),
    ):
        assert top_k(logits, k).tolist() == sorted(np.argsort(-logits, kind="stable")[:k].tolist())


@given(random_logits, st.floats(0, 1))
def test_top_p_is_the_smallest_set_that_reaches_p(logits: Logits, p: float) -> None:
    check_smallest_set(logits, p)


@pytest.mark.parametrize("spread", [0.0, 0.1, 1.0, 5.0, 50.0])
@pytest.mark.parametrize("p", [0.0, 0.3, 0.9, 0.999, 0.9999999])
def test_top_p_of_a_large_vocabulary(spread: float, p: float) -> None:
    rng = np.random.default_rng(3)
    check_smallest_set((rng.standard_normal(20_000) * spread).astype(np.float32), p)


def check_smallest_set(logits: Logits, p: float) -> None:
    ids = top_p(logits, p)
    exact = np.exp(logits.astype(np.float64) - logits.max())
    exact /= exact.sum()
    assert len(ids) >= 1
    assert ids.tolist() == sorted(
        np.argsort(-logits, kind="stable")[: len(ids)].tolist()
    )  # the most probable
    assert exact[ids].sum() >= p - 2 * RESOLUTION  # it reaches p
    if len(ids) > 1:  # and without its last it wouldn't
        assert exact[ids].sum() - exact[ids].min() < p + RESOLUTION


@given(random_logits, st.floats(0, 1), st.floats(0, 1))
def test_a_larger_p_keeps_at_least_as_much(logits: Logits, one: float, other: float) -> None:
    low, high = sorted((one, other))
    assert set(top_p(logits, low)) <= set(top_p(logits, high))
    if low > 0:
        assert set(min_p(logits, high)) <= set(min_p(logits, low))


# --- log-probabilities


@given(arrays(np.float32, (3, 17), elements=st.floats(-80, 80, width=32)))
def test_logprobs_are_a_log_softmax(logits: Logits) -> None:
    wide = logits.astype(np.float64)
    expected = wide - np.log(np.exp(wide - wide.max(1, keepdims=True)).sum(1, keepdims=True))
    expected -= wide.max(1, keepdims=True)
    out = logprobs(logits)
    assert out.dtype == np.float32
    assert np.allclose(out, expected, atol=3e-5, rtol=1e-6)
    assert np.array_equal(out[1], logprobs(logits[1]))


def test_logprobs_take_minus_infinity_and_large_numbers() -> None:
    assert logprobs(np.array([70000, 0], np.float32)).tolist() == [0, -70000]
    assert logprobs(np.array([0, -np.inf], np.float32)).tolist() == [0, -np.inf]


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_logprobs_of_a_bad_row_are_an_error(bad: float) -> None:
    with pytest.raises(NonFiniteError):
        logprobs(np.array([[0, 1], [0, bad]], np.float32))
    with pytest.raises(NonFiniteError):
        logprobs(np.full((2, 2), -np.inf, np.float32))


def test_a_draw_is_told_before_it_is_made() -> None:
    logits = np.random.default_rng(3).standard_normal(500).astype(np.float32)
    sampler = Sampler(Sampling(seed=5, temperature=1.3))
    for _ in range(20):
        told = sampler.draw(logits, [])
        assert told is not None and told == sampler.draw(logits, [])
        assert told.low - 1e-6 <= told.number <= told.high + 1e-6
        share = sampler.probabilities(logits, [])[told.id]
        assert told.high - told.low == pytest.approx(share)
        assert sampler.next(logits, []) == told.id
    assert Sampler(Sampling(temperature=0)).draw(logits, []) is None


def test_skipped_draws_are_as_if_they_had_been_made() -> None:
    logits = np.zeros(1000, np.float32)
    settings = Sampling(seed=9, top_k=0, top_p=1, min_p=0)
    first, second = Sampler(settings), Sampler(settings)
    made = [first.next(logits, []) for _ in range(6)]
    second.skip(4)
    assert [second.next(logits, []) for _ in range(2)] == made[4:]
