"""The flow of values: complete, in order, and made of things that exist."""

from __future__ import annotations

import pytest

from glassgear.backends.cpu import CPU
from glassgear.backends.reference import Reference
from glassgear.model.gears import tensors
from glassgear.trace import Trace, record
from glassgear.trace.flow import PROBABILITY, SAMPLED, flow
from tests.models import random_tensors
from tests.trees import TREES, VOCAB

IDS = [(7 * i) % VOCAB for i in range(9)]
POOLER = {"pooler", "pooler.dense"}  # a run for the logits of a head doesn't compute it


def traced(name: str, backend: type = Reference) -> Trace:
    model = TREES[name]()
    return record(backend(model, random_tensors(model)), IDS)


@pytest.mark.parametrize("name", TREES)
def test_every_value_that_is_shown_has_a_node_and_its_inputs_are_shown(name: str) -> None:
    nodes, trace = flow(TREES[name]()), traced(name)
    assert set(trace) <= set(nodes)
    idle = {path for path in nodes if ".experts." in path}  # no token may have chosen an expert
    headed = TREES[name]().head is not None
    assert {p for p in nodes if nodes[p].shown} - set(trace) <= idle | (POOLER if headed else set())
    for path in trace:
        assert set(nodes[path].inputs) <= set(trace) | idle, path


@pytest.mark.parametrize("name", TREES)
def test_nodes_stand_in_the_order_in_which_the_reference_computes(name: str) -> None:
    nodes, trace = flow(TREES[name]()), traced(name)
    assert [path for path in nodes if path in trace] == list(trace)
    done: set[str] = set()
    for path, node in nodes.items():
        assert set(node.inputs) <= done, path
        done.add(path)


@pytest.mark.parametrize("name", TREES)
def test_every_weight_is_read_by_a_node(name: str) -> None:
    model = TREES[name]()
    read = {path for node in flow(model).values() for path in node.weights.values()}
    assert read == set(tensors(model))


@pytest.mark.parametrize("name", ["two rotations", "experts in groups", "latent attention", "narrow encoder"])
def test_the_cpu_backend_shows_the_same_values(name: str) -> None:
    assert set(traced(name, CPU)) == set(traced(name))


def test_a_stream_without_a_name_is_the_sum_of_its_tables() -> None:
    nodes = flow(TREES["learned positions, LayerNorm, plain FFN"]())
    assert nodes["blocks.0.attention_norm"].reads["x"] == ("embed", "positions")
    assert nodes["blocks.0.attention_residual"].reads["stream"] == ("embed", "positions")
    assert nodes["blocks.1.attention_norm"].reads["x"] == ("blocks.0",)


def test_attention_in_a_bottleneck_reads_its_values_from_the_wide_stream() -> None:
    nodes = flow(TREES["narrow encoder"]())
    inside = "blocks.0.bottleneck"
    assert nodes[f"{inside}.attention.query"].inputs == (f"{inside}.shared_norm",)
    assert nodes[f"{inside}.attention.value"].inputs == ("embed_norm",)
    assert nodes[f"{inside}.attention_residual"].reads["stream"] == (f"{inside}.narrow_norm",)


def test_what_follows_from_logits_is_there_where_there_are_logits() -> None:
    assert not flow(TREES["llama"]())[SAMPLED].shown
    assert not {SAMPLED, PROBABILITY, "head"} & set(flow(TREES["encoder without a head"]()))
