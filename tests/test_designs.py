"""Designs put together at random: both backends compute the same, in one piece and token by token."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from glassgear.backends.base import Chunk
from glassgear.backends.cpu import CPU
from glassgear.backends.reference import Reference
from glassgear.model.designs import design
from glassgear.model.gears import Model
from tests.models import random_tensors

NORMS = ("rmsnorm", "layernorm", "scalenorm", "batchnorm", "affine", "none")
PLACES = ("pre", "post", "sandwich", "none")
STEPS = (["attention", "ffn"], ["ffn", "attention"], ["attention"], ["ffn"])
ACTIVATIONS = ("relu", "gelu", "gelu_tanh", "silu", "identity")


def attention(pick: random.Random) -> dict[str, Any]:
    if pick.random() < 0.25:
        return {
            "kind": "mla", "heads": 2, "kv_rank": 16, "plain_dim": 8, "rope_dim": 4,
            "query_rank": pick.choice((0, 12)), "value_dim": pick.choice((8, 12)),
        }  # fmt: skip
    return {
        "heads": 4, "kv_heads": pick.choice((1, 2, 4)), "head_dim": pick.choice((8, 12, 16)),
        "window": pick.choice((0, 0, 3)), "bias": pick.random() < 0.5, "cap": pick.choice((0, 20.0)),
        "query_key_norm": pick.choice(("none", "head", "all")), "scale": pick.choice((0.2, 0.3)),
    }  # fmt: skip


def network(pick: random.Random) -> dict[str, Any]:
    found: dict[str, Any] = {
        "kind": pick.choice(("gated", "plain")), "activation": pick.choice(ACTIVATIONS),
        "bias": pick.random() < 0.5, "hidden": pick.choice((24, 40, 100)),
    }  # fmt: skip
    if pick.random() < 0.3:
        found["experts"] = {
            "count": 4, "used": pick.choice((1, 2)), "shared": pick.choice((0, 1)),
            "score": pick.choice(("softmax", "sigmoid")), "correction": pick.random() < 0.5,
            "groups": pick.choice((1, 2)),
        }  # fmt: skip
    return found


def block(pick: random.Random) -> dict[str, Any]:
    kind, steps = pick.choice(NORMS), pick.choice(STEPS)
    made: dict[str, Any] = {"norm": {"kind": kind}, "residual": pick.random() < 0.8, "steps": steps}
    if kind != "none":
        made["norm"]["place"] = pick.choice(PLACES)
    parts = {"attention": attention(pick), "ffn": network(pick)}
    return made | {step: parts[step] for step in steps}


def any_model(seed: int) -> Model:
    pick = random.Random(seed)
    blocks = [block(pick) for _ in range(pick.choice((1, 2, 3)))]
    latent = any(one.get("attention", {}).get("kind") == "mla" for one in blocks)
    if not latent and pick.random() < 0.25:
        for one in blocks:
            if "attention" in one:
                one["attention"] |= {"causal": False, "window": 0}
    values = {
        "dim": 32, "vocab": 50, "context": 64, "blocks": blocks, "head": pick.choice(("tied", "own")),
        "positions": "rope" if latent else pick.choice(("rope", "learned", "none")),
        "embedding_norm": pick.random() < 0.3, "token_types": pick.choice((0, 2)),
        "embedding_scale": pick.choice((1.0, 2.0)), "repeat": pick.choice((1, 2)),
    }  # fmt: skip
    return design(values, f"seed {seed}")


@pytest.mark.parametrize("seed", range(30))
def test_backends_agree_on_designs_put_together_at_random(seed: int) -> None:
    model = any_model(seed)
    tensors = random_tensors(model, seed)
    ids = [(7 * i + seed) % 50 for i in range(9)]
    reference, cpu = Reference(model, tensors), CPU(model, tensors)
    expected = reference.step([Chunk(reference.open(), ids, "all")])[0]
    track = cpu.open()
    pieces = [ids[:5], *([token] for token in ids[5:])] if model.causal else [ids]
    found = np.concatenate([cpu.step([Chunk(track, piece, "all")])[0] for piece in pieces])
    np.testing.assert_allclose(found, expected, atol=1e-4 * max(1.0, float(np.abs(expected).max())))
