"""Runs: steps, choices, steps back, what is recorded, changes; against the model's own trace."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from glassgear.backends.base import Chunk
from glassgear.sampling import Sampler, Sampling
from glassgear.serve.limits import Limits
from glassgear.serve.models import Models
from glassgear.trace import record
from glassgear.trace.views import summary
from tests.serve.conftest import Client, Service, language_model, make_service

PROMPT = "3 1 4 1 5 9 2 6"
IDS = [3, 1, 4, 1, 5, 9, 2, 6]


def one(model: str = "llama", backend: str = "reference", **limits: int) -> Client:
    models = Models()
    models.add("tiny", language_model(model, backend))
    return Client(Service(models, Limits(**limits)))


def test_a_run_says_what_it_is_before_anything_is_computed(client: Client) -> None:
    made = client.post("runs", model="tiny", prompt=PROMPT)
    assert made["ids"] == IDS and made["prompt"] == 8 and made["texts"][0] == "#3"
    told = client.get(f"runs/{made['run']}")
    assert told["tokens_run"] == 0 and told["model"] == "tiny" and told["cache"]["tokens"] == 0
    assert "make a step first" in client.error(f"runs/{made['run']}/value", 400, path="embed")


@pytest.mark.parametrize("backend", ["reference", "cpu"])
def test_what_is_shown_are_the_bits_of_the_models_own_trace(backend: str) -> None:
    client = one(backend=backend)
    run = client.start("tiny", PROMPT, 3, sampling={"temperature": 0})
    told = client.get(f"runs/{run}")
    assert told["tokens_run"] == len(told["ids"]) == 11 and told["recorded"] == "all"
    other = language_model("llama", backend)
    trace = record(other.backend, IDS, sampler=Sampler(Sampling(temperature=0)), max_tokens=4)
    assert list(trace.ids[:11]) == told["ids"] and set(trace) == set(client.service.models.get("tiny").paths)
    for path, value in trace.items():
        found = client.values(run, path=path, first=0, last=11)
        assert np.array_equal(found, value.array), path


def test_steps_are_those_of_generate_with_the_same_seed(client: Client) -> None:
    sampling = {"seed": 11, "temperature": 1.5, "top_k": 0, "top_p": 1.0, "min_p": 0.0}
    run = client.start("tiny", PROMPT, 2, sampling=sampling)
    client.post(f"runs/{run}/step", count=4)
    pieces = language_model("llama").generate(IDS, max_tokens=6, ignore_eos=True, **sampling)
    assert client.get(f"runs/{run}")["ids"][8:] == [i for piece in pieces for i in piece.ids]


def test_candidates_are_what_the_step_then_takes(client: Client) -> None:
    sampling = {"seed": 7, "temperature": 1.2, "top_k": 20, "top_p": 0.9, "min_p": 0.02}
    run = client.start("tiny", PROMPT, sampling=sampling)
    for _ in range(4):
        told = client.get(f"runs/{run}/candidates")
        draw = told["draw"]
        assert draw["interval"][0] <= draw["number"] <= draw["interval"][1]
        assert client.post(f"runs/{run}/step", count=1)["ids"] == [draw["id"]] == [told["chosen"]["id"]]
    assert client.get(f"runs/{run}/candidates", token=8)["taken"] == client.get(f"runs/{run}")["ids"][9]


def test_candidates_show_every_stage_from_the_stored_logits(client: Client) -> None:
    run = client.start("tiny", PROMPT, sampling={"temperature": 1.0, "seed": 1})
    logits = client.values(run, path="head", token=7)
    p = np.exp(logits - logits.max()) / np.exp(logits - logits.max()).sum()
    told = client.get(
        f"runs/{run}/candidates", token=7, top_k=10, top_p=0.5, min_p=0, temperature=0.5, count=5
    )
    assert [stage["name"] for stage in told["stages"]] == ["logits", "top-k", "top-p", "temperature"]
    assert [row["id"] for row in told["top"]] == np.argsort(-p)[:5].tolist()
    assert [row["probability"] for row in told["top"]] == pytest.approx(np.sort(p)[::-1][:5], rel=1e-5)
    k, kept = told["stages"][1], told["stages"][2]["kept"]
    assert k["kept"] == 10 and k["removed_count"] == len(p) - 10
    assert [one["id"] for one in k["removed"]] == np.argsort(-p)[10:18].tolist()
    best = np.sort(p)[::-1][:10]
    assert kept == int(np.searchsorted(np.cumsum(best) / best.sum(), 0.5)) + 1
    final = best[:kept] ** 2 / (best[:kept] ** 2).sum()
    assert [row["final"] for row in told["top"]][:kept] == pytest.approx(final[:5], rel=1e-4)
    assert client.get(f"runs/{run}/candidates", token=7, temperature=0)["draw"] is None


def test_a_chosen_id_takes_the_samplers_place(client: Client) -> None:
    run = client.start("tiny", PROMPT, 1, sampling={"temperature": 0})
    step = client.post(f"runs/{run}/choose", id=42)
    assert step["ids"] == [42] and step["tokens_run"] == 10
    ids = client.get(f"runs/{run}")["ids"]
    model = language_model("llama")
    assert np.allclose(client.values(run, path="head", token=9), model.logits(ids)[-1], atol=1e-4)
    told = client.post(f"runs/{run}/choose", 400, id=67)
    assert "outside the model's vocabulary, 0 to 66" in told["error"]


def test_back_forgets_tokens_and_steps_come_out_again(client: Client) -> None:
    run = client.start("tiny", PROMPT, 5, sampling={"seed": 3, "temperature": 1.4})
    before = client.get(f"runs/{run}")
    values = client.values(run, path="blocks.1.attention.weights", first=0, last=13)
    step = client.post(f"runs/{run}/back", count=3)
    assert (step["tokens_run"], step["length"], step["ids"]) == (10, 10, [])
    assert "the run has tokens 0 to 9" in client.error(f"runs/{run}/value", 400, path="embed", token=11)
    client.post(f"runs/{run}/step", count=3)
    assert client.get(f"runs/{run}")["ids"] == before["ids"]
    assert np.array_equal(client.values(run, path="blocks.1.attention.weights", first=0, last=13), values)
    assert "5 tokens were added" in client.post(f"runs/{run}/back", 400, count=6)["error"]


def test_a_text_ends_at_its_end_token_and_goes_on_after_a_step_back(client: Client) -> None:
    run = client.start("speaker", "x")
    step = client.post(f"runs/{run}/step", count=20)
    assert step["texts"] == ["y", "z", ".", "<|endoftext|>"] and step["done"] == "stop"
    assert step["special"] == [False, False, False, True] and step["tokens_run"] == step["length"] - 1
    again = client.post(f"runs/{run}/step", count=5)
    assert again["ids"] == [] and again["done"] == "stop"
    assert "go back first" in client.post(f"runs/{run}/choose", 400, id=1)["error"]
    client.post(f"runs/{run}/back", count=1)
    assert client.post(f"runs/{run}/choose", id=ord("a"))["tokens_run"] == 5


def test_a_full_context_ends_a_run() -> None:
    client = one(tokens=12)
    run = client.start("tiny", PROMPT)
    step = client.post(f"runs/{run}/step", count=50)
    assert (step["done"], step["tokens_run"]) == ("context", 12)
    told = client.post("runs", 400, model="tiny", prompt=" ".join(["1"] * 13))
    assert "13 tokens; a run holds up to 12" in told["error"]
    told = client.post("runs", 400, model="tiny", prompt=" ".join(["1"] * 100))
    assert "12" in told["error"] or "64" in told["error"]


def test_a_stream_has_an_event_for_each_token(client: Client) -> None:
    run = client.start("speaker", "a")
    with client.http.stream("GET", f"/api/runs/{run}/stream", params={"count": 3}) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        text = "".join(answer.iter_text())
    events = [block.split("\n") for block in text.strip().split("\n\n")]
    assert [event[0] for event in events] == ["event: token"] * 3 + ["event: end"]
    told = [json.loads(event[1].removeprefix("data: ")) for event in events]
    assert [one["texts"] for one in told[:3]] == [["b"], ["c"], ["d"]] and told[3] == {"done": "count"}


def test_the_cache_and_what_it_saved_are_counted(client: Client) -> None:
    run = client.start("tiny", PROMPT, 4)
    cache = client.get(f"runs/{run}")["cache"]
    counted = language_model("llama").ledger()
    without = sum(counted.prompt_flops(n) for n in range(9, 13))
    with_it = sum(counted.flops_per_token(n) for n in range(8, 12))
    assert cache["saved_flops"] == without - with_it > 0
    assert cache["bytes"] == 12 * counted.kv_bytes_per_token


# --- changes ------------------------------------------------------------------------------------


def zeroed(path: str, head: int | None = None) -> dict[str, Any]:
    return {"op": "zero", "path": path} | ({} if head is None else {"head": head})


@pytest.mark.parametrize("backend", ["reference", "cpu"])
def test_a_zeroed_head_is_zero_and_the_rest_goes_on(backend: str) -> None:
    client = one(backend=backend)
    plain = client.start("tiny", PROMPT)
    run = client.start("tiny", PROMPT, changes=[zeroed("blocks.0.attention", 2)])
    mixed = client.values(run, path="blocks.0.attention.mixed", first=0, last=8)
    was = client.values(plain, path="blocks.0.attention.mixed", first=0, last=8)
    assert not mixed[:, 2].any() and np.array_equal(mixed[:, :2], was[:, :2])
    assert np.array_equal(mixed[:, 3:], was[:, 3:])
    assert not np.array_equal(
        client.values(run, path="head", token=7), client.values(plain, path="head", token=7)
    )
    assert client.get(f"runs/{run}")["changes"] == [zeroed("blocks.0.attention", 2)]


@pytest.mark.parametrize("backend", ["reference", "cpu"])
def test_a_zeroed_layer_lets_the_stream_pass(backend: str) -> None:
    client = one(backend=backend)
    run = client.start("tiny", PROMPT, changes=[zeroed("blocks.1")])
    assert np.array_equal(
        client.values(run, path="blocks.1", first=0, last=8),
        client.values(run, path="blocks.0", first=0, last=8),
    )


@pytest.mark.parametrize("backend", ["reference", "cpu"])
def test_a_cut_residual_leaves_the_sublayers_output_alone(backend: str) -> None:
    client = one("two rotations", backend=backend)
    run = client.start("tiny", PROMPT, changes=[zeroed("blocks.1.ffn_residual")])
    assert np.array_equal(
        client.values(run, path="blocks.1.ffn_residual", first=0, last=8),
        client.values(run, path="blocks.1.ffn_post_norm", first=0, last=8),
    )


@pytest.mark.parametrize("backend", ["reference", "cpu"])
def test_another_activation_is_another_program_on_the_same_weights(backend: str) -> None:
    client = one(backend=backend)
    change = {"op": "activation", "path": "blocks.1.ffn", "to": "relu"}
    run = client.start("tiny", PROMPT, changes=[change])
    gate = client.values(run, path="blocks.1.ffn.gate", first=0, last=8)
    assert np.array_equal(
        client.values(run, path="blocks.1.ffn.activated", first=0, last=8), np.maximum(gate, 0)
    )
    first = client.values(run, path="blocks.0.ffn.activated", first=0, last=8)
    plain = client.start("tiny", PROMPT)
    assert np.array_equal(first, client.values(plain, path="blocks.0.ffn.activated", first=0, last=8))
    every = client.start("tiny", PROMPT, changes=[change | {"path": ""}])
    assert (client.values(every, path="blocks.0.ffn.activated", first=0, last=8) >= 0).all()


@pytest.mark.parametrize(
    ("change", "status", "words"),
    [
        (zeroed("blocks.0.atention"), 404, "did you mean blocks.0.attention"),
        (zeroed("blocks.0.attention", 6), 400, "heads 0 to 5, not 6"),
        (zeroed("blocks.0.attention.key_rotated", 2), 400, "heads 0 to 1, not 2"),
        (zeroed("blocks.0.ffn.down", 0), 400, "has no heads: token, channel"),
        ({"op": "activation", "path": "blocks.0.ffn", "to": "tanh"}, 400, "choose one of silu"),
        ({"op": "activation", "path": "blocks.0.fn", "to": "relu"}, 404, "did you mean blocks.0.ffn"),
        ({"op": "double", "path": "embed"}, 400, "op"),
    ],
)
def test_changes_that_can_not_be_made(
    client: Client, change: dict[str, Any], status: int, words: str
) -> None:
    told = client.post("runs", status, model="tiny", prompt=PROMPT, changes=[change])
    assert words in told["error"]


# --- memory and threads -------------------------------------------------------------------------


def test_values_that_do_not_fit_are_recorded_again_with_the_same_bits() -> None:
    whole = one()
    sampling = {"temperature": 0}
    first = whole.start("tiny", PROMPT, 4, sampling=sampling)
    entry = whole.service.models.get("tiny")
    small = one(nbytes=entry.size(12) // 3)
    run = small.start("tiny", PROMPT, 4, sampling=sampling)
    assert small.get(f"runs/{run}")["recorded"] == "asked"
    assert small.get(f"runs/{run}")["ids"] == whole.get(f"runs/{first}")["ids"]
    for path in (
        "blocks.0.ffn.up",
        "blocks.1.attention.weights",
        "blocks.1.attention.scores",
        "norm",
        "head",
    ):
        asked = {"path": path, "first": 0, "last": 12}
        answer = small.http.get(f"/api/runs/{run}/value", params=asked)
        assert float(answer.headers["x-recorded-again"]) >= 0
        assert np.array_equal(small.values(run, **asked), whole.values(first, **asked)), path
    for view in ("growth", "heads", "lens", "candidates"):
        assert small.get(f"runs/{run}/{view}") == whole.get(f"runs/{first}/{view}") or view == "candidates"
    assert small.service.runs.get(run).nbytes <= small.service.limits.nbytes
    small.post(f"runs/{run}/back", count=2)
    assert small.post(f"runs/{run}/step", count=2)["ids"] == whole.get(f"runs/{first}")["ids"][10:]


def test_older_runs_lose_their_values_before_newer_ones() -> None:
    client = one()
    size = client.service.models.get("tiny").size(8)
    client = one(nbytes=int(size * 2.2))
    runs = [client.start("tiny", PROMPT) for _ in range(3)]
    assert [client.get(f"runs/{run}")["recorded"] for run in runs] == ["asked", "all", "all"]
    assert client.values(runs[0], path="embed", token=3).shape == (48,)


def test_what_can_not_be_recorded_at_all_says_what_to_do() -> None:
    client = one(nbytes=20_000)
    run = client.start("tiny", PROMPT)
    told = client.error(f"runs/{run}/summary", 413, path="*")
    assert "ask for fewer of them" in told and "--memory" in told


def test_reading_does_not_wait_for_a_step() -> None:
    client = one()
    run = client.start("tiny", PROMPT)
    entry = client.service.models.get("tiny")
    with entry.lock:  # as if another run's step were under way
        found: list[Any] = []
        reading = threading.Thread(
            target=lambda: found.append(
                (client.values(run, path="embed", token=1), client.get(f"runs/{run}/lens", token=2))
            )
        )
        reading.start()
        reading.join(30)
        assert found and not reading.is_alive()


def test_several_runs_at_once_give_what_each_gives_alone() -> None:
    client = one(backend="cpu")
    prompts = [" ".join(str((7 * i + j) % 60) for j in range(6 + i)) for i in range(4)]
    alone = [
        client.get(f"runs/{client.start('tiny', p, 5, sampling={'temperature': 0})}")["ids"] for p in prompts
    ]
    made: dict[int, list[int]] = {}

    def go(number: int) -> None:
        run = client.post("runs", model="tiny", prompt=prompts[number], sampling={"temperature": 0})["run"]
        for _ in range(5):
            client.post(f"runs/{run}/step", count=1)
            client.values(run, path="blocks.1.attention.scores", first=0, last=5)
        made[number] = client.get(f"runs/{run}")["ids"]

    threads = [threading.Thread(target=go, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert [made[i] for i in range(4)] == alone


def test_closed_runs_are_gone_and_pages_are_given_back(client: Client) -> None:
    run = client.start("tiny", PROMPT)
    assert [one["run"] for one in client.get("runs")["runs"]] == [run]
    assert client.http.delete(f"/api/runs/{run}").json() == {"run": run, "closed": True}
    assert client.http.delete(f"/api/runs/{run}").status_code == 200, "closed already"
    assert "isn't there any more" in client.error(f"runs/{run}", 404)
    assert client.get("runs") == {"runs": []}


def test_more_runs_than_there_may_be_close_the_oldest(client: Client) -> None:
    runs = [client.post("runs", model="tiny", prompt="1")["run"] for _ in range(26)]
    left = [one["run"] for one in client.get("runs")["runs"]]
    assert left == runs[2:]


def test_an_encoder_can_be_watched_but_not_continued() -> None:
    client = one("encoder")
    run = client.start("tiny", PROMPT)
    weights = client.values(run, path="blocks.0.attention.weights", first=0, last=8)
    assert weights.shape == (6, 8, 8) and weights[:, 0, 7].all()
    assert "both directions" in client.post(f"runs/{run}/step", 400, count=1)["error"]
    headless = one("encoder without a head")
    run = headless.start("tiny", PROMPT)
    assert headless.values(run, path="blocks.1", token=0).shape == (48,)
    pooled = headless.values(run, path="pooler", token=0)
    dense = headless.values(run, path="pooler.dense", token=0)
    np.testing.assert_allclose(pooled, np.tanh(dense), rtol=1e-6)
    model = headless.service.models.get("tiny").model
    track = model.backend.open()
    alone = model.backend.step([Chunk(track, [int(i) for i in PROMPT.split()], "first")], output="pooled")[0]
    np.testing.assert_allclose(pooled, alone[0], atol=1e-6)
    told = headless.get(f"runs/{run}/explain", path="pooler", token=0, index="3")
    assert told["result"] == pytest.approx(float(pooled[3]), rel=1e-6)
    assert "no head" in headless.error(f"runs/{run}/candidates", 400)
    assert "no head" in headless.error(f"runs/{run}/lens", 400)


def test_experts_have_values_for_the_tokens_that_chose_them() -> None:
    client = one("experts by softmax")
    run = client.start("tiny", PROMPT)
    router = client.values(run, path="blocks.0.ffn.router", first=0, last=8)
    for number in range(8):
        path = f"blocks.0.ffn.experts.{number}.down"
        tokens = np.flatnonzero(router[:, number])
        answer = client.http.get(f"/api/runs/{run}/value", params={"path": path, "first": 0, "last": 8})
        if len(tokens):
            assert answer.headers["x-positions"] == ",".join(map(str, tokens))
        else:
            assert answer.status_code == 400


def test_long_prompts_go_in_several_passes(tmp_path: Path) -> None:
    models = Models()
    from glassgear.backends.reference import Reference
    from glassgear.language_model import LanguageModel
    from glassgear.weights.checkpoint import Checkpoint
    from tests.models import tiny

    model, tensors = tiny(layers=1)
    backend = Reference(model, tensors)
    models.add("long", LanguageModel(Checkpoint("long", "", model, tensors), backend, None))
    client = Client(Service(models, Limits()))
    ids = np.random.default_rng(0).integers(0, 100, 600).tolist()
    run = client.start("long", " ".join(map(str, ids)))
    found = client.values(run, path="blocks.0.attention.weights", token=599, head=1)
    assert found.shape == (600,) and found.sum() == pytest.approx(1, abs=1e-4)
    track = backend.open()
    rows = backend.step([Chunk(track, ids)])[0]
    assert np.allclose(client.values(run, path="head", token=599), rows[-1], atol=1e-4)


def test_a_service_is_made_of_named_models(speaker_path: Path) -> None:
    client = Client(make_service(speaker_path))
    about = client.get("about")
    assert {"speaker", "tiny"} <= {one["name"] for one in about["models"] if one["loaded"]}
    assert about["limits"] == {"tokens": 2048, "bytes": 256 << 20} and about["languages"] == ["en", "zh"]


@pytest.mark.parametrize("backend", ["reference", "cpu"])
def test_explanations_are_those_of_the_changed_run(backend: str) -> None:
    client = one(backend=backend)
    changes = [
        {"op": "zero", "path": "blocks.1.attention", "head": 4},
        {"op": "zero", "path": "blocks.0.ffn_residual"},
        {"op": "activation", "path": "blocks.1.ffn", "to": "relu"},
    ]
    run = client.start("tiny", PROMPT, 2, changes=changes)
    asked = {"path": "blocks.1.attention.mixed", "token": 9}
    zero = client.get(f"runs/{run}/explain", index="4,3", **asked)
    assert zero["exact"] and zero["result"] == 0 and zero["steps"][0]["name"] == "set to zero"
    assert zero["steps"][1]["value"] != 0 and not zero["terms"]
    other = client.get(f"runs/{run}/explain", index="3,3", **asked)
    assert other["result"] == pytest.approx(other["traced"], abs=1e-6) and len(other["terms"]) == 10
    cut = client.get(f"runs/{run}/explain", path="blocks.0.ffn_residual", token=9, index="5")
    assert cut["exact"] and [one["path"] for one in cut["inputs"]] == ["blocks.0.ffn"]
    bent = client.get(f"runs/{run}/explain", path="blocks.1.ffn.activated", token=9, index="5")
    assert bent["exact"] and "ReLU" in bent["formula"]
    for path in ("blocks.1.ffn.down", "blocks.0.attention.scores", "head"):
        told = client.get(f"runs/{run}/explain", path=path, token=9)
        assert told["exact"] or backend == "reference"


def test_figures_are_those_of_the_whole_value_however_it_came(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("glassgear.serve.store.ROWS", 16)
    client = one()
    ids = " ".join(map(str, np.random.default_rng(0).integers(0, 67, 40).tolist()))
    run = client.start("tiny", ids, 5)
    found = client.service.runs.get(run)
    for told in client.get(f"runs/{run}/summary", path="blocks.1.*"):
        want = summary(found.find([told["path"]])[told["path"]]).to_json()
        assert list(told["shape"]) == list(want.pop("shape")) and list(told["axes"]) == list(want.pop("axes"))
        assert want.pop("path") == told["path"]
        assert {name: told[name] for name in want} == pytest.approx(want, rel=1e-6, abs=1e-9)
