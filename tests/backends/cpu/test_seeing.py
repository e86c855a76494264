"""Hooks on the CPU backend: the reference's names and values, and not a bit changed by reading."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from glassgear.backends.base import Chunk, Hook
from glassgear.backends.cpu import CPU
from glassgear.backends.cpu.fields import SEGMENT
from glassgear.backends.cpu.seeing import _soften
from glassgear.backends.reference import Reference
from glassgear.backends.reference.softmax import softmax

from .support import model
from .test_machine import SHAPES, ids_for

Seen = list[tuple[str, np.ndarray]]


def run(machine: CPU | Reference, hook: Hook | None) -> list[np.ndarray]:
    """Two sequences: one with a past, both with new tokens."""
    first, second = machine.open(), machine.open()
    ids = ids_for(machine, 40)
    machine.step([Chunk(first, ids[:10])])
    return machine.step([Chunk(first, ids[10:20], "all"), Chunk(second, ids[:3], "last")], hook)


def recorded(machine: CPU | Reference) -> tuple[Seen, list[np.ndarray]]:
    seen: Seen = []
    logits = run(machine, lambda path, value: seen.append((path, value.copy())))
    return seen, logits


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_every_value_of_the_reference_is_seen(shape: dict[str, Any]) -> None:
    made = model(**shape)
    want, _ = recorded(Reference(*made))
    got, _ = recorded(CPU(*made, threads=2))
    assert [path for path, _ in got] == [path for path, _ in want]
    for (path, mine), (_, theirs) in zip(got, want, strict=True):
        assert mine.shape == theirs.shape, path
        np.testing.assert_allclose(mine, theirs, atol=2e-5, err_msg=path)


@pytest.mark.parametrize("type_name", ["F32", "Q4_1", "Q6_K", "F16"])
def test_reading_changes_no_bit(type_name: str) -> None:
    made = model(dim=256, hidden=256, heads=4, kv_heads=2, head_dim=64, type_name=type_name)
    machine = CPU(*made, threads=2)
    _, seen = recorded(machine)
    for one, other in zip(seen, run(machine, None), strict=True):
        assert np.array_equal(one, other)


def test_values_of_a_long_context_are_seen() -> None:
    made = model()
    seen: dict[str, Seen] = {}
    for machine in (CPU(*made, threads=2), Reference(*made)):
        track, ids, own = machine.open(), ids_for(machine, SEGMENT + 33), seen.setdefault(machine.name, [])
        machine.step([Chunk(track, ids[:-3])])
        machine.step([Chunk(track, ids[-3:], "all")], lambda path, v, own=own: own.append((path, v.copy())))
        machine.truncate(track, len(ids) - 3)
        assert np.array_equal(own[-1][1], machine.step([Chunk(track, ids[-3:], "all")])[0])
    for (path, mine), (name, theirs) in zip(seen["cpu"], seen["reference"], strict=True):
        assert path == name
        np.testing.assert_allclose(mine, theirs, atol=2e-5, err_msg=path)


PATHS = (
    "embed", "blocks.0.attention_norm", "blocks.0.attention.query", "blocks.0.attention.key",
    "blocks.0.attention.value", "blocks.0.attention.query_rotated", "blocks.0.attention.key_rotated",
    "blocks.0.attention.scores", "blocks.0.attention.weights", "blocks.0.attention.mixed",
    "blocks.0.attention.output", "blocks.0.attention", "blocks.0.attention_residual", "blocks.1.ffn_norm",
    "blocks.1.ffn.gate", "blocks.1.ffn.up", "blocks.1.ffn.activated", "blocks.1.ffn.product",
    "blocks.1.ffn.down", "blocks.1.ffn", "blocks.1.ffn_residual", "blocks.1", "norm", "head",
)  # fmt: skip


@pytest.mark.parametrize("path", PATHS)
def test_a_changed_value_has_the_effect_it_has_in_the_reference(path: str) -> None:
    made = model(dim=96, head_dim=64, heads=6, kv_heads=3, hidden=256)

    def change(at: str, value: np.ndarray) -> np.ndarray | None:
        # Not by one factor: the last norm would take it out again.
        factors = np.linspace(0.5, 1.5, value.shape[-1], dtype=np.float32)
        return value * factors if at == path else None

    plain, want = run(Reference(*made), None), run(Reference(*made), change)
    got = run(CPU(*made), change)
    for mine, theirs, before in zip(got, want, plain, strict=True):
        np.testing.assert_allclose(mine, theirs, atol=3e-5)
        assert not np.allclose(theirs, before, atol=1e-4)


@pytest.mark.parametrize(("rows", "before"), [(5, 0), (200, 0), (512, 0), (513, 37), (600, 300)])
@pytest.mark.parametrize("together", [True, False])
def test_weights_without_the_hidden_half_have_the_same_bits(rows: int, before: int, together: bool) -> None:
    scores = np.random.default_rng(0).standard_normal((3, rows, before + rows)).astype(np.float32) * 3
    scores[:, np.arange(before + rows) > before + np.arange(rows)[:, None]] = -np.inf
    weights = np.full_like(scores, np.nan)
    _soften([(scores, weights)] if together else list(zip(scores, weights, strict=True)), before)
    assert np.array_equal(weights, softmax(scores))
    _soften([(scores, weights)], None)
    assert np.array_equal(weights, softmax(scores))
