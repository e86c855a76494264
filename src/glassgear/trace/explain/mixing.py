"""Attention of the CPU backend in NumPy, operation by operation: see `kernels.py`.

Two forms: floats (float32, or values that float16 kept), and int16 codes with a scale for each row,
which a machine with `vpdpwssd` has for quantised models (`kernels/attention_codes.py`). One query row
at a time; its numbers don't depend on others.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from glassgear.backends.base import PAGE
from glassgear.backends.cpu.fields import SEGMENT
from glassgear.trace.explain.kernels import LANES, MAGIC, exp, fma, sum16, vectors

__all__ = [
    "Coded", "Mixing", "attend", "attend_codes", "capped_scores", "code_scores", "coded_by_length",
    "coded_by_size", "coded_query", "shown_scores",
]  # fmt: skip

Floats = NDArray[np.float32]
ONE, TWO, ZERO = np.float32(1), np.float32(2), np.float32(0)
TOP, UNIT = np.float32(32767), np.float32(1 / 32767)
LOG2E, FLOOR, TINY = np.float32(1.4426950408889634), np.float32(-126), np.float32(1e-30)


def capped_scores(scores: Floats, cap: float) -> Floats:
    """`cap_scores`: cap * tanh(s / cap) as cap * (1 - 2 / (e^2s/cap + 1))."""
    whole = np.float32(cap)
    out: Floats = whole * (ONE - TWO / (exp(scores * (TWO / whole)) + ONE))
    return out


class Coded(NamedTuple):
    """Rows as int16 codes: [rows, width], and what a code of 1 is worth: [rows]. A query is one row."""

    codes: NDArray[np.int64]
    unit: Any

    @property
    def worth(self) -> NDArray[np.float64]:
        """The numbers that the codes stand for."""
        return self.codes * np.asarray(self.unit, np.float64)[..., None]


def _length(x: Floats) -> Floats:
    """Euclidean length of each row."""
    squares = np.zeros((*x.shape[:-1], LANES), np.float32)
    for v in np.moveaxis(vectors(x), -2, 0):
        squares = fma(v, v, squares)
    return np.asarray(np.sqrt(sum16(squares)))


def _coded(x: Floats, size: Floats) -> Coded:
    """`scales_of`: codes whose largest possible one is TOP."""
    none = size < TINY
    inverse = TOP / np.where(none, ONE, size)
    codes = np.rint(x * np.where(none, ZERO, inverse)[..., None]).astype(np.int64)
    return Coded(codes, np.where(none, ZERO, size / TOP))


def coded_query(x: Floats, scale: np.float32) -> Coded:
    """`query_codes`: the unit, times the scale of scores. That of a query of zeros doesn't matter."""
    length = _length(x)
    unit = ONE if length < TINY else length * UNIT
    return Coded(_coded(x, length).codes, np.float32(unit * scale))


def coded_by_length(x: Floats) -> Coded:
    """`store_key_codes` of rows [rows, width]."""
    return _coded(x, _length(x))


def coded_by_size(x: Floats) -> Coded:
    """`store_value_codes` of rows [rows, width]."""
    return _coded(x, np.abs(x).max(axis=-1))


def code_scores(query: Coded, keys: Coded) -> Floats:
    """`score_codes`: integer products times the keys' units; times the query's they are scores."""
    sums = (keys.codes @ query.codes).astype(np.float32)
    return np.asarray(sums * keys.unit, np.float32)


def shown_scores(products: Floats, worth: np.float32, cap: float) -> Floats:
    """`change_scores`: what a hook sees."""
    if not cap:
        return products * worth
    whole = np.float32(cap)
    out: Floats = whole * (ONE - TWO / (exp(products * (TWO * worth / whole)) + ONE))
    return out


def _exp2(x: Floats, scale: np.float32) -> Floats:
    """`emit_exp2`: 2^(x * scale)."""
    shifted = fma(x, scale, MAGIC)
    rest = fma(x, scale, -(shifted - MAGIC))
    y = np.full(np.shape(x), 0.009582843366525257, np.float32)
    for c in (0.0559064256234402, 0.24024098777854214, 0.6931241933679354, 1.0):
        y = fma(y, rest, np.float32(c))
    bits = y.view(np.uint32) + (shifted.view(np.uint32) << np.uint32(23))
    out: Floats = bits.view(np.float32)
    return out


class Mixing(NamedTuple):
    """A row of attention: mixed values [width], and each token's exponential over their sum, float64."""

    mixed: Floats
    shares: NDArray[np.float64]


class _State:
    """Running maximum, sums, mixed values and exponentials [positions] of one segment."""

    def __init__(self, width: int, length: int) -> None:
        self.top, self.sums = np.float32(-np.inf), np.zeros(LANES, np.float32)
        self.mixed = np.zeros(width, np.float32)
        self.shares = np.zeros(length)

    def mixing(self) -> Mixing:
        """`finish`."""
        whole = ONE / sum16(self.sums)
        return Mixing(self.mixed * whole, self.shares * np.float64(whole))


