"""The sampling settings and their ranges. What they do is said, and done, in `sampling.py`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf, isfinite
from numbers import Integral, Real

from glassgear.errors import SettingError

__all__ = ["Sampling"]


@dataclass(frozen=True)
class Sampling:
    """How to choose the next id.

    Attributes:
        temperature: 0 is greedy; 1 leaves the model's probabilities.
        top_k: how many ids stay; 0 or -1: all.
        top_p: total probability that stays, 0 to 1; 0 keeps the likeliest id, 1 all.
        min_p: smallest share of the likeliest id's probability that stays, 0 to 1; 0: off.
        repetition_penalty: above 0; 1: off; above 1 makes repeated ids less likely.
        presence_penalty: subtracted once from the logit of every id in the window; 0: off.
        frequency_penalty: subtracted for each time an id occurs in the window; 0: off.
        penalty_window: how many of the last ids, prompt included, the penalties look at;
            -1: all of them.
        logit_bias: id -> what to add to its logit; -inf bans it.
        seed: any whole number from 0; the same seed gives the same text. None: a new one.

    Raises:
        SettingError: a value is out of range; the message names the option.
    """

    temperature: float = 0.8
    top_k: int = 40
    top_p: float = 0.95
    min_p: float = 0.05
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    penalty_window: int = 64
    logit_bias: Mapping[int, float] = field(default_factory=dict, hash=False)
    seed: int | None = None

    def __post_init__(self) -> None:
        for name, low, high in (
            ("temperature", 0.0, inf),
            ("top_p", 0.0, 1.0),
            ("min_p", 0.0, 1.0),
            ("presence_penalty", -inf, inf),
            ("frequency_penalty", -inf, inf),
            ("repetition_penalty", 0.0, inf),
        ):
            object.__setattr__(self, name, _number(name, getattr(self, name), low, high))
        if self.repetition_penalty == 0:
            raise SettingError("repetition_penalty must be above 0, found 0; 1 turns it off")
        for name in ("top_k", "penalty_window"):
            object.__setattr__(self, name, _whole(name, getattr(self, name), -1))
        if self.seed is not None:
            object.__setattr__(self, "seed", _whole("seed", self.seed, 0))
        object.__setattr__(self, "logit_bias", _bias(self.logit_bias))

    @property
    def greedy(self) -> bool:
        """Whether the largest logit is taken without a draw."""
        return self.temperature == 0 or self.top_k == 1

    @property
    def penalises(self) -> bool:
        """Whether any penalty is on."""
        penalties = (self.repetition_penalty, self.presence_penalty, self.frequency_penalty)
        return penalties != (1, 0, 0) and self.penalty_window != 0


def _number(name: str, value: object, low: float, high: float) -> float:
    if isinstance(value, bool) or not isinstance(value, Real):
        raise SettingError(f"{name} must be a number, found {value!r}")
    number = float(value)
    if not isfinite(number) or not low <= number <= high:
        most = f"from {low:g} to {high:g}" if isfinite(high) else f"{low:g} or more, and finite"
        bounds = most if isfinite(low) else "finite"
        raise SettingError(f"{name} must be {bounds}, found {value}")
    return number


def _whole(name: str, value: object, low: int) -> int:
    whole = isinstance(value, Integral) or (isinstance(value, float) and value.is_integer())
    if not whole or isinstance(value, bool):
        raise SettingError(f"{name} must be a whole number, found {value!r}")
    number: int = int(value)  # type: ignore[call-overload]
    if number < low:
        raise SettingError(f"{name} must be {low} or more, found {value}")
    return number


def _bias(given: Mapping[int, float]) -> dict[int, float]:
    if not isinstance(given, Mapping):
        raise SettingError(f"logit_bias must map ids to numbers, found {given!r:.60}")
    out: dict[int, float] = {}
    for token, amount in given.items():
        banned = isinstance(amount, float) and amount == -inf
        name = f"logit_bias for id {token}"
        out[_whole("an id in logit_bias", token, 0)] = -inf if banned else _number(name, amount, -inf, inf)
    return out
