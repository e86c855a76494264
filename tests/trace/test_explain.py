"""Explanations: every kind of number, compared bit by bit with what the backends computed."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import glassgear
from glassgear.backends.base import Chunk
from glassgear.backends.cpu import CPU
from glassgear.backends.reference import Reference
from glassgear.errors import SettingError
from glassgear.language_model import LanguageModel
from glassgear.model.gears import Model
from glassgear.sampling import Sampler, Sampling
from glassgear.trace import Trace, Value, record
from glassgear.trace.explain import Desk, Explanation, desk_for, explain
from glassgear.weights.checkpoint import Checkpoint
from glassgear.weights.tensor import StoredTensor
from tests.backends.cpu import support
from tests.models import random_tensors
from tests.trees import TREES, VOCAB

IDS = np.random.default_rng(1).integers(0, VOCAB, 9).tolist()
TINY = 2e-6  # of the sum of absolute terms
BACKENDS = {"cpu": CPU, "reference": Reference}


def desk_of(
    backend: Any, tensors: dict[str, StoredTensor], ids: list[int] = IDS, tokens: int = 3, **settings: Any
) -> Desk:
    """A desk over everything that a run shows."""
    continues = backend.model.causal and backend.model.head is not None
    settings = {"temperature": 0.0} | settings
    sampler = Sampler(Sampling(**settings)) if continues else None
    trace = record(
        backend, ids, sampler=sampler, max_tokens=tokens if continues else 0, about={"settings": settings}
    )
    return desk_for(backend, tensors, trace, "embed")


@lru_cache(maxsize=4)
def desk(name: str, backend: str) -> Desk:
    model = TREES[name]()
    tensors = random_tensors(model)
    return desk_of(BACKENDS[backend](model, tensors), tensors)


def picked(of: Desk, path: str, rng: np.random.Generator) -> Explanation:
    """A random number of a value."""
    token = int(rng.choice(of.trace[path].positions))
    row = of.trace[path].at(token)
    shape = (*row.shape[:-1], of.span(token)[1]) if of.trace[path].axes[-1] == "seen" else row.shape
    return explain(of, path, token, [int(rng.integers(n)) for n in shape])


def numbers(of: Desk, count: int, seed: int = 0) -> Iterator[Explanation]:
    """Random numbers, the paths in turns."""
    rng = np.random.default_rng(seed)
    paths = rng.permutation(list(of.trace)).tolist()
    for i in range(count):
        yield picked(of, paths[i % len(paths)], rng)


def check(made: Explanation, exact: bool) -> None:
    """It is the traced number, or nearly; and terms add up to what they say."""
    where = f"{made.path}{list(made.index)} of token {made.token}: {made.verdict}"
    assert made.traced is not None
    if exact:
        assert made.exact, where
    assert made.exact or abs(made.difference or 0.0) <= TINY * made.made.magnitude, where
    total = math.fsum(term.value for term in made.terms)
    if made.made.summed in ("weight times input", "weight times value", "scale times query times key"):
        bias = sum(s.value or 0.0 for s in made.made.steps if s.name == "bias")
        capped = any(s.name == "cap" for s in made.made.steps)
        # Weights as int16 codes are up to half a unit of 1 / 32767 off.
        room = TINY if "int16" not in made.made.order else 1e-3
        assert capped or abs(total + bias - made.result) <= room * made.made.magnitude, where


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", TREES)
def test_numbers_of_every_gear_are_those_of_the_trace(name: str, backend: str) -> None:
    of = desk(name, backend)
    for made in numbers(of, max(60, len(of.trace))):
        check(made, exact=backend == "cpu")


@pytest.mark.parametrize("kind", ["Q4_0", "Q4_1", "Q8_0", "Q4_K", "Q6_K"])
def test_quantised_weights_give_the_bits_of_the_kernels(kind: str) -> None:
    model, tensors = support.model(
        1, dim=256, hidden=512, heads=4, kv_heads=2, head_dim=64, type_name=kind, layers=1
    )
    of = desk_of(CPU(model, tensors), tensors, np.arange(70).tolist())
    for made in numbers(of, 2 * len(of.trace)):
        check(made, exact=True)
    down = explain(of, "blocks.0.ffn.down", 5, 17)
    assert down.made.stored == kind and len(down.made.blocks) == 512 // (16 if kind == "Q6_K" else 32)
    for block in down.made.blocks:
        assert block.dot == sum(a * b for a, b in zip(block.levels, block.activations, strict=True))
    added = math.fsum(b.value for b in down.made.blocks)
    assert added == pytest.approx(down.result, abs=TINY * down.made.magnitude)
    weights = tensors["blocks.0.ffn.down.weight"].rows(np.array([17]))[0]
    assert [dict(t.factors)["weight"] for t in down.terms] == weights.tolist()


def test_on_the_reference_the_blocks_of_quantised_weights_are_shown_as_well() -> None:
    model, tensors = support.model(1, dim=64, hidden=96, type_name="Q4_1", layers=1)
    of = desk_of(Reference(model, tensors), tensors)
    made = explain(of, "blocks.0.ffn.gate", 2, 5)
    check(made, exact=False)
    assert len(made.made.blocks) == 2 and made.made.blocks[0].unit is None
    assert math.fsum(b.value for b in made.made.blocks) == pytest.approx(made.result, abs=1e-6)


@pytest.mark.parametrize("name", ["two rotations", "window", "latent attention"])
@pytest.mark.parametrize("cache", ["float32", "float16"])
def test_attention_over_many_pages_and_segments(name: str, cache: str) -> None:
    model = TREES[name]()
    tensors = random_tensors(model)
    ids = np.random.default_rng(3).integers(0, VOCAB, 1100).tolist()
    backend = CPU(model, tensors, cache_type=cache)
    of = desk_for(backend, tensors, lambda paths: record(backend, ids, select=paths), "embed")
    inside = "blocks.1.attention"
    for token in (1099, 600, 64):
        for path, index in ((f"{inside}.mixed", (3, 4)), (f"{inside}.scores", (3, token - 2))):
            check(explain(of, path, token, index), exact=True)


def test_a_cache_of_float16_is_followed_on_the_reference_too() -> None:
    model = TREES["llama"]()
    tensors = random_tensors(model)
    of = desk_of(Reference(model, tensors, cache_type="float16"), tensors)
    for path in ("blocks.1.attention.scores", "blocks.1.attention.mixed"):
        made = explain(of, path, 8, (4, 1))
        check(made, exact=False)
        assert any("float16" in name for term in made.terms for name, _ in term.factors)


def test_a_changed_weight_is_noticed() -> None:
    of = desk("llama", "cpu")
    weights = of.vector("blocks.1.ffn.down.weight").copy()
    weights[17, 3] *= 1.01
    stored = of.tensors["blocks.1.ffn.down.weight"]
    wrong = replace(stored, data=weights.view(np.uint8).reshape(-1))
    other = replace(of, tensors={**of.tensors, "blocks.1.ffn.down.weight": wrong})
    made = explain(other, "blocks.1.ffn.down", 3, 17)
    assert not made.exact and "units of its last place" in made.verdict
    assert explain(of, "blocks.1.ffn.down", 3, 17).exact


def test_a_pooler_is_explained_where_it_was_run() -> None:
    model = TREES["encoder"]()
    tensors = random_tensors(model)
    for backend in (CPU(model, tensors), Reference(model, tensors)):
        seen: dict[str, Value] = {}

        def keep(path: str, value: np.ndarray, seen: dict[str, Value] = seen) -> None:
            axes = ("token", "channel") if value.ndim == 2 else ("head", "token", "seen")
            rows = value.shape[axes.index("token")]
            seen[path] = Value(path, axes, value.copy(), np.arange(rows))

        backend.step([Chunk(backend.open(), IDS, "first")], keep, "pooled")
        trace = Trace(tuple(IDS), (), len(IDS), "", backend.name, "", {}, seen)
        of = desk_for(backend, tensors, trace, "embed")
        for path in ("pooler", "pooler.dense"):
            check(explain(of, path, 0, 11), exact=backend.name == "cpu")


# --- following -------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["learned positions, LayerNorm, plain FFN", "experts in groups",
                                  "latent attention, queries too", "narrow encoder"])  # fmt: skip
def test_inputs_are_followed_down_to_the_tables(name: str) -> None:
    of, rng = desk(name, "cpu"), np.random.default_rng(4)
    made = explain(of, "head", 8, 5)
    for _ in range(200):
        if not made.inputs:
            break
        number = int(rng.integers(len(made.inputs)))
        if not made.inputs[number].path:  # beyond the text
            continue
        value = made.inputs[number].value
        made = made.follow(number)
        assert made.traced in (value, None) and made.result == value
    assert made.path in ("embed", "positions", "token_types")


def test_an_input_that_isn_t_there_is_refused() -> None:
    made = explain(desk("llama", "cpu"), "blocks.0.ffn.product", 2, 5)
    assert [one.name for one in made.inputs] == ["activated", "up"]
    with pytest.raises(SettingError, match="has no input 2: it has inputs 0 to 1"):
        made.follow(2)
    with pytest.raises(SettingError, match="is computed from no traced number"):
        explain(desk("llama", "cpu"), "embed", 2, 5).follow(0)
    edge = explain(desk("narrow encoder", "cpu"), "neighbours", 8, 3).follow(0)
    with pytest.raises(SettingError, match="no next token: 0"):
        edge.follow(0)


# --- sampling --------------------------------------------------------------------------------


def test_a_probability_is_the_softmax_of_the_logits() -> None:
    of = desk("llama", "cpu")
    logits = of.trace["head"].at(8).astype(np.float64)
    expected = np.exp(logits - logits.max()) / np.exp(logits - logits.max()).sum()
    made = explain(of, "probability", 8, 5)
    assert made.result == pytest.approx(expected[5], rel=1e-5) and made.traced is None
    assert explain(of, "probability", 8).index == (int(logits.argmax()),)
    assert made.follow(5).path == "head"


def test_a_sampled_id_is_drawn_again() -> None:
    model = TREES["llama"]()
    tensors = random_tensors(model)
    settings = {"temperature": 1.3, "top_k": 20, "top_p": 0.9, "min_p": 0.0, "seed": 5}
    of = desk_of(Reference(model, tensors), tensors, tokens=8, **settings)
    for token in range(8, 16):
        made = explain(of, "sampled", token)
        assert made.exact and made.traced == of.trace.ids[token + 1]
        steps = {step.name: step for step in made.made.steps}
        assert list(steps) == [
            "logits",
            "top-k 20",
            "top-p 0.9",
            "temperature 1.3",
            "random number",
            "interval",
        ]
        low, high = (float(v) for v in steps["interval"].words.split("[")[-1].rstrip(")").split(","))
        assert low - 1e-9 <= (steps["random number"].value or 0.0) < high + 1e-9
        assert math.fsum(term.value for term in made.terms) == pytest.approx(1)


def test_a_greedy_id_has_a_margin_and_the_prompt_s_own_tokens_weren_t_sampled() -> None:
    of = desk("llama", "cpu")
    made = explain(of, "sampled", 8)
    assert made.exact and [s.name for s in made.made.steps] == ["logits", "greedy", "margin"]
    top = np.sort(of.trace["head"].at(8))[::-1]
    assert made.made.steps[-1].value == pytest.approx(float(top[0]) - float(top[1]))
    with pytest.raises(SettingError, match="nothing was sampled after token 3: the prompt goes on there"):
        explain(of, "sampled", 3)
    with pytest.raises(SettingError, match="it samples nothing"):
        explain(desk("encoder", "cpu"), "sampled", 8)


def test_without_a_seed_the_interval_alone_is_told() -> None:
    of = desk("llama", "cpu")
    unseeded = replace(of, trace=replace(of.trace, settings={"temperature": 1.0}))
    made = explain(unseeded, "sampled", 8)
    assert made.exact and "isn't known" in made.made.steps[-2].words


# --- what is asked for -----------------------------------------------------------------------


def test_indices_are_python_s() -> None:
    of = desk("llama", "cpu")
    assert explain(of, "embed", -1, -1).index == (47,) and explain(of, "embed", -1).token == 10
    assert explain(of, "blocks.0.attention.query_rotated", 2, (-1, -2)).index == (5, 14)
    by_head = explain(of, "blocks.0.attention.key", 2, (1, 3))
    assert by_head.index == (19,) and by_head == explain(of, "blocks.0.attention.key", 2, 19)
    largest = explain(of, "blocks.0.ffn", 2)
    assert abs(largest.result) == np.abs(of.trace["blocks.0.ffn"].at(2)).max()


@pytest.mark.parametrize(
    ("path", "token", "index", "message"),
    [
        (
            "blocks.0.fnn.down",
            2,
            1,
            r"no value of this model is called 'blocks\.0\.fnn\.down': did you mean bl",
        ),
        ("embed", 11, 1, "there is no token 11: the trace has tokens 0 to 10"),
        ("embed", 2, 48, "embed has no number at 48: it has channel 0 to 47"),
        ("embed", 2, (1, 2), "embed has no number at 1, 2: it has channel 0 to 47"),
        ("blocks.0.attention.scores", 2, 4, "at 4: it has head 0 to 5, seen 0 to 8"),
        ("blocks.0.attention.query", 2, (6, 0), "at 6, 0: it has head 0 to 5, channel 0 to 15"),
        ("sampled", 8, 3, "it has one number, which takes no index"),
    ],
)
def test_what_isn_t_there_is_said(path: str, token: int, index: Any, message: str) -> None:
    with pytest.raises(SettingError, match=message):
        explain(desk("llama", "cpu"), path, token, index)


def test_an_expert_that_wasn_t_chosen_says_who_was() -> None:
    of = desk("experts by softmax", "cpu")
    weights = of.trace["blocks.0.ffn.router"].at(4)
    idle, busy = np.flatnonzero(weights == 0), np.flatnonzero(weights)
    used = ", ".join(map(str, busy)) if busy[-1] - busy[0] > 2 else f"{busy[0]} to {busy[-1]}"
    for number in idle:
        with pytest.raises(SettingError, match=f"token 4 uses experts {used}"):
            explain(of, f"blocks.0.ffn.experts.{number}.up", 4, 0)
    made = explain(of, "blocks.0.ffn.router", 4, int(idle[0]))
    assert made.exact and made.result == 0 and "not chosen" in made.made.steps[-1].words


def test_a_token_that_can_t_be_seen_has_no_score_and_no_weight() -> None:
    of = desk("window", "cpu")
    for other in (2, 8):
        assert explain(of, "blocks.0.attention.scores", 7, (0, other)).result == -math.inf
        weight = explain(of, "blocks.0.attention.weights", 7, (0, other))
        assert weight.exact and weight.result == 0


def test_a_trace_that_lacks_the_inputs_says_which() -> None:
    model = TREES["llama"]()
    tensors = random_tensors(model)
    backend = Reference(model, tensors)
    few = record(backend, IDS, select=["embed", "blocks.0.ffn.down"])
    of = desk_for(backend, tensors, few, "embed")
    with pytest.raises(SettingError, match=r"the trace doesn't hold blocks\.0\.ffn\.product"):
        explain(of, "blocks.0.ffn.down", 2, 1)
    other = TREES["attention alone"]()
    with pytest.raises(SettingError, match="which this model doesn't have"):
        desk_for(Reference(other, random_tensors(other)), tensors, record(backend, IDS), "embed")


# --- as data ---------------------------------------------------------------------------------


def test_json_holds_all_of_it_or_the_largest() -> None:
    of = desk("llama", "cpu")
    made = explain(of, "blocks.0.ffn.down", 2, 17)
    whole = json.loads(json.dumps(made.to_json(), allow_nan=False))
    assert len(whole["terms"]) == len(whole["inputs"]) == 72 and whole["exact"] and "rest" not in whole
    assert whole["terms"][-1]["running"] == whole["result"] == whole["traced"]
    few = made.to_json(5)
    assert len(few["terms"]) == 5 and {t["inputs"][0] for t in few["terms"]} == {
        i["number"] for i in few["inputs"]
    }
    assert math.fsum([t["value"] for t in few["terms"]]) + few["rest"] == pytest.approx(made.result, abs=1e-6)
    unseen = explain(of, "blocks.0.attention.scores", 2, (0, 7)).to_json()
    assert unseen["result"] is None and unseen["traced"] is None


def test_text_and_html_show_the_factors_and_escape_what_the_text_holds() -> None:
    of = desk("llama", "cpu")
    shown = replace(of, trace=replace(of.trace, texts=("<b>&",) * 12))
    made = explain(shown, "blocks.0.attention.scores", 5, (4, 1))
    page = made._repr_html_()
    assert "&lt;b&gt;&amp;" in page and "<b>" not in page and "<script" not in page
    assert str(made).startswith("blocks.0.attention.scores[4, 1] of token 5 '<b>&'")
    assert "bit for bit" in str(made) and "query head 4 reads key head 1 of 2" in str(made)


# --- whole models ----------------------------------------------------------------------------


def language_model(model: Model, backend: type = CPU) -> LanguageModel:
    tensors = random_tensors(model)
    checkpoint = Checkpoint(model=model, tensors=tensors, path="memory", container="memory")
    return LanguageModel(checkpoint, backend(model, tensors), None)


def test_a_model_explains_a_prompt_or_a_trace_of_it() -> None:
    model = language_model(TREES["experts by softmax"]())
    made = model.explain(IDS, "blocks.1.ffn", 9, 3, max_tokens=3)
    assert made.exact
    again = model.explain(model.trace(IDS, max_tokens=3), "blocks.1.ffn", 9, 3)
    assert again == made
    follow = made.follow(1)  # another run records what the first one left out
    assert follow.exact and follow.path.startswith("blocks.1.ffn.experts.")
    assert follow.follow(0).follow(0).exact


def test_further_runs_of_a_prompt_draw_the_same_ids() -> None:
    model = language_model(TREES["llama"]())
    made = model.explain(IDS, "sampled", 12, max_tokens=6, temperature=2.0)
    assert made.exact
    logit = made.follow(int(made.result) if len(made.inputs) == VOCAB else 0)
    assert logit.exact and logit.token == 12 and logit.follow(3).exact


def two_hundred(model: LanguageModel, prompt: str) -> None:
    trace = model.trace(prompt, max_tokens=4, temperature=0.8, seed=3)
    of = desk_for(model.backend, model.checkpoint.tensors, trace, "embed", piece=model.tokenizer.piece)
    exact = model.backend.name == "cpu"
    for made in numbers(of, 200):
        check(made, exact)
    for token in range(trace.prompt - 1, trace.tokens):
        assert explain(of, "sampled", token).exact


@pytest.mark.parametrize("backend", BACKENDS)
def test_two_hundred_numbers_of_stories260k(shared: Path, backend: Any) -> None:
    folder = shared / "data" / "llama2c"
    model = glassgear.load(folder / "stories260K.bin", folder / "tok512.bin", backend=backend)
    two_hundred(model, "Once upon a time")


@pytest.mark.parametrize("backend", BACKENDS)
def test_two_hundred_numbers_of_smollm2(smollm2: Path, backend: Any) -> None:
    two_hundred(glassgear.load(smollm2, backend=backend), "The capital of France is the city of")


def test_an_index_may_be_a_number_of_numpy() -> None:
    model: Any = language_model(TREES["llama"]())
    told = [
        model.explain([1], "blocks.0.ffn", index=i).index
        for i in (3, np.int64(3), np.array(3), np.array([3]))
    ]
    assert told == [(3,)] * 4


def test_arguments_of_another_type_are_refused_with_a_sentence() -> None:
    model: Any = language_model(TREES["llama"]())
    for call, said in (
        (lambda: model.trace([1], select=5), "select is a pattern"),
        (lambda: model.trace([1], select=[]), "select is a pattern"),
        (lambda: model.trace([]), "there is no token"),
        (lambda: model.explain([1], "head", index="a"), "index must be a whole number"),
        (lambda: model.explain([1], "head", token="x"), "token must be a whole number"),
        (lambda: model.explain([1], 5), "path is a text"),
    ):
        with pytest.raises(SettingError, match=said):
            call()
