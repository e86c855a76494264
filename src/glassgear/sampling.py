"""Logits -> the next id. One chain of pure stages, run and inspected through the same code.

The order, which is llama.cpp's with its default chain:

1. **logit bias**: added to single ids; -inf bans one.
2. **penalties** for ids among the last `penalty_window` of the history, prompt included:
   repetition (a positive logit divided by it, a negative one multiplied: CTRL, Keskar et al.
   2019, section 4.1, as in transformers), then `count * frequency + presence` subtracted
   (as OpenAI defines them).
3. **hook**: any function that masks or changes logits; a grammar, say.
4. **greedy**, if the temperature is 0 or `top_k` is 1: the largest logit, the lowest id among
   equals. Nothing is divided, nothing drawn.
5. **top-k**: the k largest logits; among equals the lower ids.
6. **top-p**: the smallest set of most probable ids whose total reaches p (Holtzman et al. 2020).
   Probabilities are those among the ids that top-k left.
7. **min-p**: ids at least `min_p` times as probable as the likeliest (Nguyen et al. 2024).
8. **temperature**, last: what 5 to 7 keep doesn't depend on it. transformers and vLLM apply it
   first, and so keep more ids at a high temperature.
9. **draw**: one uniform number, ids in rising order.

A stage that is off (bias empty, penalties neutral, `top_k` 0 or -1, `top_p` 1, `min_p` 0,
temperature 1) does nothing and isn't listed. Every filter keeps at least one id. Logits of -inf
are never drawn. NaN, +inf, or nothing but -inf is an error, never an id.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf, isfinite, log

import numpy as np
from numpy.typing import NDArray

from glassgear.errors import NonFiniteError, SettingError
from glassgear.sampling_settings import Sampling

__all__ = [
    "Draw",
    "LogitsHook",
    "Sampler",
    "Sampling",
    "Stage",
    "logprobs",
    "min_p",
    "penalised",
    "top_k",
    "top_p",
]

FloatArray = NDArray[np.float32]
IdArray = NDArray[np.int64]

LogitsHook = Callable[[FloatArray, Sequence[int]], FloatArray | None]
"""Gets a copy of the logits [vocab] and the history; changes it in place, or returns another."""

# float32 logits don't resolve probabilities better than this: [.5, .3, .2] with top_p 0.5 must
# keep one id whichever way its .5 was rounded.
RESOLUTION = 1e-6

NEAR = 12.0  # nats below the largest logit within which top-p looks first
BUCKETS_PER_NAT = 32  # how finely top-p sorts logits into buckets before it looks inside one
BUCKETS = 128 * BUCKETS_PER_NAT  # beyond 128 nats below the top, nothing is left of a float32
BLOCK = 64  # logits whose maximum top-k looks at together


@dataclass(frozen=True, eq=False)
class Stage:
    """The ids that are left after one stage.

    Attributes:
        name: `logits`, `logit bias`, `penalties`, `hook`, `greedy`, `top-k`, `top-p`, `min-p`
            or `temperature`.
        setting: the value it was run with, as a user would write it.
        ids: int64 [kept], rising.
        logits: float32 [kept], as they are after this stage.
    """

    name: str
    setting: str
    ids: IdArray
    logits: FloatArray

    @property
    def probabilities(self) -> NDArray[np.float64]:
        """Probability of each id among those kept, float64 [kept]."""
        weights = _weights(self.logits).astype(np.float64)
        out: NDArray[np.float64] = weights / weights.sum()
        return out


@dataclass(frozen=True)
class Draw:
    """Which id a random number means.

    Attributes:
        number: in [0, 1).
        low: where the id's stretch of [0, 1) begins; ids stand there in rising order, each as long as it
            is probable.
        high: where it ends.
        id: the id.
    """

    number: float
    low: float
    high: float
    id: int


class Sampler:
    """Chooses ids for one sequence. Its random numbers are its own: neighbours in a batch don't matter.

    Args:
        settings: what to do.
        hook: see `LogitsHook`.
        vocab_size: entries beyond it (padding of the head) are never chosen.

    Attributes:
        seed: the seed in use, also where the settings left it open.
    """

    def __init__(
        self, settings: Sampling, *, hook: LogitsHook | None = None, vocab_size: int | None = None
    ) -> None:
        self.settings = settings
        if hook is not None and not callable(hook):
            raise SettingError(f"hook must be a function of logits and ids so far, found {hook!r:.60}")
        self.hook = hook
        self.vocab_size = vocab_size
        self.seed = secrets.randbits(32) if settings.seed is None else settings.seed
        # The raw stream of a bit generator is what NumPy promises never to change (NEP 19).
        self._bits = np.random.PCG64(self.seed)
        self._all_ids: IdArray = np.zeros(0, np.int64)
        # The largest logit is the id: no stage before it, so that none has to be made.
        changes = settings.logit_bias or settings.penalises or hook
        self._only_greedy = settings.greedy and not changes

    def next(self, logits: FloatArray, history: Sequence[int]) -> int:
        """The next id.

        Args:
            logits: float32 [vocab]; not changed.
            history: all ids so far, prompt included.

        Raises:
            NonFiniteError: NaN, +inf, or nothing but -inf.
            SettingError: a biased id is outside the vocabulary, or the hook returned nonsense.
        """
        if self._only_greedy and logits.ndim == 1 and len(logits):
            best = int(logits[: self.vocab_size].argmax())  # the first NaN, if there is one
            if isfinite(logits[best]):
                return best
        last = self._last(logits, history)
        if self.settings.greedy:
            return int(last.ids[0])
        return int(last.ids[_draw(_weights(last.logits), self._uniform())])

    def skip(self, draws: int) -> None:
        """Leave out so many random numbers, as if so many ids had been drawn; greedy choices take none."""
        self._bits.advance(draws)

    def draw(self, logits: FloatArray, history: Sequence[int]) -> Draw | None:
        """What `next` would draw, without using up its random number; None where nothing is drawn."""
        last = self._last(logits, history)
        if self.settings.greedy:
            return None
        state = self._bits.state
        number = self._uniform()
        self._bits.state = state
        place = _draw(_weights(last.logits), number)
        ends = np.cumsum(last.probabilities)
        low = float(ends[place - 1]) if place else 0.0
        return Draw(number, low, float(ends[place]), int(last.ids[place]))

    def stages(self, logits: FloatArray, history: Sequence[int]) -> list[Stage]:
        """Every stage that `next` would run, in order; nothing is drawn."""
        return list(self._run(logits, history))

    def probabilities(self, logits: FloatArray, history: Sequence[int]) -> NDArray[np.float64]:
        """The distribution that `next` draws from, float64 [vocab]; 0 where an id was removed."""
        last = self._last(logits, history)
        out = np.zeros(len(logits), np.float64)
        out[last.ids] = last.probabilities
        return out

    def _last(self, logits: FloatArray, history: Sequence[int]) -> Stage:
        *_, last = self._run(logits, history)
        return last

    def _run(self, logits: FloatArray, history: Sequence[int]) -> Iterator[Stage]:
        """The chain itself: see the module's docstring for the order."""
        chosen = self.settings
        values = np.asarray(logits, np.float32)[: self.vocab_size]
        if values.ndim != 1 or not len(values):
            raise SettingError(f"logits must have the shape [vocab], found {list(np.shape(logits))}")
        _check_finite(values, "the model's logits")
        yield self._stage("logits", "", values)
        if chosen.logit_bias:
            values = _biased(values, chosen.logit_bias)
            yield self._stage("logit bias", f"{len(chosen.logit_bias)} ids", values)
        if chosen.penalises:
            values = penalised(values, history, chosen)
            yield self._stage("penalties", _penalty_text(chosen), values)
        if self.hook:
            values = _hooked(values, history, self.hook)
            yield self._stage("hook", getattr(self.hook, "__name__", "a function"), values)
        if chosen.logit_bias or chosen.penalises or self.hook:
            _check_finite(values, "the logits after bias, penalties and hook")
        if chosen.greedy:
            best = int(values.argmax())
            yield Stage("greedy", "", np.array([best], np.int64), values[best : best + 1])
            return
        yield from _filtered(self._stage("", "", values), chosen)

    def _stage(self, name: str, setting: str, values: FloatArray) -> Stage:
        if len(self._all_ids) != len(values):
            self._all_ids = np.arange(len(values), dtype=np.int64)
        possible = values > -inf
        if possible.all():
            return Stage(name, setting, self._all_ids, values)
        return Stage(name, setting, np.flatnonzero(possible), values[possible])

    def _uniform(self) -> float:
        """A number in [0, 1) with 53 random bits."""
        return (int(self._bits.random_raw()) >> 11) * 2.0**-53


