"""Latent attention: its two forms are one function, and that function is plain attention on made keys."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from glassgear.backends.reference import latent_attention
from glassgear.backends.reference.cache import KVCache
from glassgear.backends.reference.machine import TABLE
from glassgear.backends.reference.scope import Scope, Span, Step, Weights
from glassgear.errors import SettingError
from glassgear.model.gears import LatentAttention, Linear, RMSNorm, Rope, RopeScaling, tensors
from tests.backends.reference.support import stored

DIM, HEADS, PLAIN, VALUE, RANK = 24, 3, 6, 5, 16


def gear_of(query_rank: int = 0, rope: Rope | None = None, **change: Any) -> LatentAttention:
    rope = rope or Rope(4, 10000.0, "interleaved")
    queries, two = HEADS * (PLAIN + rope.dim), query_rank > 0
    parts: dict[str, Any] = {
        "query": None if two else Linear(DIM, queries),
        "query_down": Linear(DIM, query_rank) if two else None,
        "query_norm": RMSNorm(query_rank, 1e-6) if two else None,
        "query_up": Linear(query_rank, queries) if two else None,
        "kv_down": Linear(DIM, RANK + rope.dim), "kv_norm": RMSNorm(RANK, 1e-6),
        "kv_up": Linear(RANK, HEADS * (PLAIN + VALUE)), "output": Linear(HEADS * VALUE, DIM), "rope": rope,
        "heads": HEADS, "plain_dim": PLAIN, "value_dim": VALUE, "kv_rank": RANK,
    }  # fmt: skip
    return LatentAttention(**(parts | change))


class Machine:
    """One such gear with random weights and a cache, given rows of one sequence after the other."""

    def __init__(self, gear: LatentAttention, pages: tuple[int, ...] = (1, 0)) -> None:
        rng = np.random.default_rng(0)
        self.gear, self.pages, self.done = gear, pages, 0
        self.values = {
            f"gear.{name}": (
                1 + 0.1 * rng.standard_normal(shape)
                if len(shape) == 1
                else rng.standard_normal(shape) * shape[-1] ** -0.5
            )
            for name, shape in tensors(gear).items()
        }
        self.weights = Weights({name: stored(name, value) for name, value in self.values.items()})
        self.cache = KVCache({"gear": [(1, gear.cache_dim)]})
        self.cache.grow(2)
        self.seen: dict[str, np.ndarray] = {}

    def __call__(self, x: np.ndarray) -> np.ndarray:
        rows = np.arange(len(x))
        step = Step(rows, rows + self.done, rows, (Span(0, len(x), self.pages),), rows)
        self.done += len(x)
        hook = lambda name, value: self.seen.update({name: value.copy()})  # noqa: E731
        return TABLE[LatentAttention](
            self.gear, x, Scope("gear", self.weights, step, self.cache, TABLE, hook)
        )


def rows(count: int) -> np.ndarray:
    return np.random.default_rng(1).standard_normal((count, DIM)).astype(np.float32)


YARN = Rope(4, 10000.0, "interleaved", RopeScaling("yarn", 8.0, 16, attention_factor=1.1))


@pytest.mark.parametrize("rope", [None, YARN, Rope(4, 10000.0)], ids=["interleaved", "yarn", "half"])
@pytest.mark.parametrize("query_rank", [0, 7])
def test_the_two_forms_are_equal(monkeypatch: pytest.MonkeyPatch, query_rank: int, rope: Rope | None) -> None:
    x, out = rows(100), {}
    for most, form in ((0, "expanded"), (1000, "absorbed")):
        monkeypatch.setattr(latent_attention, "ABSORBED_UP_TO", most)
        machine = Machine(gear_of(query_rank, rope, score_scale=0.6))
        out[form] = np.concatenate([machine(x[:70]), machine(x[70:71]), machine(x[71:])])
    assert np.abs(out["expanded"] - out["absorbed"]).max() < 1e-5
    assert np.abs(out["expanded"]).max() > 0.1


def test_it_is_attention_on_the_keys_and_values_that_latents_stand_for() -> None:
    """Written out head by head in float64, after DeepSeek-V2's equations 9 to 19."""
    machine, x = Machine(gear_of(7, YARN, score_scale=0.6)), rows(20)
    out = machine(x)
    w = {name.removeprefix("gear."): value.astype(np.float64) for name, value in machine.values.items()}

    def norm(v: np.ndarray, weight: np.ndarray) -> np.ndarray:
        return v / np.sqrt((v * v).mean(-1, keepdims=True) + 1e-6) * weight

    def turned(v: np.ndarray) -> np.ndarray:
        pairs = v[..., 0::2] + 1j * v[..., 1::2]
        from glassgear.model.rope import inverse_frequencies

        angles = np.arange(len(v))[:, None] * np.array(inverse_frequencies(YARN))
        pairs = pairs * 1.1 * np.exp(1j * angles)
        return np.stack([pairs.real, pairs.imag], -1).reshape(v.shape)

    q = norm(x @ w["query_down.weight"].T, w["query_norm.weight"]) @ w["query_up.weight"].T
    down = x @ w["kv_down.weight"].T
    both = norm(down[:, :RANK], w["kv_norm.weight"]) @ w["kv_up.weight"].T
    mixed = []
    for head in range(HEADS):
        mine = q[:, head * (PLAIN + 4) : (head + 1) * (PLAIN + 4)]
        made = both[:, head * (PLAIN + VALUE) : (head + 1) * (PLAIN + VALUE)]
        scores = 0.6 * (
            mine[:, :PLAIN] @ made[:, :PLAIN].T + turned(mine[:, PLAIN:]) @ turned(down[:, RANK:]).T
        )
        scores[np.triu_indices(20, 1)] = -np.inf
        weights = np.exp(scores - scores.max(1, keepdims=True))
        mixed.append(weights / weights.sum(1, keepdims=True) @ made[:, PLAIN:])
    want = np.concatenate(mixed, axis=1) @ w["output.weight"].T
    assert np.abs(out - want).max() < 1e-5


def test_what_can_be_seen_and_what_is_kept() -> None:
    machine = Machine(gear_of(7))
    machine(rows(5))
    shapes = {name.removeprefix("gear."): value.shape for name, value in machine.seen.items()}
    assert shapes["kv_norm"] == (5, RANK)
    assert shapes["query_rotated"] == (5, HEADS, 4)
    assert shapes["key_rotated"] == (5, 1, 4)
    assert shapes["scores"] == shapes["weights"] == (HEADS, 5, 5)
    assert shapes["mixed"] == (5, HEADS, VALUE)
    (kept,) = machine.cache.read("gear", machine.pages, 5)
    assert np.array_equal(kept[:, 0, :RANK], machine.seen["gear.kv_norm"])
    assert np.array_equal(kept[:, 0, RANK:], machine.seen["gear.key_rotated"][:, 0])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"query_down": Linear(DIM, 7)}, None),
        ({"query": None}, "in one step or in two"),
        ({"query": Linear(DIM, 29)}, "queries are 29 wide, not 3 x 10"),
        ({"kv_down": Linear(DIM, 21)}, "kv_down makes 21 values, not 20"),
        ({"kv_up": Linear(RANK, 32)}, "kv_up makes 32 values"),
    ],
)
def test_sizes_that_do_not_fit(change: dict[str, Any], message: str | None) -> None:
    if message is None:
        with pytest.raises(SettingError):
            gear_of(**change, query_up=Linear(7, 30))
        return
    with pytest.raises(SettingError, match=message):
        gear_of(**change)
