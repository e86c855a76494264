"""Explanations of a run that is interfered with: they explain that run, not the one without the change."""

from __future__ import annotations

import math

import numpy as np
import pytest

from glassgear.backends.cpu import CPU
from glassgear.backends.reference import Reference
from glassgear.sampling import Sampler, Sampling
from glassgear.trace import record
from glassgear.trace.changes import Change, Zero, hook_of
from glassgear.trace.explain import Desk, Replacing, desk_for, explain
from glassgear.trace.shown import shown_by
from tests.backends.cpu import support
from tests.models import random_tensors
from tests.trace.test_explain import BACKENDS, IDS, check, numbers
from tests.trees import TREES


def changed_desk(
    backend: CPU | Reference, tensors: dict, changes: list[Change], ids: list[int] = IDS
) -> Desk:
    axes = {path: shown.axes for path, shown in shown_by(backend).items()}
    zeroing = hook_of(backend.model, axes, changes)
    assert zeroing is not None
    causal = backend.model.causal and backend.model.head is not None
    sampler = Sampler(Sampling(temperature=0.0)) if causal else None
    trace = record(backend, ids, sampler=sampler, max_tokens=1 if causal else 0, change=zeroing())
    of = desk_for(backend, tensors, trace, "embed")
    of.zeroing = zeroing
    return of


def replaced_desk(
    backend: CPU | Reference, tensors: dict, places: dict[str, tuple[int, ...]], value: float
) -> Desk:
    """A run in which a function puts a number into some places of values, those of the token among them."""

    def put(path: str, array: np.ndarray) -> np.ndarray | None:
        if path not in places:
            return None
        array[places[path]] = value
        return array

    change = Replacing(put)
    trace = record(backend, IDS, sampler=None, max_tokens=0, change=change)
    return desk_for(backend, tensors, trace, "embed", change=change)


CHANGES = [
    Zero("blocks.1.attention.mixed", 2),
    Zero("blocks.1.attention", 1),
    Zero("blocks.1.attention.query"),
    Zero("blocks.0.attention.key_rotated", 0),
    Zero("blocks.0.attention.value"),
    Zero("blocks.1.attention.scores", 3),
    Zero("blocks.0.attention.weights", 1),
    Zero("blocks.0.ffn"),
    Zero("blocks.1.ffn.activated"),
    Zero("blocks.1"),
    Zero("blocks.1.attention_residual"),
    Zero("blocks.0.ffn_norm"),
    Zero("embed"),
    Zero("head"),
]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("change", CHANGES, ids=lambda change: f"{change.path} {change.head}")
def test_every_number_of_a_changed_run_is_explained(backend: str, change: Zero) -> None:
    model = TREES["llama"]()
    tensors = random_tensors(model)
    of = changed_desk(BACKENDS[backend](model, tensors), tensors, [change])
    mixed = change.path.rpartition(".")[2] in ("scores", "weights")
    for made in numbers(of, 3 * len(of.trace)):
        # Changed weights are multiplied by NumPy, in an order of its own.
        check(made, exact=backend == "cpu" and not (mixed and made.path.endswith(".mixed")))


@pytest.mark.parametrize(
    "name", ["latent attention", "experts in groups", "window", "narrow encoder", "encoder"]
)
@pytest.mark.parametrize("backend", BACKENDS)
def test_so_are_those_of_other_gears(name: str, backend: str) -> None:
    model = TREES[name]()
    tensors = random_tensors(model)
    made_by = BACKENDS[backend](model, tensors)
    rng, paths = np.random.default_rng(7), [p for p in shown_by(made_by) if ".experts." not in p]
    for seed, path in enumerate(rng.choice(paths, 6, replace=False).tolist()):
        of = changed_desk(made_by, tensors, [Zero(path)])
        weights = path.rpartition(".")[2] in ("scores", "weights")
        for made in numbers(of, len(of.trace), seed):
            check(made, exact=backend == "cpu" and not (weights and made.path.endswith(".mixed")))


