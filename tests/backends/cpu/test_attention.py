"""Attention and its cache against the formula, for every kind that models use."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from glassgear.backends.base import PAGE
from glassgear.backends.cpu import features
from glassgear.backends.cpu.builder import Builder
from glassgear.backends.cpu.cache import CacheShape, PagedCache, scratch_bytes
from glassgear.backends.cpu.fields import ROWS, SEGMENT, STEP_FIELDS, Frame, Step
from glassgear.backends.cpu.machine_code import entry, machine_code
from glassgear.backends.cpu.memory import Memory
from glassgear.backends.cpu.parts import Parts
from glassgear.backends.cpu.values import Units
from glassgear.backends.reference.softmax import softmax

from .support import Floats

WIDE = features.target().kernels == "avx512vnni"
FAR = 8  # no page lies here: who reads it doesn't live on


@dataclass
class Kind:
    """An attention gear: sizes and options."""

    heads: int
    kv_heads: int
    key_dim: int
    value_dim: int
    half: bool = False
    latent: bool = False
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def shape(self) -> CacheShape:
        return CacheShape(self.kv_heads, self.key_dim, self.value_dim, self.latent)

    @property
    def codes(self) -> bool:
        """Whether the cache holds codes here."""
        return WIDE and self.half and not self.latent

    @property
    def tolerance(self) -> dict[str, float]:
        """Of scores and mixed values: about one code, where the formula rounds to another."""
        return {"scores": 3e-4, "mixed": 6e-4} if self.codes else {"scores": 2e-5, "mixed": 2e-5}

    @property
    def scale(self) -> float:
        return float(self.key_dim**-0.5)


class Text:
    """Random queries, keys and values of a sequence: [length, heads, width]."""

    def __init__(self, kind: Kind, length: int, seed: int = 0) -> None:
        rng = np.random.default_rng(seed)
        self.q = rng.standard_normal((length, kind.heads, kind.key_dim)).astype(np.float32)
        self.k = rng.standard_normal((length, kind.kv_heads, kind.key_dim)).astype(np.float32)
        self.v = rng.standard_normal((length, kind.kv_heads, kind.value_dim)).astype(np.float32)
        if kind.latent:
            self.v = self.k[..., : kind.value_dim]
        self.length = length


def coded(x: Floats, size: Floats) -> NDArray[np.float64]:
    """Rows as int16 codes give them, `size` of each row being 32767 codes."""
    unit = np.maximum(size.astype(np.float64), 1e-30) / 32767
    return np.rint(x / unit) * unit


def length_of(x: Floats) -> Floats:
    return np.sqrt(np.sum(np.square(x), axis=-1, keepdims=True))


def rounded(kind: Kind, text: Text) -> tuple[Any, Any, Any]:
    """Queries, keys and values as the kernels see them."""
    if kind.codes:
        top = np.abs(text.v).max(-1, keepdims=True)
        return coded(text.q, length_of(text.q)), coded(text.k, length_of(text.k)), coded(text.v, top)
    dtype = np.float16 if kind.half else np.float32
    return text.q, text.k.astype(dtype), text.v.astype(dtype)


def formula(kind: Kind, text: Text) -> tuple[Floats, Floats]:
    """Scores [heads, T, S] and mixed values [T, heads, value_dim], in float64."""
    group, position = kind.heads // kind.kv_heads, np.arange(text.length)
    q, k, v = rounded(kind, text)
    k, v = (np.repeat(x, group, axis=1).astype(np.float64) for x in (k, v))
    scores = np.einsum("thd,shd->hts", q, k) * kind.scale
    if cap := kind.options.get("cap"):
        scores = cap * np.tanh(scores / cap)
    seen = np.ones((text.length, text.length), bool)
    if kind.options.get("causal", True):
        seen = position[None, :] <= position[:, None]
    if window := kind.options.get("window"):
        seen &= position[None, :] > position[:, None] - window
    scores = np.where(seen, scores, -np.inf)
    return scores, np.einsum("hts,shd->thd", softmax(scores), v)


class Bench:
    """A cache, the steps that fill it and read it, and the sequences in it."""

    def __init__(self, kind: Kind, threads: int = 1, split: bool = False) -> None:
        self.kind, self.threads = kind, threads
        self.cache = PagedCache([kind.shape], kind.half, WIDE)
        self.parts = Parts([(kind.heads, kind.shape)]) if split else None
        memory = self.memory = Memory(threads)
        widths = kind.heads * kind.key_dim, kind.kv_heads * kind.key_dim, kind.kv_heads * kind.value_dim
        self.q, self.k, self.v = (memory.rows(width) for width in widths)
        self.out = memory.rows(kind.heads * kind.value_dim)
        builder = Builder(memory, features.target().kernels, alone=False)
        place, units = self.cache.layers[0], Units(1, 0, kind.kv_heads)
        if kind.latent:
            builder.store("values", self.k, place, kind.half, units)
        else:
            builder.store("keys", self.k, place, kind.half, units)
            builder.store("values", self.v, place, kind.half, units)
        group = kind.heads // kind.kv_heads
        builder.attend(self.q, self.out, group, kind.scale, place, kind.half, **kind.options)
        self.program = builder.array(machine_code(features.target()).addresses(builder.kernels))
        self.pages: dict[int, list[int]] = {}

    def run(self, spans: Sequence[tuple[Text, int, int]], traced: bool = False) -> list[tuple[Floats, Any]]:
        """Rows `start` to `stop` of each text in one pass: mixed values and, if traced, scores."""
        rows = sum(stop - start for _, start, stop in spans)
        for name in ("q", "k", "v"):
            room = self.memory.array(getattr(self, name), rows)
            room[:] = np.concatenate([getattr(t, name)[a:b].reshape(b - a, -1) for t, a, b in spans])
        frame, held = self._frame(spans)
        sizes = [(self.kind.heads, stop - start, stop) for _, start, stop in spans]
        flat = np.full(sum(h * t * n for h, t, n in sizes), -np.inf, np.float32)
        self.program[-1, Step.G] = flat.ctypes.data if traced else 0
        for step in self.program:
            function = entry(int(step[Step.KERNEL]))
            for thread in range(self.threads):
                function(int(step.ctypes.data), int(frame.ctypes.data), thread, self.threads)
        out, at, row = [], 0, 0
        mixed = self.memory.array(self.out, rows)
        for h, t, n in sizes:
            scores = flat[at : at + h * t * n].reshape(h, t, n) if traced else None
            out.append((mixed[row : row + t].reshape(t, h, -1).copy(), scores))
            at, row = at + h * t * n, row + t
        del held
        return out

    def _frame(self, spans: Sequence[tuple[Text, int, int]]) -> tuple[NDArray[np.int64], list[Any]]:
        """The frame of a pass, and what it points to."""
        positions = np.concatenate([np.arange(a, b) for _, a, b in spans])
        pages: list[int] = []
        of_row, table, at, row, places = [], np.zeros((len(spans), 4), np.int64), 0, 0, 0
        for i, (text, start, stop) in enumerate(spans):
            own = self.pages.setdefault(id(text), [])
            while len(own) * PAGE < stop:
                taken = sum(map(len, self.pages.values()))
                self.cache.grow(taken + 1)
                own.append(self.cache.addresses[taken])
            table[i] = row, stop - start, at, places
            of_row += [own[p // PAGE] for p in range(start, stop)]
            count = -(-stop // PAGE)
            pages += own[:count]
            at, row, places = at + count, row + stop - start, places + self.kind.heads * (stop - start) * stop
        scratch_of = scratch_bytes(self.cache.layers)
        scratch = np.zeros(scratch_of * self.threads, np.uint8)
        held = [positions, np.array(of_row), table, np.array(pages), np.zeros(1, np.int64), scratch]
        frame = np.zeros(len(Frame), np.int64)
        frame[Frame.ROWS], frame[Frame.SPAN_COUNT], frame[Frame.SHARED_OUT] = row, len(spans), 1
        fields = (Frame.POSITIONS, Frame.PAGE_OF_ROW, Frame.SPANS, Frame.PAGES, Frame.COUNTERS, Frame.SCRATCH)
        for name, array in zip(fields, held, strict=True):
            frame[name] = array.ctypes.data
        frame[Frame.SCRATCH_BYTES] = scratch_of
        if self.parts is not None:
            rows, stops = [b - a for _, a, b in spans], [b for _, _, b in spans]
            frame[Frame.PARTS], frame[Frame.PART_BYTES] = self.parts.place(rows, stops)
        return frame, held


def whole(kind: Kind, text: Text, pieces: Sequence[int], **choices: Any) -> Floats:
    """A text, piece by piece."""
    bench, at, out = Bench(kind, **choices), 0, []
    for count in pieces:
        out.append(bench.run([(text, at, at + count)])[0][0])
        at += count
    assert at == text.length
    return np.concatenate(out)


HEADS = [(1, 1), (4, 4), (9, 3), (8, 2), (8, 1), (50, 1)]
WIDTHS = [(4, 4), (8, 8), (24, 24), (64, 64), (80, 80), (24, 16), (33, 70), (19, 3), (20, 1)]
CAPS, WINDOWS = [0.7, 30.0], [1, 3, 63, 64, 65, 200, 600]
OPTIONS = st.fixed_dictionaries(
    {}, optional={"cap": st.sampled_from(CAPS), "window": st.sampled_from(WINDOWS)}
)  # fmt: skip


@given(
    heads=st.sampled_from(HEADS),
    widths=st.sampled_from(
        [(4, 4), (8, 8), (24, 24), (64, 64), (80, 80), (24, 16), (33, 70), (19, 3), (20, 1)]
    ),
    half=st.booleans(),
    latent=st.booleans(),
    both_ways=st.booleans(),
    options=OPTIONS,
    length=st.integers(1, 500),
    seed=st.integers(0, 99),
)
@example((2, 1), (8, 8), False, False, False, {"window": 700}, 1300, 0)
@example((2, 1), (24, 16), True, True, False, {}, 1100, 0)
@example((3, 1), (24, 16), True, False, True, {}, ROWS, 0)
@example((128, 1), (576, 512), False, True, False, {}, 70, 0)
@example((128, 1), (576, 512), True, True, False, {"window": 40}, 70, 0)
@example((2, 2), (192, 128), True, False, True, {"cap": 50.0}, 140, 0)
@settings(max_examples=60, deadline=None)
def test_attention(
    heads: tuple[int, int], widths: tuple[int, int], half: bool, latent: bool, both_ways: bool,
    options: dict[str, Any], length: int, seed: int,
) -> None:  # fmt: skip
    latent = latent and heads[1] == 1 and widths[1] <= widths[0]
    options = (
        {"causal": False, **{k: v for k, v in options.items() if k != "window"}} if both_ways else options
    )
    kind = Kind(*heads, *widths, half, latent, options)
    text, bench = Text(kind, length, seed), Bench(kind)
    first = max(0, length - ROWS)
    for at in range(0, first, ROWS):
        bench.run([(text, at, min(first, at + ROWS))])
    ((mixed, scores),) = bench.run([(text, first, length)], traced=True)
    want_scores, want = formula(kind, text)
    np.testing.assert_allclose(scores, want_scores[:, first:], atol=kind.tolerance["scores"])
    np.testing.assert_allclose(mixed, want[first:], atol=kind.tolerance["mixed"])


KINDS = {
    "plain": Kind(9, 3, 24, 24),
    "half": Kind(9, 3, 64, 64, half=True),
    "window": Kind(4, 2, 16, 16, half=True, options={"window": 70}),
    "long window": Kind(4, 2, 16, 16, options={"window": 700}),
    "cap": Kind(4, 2, 16, 16, options={"cap": 2.0}),
    "wide keys": Kind(4, 4, 48, 32, half=True),
    "latent": Kind(20, 1, 40, 32, half=True, latent=True),
    "latent floats": Kind(20, 1, 40, 32, latent=True),
}


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_chunks_threads_and_neighbours_change_no_bit(kind: Kind) -> None:
    length = 2 * SEGMENT + 40
    text, other = Text(kind, length), Text(kind, 150, 1)
    first, tail = length - 60, [1, 2, 5, 1, 8, 1, 1, 3, 30, 8]
    assert first + sum(tail) == length
    want = whole(kind, text, [SEGMENT, SEGMENT, 40])
    assert np.array_equal(
        whole(kind, text, [3, SEGMENT - 10, 10, SEGMENT - 7, *[1] * 10, 34], threads=2), want
    )
    for split in (False, True):
        bench, at = Bench(kind, 3, split), 0
        while at < first:
            count = min(SEGMENT - 5, first - at)
            Bench.run(bench, [(text, at, at + count)])
            at += count
        for i, count in enumerate(tail):
            (mine, _), _ = bench.run([(text, at, at + count), (other, 10 * i, 10 * i + 10)])
            assert np.array_equal(mine, want[at : at + count])
            at += count


def test_a_span_that_sees_both_ways_is_bit_equal_in_any_batch() -> None:
    kind = Kind(6, 3, 24, 24, options={"causal": False})
    texts = [Text(kind, n, n) for n in (3, 130, 64)]
    alone = [whole(kind, text, [text.length]) for text in texts]
    together = Bench(kind, threads=2).run([(text, 0, text.length) for text in texts])
    for (mine, _), want in zip(together, alone, strict=True):
        assert np.array_equal(mine, want)


@pytest.mark.parametrize("split", [False, True])
def test_pages_before_the_window_are_not_read(split: bool) -> None:
    kind = Kind(4, 2, 16, 16, options={"window": 100})
    text = Text(kind, 3 * SEGMENT + 70)
    want = formula(kind, text)[1][-6:]
    bench, at = Bench(kind, 2, split), 0
    while at < text.length - 6:
        count = min(SEGMENT, text.length - 6 - at)
        bench.run([(text, at, at + count)])
        at += count
    pages = bench.pages[id(text)]
    gone = (text.length - 5 - 100) // PAGE
    pages[:gone] = [FAR] * gone
    ((mine, _),) = bench.run([(text, at, text.length)])
    np.testing.assert_allclose(mine, want, atol=2e-5)


@pytest.mark.parametrize("options", [{}, {"window": 20}, {"cap": 5.0}], ids=str)
@pytest.mark.parametrize("latent", [False, True])
@pytest.mark.parametrize("half", [False, True])
def test_what_a_token_does_not_see_may_be_anything(options: dict[str, Any], latent: bool, half: bool) -> None:
    kind = Kind(3, 1, 24, 16, half, latent, options)
    text = Text(kind, 100)
    want = whole(kind, text, [100])
    spoiled = Text(kind, 100)
    spoiled.k[5], spoiled.v[5], spoiled.k[60], spoiled.v[60, 0, 3] = np.nan, np.nan, np.inf, np.nan
    with np.errstate(invalid="ignore"):
        got = whole(kind, spoiled, [100])
    window = options.get("window", 1000)
    for t in range(100):
        sees = any(t - window < bad <= t for bad in (5, 60))
        assert np.isnan(got[t]).any() == sees, t
        assert sees or np.array_equal(got[t], want[t])


def test_a_latent_row_is_kept_once() -> None:
    wide, twice = CacheShape(1, 576, 512, latent=True), CacheShape(1, 576, 512)
    once, both = PagedCache([wide], True), PagedCache([twice], True)
    assert once.page_bytes == 576 * PAGE * 2
    assert both.page_bytes == (576 + 512) * PAGE * 2


@pytest.mark.parametrize("half", [False, True])
@pytest.mark.parametrize("latent", [False, True])
def test_cached_values_can_be_read_back(half: bool, latent: bool) -> None:
    kind = Kind(4, 1 if latent else 2, 24, 19, half, latent)
    text, bench = Text(kind, 150), Bench(kind)
    bench.run([(text, 0, 150)])
    order = [bench.cache.addresses.index(a) for a in bench.pages[id(text)]]
    got = bench.cache.read_values(0, order, 150)
    np.testing.assert_allclose(got, text.v, atol=2e-3 if half else 0)


@pytest.mark.skipif(not WIDE, reason="the cache of this machine's kernels holds no codes")
@pytest.mark.parametrize("width", [1, 16, 64, 256])
def test_codes_lose_less_than_float16(width: int) -> None:
    kind = Kind(2, 2, width, width, half=True)
    text, bench = Text(kind, 300), Bench(kind)
    text.v *= np.exp(2 * np.random.default_rng(1).standard_normal((*text.v.shape[:2], 1))).astype(np.float32)
    bench.run([(text, 0, 300)])
    order = [bench.cache.addresses.index(a) for a in bench.pages[id(text)]]
    read = bench.cache.read_values(0, order, 300)
    lost, size = length_of(read - text.v), length_of(text.v)
    half = length_of(text.v.astype(np.float16) - text.v)
    assert (lost <= size * 2.0**-11).all()
    assert np.mean(lost / size) < np.mean(half / size)
    key_lost = length_of(coded(text.k, length_of(text.k)) - text.k)
    assert np.mean(key_lost) < np.mean(length_of(text.k.astype(np.float16) - text.k))


@pytest.mark.parametrize("size", [1e-3, 1.0, 100.0])
@pytest.mark.parametrize("hot", [False, True], ids=["all channels alike", "one hot channel"])
@pytest.mark.parametrize("width", [2, 64, 256])
def test_the_largest_products_do_not_overflow(width: int, hot: bool, size: float) -> None:
    kind = Kind(2, 1, width, width, half=True)
    text = Text(kind, 130)
    for x in (text.q, text.k, text.v):
        x[:] = 0 if hot else size
        x[..., width // 2] = size
    text.k[70:] *= -1
    ((mixed, scores),) = Bench(kind).run([(text, 0, 130)], traced=True)
    want_scores, want = formula(kind, text)
    np.testing.assert_allclose(scores, want_scores, rtol=1e-3)
    np.testing.assert_allclose(mixed, want, rtol=1e-3)


def test_step_fields_hold_what_attention_needs() -> None:
    assert max(Step) < STEP_FIELDS