def _filtered(start: Stage, chosen: Sampling) -> Iterator[Stage]:
    """Stages 5 to 8, those that are on."""
    ids, values = start.ids, start.logits
    filters: list[tuple[str, float, Callable[[FloatArray], IdArray]]] = []
    if chosen.top_k > 0:
        filters.append(("top-k", chosen.top_k, lambda left: top_k(left, chosen.top_k)))
    if chosen.top_p < 1:
        filters.append(("top-p", chosen.top_p, lambda left: top_p(left, chosen.top_p)))
    if chosen.min_p > 0:
        filters.append(("min-p", chosen.min_p, lambda left: min_p(left, chosen.min_p)))
    for name, setting, keep in filters:
        kept = keep(values)
        ids, values = ids[kept], values[kept]
        yield Stage(name, f"{setting:g}", ids, values)
    if chosen.temperature != 1:
        yield Stage("temperature", f"{chosen.temperature:g}", ids, tempered(values, chosen.temperature))


def penalised(values: FloatArray, history: Sequence[int], chosen: Sampling) -> FloatArray:
    """Logits [vocab] after the penalties for the last `penalty_window` ids of the history."""
    window = history if chosen.penalty_window < 0 else history[max(0, len(history) - chosen.penalty_window) :]
    seen, counts = np.unique(np.asarray(window, np.int64), return_counts=True)
    inside = (seen >= 0) & (seen < len(values))
    seen, counts = seen[inside], counts[inside]
    out = values.copy()
    found = values[seen].astype(np.float64)
    found = np.where(found > 0, found / chosen.repetition_penalty, found * chosen.repetition_penalty)
    with np.errstate(over="ignore"):
        out[seen] = found - counts * chosen.frequency_penalty - chosen.presence_penalty
    return out