@pytest.mark.parametrize("change", [Zero("blocks.0.attention.weights", 1), Zero("blocks.0.attention", 2)])
def test_so_are_those_of_quantised_weights(change: Zero) -> None:
    model, tensors = support.model(
        1, dim=256, hidden=512, heads=4, kv_heads=2, head_dim=64, type_name="Q4_1", layers=1
    )
    of = changed_desk(CPU(model, tensors), tensors, [change], list(range(70)))
    for made in numbers(of, 2 * len(of.trace)):
        if made.path.endswith(".mixed") and change.path.endswith(".weights"):
            # The cache's codes are decoded to float32 before they are multiplied.
            assert abs(made.difference or 0.0) <= 1e-6 * made.made.magnitude
        else:
            check(made, exact=True)


def test_what_is_zero_by_the_change_says_so() -> None:
    model = TREES["llama"]()
    tensors = random_tensors(model)
    of = changed_desk(CPU(model, tensors), tensors, [Zero("blocks.1.attention", 2)])
    zero = explain(of, "blocks.1.attention.mixed", 5, (2, 3))
    assert zero.exact and zero.result == zero.traced == 0 and not zero.terms and not zero.inputs
    said, without = zero.made.steps
    assert "ablation" in said.words and without.value != 0
    assert "set to zero" in str(zero)
    free = changed_desk(CPU(model, tensors), tensors, [Zero("blocks.1.ffn")])
    assert without.value == explain(free, "blocks.1.attention.mixed", 5, (2, 3)).result
    other = explain(of, "blocks.1.attention.mixed", 5, (1, 3))
    assert other.exact and len(other.terms) == 6 and other.result != 0
    of.zeroing = None  # without it the zero isn't what its inputs give
    assert not explain(of, "blocks.1.attention.mixed", 5, (2, 3)).exact


def test_a_sum_without_its_stream_is_what_the_sublayer_says() -> None:
    model = TREES["llama"]()
    tensors = random_tensors(model)
    of = changed_desk(Reference(model, tensors), tensors, [Zero("blocks.1.ffn_residual")])
    made = explain(of, "blocks.1.ffn_residual", 4, 7)
    assert made.exact and [one.path for one in made.inputs] == ["blocks.1.ffn"] and len(made.terms) == 1
    left_out = made.made.steps[-1].value
    assert left_out == float(of.trace["blocks.1.attention_residual"].at(4)[7]) != 0
    of.zeroing = None
    assert not explain(of, "blocks.1.ffn_residual", 4, 7).exact


def test_the_mask_of_zeroed_scores_stays() -> None:
    model = TREES["llama"]()
    tensors = random_tensors(model)
    of = changed_desk(CPU(model, tensors), tensors, [Zero("blocks.0.attention.scores")])
    scores, weights = (of.trace[f"blocks.0.attention.{name}"].array for name in ("scores", "weights"))
    later = np.triu(np.ones(scores.shape[1:], bool), 1)
    assert np.isneginf(scores[:, later]).all() and not scores[:, ~later].any() and not weights[:, later].any()
    np.testing.assert_allclose(weights[:, 3, :4], 0.25)
    assert explain(of, "blocks.0.attention.scores", 3, (1, 7)).result == -math.inf
    assert explain(of, "blocks.0.attention.scores", 3, (1, 2)).made.steps[0].name == "set to zero"


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_function_s_numbers_are_told_from_those_that_it_left(backend: str) -> None:
    model = TREES["llama"]()
    tensors = random_tensors(model)
    of = replaced_desk(BACKENDS[backend](model, tensors), tensors, {"blocks.1.ffn": (5, 7)}, 3.0)
    new = explain(of, "blocks.1.ffn", 5, 7)
    assert new.exact and new.result == new.traced == 3.0 and not new.terms
    said, without = new.made.steps
    assert (said.name, said.value) == ("replaced", 3.0) and "in the place of" in said.words
    assert without.value == explain(of, "blocks.1.ffn.down", 5, 7).traced != 3.0
    left = (("blocks.1.ffn", 5, 8), ("blocks.1.ffn", 4, 7), ("blocks.1.ffn_residual", 5, 7))
    for path, token, index in left:
        made = explain(of, path, token, index)
        check(made, exact=backend == "cpu")
        assert "replaced" not in [step.name for step in made.made.steps] and made.inputs
    zero = explain(replaced_desk(CPU(model, tensors), tensors, {"embed": (0, 2)}, 0.0), "embed", 0, 2)
    assert zero.exact and zero.made.steps[0].name == "set to zero"