def attend(scores: Floats, first: int, last: int, values: Floats) -> Mixing:
    """`attention.segment`, `soften`, `merge`, `finish`: one query over the positions first to last.

    Args:
        scores: of all positions, [S].
        first: the first position seen.
        last: the last.
        values: as the cache holds them, [S, width].
    """
    total: _State | None = None
    for segment in range(first // SEGMENT, last // SEGMENT + 1):
        part = _State(values.shape[1], len(scores))
        low, high = max(first, segment * SEGMENT), min(last, (segment + 1) * SEGMENT - 1)
        for page in range(low // PAGE, high // PAGE + 1):
            _page(part, scores, values, page * PAGE, max(low, page * PAGE), min(high, page * PAGE + PAGE - 1))
        total = part if total is None else _merged(total, part)
    assert total is not None
    return total.mixing()


def _page(state: _State, scores: Floats, values: Floats, start: int, low: int, high: int) -> None:
    s = np.full(PAGE, -np.inf, np.float32)
    s[low - start : high + 1 - start] = scores[low : high + 1]
    before, top = state.top, max(state.top, s.max())
    e = exp(s - top)
    with np.errstate(invalid="ignore"):
        shrink = np.float32(exp(before - top)[()])
    quarters = e.reshape(4, LANES)
    state.sums = fma(state.sums, shrink, (quarters[0] + quarters[1]) + (quarters[2] + quarters[3]))
    state.top = np.float32(top)
    if top != before:
        state.mixed = state.mixed * shrink
        state.shares *= np.float64(shrink)
    for token in range(low, high + 1):
        state.mixed = fma(e[token - start], values[token], state.mixed)
    state.shares[low : high + 1] = e[low - start : high + 1 - start]


def _merged(total: _State, part: _State) -> _State:
    top = max(total.top, part.top)
    shrink, scale = np.float32(exp(total.top - top)[()]), np.float32(exp(part.top - top)[()])
    total.top = np.float32(top)
    total.sums = fma(total.sums, shrink, part.sums * scale)
    total.mixed = fma(total.mixed, shrink, part.mixed * scale)
    total.shares = total.shares * np.float64(shrink) + part.shares * np.float64(scale)
    return total


# --- codes -----------------------------------------------------------------------------------


def attend_codes(
    products: Floats, worth: np.float32, cap: float, first: int, last: int, values: Coded
) -> Mixing:
    """The same of codes: `rise`, `weigh`, `mix_codes`, `end_segment`.

    Args:
        products: of all positions, from `code_scores`.
        worth: the query's unit times the scale.
        cap: of scores; 0 for none.
        first: the first position seen.
        last: the last.
        values: of all positions.
    """
    if cap:
        products, worth = shown_scores(products, worth, cap), ONE
    total: _State | None = None
    for segment in range(first // SEGMENT, last // SEGMENT + 1):
        part = _State(values.codes.shape[1], len(products))
        low, high = max(first, segment * SEGMENT), min(last, (segment + 1) * SEGMENT - 1)
        for page in range(low // PAGE, high // PAGE + 1):
            start = page * PAGE
            _code_page(part, products, worth, values, start, max(low, start), min(high, start + PAGE - 1))
        part.top = np.float32(part.top * worth)
        total = part if total is None else _merged(total, part)
    assert total is not None
    return total.mixing()


def _code_page(
    state: _State, products: Floats, worth: np.float32, values: Coded, start: int, low: int, high: int
) -> None:
    t, units = np.full(PAGE, -np.inf, np.float32), np.zeros(PAGE, np.float32)
    here = slice(low - start, high + 1 - start)
    t[here] = products[low : high + 1]
    units[here] = values.unit[low : high + 1]
    before, top = state.top, np.float32(max(state.top, t.max()))
    state.top, scale = top, np.float32(worth * LOG2E)
    drop = np.float32(max(np.float32((before - top) * scale), FLOOR))
    shrink = _exp2(np.array([drop]), ONE)[0]
    p = _exp2(np.maximum(t - top, np.float32(FLOOR / scale)), scale)
    seen = np.zeros(PAGE, np.bool_)
    seen[here] = True
    p = np.where(seen, p, ZERO)
    w = p * units
    quarters, parts = p.reshape(4, LANES), w.reshape(4, LANES)
    state.sums = fma(state.sums, shrink, (quarters[0] + quarters[1]) + (quarters[2] + quarters[3]))
    whole = sum16((parts[0] + parts[1]) + (parts[2] + parts[3]))
    inverse = ZERO if whole < TINY else np.float32(TOP / whole)
    whole = ZERO if whole < TINY else whole
    codes = (fma(w, inverse, MAGIC) - MAGIC).astype(np.int64)
    sums = codes[here] @ values.codes[low : high + 1]
    state.shares *= np.float64(shrink)
    unit = np.float32(whole * UNIT)
    state.mixed = fma(state.mixed, shrink, sums.astype(np.float32) * unit)
    # A code stands for the weight times the value's unit.
    worths = units[here].astype(np.float64)
    state.shares[low : high + 1] = codes[here] * np.float64(unit) / np.where(worths == 0, np.inf, worths)
