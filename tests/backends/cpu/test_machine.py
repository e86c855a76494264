"""The CPU backend against the reference: any chunking, any batch, any number of threads."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from glassgear.backends.base import Chunk, Track
from glassgear.backends.cpu import CPU
from glassgear.backends.cpu.fields import SEGMENT
from glassgear.backends.reference import Reference
from glassgear.errors import SettingError
from glassgear.weights.open import open_checkpoint

from .support import model, stored

SHAPES: dict[str, dict[str, Any]] = {
    "narrow heads, hidden no multiple of 32": {},
    "neighbouring pairs, tied head": {"pairing": "interleaved", "tied": True},
    "biases": {"head_dim": 16, "bias": True},
    "partial rotation, heads of 24": {"head_dim": 24, "rope_dim": 16, "hidden": 64},
    "whole panels": {"dim": 96, "head_dim": 64, "heads": 6, "kv_heads": 3, "hidden": 256},
    "one key head, heads of 80": {"head_dim": 80, "heads": 2, "kv_heads": 1, "vocab": 33},
}


def ids_for(machine: CPU | Reference, count: int, seed: int = 1) -> list[int]:
    rng = np.random.default_rng(seed)
    return [int(i) for i in rng.integers(0, machine.model.embed.vocab, count)]


def all_logits(machine: CPU | Reference, ids: list[int], pieces: list[int]) -> np.ndarray:
    track, out, at = machine.open(), [], 0
    for count in pieces:
        out.append(machine.step([Chunk(track, ids[at : at + count], "all")])[0])
        at += count
    machine.close(track)
    return np.concatenate(out)


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_float_logits_equal_the_reference(shape: dict[str, Any]) -> None:
    made = model(**shape)
    ids = ids_for(Reference(*made), 150)
    want = all_logits(Reference(*made), ids, [150])
    got = all_logits(CPU(*made), ids, [150])
    np.testing.assert_allclose(got, want, atol=1e-5)


@pytest.mark.parametrize("type_name", ["F32", "Q4_1", "Q6_K"])
@pytest.mark.parametrize("threads", [1, 2, 3])
def test_chunking_and_threads_change_no_bit(type_name: str, threads: int) -> None:
    made = model(dim=256, hidden=256, heads=4, kv_heads=2, head_dim=64, type_name=type_name)
    whole = CPU(*made, threads=1)
    ids = ids_for(whole, 150)
    want = all_logits(whole, ids, [150])
    machine = CPU(*made, threads=threads)
    for pieces in ([1] * 150, [5, 7, 138], [64, 1, 63, 1, 21], [149, 1], [12, 13, 14, 111]):
        assert np.array_equal(all_logits(machine, ids, pieces), want), pieces


def test_long_prompts_go_in_passes_without_a_trace() -> None:
    made = model()
    machine = CPU(*made)
    ids = ids_for(machine, 1300)
    want = all_logits(machine, ids, [1300])
    assert np.array_equal(all_logits(machine, ids, [700, 600]), want)
    np.testing.assert_allclose(want, all_logits(Reference(*made), ids, [1300]), atol=1e-4)


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_segments_of_a_long_context_change_no_bit(threads: int) -> None:
    made = model(head_dim=24, heads=9, kv_heads=3)
    whole, machine = (CPU(*made, threads=n, cache_type="float16") for n in (1, threads))
    ids = ids_for(whole, 2 * SEGMENT + 40)
    want = all_logits(whole, ids, [len(ids)])
    # Single rows and few rows, before a segment's first position, at it and past it.
    pieces = [SEGMENT - 2, *[1] * 4, SEGMENT - 5, 7, *[1] * 3, 8]
    pieces.append(len(ids) - sum(pieces))
    assert np.array_equal(all_logits(machine, ids, pieces), want)


def test_sequences_of_very_different_lengths_in_one_step() -> None:
    machine = CPU(*model(type_name="Q8_0", hidden=96), threads=2)
    lengths = [3, SEGMENT, 2 * SEGMENT + 9, 70]
    tracks, wanted, chunks = [], [], []
    for seed, (length, new) in enumerate(zip(lengths, (1, 1, 3, 2), strict=True)):
        ids = ids_for(machine, length + new, seed)
        wanted.append(all_logits(machine, ids, [length + new])[-new:])
        tracks.append(machine.open())
        machine.step([Chunk(tracks[-1], ids[:length])])
        chunks.append(Chunk(tracks[-1], ids[length:], "all"))
    for got, want in zip(machine.step(chunks), wanted, strict=True):
        assert np.array_equal(got, want)


@given(
    st.lists(st.tuples(st.integers(1, 70), st.sampled_from(["last", "all", "none"])), min_size=1, max_size=9)
)
@settings(max_examples=15)
def test_a_sequence_is_bit_equal_in_any_batch(chunks: list[tuple[int, Any]]) -> None:
    machine = MACHINE()
    ids = [ids_for(machine, count, seed) for seed, (count, _) in enumerate(chunks)]
    tracks = [machine.open() for _ in chunks]
    got = machine.step([Chunk(t, i, logits) for t, i, (_, logits) in zip(tracks, ids, chunks, strict=True)])
    for rows, own, (count, logits), track in zip(got, ids, chunks, tracks, strict=True):
        want = all_logits(machine, own, [count])
        wanted = {"last": want[-1:], "all": want, "none": want[:0]}[logits]
        assert np.array_equal(rows, wanted)
        assert track.length == count
        machine.close(track)


_made: list[CPU] = []


def MACHINE() -> CPU:  # noqa: N802
    """One machine for all examples of a property."""
    if not _made:
        _made.append(CPU(*model(type_name="Q8_0", hidden=96), threads=2))
    return _made[0]


STEPS = int(os.environ.get("GLASSGEAR_SOAK", "400"))


def resident() -> int:
    """Bytes of memory that this process holds now; 0 where the system doesn't say."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


