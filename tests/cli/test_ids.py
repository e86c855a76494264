"""`run` without a tokenizer: ids in, ids out; random weights; encoders."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import glassgear
from tests.cli.conftest import Call

DECODER = """
dim = 64
vocab = 100
layers = 2
context = 40
attention.heads = 4
"""
ENCODER = DECODER.replace("heads = 4", "heads = 4\nattention.causal = false") + 'head = "none"\n'
RANDOM = ("--random", "--backend", "reference")


@pytest.fixture
def decoder(tmp_path: Path) -> Path:
    path = tmp_path / "decoder.toml"
    path.write_text(DECODER, encoding="utf-8")
    return path


@pytest.fixture
def encoder(tmp_path: Path) -> Path:
    path = tmp_path / "encoder.toml"
    path.write_text(ENCODER, encoding="utf-8")
    return path


def test_ids_go_in_and_ids_come_out(call: Call, decoder: Path) -> None:
    result = call("run", decoder, "1, 2 3", *RANDOM, "-n", 5, "-t", 0)
    assert result.exit_code == 0
    assert "random weights (seed 0): what the model says means nothing" in result.stderr
    model = glassgear.load(decoder, backend="reference", random=True)
    ids = [1, 2, 3]
    for _ in range(5):
        ids.append(int(np.argmax(model.logits(ids)[-1])))
    assert result.stdout == " ".join(map(str, ids[3:])) + "\n"


def test_a_seed_repeats_weights_and_choices(call: Call, decoder: Path) -> None:
    one, same, other = (call("run", decoder, "1", *RANDOM, "-n", 8, "--seed", s).stdout for s in (7, 7, 8))
    assert one == same != other


def test_without_a_prompt_or_from_standard_input(call: Call, decoder: Path) -> None:
    from_zero = call("run", decoder, *RANDOM, "-n", 4).stdout
    assert from_zero == call("run", decoder, "0", *RANDOM, "-n", 4).stdout
    assert call("run", decoder, "-", *RANDOM, "-n", 4, input="0\n").stdout == from_zero


def test_json_and_logprobs_name_ids(call: Call, decoder: Path) -> None:
    lines = call("run", decoder, "1 2", *RANDOM, "-n", 3, "--json", "--logprobs", 1).stdout.splitlines()
    pieces = [json.loads(line) for line in lines]
    assert [len(piece["ids"]) for piece in pieces] == [1, 1, 1]
    assert pieces[0]["logprobs"][0]["piece"] is None and pieces[-1]["usage"]["prompt_tokens"] == 2
    table = call("run", decoder, "1 2", *RANDOM, "-n", 3, "--logprobs", 1).stdout.splitlines()
    assert [int(line.split()[0]) for line in table] == [piece["ids"][0] for piece in pieces]


def test_echo_shows_the_prompt_s_ids_first(call: Call, decoder: Path) -> None:
    after = call("run", decoder, "1 2", *RANDOM, "-n", 3).stdout
    assert call("run", decoder, "1 2", *RANDOM, "-n", 3, "--echo").stdout == f"1 2 {after}"
    assert (
        call("run", decoder, *RANDOM, "-n", 3, "--echo").stdout
        == call("run", decoder, *RANDOM, "-n", 3).stdout
    )


def test_a_text_can_t_be_read_without_a_tokenizer(call: Call, decoder: Path) -> None:
    result = call("run", decoder, "hello", *RANDOM)
    assert result.exit_code == 1
    assert "has no tokenizer, so its prompt is ids, such as \"1 2 3\": found 'hello'" in result.stderr


@pytest.mark.parametrize(
    ("prompt", "said"), [("1 100", "outside the model's vocabulary"), ("1 " * 50, "50 tokens")]
)
def test_ids_are_checked(call: Call, decoder: Path, prompt: str, said: str) -> None:
    result = call("run", decoder, prompt, *RANDOM)
    assert result.exit_code == 1 and said in result.stderr


def test_a_tokenizer_of_another_model_may_be_given(call: Call, tmp_path: Path, speaker: str) -> None:
    path = tmp_path / "my.toml"
    path.write_text(DECODER.replace("100", "260"), encoding="utf-8")
    result = call("run", path, "ab", *RANDOM, "-n", 3, "--tokenizer", speaker, "--json")
    assert result.exit_code == 0 and json.loads(result.stdout.splitlines()[-1])["usage"]["prompt_tokens"] == 2


def test_hidden_states_of_an_encoder(call: Call, encoder: Path) -> None:
    result = call("run", encoder, "5 6 7", *RANDOM)
    assert result.exit_code == 0 and "doesn't continue texts" in result.stderr
    hidden = glassgear.load(encoder, backend="reference", random=True).hidden([5, 6, 7])
    rows = [line.split() for line in result.stdout.splitlines()[1:]]
    assert [row[1] for row in rows] == ["5", "6", "7"]
    np.testing.assert_allclose([[float(x) for x in row[3:]] for row in rows], hidden[:, :4], atol=1e-4)
    found = json.loads(call("run", encoder, "5 6 7", *RANDOM, "--json").stdout)
    assert found["ids"] == [5, 6, 7]
    np.testing.assert_allclose(found["hidden"], hidden, atol=1e-6)


def test_without_random_weights_it_is_said_what_to_do(call: Call, decoder: Path) -> None:
    for command in (
        ["run", decoder, "1"],
        ["chat", decoder],
        ["score", decoder, "-"],
        ["run", "llama-3-8b", "a"],
    ):
        result = call(*command, input="")
        assert (
            result.exit_code == 1 and "has no weights: `glassgear run --random` draws some" in result.stderr
        )


def test_too_large_a_model_is_refused_with_figures(call: Call) -> None:
    result = call("run", "gpt-3-175b", "1", "--random")
    assert result.exit_code == 1 and "need 1,396.8 GB of memory in float32 (as drawn, and" in result.stderr


def test_a_damaged_model_file_is_one_sentence(call: Call, tmp_path: Path) -> None:
    path = tmp_path / "my.toml"
    path.write_text("dim = \n", encoding="utf-8")
    for command in ("show", "params", "run", "compare"):
        result = call(command, path)
        assert result.exit_code == 1 and result.stdout == "" and "is no TOML" in result.stderr


def test_a_description_has_no_weights_to_convert(call: Call, decoder: Path, tmp_path: Path) -> None:
    result = call("convert", decoder, tmp_path / "out.gguf")
    assert result.exit_code == 1 and "has no weights to convert" in result.stderr
    assert not (tmp_path / "out.gguf").exists()
