"""Loading models by name, the tree, and the way from a prompt to ids."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from pathlib import Path

import pytest

from glassgear.errors import SettingError, TokenizerError
from glassgear.lab.experiments import worked_example
from glassgear.model.gears import walk
from glassgear.sampling import Sampling
from glassgear.serve import models
from glassgear.serve.bodies import SamplingAsked
from glassgear.serve.prompts import text_of
from glassgear.serve.worked import NAME
from glassgear.text.words import Words
from glassgear.weights import open as checkpoints
from glassgear.weights.checkpoint import Checkpoint
from tests.serve.conftest import Client, language_model
from tests.serve.test_runs import one

DESIGN = """
name = "mine"
vocab = 50
dim = 32
context = 64
layers = 2
head = "tied"

[attention]
kind = "mha"
heads = 4

[ffn]
kind = "gated"
hidden = 48
"""


def test_a_model_is_loaded_by_path_once(client: Client, speaker_path: Path) -> None:
    told = client.post("models", model=str(speaker_path))
    assert told["family"] == "llama" and told["backend"] == "reference" and told["template"]
    entry = client.service.models.get(str(speaker_path))
    client.post("models", model=str(speaker_path))
    assert client.service.models.get(str(speaker_path)) is entry
    assert client.get("tree", model=str(speaker_path)) == told


def test_an_unknown_model_brings_up_near_ones(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GLASSGEAR_CACHE", str(tmp_path))
    told = client.post("models", 404, model="smollm2-135")
    assert "smollm2-135m" in told["error"] and told["near"] == ["smollm2-135m"]
    assert client.get("tree", 404, model="tinny")["near"] == ["tiny"]
    assert client.post("runs", 404, model="tinny", prompt="1")["near"] == ["tiny"]
    assert client.post("models", 400, model="")["error"]
    assert "`glassgear pull smollm2-135m`" in client.post("models", 404, model="smollm2-135m")["error"]


def test_designs_run_on_random_weights(client: Client, tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(DESIGN, encoding="utf-8")
    assert "random" in client.post("models", 404, model=str(path))["error"]
    told = client.post("models", model=str(path), random=True, seed=3)
    assert told["layers"] == 2 and any("random weights" in notice for notice in told["notices"])


def test_loading_more_models_than_there_may_be_lets_go_of_idle_ones(
    client: Client, speaker_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(models, "MOST", 2)
    client.start("tiny", "1 2 3")
    client.post("models", model=str(speaker_path))
    assert set(client.service.models.entries) == {"tiny", str(speaker_path)}
    client.start(str(speaker_path), "ab")
    other = tmp_path / "other.gguf"
    other.write_bytes(speaker_path.read_bytes())
    assert "in use" in client.post("models", 400, model=str(other))["error"]


@pytest.mark.parametrize(
    "name", ["llama", "two rotations", "experts by softmax", "latent attention", "narrow encoder"]
)
def test_the_tree_has_every_gear_tensor_and_value_once(name: str) -> None:
    client = one(name)
    told = client.get("tree", model="tiny")
    model = client.service.models.get("tiny").model
    nodes = {node["path"]: node for node in told["nodes"]}
    assert list(nodes) == [path for path, _ in walk(model.gears)]
    assert nodes[""]["parts"] == list(model.gears.parts)
    tensors = [tensor["path"] for node in told["nodes"] for tensor in node["tensors"]]
    assert sorted(tensors) == sorted(model.checkpoint.tensors)
    values = [path for node in told["nodes"] for path in node["values"]]
    assert sorted(values) == sorted(client.service.models.get("tiny").paths)
    assert "blocks.1.attention.scores" not in nodes[""]["values"]
    assert nodes[""]["parameters"] == told["parameters"] and nodes[""]["share"] == pytest.approx(1)
    for node in told["nodes"]:
        assert node["formula"] and (node["source"] is None or node["source"] in told["sources"])


def test_a_node_says_what_the_gear_is(client: Client) -> None:
    nodes = {node["path"]: node for node in client.get("tree", model="tiny")["nodes"]}
    node = nodes["blocks.1.attention"]
    assert node["kind"] == "Attention" and node["facts"]["heads"] == 6 and node["facts"]["kv_heads"] == 2
    assert node["values"][-2:] == ["blocks.1.attention.mixed", "blocks.1.attention"]
    assert nodes["blocks.1"]["alike"] == "blocks.0" and "alike" not in node
    assert "blocks.1.attention_residual" in nodes["blocks.1"]["values"]
    query = nodes["blocks.1.attention.query"]
    assert query["tensors"][0] == {
        "path": "blocks.1.attention.query.weight", "shape": [96, 48], "type": "F32", "parameters": 4608,
        "bytes": 18432,
    }  # fmt: skip
    told = client.get("tree", model="tiny")
    assert "np.sqrt" in told["sources"][nodes["norm"]["source"]]["text"]


# --- prompts ------------------------------------------------------------------------------------


def test_a_chat_shows_template_specials_and_pieces(client: Client) -> None:
    made = client.post("runs", model="speaker", prompt="hi", chat=True, system="be")
    line = made["pipeline"]
    assert line["template"] == (
        "<|im_start|>system\nbe<|im_end|>\n<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"
    )
    assert "".join(made["texts"]) == line["template"]
    assert [one["text"] for one in line["specials"]] == [
        "<|im_start|>", "<|im_end|>", "<|im_start|>", "<|im_end|>", "<|im_start|>",
    ]  # fmt: skip
    assert all(made["special"][one["index"]] for one in line["specials"]) and sum(made["special"]) == 5
    assert [piece["id"] for piece in line["pieces"]] == made["ids"] and not made["warnings"]
    step = client.post(f"runs/{made['run']}/step", count=9)
    assert step["texts"] == ["H", "!", "<|im_end|>"] and step["done"] == "stop"


def test_control_text_in_a_users_text_is_warned_of_and_stays_text(client: Client) -> None:
    for chat in (True, False):
        made = client.post("runs", model="speaker", prompt="a<|im_end|>b", chat=chat)
        assert any("<|im_end|>" in warning for warning in made["warnings"])
        assert sum(made["special"]) == (3 if chat else 0)


def test_bytes_that_are_no_character_are_shown_as_bytes(client: Client) -> None:
    made = client.post("runs", model="speaker", prompt="é")
    assert made["texts"] == ["<C3>", "<A9>"]
    assert text_of(None, 7) == "#7"


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"model": "speaker", "prompt": "\ud800"}, "surrogate"),
        ({"model": "speaker", "prompt": "a", "system": "b"}, "part of a chat"),
        ({"model": "tiny", "prompt": "a text"}, "no tokenizer: give ids"),
        ({"model": "tiny", "prompt": "1 2", "chat": True}, "no tokenizer"),
        ({"model": "tiny", "prompt": "1 999"}, "outside the model's vocabulary"),
        ({"model": "tiny", "prompt": ""}, "no tokenizer"),
        ({"model": "speaker", "prompt": "a" * 600}, "the context holds 512"),
        ({"model": "speaker", "prompt": "a", "sampling": {"top_p": 2}}, "top_p must be from 0 to 1"),
        ({"model": "speaker", "prompt": "a", "sampling": {"heat": 2}}, "heat"),
    ],
)
def test_prompts_that_can_not_be_read(client: Client, body: dict[str, object], words: str) -> None:
    answer = client.http.post(
        "/api/runs", content=json.dumps(body), headers={"Content-Type": "application/json"}
    )
    assert answer.status_code == 400 and words in answer.json()["error"]


def test_an_empty_prompt_begins_with_the_models_first_token(client: Client) -> None:
    made = client.post("runs", model="speaker", prompt="")
    assert made["texts"] == ["<|endoftext|>"]


def test_the_sampling_of_a_checkpoint_is_what_is_left_out(client: Client) -> None:
    entry = client.service.models.add("hot", language_model("llama"))
    entry.model.checkpoint = replace(entry.model.checkpoint, sampling={"temperature": 1.7, "top_k": 9})
    made = client.post("runs", model="hot", prompt="1", sampling={"top_k": 3})
    assert (made["sampling"]["temperature"], made["sampling"]["top_k"]) == (1.7, 3)
    assert isinstance(made["sampling"]["seed"], int)


def test_the_settings_of_a_request_are_those_of_sampling() -> None:
    assert {field.name for field in fields(Sampling)} - {"logit_bias"} == set(SamplingAsked.model_fields)


# --- the worked example -------------------------------------------------------------------------


def test_every_server_has_the_worked_example(client: Client) -> None:
    listed = client.get("about")["models"]
    assert [one["name"] for one in listed if one.get("example")] == [NAME] and listed[-1]["name"] == NAME
    told = client.post("models", model=NAME)
    assert told["parameters"] == 152 and told["tokenizer"] and not told["template"]
    run = client.start(NAME, listed[-1]["example"])
    assert client.get(f"runs/{run}")["texts"] == list(worked_example.TOKENS)
    for number in worked_example.printed():
        found = client.values(run, path=number.path, token=number.token)[number.place]
        assert abs(found * (100 if number.share else 1) - float(number.text)) <= 1.001 * number.unit
    assert client.get("about")["models"][-1]["loaded"]


def test_the_worked_example_is_loaded_whatever_another_model_needs(tmp_path: Path) -> None:
    entry = models.Models({"backend": "reference", "tokenizer": tmp_path / "none", "context": 4096}).load(
        NAME
    )
    assert entry.model.context == 16 and entry.model.backend.name == "reference"


def test_a_few_words_are_told_apart_by_looking() -> None:
    words = Words(("a", "ab", "西安", "西"))
    assert words.encode(" ab a西安 西") == [1, 0, 2, 3]
    assert words.encode("") == []
    assert words.decode([2, 0]) == "西安a"
    with pytest.raises(TokenizerError, match="knows the words a ab 西安 西 and no others: 'c' is none"):
        words.encode("abc")
    with pytest.raises(TokenizerError, match="no token 4"):
        words.piece(4)


def test_nobody_has_to_make_room_for_a_model_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    full = models.Models(in_use=lambda: {"busy"})
    full.add("busy", language_model("llama"))
    monkeypatch.setattr(models, "MOST", 1)
    with pytest.raises(models.UnknownName, match="no-such-model"):
        full.load("no-such-model")
    with pytest.raises(SettingError, match="1 models are loaded and in use"):
        full.load("tiny-stories")


def test_a_models_header_is_read_once(speaker_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    read = checkpoints.open_checkpoint

    def counted(path: Path) -> Checkpoint:
        opened.append(str(path))
        return read(path)

    monkeypatch.setattr(checkpoints, "open_checkpoint", counted)
    entry = models.Models({"backend": "reference"}).load(str(speaker_path))
    assert opened == [str(speaker_path)]
    assert entry.model.checkpoint.path == str(speaker_path) and entry.model.encode("a")
