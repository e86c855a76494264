"""What sublayers hold, take and give: against the ledger, against zeroed matrices, against PyTorch."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from glassgear.errors import SettingError
from glassgear.lab import experiment
from glassgear.lab.experiments.ffn_or_attention import DEPTHS, shape
from glassgear.lab.models import random_model, trained_model
from glassgear.lab.sublayers import (
    _logits,
    _places,
    _Rows,
    blocks_with,
    locality,
    loss,
    operations,
    seconds,
    size,
    without,
)
from glassgear.language_model import LanguageModel
from glassgear.model import presets
from glassgear.model.ledger import ledger
from glassgear.weights.tensor import StoredTensor

IDS = [3, 17, 5, 40, 8, 21, 33, 2]


def small(seed: int = 0, backend: Any = "cpu", **more: Any) -> LanguageModel:
    design = {"name": "small", "vocab": 48, "dim": 32, "layers": 3, "context": 64, "attention": {"heads": 4},
              "ffn": {"hidden": 64}, **more}  # fmt: skip
    return random_model(design, seed, backend, threads=1)


def test_the_network_of_llama_3_is_4_times_the_attention_and_not_8() -> None:
    found = size(presets.model("llama-3-8b"))
    assert (found.attention, found.ffn, found.ratio) == (41_943_040, 176_160_768, 4.2)
    assert (found.dim, found.hidden) == (4096, 14336)
    assert found.share == pytest.approx(32 * 176_160_768 / 8_030_261_248)


def test_of_experts_those_in_use_are_told_apart() -> None:
    found = size(presets.model("deepseek-v3"))
    one = 3 * 7168 * 2048
    assert found.hidden == 2048 and found.ffn == 257 * one + 256 * 7168
    assert found.active == 9 * one + 256 * 7168


@pytest.mark.parametrize("position", [0, 5, 40])
def test_operations_and_the_head_are_those_of_the_ledger(position: int) -> None:
    model = small().gears
    counted = ledger(model)
    assert sum(operations(model, position).values()) + counted.head_flops == counted.flops_per_token(position)


@pytest.mark.parametrize(("kind", "last"), [("attention", "output"), ("ffn", "down")])
@pytest.mark.parametrize("layers", [None, [1]])
def test_without_is_the_model_whose_last_matrix_is_zero(kind: str, last: str, layers: Any) -> None:
    model = small()
    tensors = dict(model.checkpoint.tensors)
    for i in range(3) if layers is None else layers:
        path = f"blocks.{i}.{kind}.{last}.weight"
        tensors[path] = StoredTensor(
            path, "F32", tensors[path].shape, np.zeros(tensors[path].nbytes, np.uint8), ""
        )
    from glassgear.backends.cpu import CPU

    cut = LanguageModel(
        replace(model.checkpoint, tensors=tensors), CPU(model.gears, tensors, threads=1), None
    )
    np.testing.assert_array_equal(
        _logits(model.backend, IDS, without(model.gears, kind, layers)), _logits(cut.backend, IDS, None)
    )
    assert loss(model, IDS, without(model.gears, kind, layers)) != loss(model, IDS)


def test_the_loss_is_that_of_score() -> None:
    model = small()
    logits = model.logits(IDS).astype(np.float64)
    logits -= logits.max(1, keepdims=True)
    p = logits - np.log(np.exp(logits).sum(1, keepdims=True))
    assert loss(model, IDS) == pytest.approx(-np.mean([p[i, IDS[i + 1]] for i in range(7)]), abs=1e-5)


@pytest.mark.parametrize("backend", ["cpu", "reference"])
@pytest.mark.parametrize("norm", ["rmsnorm", {"kind": "layernorm", "place": "post"}, "none"])
def test_a_neighbour_reaches_a_row_through_attention_alone(backend: Any, norm: Any) -> None:
    found = locality(small(backend=backend, norm=norm), IDS, 7)
    assert found.attention_moved == 3 and found.attention > 0.01
    assert found.ffn_moved == 0 and found.ffn == found.logits == 0


def test_without_putting_inputs_back_the_network_s_row_changes_too() -> None:
    model = small()
    outputs = {path for path, _ in _places(model.gears)[1]}
    seen = []
    for text in (IDS, [*IDS[:-2], 7, IDS[-1]]):
        rows = _Rows(outputs)
        _logits(model.backend, text, rows)
        seen.append(rows.seen["blocks.1.ffn"])
    assert np.abs(seen[1] - seen[0]).max() > 1e-3


def test_time_goes_where_the_work_is() -> None:
    wide = small(dim=64, ffn={"hidden": 4096})
    found = seconds(wide, list(range(48)), 0, 3)
    assert set(found) == {"attention", "ffn", "head"} and min(found.values()) > 0
    assert found["ffn"] > 2 * found["attention"]
    assert seconds(wide, list(range(9)), 8, 5)["ffn"] < found["ffn"]


def test_a_model_without_both_is_refused() -> None:
    with pytest.raises(SettingError, match="both attention and a feed-forward"):
        blocks_with(replace(small().gears, blocks=()))


@pytest.mark.parametrize("dim", [32, 64, 128])
def test_deep_and_wide_have_as_many_parameters(dim: int) -> None:
    made = [shape(dim, layers, 45) for layers in DEPTHS]
    counts = [parameters for _, parameters in made]
    assert max(counts) / min(counts) < 1.01
    assert [design["layers"] for design, _ in made] == list(DEPTHS)
    assert made[-1][0]["dim"] == dim // 2  # four times the layers, half the width


def test_a_module_becomes_a_model() -> None:
    torch = pytest.importorskip("torch")
    from glassgear.backends.torch import module_of

    model = small()
    module = module_of(model.gears, model.checkpoint.tensors)
    made = trained_model(module, threads=1)
    with torch.no_grad():
        expected = module(torch.tensor([IDS]))[0].numpy()
    np.testing.assert_allclose(made.logits(IDS), expected, atol=1e-4)
    np.testing.assert_array_equal(made.logits(IDS), model.logits(IDS))


def test_the_experiment_says_who_sees_whom() -> None:
    pytest.importorskip("torch")
    one = experiment("ffn-or-attention")
    found = one.run(one.with_options(small=True))
    facts: Any = found.facts
    assert found.verdict.outcome == "depends"  # rows are as said, the 8 times aren't
    assert facts["ffn_over_attention"] == 4.2
    assert facts["attention_change"] > 0.01 and facts["ffn_change"] == facts["logits_without_attention"] == 0
    # The model learned something, and both kinds take part in it.
    assert facts["loss"] < 2.6 < min(facts["loss_without_attention"], facts["loss_without_ffn"])
    assert facts["loss"] < min(facts["worst_without_attention"], facts["worst_without_ffn"])
    assert {f"loss_{layers}_layers" for layers in DEPTHS} <= set(facts)


def test_without_pytorch_what_needs_no_training_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "torch", None)
    one = experiment("ffn-or-attention")
    found = one.run(one.with_options(small=True))
    assert found.verdict.outcome == "depends" and "deep_less_wide" not in found.facts
    assert any("nothing was trained" in note for note in found.notes)
