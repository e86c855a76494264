"""Which values a model shows: found once for each backend, all experts among them."""

from __future__ import annotations

import numpy as np

from glassgear.backends.reference import Reference
from glassgear.trace import record, sizes
from glassgear.trace.shown import output_of, shown_by
from tests.models import random_tensors
from tests.trees import TREES, VOCAB

IDS = [(7 * i) % VOCAB for i in range(9)]


def reference(name: str) -> Reference:
    model = TREES[name]()
    return Reference(model, random_tensors(model))


def test_the_model_is_run_once_to_find_them() -> None:
    backend, steps = reference("llama"), []
    step = backend.step
    backend.step = lambda *given: steps.append(given) or step(*given)  # type: ignore[method-assign, func-returns-value]
    first = shown_by(backend)
    assert len(steps) == 1 and shown_by(backend) is first and sizes(backend, 5, ["*"]) and len(steps) == 1
    trace = record(backend, IDS)
    assert {path: shown.axes for path, shown in first.items()} == {p: v.axes for p, v in trace.items()}
    assert shown_by(reference("llama")) is not first


def test_experts_count_as_often_as_they_are_chosen() -> None:
    backend = reference("experts by softmax")
    found, gear = shown_by(backend), backend.model.blocks[0].steps[1].gear
    router = gear.router  # type: ignore[union-attr]
    experts = [path for path in found if path.startswith("blocks.0.ffn.experts.") and path.endswith(".down")]
    assert len(experts) == router.count
    trace = record(backend, IDS, select=["blocks.*.ffn.experts.*.down"])
    said = sum(sizes(backend, len(IDS), ["blocks.*.ffn.experts.*.down"]).values())
    np.testing.assert_allclose(said, trace.nbytes, rtol=0.01)


def test_a_pooler_is_run_where_there_is_no_head() -> None:
    kinds = {name: output_of(TREES[name]()) for name in ("llama", "encoder", "encoder without a head")}
    assert kinds == {"llama": "logits", "encoder": "logits", "encoder without a head": "pooled"}
    assert "pooler" in record(reference("encoder without a head"), IDS)
