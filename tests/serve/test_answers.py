"""Values, figures, views, explanations, comparisons and files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from glassgear.sampling import Sampler, Sampling
from glassgear.serve import answers
from glassgear.serve.answers import habit_shares
from glassgear.serve.compare import likeliest_of_both
from glassgear.text.words import Words
from glassgear.trace import Trace, record, views
from tests.serve.conftest import Client, language_model
from tests.serve.test_runs import IDS, PROMPT, one, zeroed


@pytest.fixture
def run(client: Client) -> str:
    return client.start("tiny", PROMPT, 2, sampling={"temperature": 0})


@pytest.fixture(scope="module")
def trace() -> Trace:
    model = language_model("llama")
    return record(model.backend, IDS, sampler=Sampler(Sampling(temperature=0)), max_tokens=3)


# --- values -------------------------------------------------------------------------------------


def test_one_token_of_a_value(client: Client, run: str, trace: Trace) -> None:
    answer = client.http.get(
        f"/api/runs/{run}/value", params={"path": "blocks.0.attention.mixed", "token": 3}
    )
    assert answer.headers["content-type"] == "application/octet-stream"
    assert (answer.headers["x-shape"], answer.headers["x-axes"]) == ("6,16", "head,channel")
    row = trace["blocks.0.attention.mixed"].at(3)
    assert np.array_equal(np.frombuffer(answer.content, "<f4").reshape(6, 16), row)
    assert float(answer.headers["x-min"]) == row.min() and float(answer.headers["x-max"]) == row.max()
    assert answer.headers["x-positions"] == "3" and "x-recorded-again" not in answer.headers


def test_a_slice_by_tokens_channels_and_head(client: Client, run: str, trace: Trace) -> None:
    path = "blocks.1.attention.query_rotated"
    found = client.values(run, path=path, first=2, last=9, channels="3:7", head=4)
    assert np.array_equal(found, trace[path].array[2:9, 4, 3:7])
    assert np.array_equal(client.values(run, path=path, token=-1), trace[path].at(9))
    assert client.values(run, path=path).shape == (10, 6, 16)


def test_scores_end_where_the_last_token_sees_nothing_more(client: Client, run: str, trace: Trace) -> None:
    path = "blocks.1.attention.scores"
    whole = trace[path].array
    assert np.array_equal(client.values(run, path=path, token=4), whole[:, 4, :5])
    found = client.values(run, path=path, first=8, last=10, head=2)
    assert np.array_equal(found, whole[2, 8:10]) and found[0, 9] == -np.inf
    answer = client.http.get(f"/api/runs/{run}/value", params={"path": path, "first": 8, "last": 10})
    assert np.isfinite([float(answer.headers["x-min"]), float(answer.headers["x-max"])]).all()


@pytest.mark.parametrize(
    ("query", "status", "words"),
    [
        ({"path": "blocks.0.ffn.dwn", "token": 1}, 404, "did you mean blocks.0.ffn.down"),
        ({"path": "embed", "token": 10}, 400, "there is no token 10: the run has tokens 0 to 9"),
        ({"path": "embed", "first": 5, "last": 5}, 400, "the run has 0 to 9"),
        ({"path": "embed", "token": 1, "channels": "40:49"}, 400, "the channels 0 to 47, not 40 to 48"),
        ({"path": "embed", "token": 1, "channels": "x"}, 400, "channels"),
        ({"path": "embed", "token": 1, "head": 0}, 400, "has no heads"),
        ({"path": "blocks.0.attention.mixed", "token": 1, "head": 6}, 400, "heads 0 to 5, not 6"),
        ({"path": "embed", "token": "one"}, 400, "token"),
        ({}, 400, "path"),
    ],
)
def test_values_that_are_not_there(
    client: Client, run: str, query: dict[str, Any], status: int, words: str
) -> None:
    assert words in client.error(f"runs/{run}/value", status, **query)


def test_an_answer_that_would_be_too_large_says_how_to_narrow_it(
    client: Client, run: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answers, "MOST", 200)
    told = client.error(f"runs/{run}/value", 413, path="blocks.0.attention.weights")
    assert "600 numbers" in told and "one head" in told
    assert client.values(run, path="blocks.0.attention.weights", head=1).size == 100
    assert client.values(run, path="embed", channels="0:20").size == 200


# --- figures and views --------------------------------------------------------------------------


def test_summaries_of_one_value_and_of_a_pattern(client: Client, run: str, trace: Trace) -> None:
    path = "blocks.1.ffn.product"
    model = language_model("llama")
    same = record(model.backend, list(trace.ids[:10]), select=[path])  # other steps, nearly the same numbers
    told = client.get(f"runs/{run}/summary", path=path)
    expected = views.summary(same[path]).to_json()
    assert told["shape"] == [10, 72] and told["nan"] == told["inf"] == 0
    for name in ("mean", "std", "min", "max", "norm", "zeros"):
        assert told[name] == pytest.approx(expected[name], rel=1e-4, abs=1e-5)
    listed = client.get(f"runs/{run}/summary", path="blocks.*.ffn.*")
    assert [row["path"] for row in listed][:2] == ["blocks.0.ffn.gate", "blocks.0.ffn.up"]
    assert told in listed
    assert "did you mean" in client.error(f"runs/{run}/summary", 404, path="blocks.0.fnn.up")


def test_summaries_follow_the_text(client: Client, run: str) -> None:
    assert client.get(f"runs/{run}/summary", path="embed")["shape"] == [10, 48]
    client.post(f"runs/{run}/step", count=1)
    assert client.get(f"runs/{run}/summary", path="embed")["shape"] == [11, 48]
    client.post(f"runs/{run}/back", count=3)
    assert client.get(f"runs/{run}/summary", path="embed")["shape"] == [8, 48]


def test_growth_by_layer_and_token(client: Client, run: str) -> None:
    told = client.get(f"runs/{run}/growth")
    assert told["tokens"] == list(range(10))
    for layer in told["layers"]:
        for name, path in (("norm_attention", ".attention"), ("norm_ffn", ".ffn"), ("norm_stream", "")):
            rows = client.values(run, path=layer["path"] + path)
            assert layer[name] == pytest.approx(np.linalg.norm(rows, axis=1), rel=1e-5)


def test_what_heads_read(client: Client, run: str) -> None:
    told = client.get(f"runs/{run}/heads", token=6)
    assert [layer["path"] for layer in told["layers"]] == ["blocks.0.attention", "blocks.1.attention"]
    weights = client.values(run, path="blocks.1.attention.weights", token=6)
    for row, looks in zip(weights, told["layers"][1]["heads"], strict=True):
        assert [look["token"] for look in looks] == np.argsort(-row, kind="stable")[:3].tolist()
        assert looks[0]["weight"] == pytest.approx(row.max())


def test_the_logit_lens(client: Client, run: str) -> None:
    told = client.get(f"runs/{run}/lens", token=5, top=3)
    logits = client.values(run, path="head", token=5)
    p = np.exp(logits - logits.max()) / np.exp(logits - logits.max()).sum()
    last = told["layers"][-1]
    assert [one["id"] for one in last["top"]] == np.argsort(-p)[:3].tolist()
    assert told["final"]["id"] == last["top"][0]["id"] and last["rank"] == 0
    assert last["final"] == pytest.approx(p.max(), rel=1e-4)
    assert 0 <= told["decided"] < 2 and "reference" in told["computed_by"]


# --- explanations -------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", ["reference", "cpu"])
def test_explanations_reach_the_value_that_is_shown(backend: str) -> None:
    client = one(backend=backend)
    run = client.start("tiny", PROMPT, 2)
    for path, index in [
        ("embed", "3"), ("blocks.0.attention_norm", "7"), ("blocks.1.attention.query", "9"),
        ("blocks.1.attention.key_rotated", "1,4"), ("blocks.1.attention.scores", "2,5"),
        ("blocks.1.attention.weights", "2,5"), ("blocks.1.attention.mixed", "2,5"),
        ("blocks.1.attention_residual", "5"), ("blocks.0.ffn.activated", "5"), ("blocks.0.ffn.product", "5"),
        ("blocks.1.ffn.down", "17"), ("norm", "0"), ("head", "12"),
    ]:  # fmt: skip
        told = client.get(f"runs/{run}/explain", path=path, token=8, index=index)
        place = tuple(int(i) for i in index.split(","))
        assert told["traced"] == client.values(run, path=path, token=8)[place], path
        assert told["result"] == pytest.approx(told["traced"], rel=1e-5, abs=1e-6), path


def test_an_explanation_lists_the_largest_terms_unless_all_are_wanted(client: Client, run: str) -> None:
    path = f"runs/{run}/explain"
    few = client.get(path, path="blocks.1.ffn.down", token=8, index="17", top=5)
    every = client.get(path, path="blocks.1.ffn.down", token=8, index="17", top=0)
    assert len(few["terms"]) == 5 and len(every["terms"]) == 72
    sizes = sorted((abs(term["value"]) for term in every["terms"]), reverse=True)
    assert [abs(term["value"]) for term in few["terms"]] == sizes[:5]


@pytest.mark.parametrize(
    ("query", "status", "words"),
    [
        ({"path": "blocks.1.ffn.dow", "token": 1}, 404, "did you mean blocks.1.ffn.down"),
        ({"path": "blocks.1.ffn.down", "token": 1, "index": "48"}, 400, "channel 0 to 47"),
        ({"path": "blocks.1.ffn.down", "token": 99, "index": "4"}, 400, "there is no token 99"),
        ({"path": "blocks.1.ffn.down", "token": 1, "index": "a"}, 400, "index"),
    ],
)
def test_explanations_of_what_is_not_there(
    client: Client, run: str, query: dict[str, Any], status: int, words: str
) -> None:
    assert words in client.error(f"runs/{run}/explain", status, **query)


def test_numbers_are_explained_where_values_are_not_kept() -> None:
    whole = one()
    first = whole.start("tiny", PROMPT, 2, sampling={"temperature": 0})
    small = one(nbytes=whole.service.models.get("tiny").size(10) // 3)
    run = small.start("tiny", PROMPT, 2, sampling={"temperature": 0})
    for path, index in (("blocks.1.attention.mixed", "2,5"), ("blocks.0.ffn.down", "5"), ("head", "3")):
        query = {"path": path, "token": 8, "index": index}
        assert small.get(f"runs/{run}/explain", **query) == whole.get(f"runs/{first}/explain", **query)


# --- comparisons --------------------------------------------------------------------------------


def test_two_runs_are_compared_gear_by_gear(client: Client, run: str) -> None:
    other = client.start("tiny", PROMPT, changes=[zeroed("blocks.1.attention", 0)])
    told = client.post("compare", a=run, b=other)
    assert told["token"] == 7 and told["same_tokens"] and told["same_model"] and told["tokens"] == 8
    gears = {gear["path"]: gear for gear in told["gears"]}
    assert gears["blocks.0"]["difference"] == 0 and gears["blocks.0"]["cosine"] == pytest.approx(1)
    a, b = (client.values(one_run, path="blocks.1", token=7) for one_run in (run, other))
    apart = np.linalg.norm(a - b) / np.linalg.norm(a)
    assert gears["blocks.1"]["difference"] == pytest.approx(apart, rel=1e-5)
    cosine = a @ b / np.linalg.norm(a) / np.linalg.norm(b)
    assert gears["blocks.1"]["cosine"] == pytest.approx(cosine, rel=1e-5)
    p, q = (client.values(one_run, path="head", token=7).astype(np.float64) for one_run in (run, other))
    p, q = p - np.log(np.exp(p).sum()), q - np.log(np.exp(q).sum())
    assert told["logits"]["kl"] == pytest.approx((np.exp(p) * (p - q)).sum(), rel=1e-3)
    likely = np.maximum(p, q)
    listed = [one["id"] for one in told["logits"]["candidates"]]
    assert listed[0] == int(likely.argmax())
    assert [likely[i] for i in listed] == sorted((likely[i] for i in listed), reverse=True)
    assert set(listed) >= set(np.argsort(-p)[:5]) | set(np.argsort(-q)[:5])
    assert len(listed) == 10 and set(np.argsort(-likely)[:5]) <= set(listed)
    assert told["logits"]["a"][0]["id"] == int(p.argmax()) and told["logits"]["b"][0]["id"] == int(q.argmax())


def test_what_a_change_makes_likely_is_listed_however_flat_it_is() -> None:
    """The original is sure of eight ids; of the other, none is likelier than one in fifty."""
    sure, flat = np.full(100, 1e-9, np.float32), np.full(100, 0.01, np.float32)
    sure[:8] = np.arange(8, 0, -1) / 36
    flat[50:60] = np.arange(20, 10, -1) / 1000
    flat[:8] = 1e-9
    both = [*range(5), *range(50, 55)]
    assert likeliest_of_both(np.log(sure), np.log(flat)).tolist() == both
    assert likeliest_of_both(np.log(flat), np.log(sure)).tolist() == both
    assert likeliest_of_both(np.log(sure), np.log(sure)).tolist() == list(range(10)), "filled up"
    few = np.log(np.array([0.2, 0.5, 0.3], np.float32))
    assert likeliest_of_both(few, few).tolist() == [1, 2, 0]


def test_other_prompts_are_compared_at_the_last_token_of_each(client: Client) -> None:
    run = client.start("tiny", PROMPT)
    same_length = client.start("tiny", PROMPT[:-1] + "9")
    told = client.post("compare", a=run, b=same_length)
    assert told["token"] == told["other_token"] == 7 and not told["same_tokens"]
    assert told["logits"]["kl"] > 0
    shorter = client.start("tiny", "9 2 3")
    told = client.post("compare", a=run, b=shorter)
    assert (told["token"], told["other_token"]) == (7, 2)
    a, b = client.values(run, path="blocks.1", token=7), client.values(shorter, path="blocks.1", token=2)
    gears = {gear["path"]: gear["difference"] for gear in told["gears"]}
    assert gears["blocks.1"] == pytest.approx(np.linalg.norm(a - b) / np.linalg.norm(a), rel=1e-5)


def test_texts_that_part_after_the_prompt_are_compared_before_they_part(client: Client) -> None:
    runs = [client.post("runs", model="tiny", prompt="1 2 3")["run"] for _ in range(2)]
    for name, token in zip(runs, (4, 5), strict=True):
        client.post(f"runs/{name}/step", count=0)
        client.post(f"runs/{name}/choose", id=token)
    told = client.post("compare", a=runs[0], b=runs[1])
    assert told["token"] == told["other_token"] == 2 and told["logits"]["kl"] == pytest.approx(0, abs=1e-9)


def add_words(client: Client, name: str, *words: str, space: bool = False) -> None:
    """A model with a vocabulary of its own; `space`: its tokenizer puts a space in front of a text."""

    class Spaced(Words):
        def encode(self, text: str, add_special: bool = False, parse_special: bool = False) -> list[int]:
            return super().encode(f"_{text}")

        def token_bytes(self, token: int) -> bytes:
            return super().token_bytes(token).replace(b"_", b" ")

        leading_space = True

    made = language_model("llama")
    made._tokenizer = (Spaced if space else Words)(words)
    client.service.models.add(name, made)


def text_run(client: Client, model: str, prompt: str, *chosen: int) -> str:
    """A run that goes on with these ids."""
    run = client.start(model, prompt)
    for token in chosen:
        client.post(f"runs/{run}/choose", id=token)
    return run


@pytest.mark.parametrize("space", [False, True])
def test_texts_of_two_vocabularies_are_compared_by_their_bytes(client: Client, space: bool) -> None:
    add_words(client, "letters", "a", "b", "c", "d", "é")
    add_words(client, "pairs", "_", "bc", "_a", "a", "é", "d", "b", space=space)

    def compared(a: str, b: str) -> tuple[int, int, bool, int]:
        told = client.post("compare", a=a, b=b)
        return told["token"], told["other_token"], told["same_tokens"], told["tokens"]

    # a|b|c|é and ab... : the same ids stand for other texts, other ids for the same.
    one, two = text_run(client, "letters", "a", 1, 2, 4), text_run(client, "pairs", "a", 1, 4)
    assert compared(one, two) == (3, 2, True, 4)
    # After "abc" they part; after "ab" there is no border in the second.
    one, two = text_run(client, "letters", "a", 1, 2, 3), text_run(client, "pairs", "a", 1, 4)
    assert compared(one, two) == (2, 1, True, 3)
    one, two = text_run(client, "letters", "a", 1, 3), text_run(client, "pairs", "a", 1, 4)
    assert compared(one, two) == (0, 0, True, 2)
    # Without the space both begin with id 3: "d" here, "a" there.
    one, two = text_run(client, "letters", "d", 0), text_run(client, "pairs", "a", 5)
    assert compared(one, two) == (1, 1, False, 0)
    told = client.post("compare", a=text_run(client, "letters", "abc"), b=two, token=0)
    assert (told["token"], told["other_token"], told["same_tokens"]) == (0, 0, True)


def test_a_context_that_is_longer_in_one_is_not_the_same(client: Client) -> None:
    told = client.post("compare", a=client.start("tiny", "1 2"), b=client.start("tiny", "1 2 3"))
    assert (told["token"], told["other_token"], told["tokens"], told["same_tokens"]) == (1, 2, 2, False)


def test_models_of_other_sizes_show_their_own_favourites(client: Client, run: str) -> None:
    told = client.post("compare", a=run, b=client.start("speaker", "a b"))
    assert not told["alike"] and told["logits"]["kl"] is None and told["logits"]["candidates"] is None
    p = client.values(run, path="head", token=told["token"])
    assert told["logits"]["a"][0]["id"] == int(p.argmax())
    shares = [one["probability"] for one in told["logits"]["b"]]
    assert shares == sorted(shares, reverse=True) and 0 < shares[0] <= 1


def test_two_models_are_compared_where_they_have_values_in_common(client: Client, run: str) -> None:
    client.service.models.add("other", language_model("llama", seed=5))
    client.service.models.add("third", language_model("latent attention"))
    told = client.post("compare", a=run, b=client.start("other", PROMPT), token=3)
    assert not told["same_model"] and told["token"] == 3
    assert all(gear["difference"] > 0 for gear in told["gears"])
    told = client.post("compare", a=run, b=client.start("third", PROMPT))
    gears = {gear["path"]: gear["difference"] for gear in told["gears"]}
    assert gears["blocks.0.attention.mixed"] is None and gears["blocks.0.ffn.up"] > 0


def test_runs_that_can_not_be_compared(client: Client, run: str) -> None:
    fresh = client.post("runs", model="tiny", prompt=PROMPT)["run"]
    assert "make a step in both" in client.post("compare", 400, a=run, b=fresh)["error"]
    assert "isn't there" in client.post("compare", 404, a=run, b="nothing")["error"]
    short = client.start("tiny", "1 2")
    assert "tokens 0 to 1" in client.post("compare", 400, a=run, b=short, token=5)["error"]


# --- files --------------------------------------------------------------------------------------


def test_a_trace_can_be_taken_along(client: Client, run: str, trace: Trace, tmp_path: Path) -> None:
    query = {"run": run, "what": "safetensors", "select": "blocks.0.*,head"}
    answer = client.http.get("/api/export", params=query)
    assert answer.status_code == 200 and "trace.safetensors" in answer.headers["content-disposition"]
    (tmp_path / "t.safetensors").write_bytes(answer.content)
    opened = Trace.open(tmp_path / "t.safetensors")
    assert opened.ids == trace.ids[:10] and set(opened) == {p for p in trace if p.startswith("blocks.0.")} | {
        "head"
    }
    for path, value in opened.items():
        assert np.array_equal(value.array, trace[path].array)


def test_values_as_json(client: Client, run: str, trace: Trace) -> None:
    answer = client.http.get("/api/export", params={"run": run, "select": "blocks.0.attention.scores,embed"})
    told = json.loads(answer.content)
    assert told["ids"] == list(trace.ids[:10]) and told["prompt"] == 8
    scores = told["values"]["blocks.0.attention.scores"]
    assert scores["shape"] == [6, 10, 10] and scores["numbers"][0][3][4] is None
    assert np.float32(scores["numbers"][5][9][2]) == trace["blocks.0.attention.scores"].array[5, 9, 2]


def test_files_that_would_be_too_large_or_empty(
    client: Client, run: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from glassgear.serve import files

    monkeypatch.setattr(files, "MOST_NUMBERS", 1000)
    assert "or take safetensors" in client.error("export", 413, run=run, select="*")
    assert "did you mean" in client.error("export", 404, run=run, select="blocks.0.atention")
    assert "nothing is selected" in client.error("export", 400, run=run, select="")
    assert "what" in client.error("export", 400, run=run, what="exe")


def test_a_number_that_is_none_is_null(client: Client) -> None:
    entry = client.service.models.add("broken", language_model("llama"))
    tensor = entry.model.checkpoint.tensors["blocks.1.ffn.down.weight"]
    tensor.data.view(np.float32)[0] = np.nan
    run = client.start("broken", PROMPT)
    told = client.get(f"runs/{run}/summary", path="blocks.1.ffn.down")
    assert told["nan"] == 8 and told["mean"] is not None
    assert client.get(f"runs/{run}/growth")["layers"][1]["norm_ffn"] == [None] * 8
    assert client.get(f"runs/{run}/lens")["layers"][1]["final"] is None
    answer = client.http.get(f"/api/runs/{run}/value", params={"path": "blocks.1.ffn.down", "token": 1})
    assert np.isnan(np.frombuffer(answer.content, "<f4")[0]) and np.isfinite(float(answer.headers["x-max"]))
    assert "no token can be chosen" in client.error(f"runs/{run}/candidates", 400)
    assert "no token can be chosen" in client.post(f"runs/{run}/step", 400, count=1)["error"]
    assert client.get(f"runs/{run}")["tokens_run"] == 8


# --- what a newcomer asks -----------------------------------------------------------------------


def test_habits_of_heads_are_averages_over_the_text(client: Client, run: str) -> None:
    told = client.get(f"runs/{run}/habits")["layers"]
    assert [layer["path"] for layer in told] == ["blocks.0.attention", "blocks.1.attention"]
    for layer in told:
        weights = client.values(run, path=f"{layer['path']}.weights")
        at = np.arange(2, weights.shape[1])
        for head, shares in enumerate(layer["heads"]):
            assert shares["previous"] == pytest.approx(weights[head, at, at - 1].mean(), abs=1e-6)
            assert shares["first"] == pytest.approx(weights[head, at, 0].mean(), abs=1e-6)
            assert shares["self"] == pytest.approx(weights[head, at, at].mean(), abs=1e-6)
    one = client.get(f"runs/{run}/habits", path="blocks.1.attention.weights")["layers"]
    assert one == told[1:]
    assert "did you mean" in client.error(f"runs/{run}/habits", 404, path="blocks.1.attention.wieghts")


def test_habits_follow_the_text(client: Client) -> None:
    run = client.start("tiny", "1")
    alone = client.get(f"runs/{run}/habits")["layers"][0]["heads"][0]
    assert alone == {"previous": 1, "first": 1, "self": 1}, "one token reads itself, the first one"
    client.post(f"runs/{run}/step", count=4)
    weights = client.values(run, path="blocks.0.attention.weights")[0]
    told = client.get(f"runs/{run}/habits")["layers"][0]["heads"][0]
    assert told["self"] == pytest.approx(np.diagonal(weights)[2:].mean(), abs=1e-6)


def test_habits_of_written_out_weights() -> None:
    first = np.array([[[1, 0, 0], [0.25, 0.75, 0], [0.1, 0.6, 0.3]]], np.float32)
    later = np.array([[[0.5, 0, 0.25, 0.25]]], np.float32)  # one step: a piece of its own
    shares = habit_shares([(first, np.arange(3)), (later, np.array([3]))])
    assert {name: share.tolist() for name, share in shares.items()} == {
        "previous": pytest.approx([0.425]), "first": pytest.approx([0.3]), "self": pytest.approx([0.275]),
    }  # fmt: skip


def test_candidates_say_which_stage_removed_them(client: Client, run: str) -> None:
    told = client.get(f"runs/{run}/candidates", top_k=10, top_p=0.5, min_p=0, temperature=1, count=40)
    kept = {stage["name"]: stage["kept"] for stage in told["stages"]}
    by = [one["removed_by"] for one in told["top"]]
    assert by == [None] * kept["top-p"] + ["top-p"] * (10 - kept["top-p"]) + ["top-k"] * 30
    assert all((one["final"] > 0) == (one["removed_by"] is None) for one in told["top"])
    greedy = client.get(f"runs/{run}/candidates", temperature=0, count=3)["top"]
    assert [one["removed_by"] for one in greedy] == [None, "greedy", "greedy"]
