"""What holds for every decoder: continued caches, half-precision caches, YaRN's two factors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from glassgear.backends.base import Backend, Chunk
from glassgear.backends.reference import Reference
from glassgear.backends.reference.attention import causal_mask
from glassgear.errors import UnsupportedError
from glassgear.model.families import by_gguf_type, by_hf_type, qwen2
from glassgear.model.gears import Attention, walk
from glassgear.weights import gguf_write
from glassgear.weights.open import open_checkpoint
from tests.families import test_gemma3, test_glm, test_mistral, test_qwen
from tests.families.decoders import SIZES
from tests.families.support import (
    BACKENDS,
    IDS,
    Case,
    backend_of,
    config_of,
    edit,
    logits_of,
    made,
    run,
    save,
)
from tests.families.test_qwen import QWEN25_7B
from tests.models import stored

WINDOWED = [
    next(case for case in module.CASES if case.variant == variant and case.container == "folder")
    for module, variant in (
        (test_mistral, "window of 4"), (test_qwen, "window from layer 1"), (test_gemma3, "pattern of 6"),
        (test_glm, "plain"),
    )
]  # fmt: skip


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("case", WINDOWED, ids=str)
def test_a_prompt_in_any_pieces_gives_the_same_last_logits(case: Case, backend: str, tmp_path: Path) -> None:
    """Case B29, and B15: decoding past the window equals the prompt at once."""
    path, _ = case.write(tmp_path)
    runner = backend_of(backend, open_checkpoint(path))
    whole = run(runner, IDS)[-1]
    for sizes in ([5, 7], [1] * 12, [11, 1], [2, 9, 1]):
        assert np.abs(run(runner, IDS, sizes)[-1] - whole).max() < 1e-5, sizes


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_cache_that_is_cut_back_gives_the_logits_of_a_cold_run(backend: str, tmp_path: Path) -> None:
    """Case B29: the last token changed; then a prefix of the text."""
    path, _ = WINDOWED[2].write(tmp_path)
    runner = backend_of(backend, open_checkpoint(path))
    track = runner.open()
    runner.step([Chunk(track, IDS)])
    for kept, new in ((11, [7]), (8, list(IDS[8:9])), (8, list(IDS[8:12]))):
        runner.truncate(track, kept)
        warm = runner.step([Chunk(track, new)])[0][0]
        assert np.abs(warm - run(runner, [*IDS[:kept], *new])[-1]).max() < 1e-5


def test_two_queries_over_five_keys() -> None:
    """Case B29's mask: aligned to the end of what is known, not to the chunk."""
    assert causal_mask(np.array([3, 4]), 5).astype(int).tolist() == [[1, 1, 1, 1, 0], [1, 1, 1, 1, 1]]


@pytest.mark.parametrize(
    ("settings", "on_rotation"),
    [
        ({}, 1.2772589),
        ({"attention_factor": 1.0}, 1.0),
        ({"mscale": 1.0, "mscale_all_dim": 1.0}, 1.0),
        ({"mscale": 0.707, "mscale_all_dim": 1.0}, 1.1960220 / 1.2772589),
    ],
)
def test_yarn_s_factor_on_cos_and_sin(settings: dict[str, float], on_rotation: float) -> None:
    """Case B12; scores of these families aren't scaled beside it."""
    yarn = {"type": "yarn", "factor": 16.0, "original_max_position_embeddings": 32768, **settings}
    model = qwen2.from_hf(_settings(QWEN25_7B | {"rope_scaling": yarn}), _nothing())
    for gear in (gear for _, gear in walk(model) if isinstance(gear, Attention)):
        assert gear.rope is not None and gear.rope.scaling is not None
        assert gear.rope.scaling.attention_factor == pytest.approx(on_rotation, abs=1e-7)
        assert gear.scale == pytest.approx(128**-0.5)


def _settings(config: dict[str, Any]) -> Any:
    from glassgear.model.settings import Settings

    return Settings(config, "config.json")


def _nothing() -> Any:
    from glassgear.model.families.base import Found

    return Found({})


def half_cached(name: str, path: Path) -> Backend:
    checkpoint = open_checkpoint(path)
    if name == "cpu":
        from glassgear.backends.cpu import CPU

        return CPU(checkpoint.model, checkpoint.tensors, cache_type="float16", threads=1)
    return Reference(checkpoint.model, checkpoint.tensors, cache_type="float16")


@pytest.mark.parametrize("name", BACKENDS)
def test_products_past_half_precision_stay_finite(name: str, tmp_path: Path) -> None:
    """Case B31: Qwen2's biases make single products of 90,000, where float16 ends at 65,504."""
    torch = pytest.importorskip("torch")
    model = made("Qwen2ForCausalLM", config_of("Qwen2Config", **SIZES))
    with torch.no_grad():
        for layer in model.model.layers:
            for part in (layer.self_attn.q_proj, layer.self_attn.k_proj):
                part.bias[9::20] = 300.0  # the pair that turns slowest, in every head
    want, path = logits_of(model, IDS), save(model, tmp_path)
    assert np.isfinite(run(half_cached(name, path), IDS)).all()
    # Scores of some 20,000 leave float32 three digits behind the point.
    assert np.abs(run(backend_of(name, open_checkpoint(path)), IDS) - want).max() < 2e-2


def test_what_is_not_supported_names_itself_and_what_is(tmp_path: Path) -> None:
    save(made("Qwen2ForCausalLM", config_of("Qwen2Config", **SIZES)), tmp_path)
    edit(tmp_path, model_type="mamba2")
    with pytest.raises(UnsupportedError, match="'mamba2'") as folder:
        open_checkpoint(tmp_path)
    gguf_write.write(
        tmp_path / "m.gguf", {"general.architecture": "rwkv7"}, [stored("token_embd.weight", np.ones((4, 4)))]
    )
    with pytest.raises(UnsupportedError, match="'rwkv7'") as file:
        open_checkpoint(tmp_path / "m.gguf")
    assert all(kind in str(folder.value) for kind in by_hf_type())
    assert all(kind in str(file.value) for kind in by_gguf_type())
