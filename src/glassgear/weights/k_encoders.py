"""Values to the K types of GGML: Q4_K, Q5_K and Q6_K.

In: [n, 256] float32, at most 65504 in magnitude. Out: [n] records of the type's layout. A block has
small groups with scales (and minima) of their own, which are whole multiples of one float16 scale
(and one minimum). Each group is fitted alone; then, with what the formats can store, scales, minima
and codes are improved in turn by least squares, and a step that isn't better is not taken.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glassgear.weights.block_encoders import pack
from glassgear.weights.fits import affine_fit, codes_for, covering_half, divided, scale_fit, squared_error
from glassgear.weights.quant import TYPES

__all__ = ["minima_records", "signed_records"]

Blocks = NDArray[Any]
Floats = NDArray[np.float32]

_SIX_BITS = 63
_ROUNDS = 2  # of improvement; a third gains less than 0.1 %


@dataclass
class _Fit:
    """What is stored of [n] blocks of `groups` groups, in units of each block's largest magnitude.

    Attributes:
        scale, minimum: [n], rounded to float16 in the block's own unit.
        scale_codes, minimum_codes: [n, groups], whole numbers as floats.
        error: [n, groups], the squared errors.
    """

    scale: Floats
    minimum: Floats | None
    scale_codes: Floats
    minimum_codes: Floats | None
    error: Floats


@dataclass(frozen=True)
class _Task:
    """The values, and the ranges of codes.

    Attributes:
        values: [k, n * groups], in units of each block's largest magnitude.
        unit: [n], those magnitudes.
        groups: in a block.
        low, high: the range of codes.
        low_scale, high_scale: the range of the codes of scales.
    """

    values: Floats
    unit: Floats
    groups: int
    low: int
    high: int
    low_scale: int
    high_scale: int

    def rounded(self, number: Floats) -> Floats:
        """A number of each block as float16 will hold it, in the block's unit."""
        return np.asarray(covering_half(number * self.unit).astype(np.float32) / self.unit)

    def of_groups(self, number: Floats) -> Floats:
        """[n * groups] as [n, groups]."""
        return number.reshape(-1, self.groups)


def _task(values: Floats, groups: int, ranges: tuple[int, int, int, int]) -> _Task:
    unit = np.abs(values).max(axis=1)
    unit[unit == 0] = 1
    scaled = (values / unit[:, np.newaxis]).reshape(len(values) * groups, -1)
    return _Task(np.ascontiguousarray(scaled.T), unit, groups, *ranges)


def minima_records(type_name: str, values: Floats) -> Blocks:
    """Q4_K and Q5_K: 8 groups of 32, each with 6 bits of scale and 6 of minimum."""
    top = {"Q4_K": 15, "Q5_K": 31}[type_name]
    task = _task(values, 8, (0, top, 0, _SIX_BITS))
    scale, offset = affine_fit(task.values, top, most=0.0)
    scales, minima = task.of_groups(scale), task.of_groups(-offset)
    fit = _stored(task, scales, minima, scales.max(axis=1), minima.max(axis=1))
    fit = _improved(task, fit)
    blocks = np.empty(len(values), TYPES[type_name].layout)
    codes = _whole(_codes(task, fit), 0, len(values))
    assert fit.minimum is not None and fit.minimum_codes is not None
    blocks["scale"], blocks["minimum"] = fit.scale * task.unit, fit.minimum * task.unit
    blocks["scales"] = _six_bit_pairs(fit.scale_codes.astype(np.uint8), fit.minimum_codes.astype(np.uint8))
    blocks["codes"] = pack(codes & np.uint8(15), 4, 32)
    if type_name == "Q5_K":
        blocks["high_bits"] = pack(codes >> np.uint8(4), 1, 32)
    return blocks


def signed_records(type_name: str, values: Floats) -> Blocks:
    """Q6_K: 16 groups of 16 codes around 0, each with 8 bits of signed scale."""
    task = _task(values, 16, (-32, 31, -128, 127))
    extreme = np.take_along_axis(task.values, np.abs(task.values).argmax(axis=0)[np.newaxis], axis=0)[0]
    unit = -extreme
    scales = task.of_groups(scale_fit(divided(task.values, unit), -32, 31) * unit)
    # The largest scale has the code -128, which reaches furthest.
    largest = np.take_along_axis(scales, np.abs(scales).argmax(axis=1)[:, np.newaxis], axis=1)[:, 0]
    fit = _improved(task, _stored(task, scales, None, -largest, None))
    blocks = np.empty(len(values), TYPES[type_name].layout)
    codes = _whole(_codes(task, fit), 32, len(values))
    blocks["scale"] = fit.scale * task.unit
    blocks["scales"] = fit.scale_codes
    blocks["codes"] = pack(codes & np.uint8(15), 4, 64)
    blocks["high_bits"] = pack(codes >> np.uint8(4), 2, 32)
    return blocks


def _whole(codes: Floats, zero: int, n: int) -> NDArray[np.uint8]:
    """[k, n * groups] -> [n, 256], with the code 0 stored as `zero`."""
    return np.ascontiguousarray(codes.T + np.float32(zero)).astype(np.uint8).reshape(n, -1)


