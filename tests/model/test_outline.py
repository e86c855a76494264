"""What is alike is told once, wherever it stands."""

from __future__ import annotations

import pytest

from glassgear.model import presets
from glassgear.model.families.llama import llama
from glassgear.model.gears import Experts
from glassgear.model.ledger import ledger
from glassgear.model.outline import Node, numbers, outline
from tests.models import tiny_config
from tests.trees import TREES


def of(name: str, every: bool = False) -> Node:
    return outline(ledger(presets.model(name)), every=every)


def test_blocks_that_are_alike_are_one_node() -> None:
    root = of("llama-3-8b")
    assert [numbers(node.names) if len(node.names) > 1 else node.names[0] for node in root.parts] == [
        "embed", "blocks.0-31", "norm", "head",
    ]  # fmt: skip
    assert {node.times for node in root.parts[1].walk()} == {32}


def test_kinds_that_alternate_are_one_node_each() -> None:
    blocks = of("gemma-3-1b").parts[1:3]
    assert [len(node.names) for node in blocks] == [22, 4]
    assert [numbers(node.names) for node in blocks] == ["blocks.0-4,6-10,\u2026", "blocks.5,11,\u2026"]


def test_experts_are_one_node_that_occurs_in_every_layer() -> None:
    root = of("deepseek-v3")
    (expert,) = (node for node in root.walk() if node.names[0] == "experts.0")
    assert (len(expert.names), expert.times) == (256, 58 * 256)
    (experts,) = (node for node in root.walk() if isinstance(node.gear, Experts))
    assert experts.count.values == sum(part.count.values * len(part.names) for part in experts.parts)


@pytest.mark.parametrize("name", ["deepseek-v3", "gemma-3-1b", "mobilebert", *TREES])
def test_nodes_add_up_to_the_whole(name: str) -> None:
    root = outline(ledger(TREES[name]())) if name in TREES else of(name)
    holders = [node for node in root.walk() if node.tensors]
    own = [sum(_size(shape) for shape in node.tensors.values()) * node.times for node in holders]
    assert sum(own) == root.count.values


def _size(shape: tuple[int, ...]) -> int:
    size = 1
    for axis in shape:
        size *= axis
    return size


def test_every_block_by_itself_but_not_every_expert() -> None:
    root = of("deepseek-v3", every=True)
    assert sum(node.names[0].startswith("blocks.") for node in root.parts) == 61
    assert sum(node.names[0].startswith("experts.") for node in root.walk()) == 58


def test_what_is_stored_differently_is_told_apart() -> None:
    counted = ledger(llama(tiny_config(layers=3)))
    stored = {row.path: ("F16", row.nbytes // 2) for row in counted.rows}
    stored["blocks.1.ffn.down.weight"] = ("F32", 4 * 64 * 96)
    root = outline(ledger(counted.model, stored))
    assert [node.names for node in root.parts[1:3]] == [("blocks.0", "blocks.2"), ("blocks.1",)]
    first, other = root.parts[1:3]
    assert other.nbytes - first.nbytes == 2 * 64 * 96
    assert root.nbytes == sum(nbytes for _, nbytes in stored.values())
    assert [node.types for node in other.walk() if node.names == ("down",)] == [("F32",)]
