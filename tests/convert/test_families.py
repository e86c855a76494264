"""Every family there and back: against what llama.cpp's converter stores, and what transformers computes.

The tiny models are those of `tests/families`, where their GGUFs are written by hand, as the converter
of llama.cpp does it.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tests.families
from glassgear.convert import Wanted, convert
from glassgear.convert.configs import WRITERS
from glassgear.errors import UnsupportedError
from glassgear.weights import gguf, gguf_write
from glassgear.weights.open import open_checkpoint
from glassgear.weights.pooling import pooling_settings
from tests.families.support import Case, check_parity, logits_of, save

F32 = Wanted(type="f32")


def cases() -> Iterator[Case]:
    for module in pkgutil.iter_modules(tests.families.__path__):
        if module.name.startswith("test_"):
            found = importlib.import_module(f"tests.families.{module.name}")
            yield from getattr(found, "CASES", ())


WRITABLE = [case for case in cases() if case.family in WRITERS]
GGUFS = [case for case in WRITABLE if case.container == "gguf"]


def reads_folder(folder: Path, model: Any) -> Any:
    transformers = pytest.importorskip("transformers")
    return getattr(transformers, type(model).__name__).from_pretrained(folder, dtype="float32").eval()


def hidden_of(model: Any, ids: Any) -> Any:
    """Hidden states, of a model whose head may be missing."""
    return logits_of(model.base_model, ids)


@pytest.mark.parametrize("case", GGUFS, ids=str)
def test_a_gguf_becomes_a_folder_that_transformers_reads_alike(case: Case, tmp_path: Path) -> None:
    source, model = case.write(tmp_path)
    done = convert(source, tmp_path / "folder", F32)
    assert done.kind == "folder"
    theirs = reads_folder(tmp_path / "folder", model)
    ids = case.ids[:100]
    assert np.abs(logits_of(theirs, ids) - logits_of(model, ids)).max() < 2e-5
    check_parity(tmp_path / "folder", model, ids, ("reference",))


@pytest.mark.parametrize("case", GGUFS, ids=str)
def test_a_folder_becomes_the_gguf_that_llama_cpp_s_converter_writes(case: Case, tmp_path: Path) -> None:
    by_hand, model = case.write(tmp_path)
    folder = save(model, tmp_path / "saved")
    try:
        convert(folder, tmp_path / "made.gguf", F32)
    except UnsupportedError as error:
        pytest.skip(f"this GGUF has no counterpart among folders: {error}")
    made, wanted = gguf.read(tmp_path / "made.gguf"), gguf.read(by_hand)
    assert made.metadata["general.architecture"] == wanted.metadata["general.architecture"]
    ours, theirs = made.tensors, wanted.tensors
    if set(ours) != set(theirs):  # q, k and v may lie in one matrix or in three: no reader cares
        others = {name for name in ours.keys() ^ theirs.keys() if ".attn_" not in name}
        assert others <= {"output.weight"}  # a tied head may be written out
    for name in ours.keys() & theirs.keys():
        a, b = ours[name].float32(), theirs[name].float32()
        assert a.shape == b.shape, name
        assert np.abs(a - b).max() < 1e-6, name
    check_parity(tmp_path / "made.gguf", model, case.ids[:100], ("reference",))


@pytest.mark.parametrize("case", [case for case in WRITABLE if case.container == "folder"], ids=str)
def test_a_folder_comes_back_the_same_or_is_refused_with_the_reason(case: Case, tmp_path: Path) -> None:
    source, model = case.write(tmp_path)
    try:
        done = convert(source, tmp_path / "made.gguf", F32)
    except UnsupportedError as error:
        assert "can't be written as" in str(error) or "isn't written as" in str(error)
        assert not (tmp_path / "made.gguf").exists()
        return
    convert(tmp_path / "made.gguf", tmp_path / "back", F32)
    theirs = reads_folder(tmp_path / "back", model)
    ids = case.ids[:100]
    values = hidden_of if any("left out" in notice for notice in done.notices) else logits_of
    assert np.abs(values(theirs, ids) - values(model, ids)).max() < 2e-5


@pytest.mark.parametrize("number", [1, 2, 3])
def test_how_states_become_a_vector_comes_along(number: int, tmp_path: Path) -> None:
    case = next(case for case in GGUFS if case.family == "bert")
    source, _ = case.write(tmp_path)
    file = gguf.read(source)
    changed = file.metadata | {"bert.pooling_type": number}
    gguf_write.write(tmp_path / "in.gguf", changed, file.tensors.values())
    convert(tmp_path / "in.gguf", tmp_path / "one")
    convert(tmp_path / "one", tmp_path / "two", Wanted(type="f16"))
    convert(tmp_path / "two", tmp_path / "back.gguf")
    assert gguf.read(tmp_path / "back.gguf").metadata["bert.pooling_type"] == number
    places = [tmp_path / name for name in ("in.gguf", "one", "two", "back.gguf")]
    assert len({pooling_settings(open_checkpoint(place)).pooling for place in places}) == 1


def test_a_window_that_llama_cpp_reads_over_is_said(tmp_path: Path) -> None:
    found = [case for case in WRITABLE if case.family == "mistral" and case.container == "folder"]
    for case in found:
        source, _ = case.write(tmp_path / case.variant.replace(" ", "-"))
        done = convert(source, tmp_path / f"{case.variant}.gguf".replace(" ", "-"))
        said = any("takes no notice of the window" in notice for notice in done.notices)
        assert said == ("no window" not in case.variant)
    assert found


def test_at_least_the_usual_families_are_covered() -> None:
    assert {case.family for case in GGUFS} >= {"llama", "gpt2", "qwen2", "qwen3", "gemma3", "glm4", "bert"}