def _six_bit_pairs(scales: NDArray[np.uint8], minima: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Eight scales and eight minima in 12 bytes: see `quant._scales_and_minima`."""
    first = scales[:, :4] | (scales[:, 4:] >> 4 << 6)
    second = minima[:, :4] | (minima[:, 4:] >> 4 << 6)
    third = (scales[:, 4:] & 15) | (minima[:, 4:] << 4)
    return np.concatenate([first, second, third], axis=1)


# --------------------------------------------------------------------------------------------
# From what would be best to what can be stored


def _stored(
    task: _Task, scales: Floats, minima: Floats | None, largest: Floats, largest_minimum: Floats | None
) -> _Fit:
    """The fit in codes of scales whose largest is to have the code of largest magnitude."""
    reach = task.high_scale if task.low_scale == 0 else -task.low_scale
    scale = task.rounded(largest / np.float32(reach))
    minimum = None if largest_minimum is None else task.rounded(largest_minimum / np.float32(_SIX_BITS))
    return _with(task, scale, minimum, scales, minima)


def _with(task: _Task, scale: Floats, minimum: Floats | None, scales: Floats, minima: Floats | None) -> _Fit:
    """Scales and minima in whole multiples of one scale and one minimum, and what they cost."""
    scale_codes = codes_for(scales.T, scale, None, task.low_scale, task.high_scale).T
    minimum_codes = None
    if minimum is not None and minima is not None:
        minimum_codes = codes_for(minima.T, minimum, None, 0, _SIX_BITS).T
    return _judged(task, _Fit(scale, minimum, scale_codes, minimum_codes, scale_codes))


def _judged(task: _Task, fit: _Fit) -> _Fit:
    error = squared_error(task.values, _codes(task, fit), *_effective(fit))
    fit.error = task.of_groups(error)
    return fit


def _effective(fit: _Fit) -> tuple[Floats, Floats | None]:
    """Scale and offset of each group: [n * groups]."""
    scale = (fit.scale[:, np.newaxis] * fit.scale_codes).reshape(-1)
    if fit.minimum is None or fit.minimum_codes is None:
        return scale, None
    return scale, -(fit.minimum[:, np.newaxis] * fit.minimum_codes).reshape(-1)


def _codes(task: _Task, fit: _Fit) -> Floats:
    return codes_for(task.values, *_effective(fit), task.low, task.high)


def _improved(task: _Task, fit: _Fit) -> _Fit:
    for _ in range(_ROUNDS):
        fit = _better_groups(task, fit)
        fit = _better_blocks(task, fit)
    return _better_groups(task, fit)


def _better_groups(task: _Task, fit: _Fit) -> _Fit:
    """Each group takes a neighbouring code for its scale, and the minimum that then fits, if nearer."""
    for step in (-1, 1):
        trial = _Fit(fit.scale, fit.minimum, fit.scale_codes, fit.minimum_codes, fit.error)
        trial.scale_codes = np.clip(fit.scale_codes + np.float32(step), task.low_scale, task.high_scale)
        if fit.minimum is not None:
            trial.minimum_codes = _minimum_codes(task, trial)
        _judged(task, trial)
        better = trial.error < fit.error
        fit = _merged(fit, trial, better)
    if fit.minimum is not None:
        trial = _Fit(fit.scale, fit.minimum, fit.scale_codes, _minimum_codes(task, fit), fit.error)
        _judged(task, trial)
        fit = _merged(fit, trial, trial.error < fit.error)
    return fit


def _minimum_codes(task: _Task, fit: _Fit) -> Floats:
    """The minimum that suits the codes which a group has now."""
    assert fit.minimum is not None
    scale, _ = _effective(fit)
    minimum = (_codes(task, fit) * scale - task.values).mean(axis=0)
    return np.asarray(codes_for(task.of_groups(minimum).T, fit.minimum, None, 0, _SIX_BITS).T)


def _merged(fit: _Fit, other: _Fit, better: NDArray[np.bool_]) -> _Fit:
    def either(a: Floats | None, b: Floats | None) -> Floats | None:
        return None if a is None or b is None else np.where(better, b, a)

    return _Fit(
        fit.scale, fit.minimum,
        np.where(better, other.scale_codes, fit.scale_codes),
        either(fit.minimum_codes, other.minimum_codes),
        np.where(better, other.error, fit.error),
    )  # fmt: skip


def _better_blocks(task: _Task, fit: _Fit) -> _Fit:
    """The block's own scale and minimum by least squares for the codes of now, if nearer."""
    codes = _codes(task, fit)
    blocks = fit.scale_codes.shape

    def total(per_group: Floats) -> Floats:
        return np.asarray(per_group.reshape(blocks).sum(axis=1))

    factors = fit.scale_codes.reshape(-1)
    square = total((codes * codes).sum(axis=0) * factors * factors)
    along = total((codes * task.values).sum(axis=0) * factors)
    if fit.minimum is None or fit.minimum_codes is None:
        trial = _Fit(task.rounded(divided(along, square)), None, fit.scale_codes, None, fit.error)
    else:
        k = np.float32(len(task.values))
        minima = fit.minimum_codes.reshape(-1)
        mixed = total(codes.sum(axis=0) * factors * minima)
        minima_square = total(k * minima * minima)
        minima_along = total(task.values.sum(axis=0) * minima)
        # scale * A - minimum * B = values: the normal equations of the two.
        determinant = square * minima_square - mixed * mixed
        usable = determinant > np.float32(1e-4) * square * minima_square
        safe = np.where(usable, determinant, np.float32(1))
        scale = np.where(usable, (along * minima_square - mixed * minima_along) / safe, fit.scale)
        minimum = np.where(usable, (along * mixed - minima_along * square) / safe, fit.minimum)
        trial = _Fit(
            task.rounded(scale),
            task.rounded(np.maximum(minimum, 0)),
            fit.scale_codes,
            fit.minimum_codes,
            fit.error,
        )
    _judged(task, trial)
    better = trial.error.sum(axis=1) < fit.error.sum(axis=1)
    merged = _merged(fit, trial, better[:, np.newaxis])
    merged.scale = np.where(better, trial.scale, fit.scale)
    if fit.minimum is not None and trial.minimum is not None:
        merged.minimum = np.where(better, trial.minimum, fit.minimum)
    return merged
