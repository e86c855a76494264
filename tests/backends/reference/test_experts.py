"""Routing against numbers worked out by hand (case B25), and the sum of experts against a plain loop."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from glassgear.errors import SettingError
from glassgear.model.gears import FFN, Experts, GatedFFN, Router
from tests.backends.reference.support import run_gear

LOGITS = np.float32([2.197225, -2.944439, 0.405465, 0.200671, 0.847298, 0, 1.386294, -2.197225])
SCORES = [0.90, 0.05, 0.60, 0.55, 0.70, 0.50, 0.80, 0.10]  # their sigmoids


def routed(
    logits: np.ndarray, correction: np.ndarray | float | None = None, **settings: Any
) -> list[dict[int, float]]:
    """Experts and weights of each token, in the order of the experts."""
    rows = np.atleast_2d(np.asarray(logits, np.float32))
    count = rows.shape[1]
    weights: dict[str, np.ndarray] = {"weight": np.eye(count, dtype=np.float32)}
    if correction is not None:
        weights["correction"] = np.broadcast_to(np.float32(correction), count)
    gear = Router(count, count, correction=correction is not None, **settings)
    out = run_gear(gear, rows, weights)
    return [{int(i): float(row[i]) for i in np.flatnonzero(row)} for row in out]


def grouped(correction: np.ndarray | float, logits: np.ndarray = LOGITS, **settings: Any) -> dict[int, float]:
    about = {"used": 2, "score": "sigmoid", "groups": 4, "groups_kept": 2, "scale": 2.5} | settings
    return routed(logits, correction, **about)[0]


def test_groups_are_worth_their_two_best_experts() -> None:
    assert grouped(0.0) == pytest.approx({2: 1.1538462, 4: 1.3461538}, abs=1e-6)
    by_maximum = grouped(0.0, group_score="max")
    assert by_maximum == pytest.approx({0: 2.5 * 0.9 / 1.7, 6: 2.5 * 0.8 / 1.7}, abs=1e-6)


def test_groups_left_out_do_not_win_over_negative_scores() -> None:
    assert grouped(-2.0) == pytest.approx(grouped(0.0), abs=1e-7)


def test_the_correction_takes_part_in_the_choice_alone() -> None:
    correction = np.zeros(8, np.float32)
    correction[3] = 0.3
    assert grouped(correction) == pytest.approx({3: 1.1, 4: 1.4}, abs=1e-6)


def test_tiny_scores_with_a_large_correction_keep_their_ratio() -> None:
    logits, correction = LOGITS.copy(), np.zeros(8, np.float32)
    logits[[2, 3]], correction[[2, 3]] = np.log(1e-8), 12
    assert grouped(correction, logits) == pytest.approx({2: 1.25, 3: 1.25}, abs=1e-6)


def test_softmax_runs_over_all_experts_before_the_choice() -> None:
    logits = np.log(np.float32([0.4, 0.3, 0.2, 0.1]))
    assert routed(logits, used=2, normalize=False)[0] == pytest.approx({0: 0.4, 1: 0.3}, abs=1e-6)
    normed = routed(logits, used=2, normalize=True)[0]
    assert normed == pytest.approx({0: 0.5714286, 1: 0.4285714}, abs=1e-6)


def test_of_equal_scores_the_first_wins_whatever_the_batch() -> None:
    equal = np.zeros((5, 8), np.float32)
    for rows in (equal, equal[:1]):
        assert all(set(found) == {0, 1, 2} for found in routed(rows, used=3))
        in_groups = routed(rows, used=3, groups=4, groups_kept=2)
        assert all(set(found) == {0, 1, 2} for found in in_groups)


def test_no_group_beyond_those_kept_is_used() -> None:
    rng = np.random.default_rng(0)
    for found in routed(
        rng.standard_normal((200, 12)),
        rng.standard_normal(12),
        used=5,
        score="sigmoid",
        groups=6,
        groups_kept=3,
    ):
        assert len(found) == 5
        assert len({expert // 2 for expert in found}) == 3


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"used": 0}, "0 of 8 experts"),
        ({"used": 9}, "9 of 8 experts"),
        ({"groups": 3}, "1 of 3 groups"),
        ({"groups": 4, "groups_kept": 5}, "5 of 4 groups"),
        ({"used": 5, "groups": 4, "groups_kept": 2}, "2 groups hold fewer than 5"),
    ],
)
def test_choices_that_cannot_be_made(change: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingError, match=message):
        Router(4, 8, **({"used": 2} | change))


def silu(x: np.ndarray) -> np.ndarray:
    return x / (1 + np.exp(-x))


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("gated", [False, True])
def test_the_output_is_the_weighted_sum_of_the_chosen_and_the_shared_expert(
    shared: bool, gated: bool
) -> None:
    rng = np.random.default_rng(1)
    dim, hidden, count, used = 6, 5, 4, 2
    expert = GatedFFN.build(dim, hidden) if gated else FFN.build(dim, hidden, activation="silu", bias=False)
    gear = Experts(Router(dim, count, used, normalize=False, scale=1.5), expert, expert if shared else None)
    names = ("gate", "up", "down") if gated else ("up", "down")
    weights = {"router.weight": rng.standard_normal((count, dim)).astype(np.float32)}
    for stem in (*(f"experts.{i}" for i in range(count)), *(["shared"] if shared else [])):
        for name in names:
            shape = (dim, hidden) if name == "down" else (hidden, dim)
            weights[f"{stem}.{name}.weight"] = rng.standard_normal(shape).astype(np.float32)
    x = rng.standard_normal((7, dim)).astype(np.float32)

    def run(stem: str, row: np.ndarray) -> np.ndarray:
        up = weights[f"{stem}.up.weight"] @ row
        inner = silu(weights[f"{stem}.gate.weight"] @ row) * up if gated else silu(up)
        return weights[f"{stem}.down.weight"] @ inner

    want = []
    for row in x:
        logits = weights["router.weight"] @ row
        scores = np.exp(logits) / np.exp(logits).sum()
        out = run("shared", row) if shared else np.zeros(dim)
        for number in sorted(range(count), key=lambda i: -scores[i])[:used]:
            out = out + 1.5 * scores[number] * run(f"experts.{number}", row)
        want.append(out)
    seen: dict[str, tuple[int, ...]] = {}
    out = run_gear(gear, x, weights, lambda name, value: seen.update({name: value.shape}))
    assert out == pytest.approx(np.array(want), abs=1e-5)
    assert seen["gear.router"] == (7, count)
    # Each expert sees the rows of its tokens alone.
    assert sum(shape[0] for name, shape in seen.items() if name.endswith(".up") and "experts" in name) == 14


def test_rows_do_not_depend_on_their_neighbours() -> None:
    rng = np.random.default_rng(2)
    gear = Experts(Router(6, 8, 3, "sigmoid", groups=4, groups_kept=2), GatedFFN.build(6, 5))
    weights = {"router.weight": rng.standard_normal((8, 6)).astype(np.float32)}
    for i in range(8):
        for name in ("gate", "up", "down"):
            shape = (6, 5) if name == "down" else (5, 6)
            weights[f"experts.{i}.{name}.weight"] = 0.3 * rng.standard_normal(shape).astype(np.float32)
    x = rng.standard_normal((9, 6)).astype(np.float32)
    whole = run_gear(gear, x, weights)
    for i in range(9):
        assert run_gear(gear, x[i : i + 1], weights)[0] == pytest.approx(whole[i], abs=1e-6)
