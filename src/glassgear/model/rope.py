"""Rotary frequencies and their scaling, in plain floats: the one place that knows these formulas.

In: a `Rope` gear, or the settings of a config. Out: an inverse frequency per pair. Backends
turn them into tables of cos and sin.
"""

from __future__ import annotations

import math

from glassgear.model.gears import Rope, RopeScaling

__all__ = ["attention_factor", "inverse_frequencies", "yarn_attention_factor", "yarn_magnitude"]


def inverse_frequencies(rope: Rope) -> tuple[float, ...]:
    """Radians that each of the dim/2 pairs turns per position, after scaling."""
    plain = [rope.theta ** (-2.0 * i / rope.dim) for i in range(rope.dim // 2)]
    scaling = rope.scaling
    if scaling is None:
        return tuple(plain)
    if scaling.kind == "linear":
        return tuple(f / scaling.factor for f in plain)
    if scaling.kind == "llama3":
        return tuple(_llama3(f, scaling) for f in plain)
    if scaling.kind == "yarn":
        return _yarn(plain, rope, scaling)
    assert scaling.kind == "factors" and len(scaling.factors) == len(plain)
    return tuple(f / by for f, by in zip(plain, scaling.factors, strict=True))


def attention_factor(rope: Rope) -> float:
    """What cos and sin are multiplied by."""
    return rope.scaling.attention_factor if rope.scaling else 1.0


def _llama3(frequency: float, scaling: RopeScaling) -> float:
    """Llama 3.1's rule: waves longer than the trained context are slowed down, short ones kept."""
    wavelength = 2 * math.pi / frequency
    longest, shortest = (
        scaling.original_context / scaling.low_freq_factor,
        (scaling.original_context / scaling.high_freq_factor),
    )
    if wavelength < shortest:
        return frequency
    if wavelength > longest:
        return frequency / scaling.factor
    kept = (scaling.original_context / wavelength - scaling.low_freq_factor) / (
        scaling.high_freq_factor - scaling.low_freq_factor
    )
    return (1 - kept) * frequency / scaling.factor + kept * frequency


def _yarn(plain: list[float], rope: Rope, scaling: RopeScaling) -> tuple[float, ...]:
    """Peng et al. 2023, section 3.2: pairs that turn often are kept, slow ones interpolated."""

    def pair_turning(rotations: float) -> float:
        turns = scaling.original_context / (rotations * 2 * math.pi)
        return rope.dim * math.log(turns) / (2 * math.log(rope.theta))

    low, high = pair_turning(scaling.beta_fast), pair_turning(scaling.beta_slow)
    if scaling.truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, rope.dim - 1)
    if low == high:
        high += 0.001  # the published code's guard against an empty ramp
    out = []
    for i, frequency in enumerate(plain):
        stretched = min(max((i - low) / (high - low), 0.0), 1.0)
        out.append(stretched * frequency / scaling.factor + (1 - stretched) * frequency)
    return tuple(out)


def yarn_magnitude(factor: float, weight: float = 1.0) -> float:
    """0.1 * weight * ln(factor) + 1: how much attention is sharpened at a stretch of `factor`."""
    return 0.1 * weight * math.log(factor) + 1.0 if factor > 1 else 1.0


def yarn_attention_factor(
    factor: float,
    explicit: float | None = None,
    mscale: float | None = None,
    mscale_all_dim: float | None = None,
) -> float:
    """The factor on cos and sin that a config asks for; an explicit one is taken as it stands.

    With both `mscale` keys (DeepSeek) it is the quotient of their magnitudes; the softmax scale
    is then multiplied by `yarn_magnitude(factor, mscale_all_dim)` squared, which is not done here.
    """
    if explicit is not None:
        return explicit
    if mscale and mscale_all_dim:
        return yarn_magnitude(factor, mscale) / yarn_magnitude(factor, mscale_all_dim)
    return yarn_magnitude(factor)
