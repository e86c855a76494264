"""The numbers of case B25 in a running model, the same on every backend."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from glassgear.backends.base import Backend, Chunk
from glassgear.model.gears import Block, Embed, Experts, GatedFFN, Head, Model, Residual, Router
from glassgear.model.gears import tensors as shapes_of
from tests.models import stored

LOGITS = [2.197225, -2.944439, 0.405465, 0.200671, 0.847298, 0, 1.386294, -2.197225]
GROUPED: dict[str, Any] = {"used": 2, "score": "sigmoid", "groups": 4, "groups_kept": 2, "scale": 2.5}
BACKENDS = ["reference", "cpu"]


def backend_of(name: str, rows: np.ndarray, correction: np.ndarray | None, about: dict[str, Any]) -> Backend:
    """A model whose token i comes to its router as row i, and whose router passes rows on as logits."""
    vocab, count = rows.shape
    router = Router(count, count, correction=correction is not None, **about)
    block = Block((Residual(None, Experts(router, GatedFFN.build(count, 4))),))
    model = Model(Embed(vocab, count), (block,), None, Head(count, vocab, True), context=64)
    given = {"embed.weight": rows, "blocks.0.ffn.router.weight": np.eye(count)}
    if correction is not None:
        given["blocks.0.ffn.router.correction"] = correction
    held = {path: stored(path, given.get(path, np.zeros(shape))) for path, shape in shapes_of(model).items()}
    if name == "cpu":
        from glassgear.backends.cpu import CPU

        return CPU(model, held, threads=1)
    from glassgear.backends.reference import Reference

    return Reference(model, held)


def routed(
    name: str, rows: Any, correction: Any = None, ids: list[int] | None = None, **about: Any
) -> list[dict[int, float]]:
    """Experts and weights of each token."""
    rows = np.atleast_2d(np.asarray(rows, np.float32))
    bias = None if correction is None else np.broadcast_to(np.float32(correction), rows.shape[1:])
    backend = backend_of(name, rows, bias, about)
    seen: dict[str, np.ndarray] = {}
    ids = list(range(len(rows))) if ids is None else ids
    backend.step([Chunk(backend.open(), ids)], lambda path, value: seen.update({path: value.copy()}))
    weights = seen["blocks.0.ffn.router"]
    return [{int(i): float(row[i]) for i in np.flatnonzero(row)} for row in weights]


def at(values: dict[int, float]) -> np.ndarray:
    """Zeros but for some experts."""
    out = np.zeros(8, np.float32)
    for number, value in values.items():
        out[number] = value
    return out


@pytest.mark.parametrize("backend", BACKENDS)
class TestRouting:
    @pytest.mark.parametrize("correction", [0.0, -2.0])
    def test_groups_by_their_two_best(self, backend: str, correction: float) -> None:
        (found,) = routed(backend, LOGITS, correction, **GROUPED)
        assert found == pytest.approx({2: 1.1538462, 4: 1.3461538}, abs=1e-6)

    def test_groups_by_their_best(self, backend: str) -> None:
        (found,) = routed(backend, LOGITS, **GROUPED, group_score="max")
        assert set(found) == {0, 6}

    def test_the_correction_chooses_and_does_not_weigh(self, backend: str) -> None:
        (found,) = routed(backend, LOGITS, at({3: 0.3}), **GROUPED)
        assert found == pytest.approx({3: 1.1, 4: 1.4}, abs=1e-6)

    def test_tiny_scores_under_a_large_correction(self, backend: str) -> None:
        logits = np.float32(LOGITS)
        logits[[2, 3]] = np.log(1e-8)
        (found,) = routed(backend, logits, at({2: 12, 3: 12}), **GROUPED)
        assert found == pytest.approx({2: 1.25, 3: 1.25}, abs=1e-6)

    @pytest.mark.parametrize(
        ("normalize", "weights"), [(False, {0: 0.4, 1: 0.3}), (True, {0: 0.5714286, 1: 0.4285714})]
    )
    def test_softmax_over_all(self, backend: str, normalize: bool, weights: dict[int, float]) -> None:
        logits = np.log(np.float32([0.4, 0.3, 0.2, 0.1]))
        (found,) = routed(backend, logits, used=2, normalize=normalize)
        assert found == pytest.approx(weights, abs=1e-6)

    @pytest.mark.parametrize("groups", [{}, {"groups": 4, "groups_kept": 2}])
    @pytest.mark.parametrize("count", [1, 5, 40])
    def test_of_equal_scores_the_first(self, backend: str, groups: dict[str, int], count: int) -> None:
        for found in routed(backend, np.zeros((1, 8)), ids=[0] * count, used=3, **groups):
            assert set(found) == {0, 1, 2}
