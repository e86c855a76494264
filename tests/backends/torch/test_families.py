"""Every family, from its files, against the reference and against transformers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")

from glassgear.backends.reference import Reference
from glassgear.backends.torch import Torch
from glassgear.weights.open import open_checkpoint
from tests.families import (
    test_bert,
    test_deepseek,
    test_gemma3,
    test_glm,
    test_gpt2,
    test_llama,
    test_mistral,
    test_mobilebert,
    test_olmo2,
    test_qwen,
    test_qwen3_moe,
)
from tests.families.support import TOLERANCE, Case, differences, run

MODULES = (
    test_bert, test_deepseek, test_gemma3, test_glm, test_gpt2, test_llama, test_mistral, test_mobilebert,
    test_olmo2, test_qwen, test_qwen3_moe,
)  # fmt: skip
CASES = [case for module in MODULES for case in module.CASES]
FIRST = {case.family: case for case in reversed(CASES)}


@pytest.mark.parametrize("case", CASES, ids=str)
def test_every_family_gives_the_reference_s_and_transformers_values(case: Case, tmp_path: Path) -> None:
    path, model = case.write(tmp_path)
    checkpoint = open_checkpoint(path)
    backend, reference = (kind(checkpoint.model, checkpoint.tensors) for kind in (Torch, Reference))
    want = run(reference, case.ids)
    assert np.abs(run(backend, case.ids) - want).max() <= 1e-5 * max(1.0, float(np.abs(want).max()))
    assert max(differences(backend, model, case.ids, case.theirs).values()) < TOLERANCE


@pytest.mark.parametrize("case", FIRST.values(), ids=str)
def test_bfloat16_is_close(case: Case, tmp_path: Path) -> None:
    """Eight bits of each number. Where scores are near each other, another expert may be chosen."""
    path, _ = case.write(tmp_path)
    checkpoint = open_checkpoint(path)
    want = run(Reference(checkpoint.model, checkpoint.tensors), case.ids)
    found = run(Torch(checkpoint.model, checkpoint.tensors, dtype="bfloat16"), case.ids)
    error = np.abs(found - want)
    spread = float(want.std())
    assert 0 < error.mean() < 0.05 * spread
    assert error.max() < 0.5 * spread or case.family in ("deepseek", "qwen3_moe")
