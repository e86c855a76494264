"""The sampler of llama2.c, number for number.

In: logits. Out: the id that `run.c` would choose with the same seed. The rules are those of
karpathy/llama2.c, run.c at commit 350e04f (`sample`, `sample_topp`, `random_u32`, `softmax`).
All arithmetic is float32 and every sum runs from the first element to the last, as the C loops
do: `np.cumsum` keeps that order, `np.sum` doesn't. The one thing that C leaves open is `expf`;
here it is the double-precision value rounded once, which glibc's agrees with in all but a few
last bits per ten thousand.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from glassgear.errors import NonFiniteError, SettingError

__all__ = ["Llama2cSampler"]

FloatArray = NDArray[np.float32]

MASK = (1 << 64) - 1
MULTIPLIER = 0x2545F4914F6CDD1D


class Llama2cSampler:
    """Chooses ids as llama2.c does.

    Args:
        temperature: 0 is greedy.
        top_p: 0 to 1; 0 and 1 both mean the whole distribution.
        seed: whole number; llama2.c takes the time in seconds for 0, and so does None here.
        vocab_size: logits beyond it are left out; None: all are used.

    Raises:
        SettingError: a value is out of range (the C program silently puts another in its place).
    """

    def __init__(
        self,
        temperature: float = 1.0,
        top_p: float = 0.9,
        seed: int | None = None,
        vocab_size: int | None = None,
    ) -> None:
        if not 0 <= temperature < float("inf"):
            raise SettingError(f"temperature must be 0 or more, and finite, found {temperature}")
        if not 0 <= top_p <= 1:
            raise SettingError(f"top_p must be from 0 to 1, found {top_p}")
        self.temperature = np.float32(temperature)
        self.top_p = np.float32(top_p)
        self.vocab_size = vocab_size
        # The C program reads the seed with `atoi` and widens the int to 64 bits, sign and all.
        self.seed = _int32(seed or 0) or int(time.time()) & 0xFFFFFFFF
        self._state = self.seed & MASK

    def next(self, logits: FloatArray, history: Sequence[int] = ()) -> int:
        """The next id.

        Args:
            logits: float32 [vocab]; not changed.
            history: not looked at; for the same call as `sampling.Sampler.next`.

        Raises:
            NonFiniteError: NaN, +inf, or nothing but -inf.
        """
        values = np.asarray(logits, np.float32)[: self.vocab_size]
        if not np.isfinite(values.max()):
            raise NonFiniteError("the model's logits hold NaN or infinity, so no token can be chosen")
        if self.temperature == 0:
            return int(values.argmax())
        probabilities = _softmax(values / self.temperature)
        coin = self._coin()
        if self.top_p <= 0 or self.top_p >= 1:
            return _pick(np.cumsum(probabilities, dtype=np.float32), coin)
        return _nucleus(probabilities, self.top_p, coin)

    def _coin(self) -> np.float32:
        """A float32 in [0, 1): the top 24 bits of an xorshift* step (Marsaglia; Vigna)."""
        state = self._state
        state ^= state >> 12
        state ^= (state << 25) & MASK
        state ^= state >> 27
        self._state = state
        drawn = ((state * MULTIPLIER) & MASK) >> 32
        return np.float32(drawn >> 8) / np.float32(16777216.0)


def _softmax(values: FloatArray) -> FloatArray:
    shifted = (values - values.max()).astype(np.float64)
    weights = np.exp(shifted).astype(np.float32)
    out: FloatArray = weights / np.cumsum(weights, dtype=np.float32)[-1]
    return out


def _pick(totals: FloatArray, goal: np.float32) -> int:
    """First position whose running total exceeds the goal; the last if rounding leaves none."""
    return min(int(np.searchsorted(totals, goal, side="right")), len(totals) - 1)


def _nucleus(probabilities: FloatArray, top_p: np.float32, coin: np.float32) -> int:
    """Draw among the most probable ids, up to and with the one that takes the total past top_p."""
    count = len(probabilities)
    cutoff = (np.float32(1) - top_p) / np.float32(max(count - 1, 1))
    candidates = np.flatnonzero(probabilities >= cutoff)
    if not len(candidates):  # top_p below 1/count on a flat distribution: C reads past its array
        return int(probabilities.argmax())
    # glibc's qsort keeps the order of equals.
    order = candidates[np.argsort(-probabilities[candidates], kind="stable")]
    totals = np.cumsum(probabilities[order], dtype=np.float32)
    last = min(int(np.searchsorted(totals, top_p, side="right")), len(order) - 1)
    return int(order[_pick(totals[: last + 1], coin * totals[last])])


def _int32(value: int) -> int:
    return ((int(value) + 0x80000000) & 0xFFFFFFFF) - 0x80000000
