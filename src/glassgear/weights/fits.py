"""Scales (and offsets) under which rounded codes come nearest to given values.

In: groups of values, float32 [k, n]: a group is a column, so that every operation runs along
memory. Out: float32 [n] for each group. What is least is the plain sum of squared errors; the codes
are whole numbers of a range, so the sum has many local minima: scales around the obvious one are
tried, each with its codes, and the best is the least-squares solution for its codes. No group
depends on its neighbours. How the results are rounded and packed is for `block_encoders.py`.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["affine_fit", "codes_for", "covering_half", "divided", "scale_fit", "squared_error"]

Floats = NDArray[np.float32]

# Codes that the first and the last value of a group are stretched past the range, in codes: cutting
# the extremes a little buys smaller steps for all others. Finer or wider grids gain less than 1 %.
_OVERSHOOT = (-0.5, 0.0, 0.5, 1.0)
_LEAST_NORMAL = np.float16(2**-14)
_STRETCH = np.arange(-0.9, 1.0, 0.2)


def covering_half(values: Floats) -> NDArray[np.float16]:
    """The nearest float16, but away from zero where float16 has few bits left (below 2^-14).

    There the nearest may be a third less, or 0, and codes of a limited range couldn't make up for it.
    """
    half = values.astype(np.float16)
    short = (np.abs(half) < _LEAST_NORMAL) & (np.abs(half.astype(np.float32)) < np.abs(values))
    return np.where(short, np.nextafter(half, np.copysign(np.inf, values).astype(np.float16)), half).astype(
        np.float16
    )


def divided(values: Floats, by: Floats) -> Floats:
    """Values / by; where `by` is 0, the values as they are."""
    return np.divide(values, np.where(by == 0, np.float32(1), by), dtype=np.float32)


def codes_for(values: Floats, scale: Floats, offset: Floats | None, low: int, high: int) -> Floats:
    """The nearest codes: whole numbers from `low` to `high`, as floats, in new memory.

    Args:
        values: [k, n].
        scale: [n]; values are about scale * code + offset. A scale of 0 gives codes of 0.
        offset: [n]; None: 0.
        low: the least code.
        high: the largest.
    """
    with np.errstate(divide="ignore"):
        inverse = np.where(scale == 0, np.float32(0), np.float32(1) / scale)
    codes = values * inverse if offset is None else (values - offset) * inverse
    np.rint(codes, out=codes)
    return np.asarray(np.clip(codes, low, high, out=codes))


def squared_error(values: Floats, codes: Floats, scale: Floats, offset: Floats | None) -> Floats:
    """The sum over a group of (scale * code + offset - value)^2: [n]."""
    error = codes * scale
    if offset is not None:
        error += offset
    error -= values
    error *= error
    return np.asarray(error.sum(axis=0))


def scale_fit(values: Floats, low: int, high: int) -> Floats:
    """The scale for which codes from `low` to `high` come nearest; its sign is part of the choice.

    Args:
        values: [k, n], the value of largest magnitude of each group being -1, or all of it 0.
        low: the least code, about which that value gets; -low is `high` or one more.
        high: the largest.
    """
    n = values.shape[1]
    best, scale = np.zeros(n, np.float32), np.zeros(n, np.float32)
    product = np.empty_like(values)
    # With more than some hundred codes, cutting the extreme off never pays.
    for stretch in _STRETCH if high < 64 else (0.0,):
        codes = values * np.float32(stretch - low)
        np.rint(codes, out=codes)
        np.clip(codes, low, high, out=codes)
        along = np.multiply(codes, values, out=product).sum(axis=0)
        square = np.maximum(np.multiply(codes, codes, out=product).sum(axis=0), 1)
        found = along / square
        _keep_better(best, found * along, (scale, found))
    return scale


def affine_fit(values: Floats, top: int, *, most: float | None = None) -> tuple[Floats, Floats]:
    """The scale (0 or more) and offset for which codes from 0 to `top` come nearest.

    Args:
        values: [k, n].
        top: the largest code.
        most: the largest allowed offset; None: any.
    """
    least = values.min(axis=0)
    if most is not None:
        least = np.minimum(least, np.float32(most))
    width = values.max(axis=0) - least
    inverse = np.float32(1) / np.where(width > 0, width, np.float32(1))
    scaled = (values - least) * inverse  # from 0 to 1
    scale, offset = _affine_grid(scaled, top)
    scale, offset = scale * width, offset * width + least
    if most is None:
        return scale, offset
    # Where the offset would be too large it is the largest allowed one, with the scale that goes with it.
    over = offset > most
    if over.any():
        scale[over] = _scale_from(values[:, over], np.float32(most), top)
        offset[over] = most
    return scale, offset


def _affine_grid(scaled: Floats, top: int) -> tuple[Floats, Floats]:
    """The fit of values from 0 to 1: both ends of the range are moved."""
    k, n = scaled.shape
    mean = scaled.mean(axis=0)
    centred = scaled - mean
    best, scale, offset = np.zeros(n, np.float32), np.zeros(n, np.float32), mean.copy()
    product = np.empty_like(scaled)
    for below in _OVERSHOOT:
        for above in _OVERSHOOT:
            steps = top * top / (top - below - above)
            codes = scaled * np.float32(steps)
            codes -= np.float32(below * steps / top)
            np.rint(codes, out=codes)
            np.clip(codes, 0, top, out=codes)
            average = codes.sum(axis=0) / np.float32(k)
            along = np.multiply(codes, centred, out=product).sum(axis=0)
            square = np.multiply(codes, codes, out=product).sum(axis=0) - average * average * np.float32(k)
            found = along / np.maximum(square, np.float32(0.5))  # 0 only where all codes are the same
            _keep_better(best, found * along, (scale, found), (offset, mean - found * average))
    return scale, offset


def _scale_from(values: Floats, offset: np.float32, top: int) -> Floats:
    """The scale for a given offset, in three rounds of codes and least squares."""
    above = values - offset
    scale = above.max(axis=0) / np.float32(top)
    for _ in range(3):
        codes = codes_for(above, scale, None, 0, top)
        scale = (codes * above).sum(axis=0) / np.maximum((codes * codes).sum(axis=0), 1)
    return np.asarray(scale)


def _keep_better(best: Floats, gain: Floats, *pairs: tuple[Floats, Floats]) -> None:
    """Where `gain` is more than `best`, take it and, of each pair, the second for the first."""
    better = gain > best
    best[better] = gain[better]
    for kept, found in pairs:
        kept[better] = found[better]