def top_k(values: FloatArray, k: int) -> IdArray:
    """Positions, rising, of the k largest logits; among equals the lower positions."""
    if k >= len(values):
        return np.arange(len(values), dtype=np.int64)
    near = np.arange(len(values), dtype=np.int64)
    rows = len(values) // BLOCK
    if rows > 2 * k:
        # k blocks whose maximum reaches `floor` hold at least k values that do, so the k
        # largest all do: what is left to look at is short.
        maxima = values[: rows * BLOCK].reshape(BLOCK, rows).max(axis=0)
        floor = np.partition(maxima, rows - k)[rows - k]
        near = np.flatnonzero(values >= floor)
    few = values[near]
    limit = np.partition(few, len(few) - k)[len(few) - k]
    above = near[few > limit]
    equal = near[few == limit][: k - len(above)]
    return np.sort(np.concatenate([above, equal]))


def top_p(values: FloatArray, p: float) -> IdArray:
    """Positions, rising, of the smallest set of most probable ids whose total reaches p.

    A total within a millionth of p counts as reaching it. No sort of the whole vocabulary:
    logits far below the largest are left aside if the rest makes up the total, the others fall
    into buckets by their distance from the largest, and only the bucket in which the total
    passes p is sorted.
    """
    weights = _weights(values)
    goal = (p - RESOLUTION) * weights.sum(dtype=np.float64)
    near = np.flatnonzero(values >= float(values.max()) - NEAR)
    if len(near) * 8 < len(values) and weights[near].sum(dtype=np.float64) >= goal:
        return near[_smallest_set(values[near], weights[near], goal)]
    return _smallest_set(values, weights, goal)


def _smallest_set(values: FloatArray, weights: FloatArray, goal: float) -> IdArray:
    with np.errstate(over="ignore"):
        distance = (values.max() - values) * np.float32(BUCKETS_PER_NAT)
    bucket = np.minimum(distance, BUCKETS - 1).astype(np.int32)
    mass = np.cumsum(np.bincount(bucket, weights))
    cut = min(int(np.searchsorted(mass, goal)), len(mass) - 1)
    border = np.flatnonzero(bucket == cut)
    border = border[np.argsort(-values[border], kind="stable")]
    totals = (mass[cut - 1] if cut else 0.0) + np.cumsum(weights[border], dtype=np.float64)
    count = int(np.searchsorted(totals, goal)) + 1
    return np.sort(np.concatenate([np.flatnonzero(bucket < cut), border[:count]]))


