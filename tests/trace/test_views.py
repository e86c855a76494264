"""Figures, growth, where heads look, and the logit lens, against plain NumPy and the model itself."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from glassgear.backends.reference import Reference
from glassgear.errors import SettingError
from glassgear.trace import Trace, Value, record, views
from tests.models import random_tensors, tiny
from tests.trees import TREES, VOCAB

IDS = np.random.default_rng(4).integers(0, VOCAB, 11).tolist()


def traced(name: str = "llama") -> tuple[Trace, views.Lens]:
    model = TREES[name]()
    weights = random_tensors(model)
    return record(Reference(model, weights), IDS), views.Lens(model, weights)


def value(array: list[list[float]], path: str = "x") -> Value:
    made = np.array(array, np.float32)
    return Value(path, ("token", "channel"), made, np.arange(len(made)))


def test_the_figures_of_a_value() -> None:
    found = views.summary(value([[1, -2, 0], [4, 0, 3]]))
    assert (found.shape, found.axes) == ((2, 3), ("token", "channel"))
    assert (found.mean, found.min, found.max) == (1, -2, 4)
    assert found.std == pytest.approx(np.std([1, -2, 0, 4, 0, 3]))
    assert found.norm == pytest.approx(np.sqrt(30)) and found.zeros == pytest.approx(1 / 3)
    assert (found.nan, found.inf) == (0, 0)


def test_what_is_no_number_is_counted_and_left_out() -> None:
    found = views.summary(value([[np.nan, np.inf, 2], [-np.inf, 2, np.nan]]))
    assert (found.nan, found.inf, found.mean, found.std) == (2, 2, 2, 0)
    nothing = views.summary(value([[np.nan]])).to_json()
    assert (nothing["mean"], nothing["nan"], nothing["zeros"]) == (None, 1, 0)


@pytest.mark.parametrize(("mean", "std"), [(10, 1e-3), (-100, 0.01), (3, 0.0)])
def test_numbers_that_are_close_to_each_other_keep_their_deviation(mean: float, std: float) -> None:
    array = (mean + std * np.random.default_rng(1).standard_normal((700, 900))).astype(np.float32)
    array[3, 5] = mean + 4 * std
    found, wide = views.summary(Value("x", ("token", "channel"), array, np.arange(700))), array.astype(float)
    assert found.std == pytest.approx(wide.std(), rel=1e-3, abs=1e-6 * abs(mean))
    assert found.mean == pytest.approx(wide.mean(), rel=1e-9)


@pytest.mark.parametrize("scale", [1.0, 1e-25, 1e25])
@pytest.mark.parametrize("axes", [("token", "channel"), ("head", "token", "seen")])
def test_figures_of_many_numbers_are_those_of_float64(axes: tuple[str, ...], scale: float) -> None:
    rng = np.random.default_rng(3)
    heads, tokens, early = 5, 2 * views.ROWS + 11, 600
    shape = (tokens, early + tokens) if len(axes) == 2 else (heads, tokens, early + tokens)
    array = (rng.standard_normal(shape) * scale).astype(np.float32)
    array[rng.random(shape) < 0.01] = 0
    array.flat[:: array.size // 7] *= 1000  # as a few channels of a stream are
    positions = np.arange(early, early + tokens)
    inside = np.ones(shape, bool)
    if len(axes) == 3:
        inside &= np.arange(early + tokens) <= positions[:, None]
        inside[:, 5, :20] = False  # a window
        array[~inside] = -np.inf
    found = views.summary(Value("blocks.0.attention.scores", axes, array, positions))
    seen = array[inside].astype(np.float64)
    expected = (seen.std(), seen.min(), seen.max(), np.sqrt((seen**2).sum()), (seen == 0).mean())
    told = (found.std, found.min, found.max, found.norm, found.zeros)
    assert told == pytest.approx(expected, rel=1e-6, abs=0)
    assert found.mean == pytest.approx(seen.mean(), rel=1e-6, abs=1e-8 * seen.std())
    assert (found.nan, found.inf) == (0, 0)


@pytest.mark.parametrize("name", ["llama", "window", "encoder"])
def test_what_a_token_cannot_see_is_no_part_of_its_scores(name: str) -> None:
    trace, _ = traced(name)
    scores = trace["blocks.0.attention.scores"]
    found = views.summary(scores)
    inside = scores.array[np.isfinite(scores.array)]
    assert found.inf == 0 and found.mean == pytest.approx(inside.mean(), abs=1e-5)
    weights = views.summary(trace["blocks.0.attention.weights"])
    tokens = len(IDS)
    seen = tokens * tokens if name == "encoder" else tokens * (tokens + 1) // 2
    assert weights.mean == pytest.approx(tokens / seen, abs=1e-6)  # each row adds up to 1


@pytest.mark.parametrize("name", ["llama", "two rotations", "three steps", "post-norm"])
def test_growth_says_what_each_step_added_and_how_long_the_stream_is(name: str) -> None:
    trace, _ = traced(name)
    for row in views.growth(trace):
        assert row.tokens == tuple(range(len(IDS)))
        assert row.stream == pytest.approx(np.linalg.norm(trace[row.path].array, axis=1), rel=1e-5)
        for step, norms in row.steps.items():
            post = f"{row.path}.{step}_post_norm"
            added = trace[post if post in trace else f"{row.path}.{step}"]
            assert norms == pytest.approx(np.linalg.norm(added.array, axis=1), rel=1e-5)
    expected = {"attention", "ffn", "second_ffn"} if name == "three steps" else {"attention", "ffn"}
    assert set(views.growth(trace)[0].steps) == expected


def test_growth_adds_up_in_a_model_that_only_adds() -> None:
    trace, _ = traced()
    before = trace["embed"].array
    for row in views.growth(trace):
        added = sum(trace[f"{row.path}.{step}"].array for step in row.steps)
        assert row.stream == pytest.approx(np.linalg.norm(before + added, axis=1), rel=1e-5)
        before = trace[row.path].array


def test_heads_list_the_tokens_that_are_read_most() -> None:
    trace, _ = traced()
    found = views.heads(trace, 5, top=2)
    assert list(found) == ["blocks.0.attention", "blocks.1.attention"]
    weights = trace["blocks.1.attention.weights"].array[:, 5]
    for row, looks in zip(weights, found["blocks.1.attention"], strict=True):
        assert [look.token for look in looks] == np.argsort(-row)[:2].tolist()
        assert looks[0].weight == row.max()
    assert [len(looks) for looks in views.heads(trace, 0)["blocks.0.attention"]] == [1] * 6
    with pytest.raises(SettingError, match="no value for token 99"):
        views.heads(trace, 99)


@pytest.mark.parametrize("name", ["llama", "two rotations", "encoder", "narrow encoder", "no residual"])
def test_behind_the_last_layer_the_lens_shows_what_the_model_says(name: str) -> None:
    trace, lens = traced(name)
    own = lens.logits(trace[f"blocks.{len(views.growth(trace)) - 1}"].array)
    assert np.allclose(own, trace["head"].array, atol=1e-5)


def test_the_lens_says_what_each_layer_would_and_which_one_decided() -> None:
    trace, lens = traced("two rotations")
    layers, decided = views.lens(trace, lens, 7, top=4)
    logits = lens.logits(np.stack([trace[f"blocks.{i}"].array[7] for i in range(3)]))
    logits[2] = trace["head"].array[7]
    p = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    final = int(logits[2].argmax())
    for layer, row in zip(layers, p, strict=True):
        assert [i for i, _ in layer.top] == np.argsort(-row)[:4].tolist()
        assert [q for _, q in layer.top] == pytest.approx(np.sort(row)[::-1][:4], rel=1e-4)
        assert layer.final == pytest.approx(row[final], rel=1e-4)
        assert layer.rank == int((row > row[final]).sum())
    firsts = [layer.top[0][0] == final for layer in layers]
    assert all(firsts[decided:]) and (decided == 0 or not firsts[decided - 1])


def test_a_head_too_large_to_keep_gives_the_same_in_stretches(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("two rotations", "encoder", "biases, untied, whole-width q and k norms"):
        model = TREES[name]()
        weights = random_tensors(model)
        rows = np.random.default_rng(0).standard_normal((3, model.dim)).astype(np.float32)
        whole = views.Lens(model, weights).logits(rows)
        monkeypatch.setattr(views, "KEPT", 0)
        monkeypatch.setattr(views, "STRETCH", 20)
        assert np.allclose(views.Lens(model, weights).logits(rows), whole, atol=1e-6)
        monkeypatch.undo()


def test_what_was_not_recorded_is_said() -> None:
    model, weights = tiny()
    trace = record(Reference(model, weights), [1, 2, 3], select=["embed"])
    with pytest.raises(SettingError, match=r"record `blocks\.\*`"):
        views.lens(trace, views.Lens(model, weights), 0)
    with pytest.raises(SettingError, match="no head"):
        headless = TREES["encoder without a head"]()
        views.Lens(headless, random_tensors(headless))


def test_a_trace_from_a_file_shows_the_same(tmp_path: Path) -> None:
    trace, lens = traced()
    trace.save(tmp_path / "t.safetensors")
    again = Trace.open(tmp_path / "t.safetensors")
    assert views.lens(again, lens, 3) == views.lens(trace, lens, 3)
    assert views.heads(again, 3) == views.heads(trace, 3)
