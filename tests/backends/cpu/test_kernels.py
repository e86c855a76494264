"""Single kernels against their formulas in NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from glassgear.backends.base import PAGE
from glassgear.backends.cpu import features
from glassgear.backends.cpu.builder import float_bits
from glassgear.backends.cpu.cache import PagedCache
from glassgear.backends.cpu.fields import QUERY_ROWS, STEP_FIELDS, Frame, Step
from glassgear.backends.reference.activation import ACTIVATIONS
from glassgear.backends.reference.softmax import softmax

from .support import Floats, run


def activated(name: str, gate: Floats, up: Floats) -> Floats:
    rows, width = gate.shape
    both, out = np.concatenate([gate, up]), np.zeros((rows, width), np.float32)
    step, frame = np.zeros(STEP_FIELDS, np.int64), np.zeros(len(Frame), np.int64)
    frame[Frame.ROWS] = rows
    step[Step.INPUT], step[Step.INPUT_STRIDE], step[Step.A] = both.ctypes.data, 4 * width, gate.nbytes
    step[Step.OUTPUT], step[Step.OUTPUT_STRIDE] = out.ctypes.data, 4 * width
    step[Step.PANELS] = step[Step.UNITS] = width // 32
    step[Step.UNIT] = 1
    run(("rows", "activate", name), step, frame)
    return out


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations(name: str) -> None:
    rng = np.random.default_rng(0)
    gate = np.concatenate([rng.standard_normal(960) * 4, np.linspace(-120, 120, 64)]).astype(np.float32)
    gate = gate.reshape(4, 256)
    up = rng.standard_normal(gate.shape).astype(np.float32)
    want = ACTIVATIONS[name](gate) * up  # type: ignore[index]
    np.testing.assert_allclose(activated(name, gate, up), want, atol=2e-6, rtol=1e-6)


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations_of_values_that_are_not_finite(name: str) -> None:
    gate = np.ones((1, 32), np.float32)
    gate[0, :3] = np.nan, np.inf, -np.inf
    with np.errstate(invalid="ignore"):
        want = ACTIVATIONS[name](gate)  # type: ignore[index]
    got = activated(name, gate, np.ones_like(gate))
    assert np.isnan(got[0, 0])
    assert not np.isfinite(got[0, 1])
    assert np.array_equal(np.isfinite(got[0, 3:]), np.isfinite(want[0, 3:]))


def attended(
    half: bool, heads: int, kv_heads: int, head_dim: int, length: int, rows: int, seed: int
) -> tuple[Floats, Floats]:
    """The last `rows` of `length` positions: by the kernel, and by the formula."""
    rng = np.random.default_rng(seed)
    cache = PagedCache([(kv_heads, head_dim)], half)
    count = -(-length // PAGE)
    cache.grow(count)
    pages = rng.permutation(count)
    q = rng.standard_normal((rows, heads, head_dim)).astype(np.float32)
    k, v = (rng.standard_normal((length, kv_heads, head_dim)).astype(np.float32) for _ in range(2))
    place, positions = cache.layers[0], np.arange(length, dtype=np.int64)
    addresses = np.array([cache.addresses[p] for p in pages], np.int64)
    page_of_row = addresses[positions // PAGE]
    step, frame = np.zeros(STEP_FIELDS, np.int64), np.zeros(len(Frame), np.int64)
    frame[Frame.ROWS], frame[Frame.POSITIONS] = length, positions.ctypes.data
    frame[Frame.PAGE_OF_ROW] = page_of_row.ctypes.data
    for name, what, offset, head in (
        ("keys", k, place.keys, place.key_head),
        ("values", v, place.values, place.value_head),
    ):
        step[Step.INPUT], step[Step.INPUT_STRIDE] = what.ctypes.data, what.strides[0]
        step[Step.PANELS] = step[Step.UNITS] = kv_heads
        step[Step.UNIT], step[Step.A], step[Step.B], step[Step.C] = 1, head_dim, offset, head
        run(("cache", f"store_{name}", str(int(half))), step, frame)
    room = np.concatenate([q.reshape(rows, -1), np.zeros((1, heads * head_dim), np.float32)])
    out = np.zeros((rows, heads * head_dim), np.float32)
    spans, counters = np.array([[0, rows, 0, 0]], np.int64), np.zeros(1, np.int64)
    last = positions[-rows:].copy()
    scratch = np.zeros(2 * (QUERY_ROWS + 8) * (8 * place.channels + 4 * PAGE + 136), np.uint8)
    frame[Frame.ROWS], frame[Frame.POSITIONS], frame[Frame.SPAN_COUNT] = rows, last.ctypes.data, 1
    frame[Frame.SPANS], frame[Frame.PAGES] = spans.ctypes.data, addresses.ctypes.data
    frame[Frame.COUNTERS], frame[Frame.SCRATCH] = counters.ctypes.data, scratch.ctypes.data
    step = np.zeros(STEP_FIELDS, np.int64)
    step[Step.INPUT], step[Step.INPUT_STRIDE] = room.ctypes.data, room.strides[0]
    step[Step.OUTPUT], step[Step.OUTPUT_STRIDE] = out.ctypes.data, out.strides[0]
    step[Step.A], step[Step.B], step[Step.C] = head_dim, place.keys, place.values
    step[Step.D], step[Step.E], step[Step.F] = place.key_head, place.value_head, heads // kv_heads
    step[Step.H], step[Step.PANELS] = float_bits(head_dim**-0.5), kv_heads
    wide = "6" if features.target().kernels == "avx512vnni" else "1"
    run(("attention", "attention", str(int(half)), wide), step, frame)
    if half:
        k, v = k.astype(np.float16).astype(np.float32), v.astype(np.float16).astype(np.float32)
    scores = np.einsum("thd,shd->hts", q, np.repeat(k, heads // kv_heads, axis=1)) * np.float32(
        head_dim**-0.5
    )
    scores = np.where(positions[None, :] <= last[:, None], scores, -np.inf)
    want = np.einsum("hts,shd->thd", softmax(scores), np.repeat(v, heads // kv_heads, axis=1))
    return out.reshape(q.shape), want


@given(
    half=st.booleans(),
    heads=st.sampled_from([(1, 1), (4, 4), (9, 3), (8, 2), (8, 1)]),
    head_dim=st.sampled_from([4, 8, 16, 24, 64, 80, 128]),
    length=st.one_of(st.integers(1, 300), st.integers(1, 5000)),
    rows=st.integers(1, 40),
    seed=st.integers(0, 99),
)
@settings(max_examples=60)
def test_attention(
    half: bool, heads: tuple[int, int], head_dim: int, length: int, rows: int, seed: int
) -> None:
    got, want = attended(half, *heads, head_dim, length, min(rows, length), seed)
    np.testing.assert_allclose(got, want, atol=2e-5)
