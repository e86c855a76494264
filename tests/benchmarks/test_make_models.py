"""Models made for measuring load and run."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import glassgear
from glassgear.weights import gguf_write
from tests.models import stored

SIZES = {"dim": 64, "hidden": 96, "layers": 2, "heads": 4, "kv_heads": 2, "context": 128}


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A GGUF with a vocabulary of 300 entries."""
    tokens = ["<0>", "<1>", "<2>", "t", "h", "th", *(f"t{i}" for i in range(294))]
    metadata = {
        "general.architecture": "llama",
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "smollm",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": np.array([3] * 3 + [1] * 297, np.int32),
        "tokenizer.ggml.merges": ["t h"],
        "tokenizer.ggml.eos_token_id": 2,
    }
    gguf_write.write(tmp_path / "source.gguf", metadata, [stored("x", np.zeros((1, 32)))])
    return tmp_path / "source.gguf"


def test_a_random_llama_takes_the_vocabulary_of_another_file(tmp_path: Path, source: Path) -> None:
    from make_models import write_random_gguf

    path = tmp_path / "random.gguf"
    write_random_gguf(path, source, SIZES)
    model = glassgear.load(path, backend="reference")
    assert model.gears.head.vocab == 300 and model.gears.head.tied
    assert model.tokenizer.vocab_size == 300
    assert {t.type for t in model.checkpoint.tensors.values()} == {"F16", "F32"}
    logits = model.logits([5, 6, 7])
    assert np.isfinite(logits).all() and 0.1 < logits.std() < 10


def test_a_random_llama2c_file_is_of_the_right_size_and_runs(tmp_path: Path) -> None:
    from make_models import write_random_llama2c

    path = tmp_path / "random.bin"
    write_random_llama2c(path, SIZES | {"vocab": 50})
    model = glassgear.load(path, backend="reference")
    assert model.gears.head.vocab == 50 and model.gears.context == 128
    logits = model.logits([5, 6, 7])
    assert np.isfinite(logits).all() and 0.1 < logits.std() < 10
    assert not path.with_suffix(".partial").exists()


def test_the_same_seed_makes_the_same_weights() -> None:
    from make_models import random_weights

    first, again = (dict(random_weights({"norm": (4,), "matrix": (8, 4)})) for _ in range(2))
    np.testing.assert_array_equal(first["matrix"], again["matrix"])
    assert (first["norm"] == 1).all()