def min_p(values: FloatArray, share: float) -> IdArray:
    """Positions, rising, of the ids at least `share` times as probable as the likeliest."""
    return np.flatnonzero(values >= float(values.max()) + log(share) - RESOLUTION)


def tempered(values: FloatArray, temperature: float) -> FloatArray:
    """Logits relative to the largest, divided by the temperature; float32, largest is 0."""
    with np.errstate(over="ignore"):
        return ((values.astype(np.float64) - float(values.max())) / temperature).astype(np.float32)


def logprobs(logits: NDArray[np.floating]) -> FloatArray:
    """Natural-log softmax over the last axis, float32 [..., vocab]; sums are float64.

    Raises:
        NonFiniteError: a row holds NaN, +inf, or nothing but -inf.
    """
    values = np.asarray(logits, np.float32)
    _check_finite(values, "the logits")
    top = values.max(axis=-1, keepdims=True)
    shifted = values - top
    total = np.exp(shifted).sum(axis=-1, keepdims=True, dtype=np.float64)
    out: FloatArray = (shifted - np.log(total)).astype(np.float32)
    return out


def _weights(values: FloatArray) -> FloatArray:
    """Unnormalised probabilities, the largest 1."""
    with np.errstate(over="ignore"):
        out: FloatArray = np.exp(values - values.max())
    return out


def _draw(weights: FloatArray, uniform: float) -> int:
    """The position at which the running total of `weights` passes `uniform` of the whole.

    Two levels, because a running total over a whole vocabulary costs more than all the rest.
    """
    width = max(1, int(len(weights) ** 0.5))
    full = len(weights) // width * width
    sums = weights[:full].reshape(-1, width).sum(axis=1, dtype=np.float64)
    sums = np.append(sums, weights[full:].sum(dtype=np.float64))
    ends = np.cumsum(sums)
    goal = uniform * ends[-1]
    row = min(int(np.searchsorted(ends, goal, side="right")), int(np.flatnonzero(sums)[-1]))
    inside = weights[row * width : (row + 1) * width]
    totals = np.cumsum(inside, dtype=np.float64) + (ends[row - 1] if row else 0.0)
    place = int(np.searchsorted(totals, goal, side="right"))
    return row * width + min(place, int(np.flatnonzero(inside)[-1]))


def _biased(values: FloatArray, bias: Mapping[int, float]) -> FloatArray:
    out = values.copy()
    for token, amount in bias.items():
        if token >= len(out):
            raise SettingError(f"logit_bias names id {token}, but the vocabulary ends at id {len(out) - 1}")
        out[token] += np.float32(amount)
    return out


def _hooked(values: FloatArray, history: Sequence[int], hook: LogitsHook) -> FloatArray:
    given = values.copy()
    returned = hook(given, history)
    try:
        out = given if returned is None else np.asarray(returned, np.float32)
    except (TypeError, ValueError):
        raise SettingError(f"the hook returned {returned!r:.60}, not logits") from None
    if out.shape != values.shape:
        raise SettingError(f"the hook returned the shape {list(out.shape)}, not {list(values.shape)}")
    return out


def _check_finite(values: FloatArray, what: str) -> None:
    top = values.max(axis=-1)  # NaN wins a maximum
    if np.isfinite(top).all():
        return
    row = values if values.ndim == 1 else values.reshape(-1, values.shape[-1])[~np.isfinite(top).ravel()][0]
    wrong = np.flatnonzero(np.isnan(row) | (row == inf))
    found = f"{row[wrong[0]]} at id {wrong[0]}" if len(wrong) else "nothing but -inf"
    raise NonFiniteError(
        f"{what} hold {found}, so no token can be chosen; the weights may be damaged, "
        "or a number overflowed on the way"
    )


def _penalty_text(chosen: Sampling) -> str:
    window = "all" if chosen.penalty_window < 0 else f"the last {chosen.penalty_window}"
    return (
        f"repetition {chosen.repetition_penalty:g}, presence {chosen.presence_penalty:g}, "
        f"frequency {chosen.frequency_penalty:g} over {window} ids"
    )
