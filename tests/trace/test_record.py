"""Recording: what is kept, for which tokens, how much of it, and that looking changes nothing."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from glassgear.backends.base import Chunk
from glassgear.backends.cpu import CPU
from glassgear.backends.reference import Reference
from glassgear.errors import FormatError, SettingError
from glassgear.sampling import Sampler, Sampling
from glassgear.trace import Trace, record, sizes
from glassgear.trace.record import Kept
from tests.models import random_tensors, tiny
from tests.trees import TREES, VOCAB

IDS = np.random.default_rng(1).integers(0, VOCAB, 9).tolist()


def reference(name: str = "llama") -> Reference:
    model = TREES[name]()
    weights = random_tensors(model)
    return Reference(model, weights)


def greedy() -> Sampler:
    return Sampler(Sampling(temperature=0))


def test_a_trace_holds_every_token_of_prompt_and_decode_under_every_path() -> None:
    backend = reference()
    trace = record(backend, IDS, sampler=greedy(), max_tokens=4)
    assert len(trace.ids) == 13 and trace.prompt == 9 and trace.tokens == 12
    for path, value in trace.items():
        assert value.path == path and len(value.axes) == value.array.ndim
        assert value.positions.tolist() == list(range(12)), path
        assert value.array.shape[value.axes.index("token")] == 12
    assert trace["blocks.1.attention.scores"].axes == ("head", "token", "seen")
    assert trace["blocks.1.attention.weights"].array.sum(axis=2) == pytest.approx(np.ones((6, 12)), abs=1e-5)
    assert trace["head"].array.shape == (12, VOCAB)


def test_a_traced_run_gives_the_bits_of_an_untraced_one() -> None:
    backend = reference()
    trace = record(backend, IDS, sampler=greedy(), max_tokens=3)
    track, ids = backend.open(), list(trace.ids)
    # All logits of the prompt: BLAS rounds a product of one row otherwise than one of many.
    plain = [backend.step([Chunk(track, ids[:9], "all")])[0]]
    plain += [backend.step([Chunk(track, [i])])[0] for i in ids[9:-1]]
    assert np.array_equal(trace["head"].array, np.concatenate(plain))


@pytest.mark.parametrize("name", ["encoder", "narrow encoder", "encoder without a head", "FFN alone"])
def test_models_of_every_kind_can_be_recorded(name: str) -> None:
    trace = record(reference(name), IDS)
    assert trace.tokens == 9
    assert all(np.isfinite(v.array).all() for p, v in trace.items() if not p.endswith("scores"))


def test_an_expert_has_rows_for_the_tokens_that_chose_it() -> None:
    trace = record(reference("experts by softmax"), IDS, sampler=greedy(), max_tokens=3)
    router = trace["blocks.0.ffn.router"]
    assert router.axes == ("token", "expert")
    for number in range(8):
        rows = np.flatnonzero(router.array[:, number]).tolist()
        path = f"blocks.0.ffn.experts.{number}"
        assert (trace[path].positions.tolist() if path in trace else []) == rows


def test_a_selection_keeps_its_own_and_nothing_else() -> None:
    trace = record(reference(), IDS, select=["blocks.*.ffn.down", "embed"])
    assert list(trace) == ["embed", "blocks.0.ffn.down", "blocks.1.ffn.down"]
    assert list(trace.select("blocks.1.*")) == ["blocks.1.ffn.down"]
    with pytest.raises(SettingError, match=r"no value is called 'blocks\.9"):
        record(reference(), IDS, select=["blocks.9.*"])


def test_what_would_be_too_large_is_refused_before_it_is_made() -> None:
    backend = reference()
    need = sum(sizes(backend, len(IDS), ["*"]).values())
    assert record(backend, IDS, limit=need).nbytes == need
    with pytest.raises(SettingError, match=r"would take .* more than the limit"):
        record(backend, IDS, limit=need - 1)


def test_a_change_is_what_goes_on_and_what_is_kept() -> None:
    backend = reference()

    def ablate(path: str, value: np.ndarray) -> np.ndarray | None:
        return np.zeros_like(value) if path == "blocks.0.attention" else None

    plain, changed = record(backend, IDS), record(backend, IDS, change=ablate)
    assert not changed["blocks.0.attention"].array.any()
    residual = changed["blocks.0.attention_residual"].array
    assert np.array_equal(residual, plain["embed"].array)
    assert not np.array_equal(changed["head"].array, plain["head"].array)


@pytest.mark.parametrize("cpu", [False, True])
def test_a_change_of_another_shape_is_refused_with_the_path(cpu: bool) -> None:
    model, weights = tiny()
    backend = CPU(model, weights) if cpu else Reference(model, weights)
    for made, said in (
        (lambda value: value.reshape(-1), r"the shape \[\d+\] for blocks.0.ffn, not \[9, \d+\]"),
        (lambda value: value[:1], "the shape"),
        (lambda value: 0, r"the shape \[\] for"),
        (lambda value: "zero", "returned 'zero' for blocks.0.ffn, not an array"),
    ):
        with pytest.raises(SettingError, match=said):
            record(backend, IDS, change=lambda p, v, made=made: made(v) if p == "blocks.0.ffn" else None)


def test_logits_that_nobody_asks_for_leave_no_piece_behind() -> None:
    model, weights = tiny()
    for backend in (CPU(model, weights), Reference(model, weights)):
        for tokens in (0, len(IDS)):
            kept, track = Kept(("*",), None, tokens=tokens), backend.open()
            kept.begin(0, len(IDS))
            backend.step([Chunk(track, IDS, "none")], kept)
            backend.close(track)
            found = kept.values()
            assert "head" not in found and len(found["blocks.0.ffn"].array) == len(IDS)


def test_a_chooser_can_not_write_to_what_is_kept() -> None:
    class Writing:
        def next(self, logits: np.ndarray, history: object) -> int:
            logits[:] = 0
            return 1

    model, weights = tiny()
    for backend in (CPU(model, weights), Reference(model, weights)):
        for count in (1, 2):
            with pytest.raises(ValueError, match="read-only"):
                record(backend, IDS, max_tokens=count, sampler=Writing())


def test_numbers_are_found_by_token_and_index_and_the_shape_is_said_otherwise() -> None:
    trace = record(reference(), IDS)
    value = trace["blocks.0.attention.query_rotated"]
    assert value.number(3, (2, 5)) == value.array[3, 2, 5]
    scores = trace["blocks.0.attention.scores"]
    assert scores.number(3, (4, 1)) == scores.array[4, 3, 1]
    with pytest.raises(SettingError, match="it has head 0 to 5, channel 0 to 15"):
        value.number(3, (6, 0))
    with pytest.raises(SettingError, match=r"no value for token 9: it was computed for tokens 0 to 8"):
        value.at(9)
    with pytest.raises(SettingError, match=r"did you mean blocks\.0\.attention\.scores"):
        trace["blocks.0.atention.scores"]


def test_a_saved_trace_is_read_again(tmp_path: Path) -> None:
    model, weights = tiny()
    about = {"model": "模型", "texts": lambda ids: [f"<{i}>" for i in ids], "settings": {"seed": 4}}
    backend = Reference(model, weights)
    trace = record(backend, [1, 2, 3], sampler=greedy(), max_tokens=2, about=about)
    trace.save(tmp_path / "t.safetensors")
    again = Trace.open(tmp_path / "t.safetensors")
    assert list(again) == list(trace) and again.ids == trace.ids and again.prompt == 3
    assert again.model == "模型" and again.texts[0] == "<1>" and again.settings == {"seed": 4}
    for path, value in trace.items():
        assert np.array_equal(again[path].array, value.array) and again[path].axes == value.axes
        assert np.array_equal(again[path].positions, value.positions)


def test_other_files_are_no_traces(tmp_path: Path) -> None:
    from glassgear.weights import safetensors

    safetensors.write(tmp_path / "m.safetensors", {"w": np.zeros(3, np.float32)})
    with pytest.raises(FormatError, match="no trace"):
        Trace.open(tmp_path / "m.safetensors")
    safetensors.write(tmp_path / "d.safetensors", {"w": np.zeros(3, np.float32)}, {"glassgear.trace": "{}"})
    with pytest.raises(FormatError, match="description is damaged"):
        Trace.open(tmp_path / "d.safetensors")


def test_a_prompt_of_several_passes_has_every_token_once() -> None:
    model, weights = tiny(layers=1)
    ids = np.random.default_rng(2).integers(0, 100, 700).tolist()
    select = ["embed", "blocks.0.attention.key", "norm"]
    trace = record(Reference(model, weights), ids, select=select)
    for path in select:
        assert trace[path].positions.tolist() == list(range(700)), path
        assert len(trace[path].array) == 700
    assert np.array_equal(trace["embed"].array, weights["embed.weight"].float32()[ids])