def test_joins_and_leaves_leave_no_trace_and_take_no_memory() -> None:
    """`GLASSGEAR_SOAK=20000` makes it a soak."""
    machine = CPU(*model(type_name="Q8_0", hidden=96), threads=2)
    rng = np.random.default_rng(9)
    lengths = {seed: 90 if seed < 4 else SEGMENT + 40 for seed in range(5)}
    texts = {seed: ids_for(machine, length, seed) for seed, length in lengths.items()}
    alone = {seed: all_logits(machine, ids, [len(ids)]) for seed, ids in texts.items()}
    held, early = machine.cache_nbytes, 0
    running: dict[int, Track] = {}
    finished = 0
    for step in range(STEPS):
        joining = [seed for seed in texts if seed not in running and rng.random() < 0.3]
        running |= {seed: machine.open() for seed in joining}
        chunks = {}
        for seed, track in running.items():
            count = int(
                rng.integers(100, 300) if seed == 4 and track.length < SEGMENT else rng.integers(1, 6)
            )
            chunks[seed] = Chunk(track, texts[seed][track.length : track.length + count], "all")
        before = {seed: track.length for seed, track in running.items()}
        for (seed, chunk), logits in zip(chunks.items(), machine.step(list(chunks.values())), strict=True):
            assert np.array_equal(logits, alone[seed][before[seed] : chunk.track.length]), step
            if chunk.track.length == lengths[seed] or rng.random() < 0.01:
                machine.close(running.pop(seed))
                finished += 1
        if step == min(2000, STEPS // 2):
            early = resident()
    late = resident()
    print(f"{STEPS} steps, {finished} left; {early >> 20} MB, {late >> 20} MB at the end")
    assert finished > STEPS // 20
    assert machine.cache_nbytes <= max(6 * held, 1 << 22)
    assert late - early < 4 << 20


def test_pages_of_a_broken_sequence_do_not_poison_the_next() -> None:
    made = model()
    machine = CPU(*made)
    spoiled, ids = machine.open(), ids_for(machine, 100)
    want = all_logits(machine, ids, [100])
    machine.step([Chunk(spoiled, ids)], lambda path, v: np.full_like(v, np.nan) if path == "embed" else None)
    machine.close(spoiled)
    assert np.array_equal(all_logits(machine, ids, [100]), want)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_values_that_are_not_finite_reach_the_logits(bad: float) -> None:
    for machine in (CPU(*model()), CPU(*model(type_name="Q8_0", hidden=96))):
        track = machine.open()

        def spoil(path: str, value: np.ndarray) -> np.ndarray | None:
            if path != "blocks.0.ffn.product":
                return None
            value[2, 5] = bad
            return value

        logits = machine.step([Chunk(track, ids_for(machine, 4), "all")], spoil)[0]
        assert np.isfinite(logits[:2]).all()
        assert not np.isfinite(logits[2:]).any()


def test_truncate_forgets() -> None:
    machine = CPU(*model())
    ids, other = ids_for(machine, 100), ids_for(machine, 100, 2)
    track = machine.open()
    machine.step([Chunk(track, ids[:50] + other[:40])])
    machine.truncate(track, 50)
    got = machine.step([Chunk(track, ids[50:], "all")])[0]
    assert np.array_equal(got, all_logits(machine, ids, [100])[50:])


def test_a_step_that_raises_leaves_lengths_alone() -> None:
    machine = CPU(*model())
    track = machine.open()
    machine.step([Chunk(track, [1, 2, 3])])
    with pytest.raises(IndexError):
        machine.step([Chunk(track, [4] * 600 + [10_000])])
    assert track.length == 3


@pytest.mark.parametrize("cache_type", ["float32", "float16"])
def test_cache_types(cache_type: str) -> None:
    made = model()
    ids = ids_for(Reference(*made), 100)
    want = all_logits(Reference(*made, cache_type=cache_type), ids, [100])
    np.testing.assert_allclose(all_logits(CPU(*made, cache_type=cache_type), ids, [100]), want, atol=2e-3)


def test_cache_is_half_precision_for_quantised_models_alone() -> None:
    machines = [CPU(*model(head_dim=64)), CPU(*model(type_name="Q8_0", hidden=96, head_dim=64))]
    for machine in machines:
        machine.step([Chunk(machine.open(), [1])])
    assert machines[0].cache_nbytes > 1.8 * machines[1].cache_nbytes


@pytest.mark.parametrize("setting", [{"threads": 0}, {"cache_type": "int8"}])
def test_settings_out_of_range_are_refused(setting: dict[str, Any]) -> None:
    with pytest.raises(SettingError):
        CPU(*model(), **setting)


def test_matrices_of_several_types_in_one_model() -> None:
    made, weights = model(dim=256, hidden=256, heads=4, kv_heads=2, head_dim=64, type_name="Q4_K")
    rng = np.random.default_rng(3)
    for path, other in (("attention.value", "Q6_K"), ("ffn.down", "F16"), ("attention.key", "BF16")):
        name = f"blocks.1.{path}.weight"
        weights[name] = stored(rng, other, *weights[name].shape)
    ids = ids_for(Reference(made, weights), 70)
    want = all_logits(Reference(made, weights), ids, [70])
    machine = CPU(made, weights, threads=2)
    got = all_logits(machine, ids, [70])
    assert np.array_equal(all_logits(machine, ids, [1] * 70), got)
    assert np.corrcoef(got.reshape(-1), want.reshape(-1))[0, 1] > 0.995


def test_smollm2_finds_what_the_float32_model_chose_likely(smollm2: Path, shared: Path) -> None:
    """Greedy ids made with transformers 5.24 in float32 (`golden.json`), given one after the other.

    Activations are rounded to 8 bits, which may turn the order of two ids whose logits differ by
    less than about half a unit; more than that must not happen, and this seldom.
    """
    checkpoint = open_checkpoint(smollm2)
    machine = CPU(checkpoint.model, checkpoint.tensors)
    golden = json.loads((shared / "data" / "smollm2" / "golden.json").read_text())
    behind = []
    for text in golden:
        wanted = text["greedy_f32"][:24]
        track = machine.open()
        logits = machine.step([Chunk(track, text["ids"] + wanted[:-1], "all")])[0][-len(wanted) :]
        behind += [float(row.max() - row[choice]) for row, choice in zip(logits, wanted, strict=True)]
        machine.close(track)
    assert max(behind) < 0.5
    assert np.mean(np.array(behind) > 0) < 0.05
