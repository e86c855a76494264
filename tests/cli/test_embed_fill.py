"""`glassgear embed` and `glassgear fill`, and what other commands say of an encoder."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import glassgear
from tests.cli.conftest import Call
from tests.families.encoders import WORDS, write_encoder, write_modules
from tests.families.test_bert import make


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bert")
    write_encoder(folder, make("BertForPreTraining"))
    return folder


def vectors_of(stdout: str) -> np.ndarray:
    return np.array([list(map(float, line.split())) for line in stdout.splitlines()])


def test_a_line_of_numbers_for_each_text(call: Call, bert: Path) -> None:
    result = call("embed", bert, "the cat", "你好, dog")
    assert result.exit_code == 0
    want = glassgear.load(bert).embed(["the cat", "你好, dog"])
    assert np.abs(vectors_of(result.stdout) - want).max() < 1e-6
    assert result.stderr.startswith("note: ") and result.stderr.count("\n") == 1  # of the head left out


def test_options_choose_how_vectors_are_made(call: Call, bert: Path) -> None:
    model = glassgear.load(bert)
    for pooling in ("mean", "cls", "last", "pooler"):
        found = call("embed", bert, "the cat", "--pooling", pooling, "--no-normalize")
        want = model.embed("the cat", pooling=pooling, normalize=False)  # type: ignore[arg-type]
        assert np.abs(vectors_of(found.stdout) - want).max() < 1e-5
    on_reference = call("embed", bert, "the cat", "--backend", "reference")
    assert np.abs(vectors_of(on_reference.stdout) - model.embed("the cat")).max() < 1e-5


def test_json(call: Call, bert: Path) -> None:
    found = json.loads(call("embed", bert, "cat", "dog", "--json", "--similarity").stdout)
    want = glassgear.load(bert).embed(["cat", "dog"])
    assert found["dim"] == 48 and [one["text"] for one in found["embeddings"]] == ["cat", "dog"]
    assert [one["embedding"] for one in found["embeddings"]] == want.tolist()
    assert found["similarity"][0][1] == pytest.approx(float(want[0] @ want[1]), abs=1e-6)
    assert found["similarity"][0][0] == pytest.approx(1) == found["similarity"][1][1]
    assert "similarity" not in json.loads(call("embed", bert, "cat", "--json").stdout)


def test_how_alike_texts_are(call: Call, bert: Path) -> None:
    lines = call(
        "embed", bert, "cat", "dog \n dog", "cat", "--similarity", "--no-normalize"
    ).stdout.splitlines()
    assert lines[0].split() == ["text", "1", "2", "3"]
    rows = [line.split() for line in lines[1:]]
    assert [row[1] for row in rows] == ["cat", "dog", "cat"]
    vectors = glassgear.load(bert).embed(["cat", "dog dog"])
    share = f"{vectors[0] @ vectors[1]:.3f}"
    assert rows[0][2:] == ["1.000", share, "1.000"] and lines[2].split()[3:] == [share, "1.000", share]


def test_lines_of_standard_input_are_texts(call: Call, bert: Path) -> None:
    piped = call("embed", bert, "-", "dog", input="the cat\r\n\n你好\u2028a\n")
    want = glassgear.load(bert).embed(["the cat", "", "你好\u2028a", "dog"])
    assert np.abs(vectors_of(piped.stdout) - want).max() < 1e-6


def test_a_text_too_long_fails_or_is_cut_on_demand(call: Call, bert: Path) -> None:
    long = "cat " * 90
    refused = call("embed", bert, "dog", long)
    assert refused.exit_code == 1 and refused.stdout == ""
    assert (
        "error: text 2 is 92 tokens, the model takes 64" in refused.stderr and "--truncate" in refused.stderr
    )
    cut = call("embed", bert, long, "--truncate")
    assert cut.exit_code == 0 and "1 text was longer than 64 tokens" in cut.stderr


def test_a_module_that_isn_t_run_fails_unless_a_pooling_is_chosen(call: Call, tmp_path: Path) -> None:
    write_encoder(tmp_path, make("BertModel"))
    write_modules(tmp_path, "Transformer", "Pooling", "Dense", pooling={"pooling_mode": "cls"})
    result = call("embed", tmp_path, "cat")
    assert result.exit_code == 1 and "`Dense`" in result.stderr and "fault" not in result.stderr
    assert call("embed", tmp_path, "cat", "--pooling", "cls").exit_code == 0


def test_a_decoder_embeds_too(call: Call, speaker: str) -> None:
    found = vectors_of(call("embed", speaker, "abc").stdout)
    assert found.shape == (1, 264) and np.linalg.norm(found) == pytest.approx(1, abs=1e-5)
    assert found[0].argmax() == ord("c")  # its stream carries the last token


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "Missing argument 'TEXT...'"),
        (["-", "-"], "only once"),
        (["cat", "--pooling", "max"], "'max' is not one of"),
        (["-"], "holds no line"),
    ],
)
def test_mistakes_in_the_command_line(call: Call, bert: Path, arguments: list[str], message: str) -> None:
    result = call("embed", bert, *arguments, input="")
    assert result.exit_code == 2 and message in result.stderr


def test_guesses_for_a_masked_word(call: Call, bert: Path) -> None:
    result = call("fill", bert, "paris is the [MASK] of france.", "--top", "3")
    assert result.exit_code == 0
    (gap,) = glassgear.load(bert).fill("paris is the [MASK] of france.", top=3)
    lines = result.stdout.splitlines()
    assert lines == [f"{one.probability:>7.2%}  {one.text}" for one in gap.candidates] and len(lines) == 3


def test_several_masks_have_titles(call: Call, bert: Path) -> None:
    lines = call("fill", bert, "the [MASK] sat on [MASK]", "--top", "2").stdout.splitlines()
    assert [lines[0], lines[3], lines[4]] == ["mask 1 of 2", "", "mask 2 of 2"] and len(lines) == 7


def test_guesses_as_json(call: Call, bert: Path) -> None:
    found = json.loads(call("fill", bert, "-", "--json", input="你 [MASK]\n").stdout)
    gaps = glassgear.load(bert).fill("你 [MASK]")
    assert found["text"] == "你 [MASK]" and [gap["position"] for gap in found["gaps"]] == [2]
    for got, one in zip(found["gaps"][0]["candidates"], gaps[0].candidates, strict=True):
        assert got == {"id": one.id, "text": one.text, "probability": one.probability}


@pytest.mark.parametrize("text", ["no gap", ""])
def test_a_text_without_a_mask_fails(call: Call, bert: Path, text: str) -> None:
    result = call("fill", bert, text)
    assert result.exit_code == 1 and "error: the text has no [MASK]" in result.stderr


def test_models_that_can_t_fill(call: Call, speaker: str, tmp_path: Path) -> None:
    decoder = call("fill", speaker, "a [MASK]")
    assert decoder.exit_code == 1 and "left to right" in decoder.stderr and "glassgear run" in decoder.stderr
    write_encoder(tmp_path, make("BertModel"))
    bare = call("fill", tmp_path, "a [MASK]")
    assert bare.exit_code == 1 and "no head that guesses words" in bare.stderr


def test_fill_s_usage(call: Call, bert: Path) -> None:
    assert call("fill", bert).exit_code == 2
    assert call("fill", bert, "[MASK]", "--top", "0").exit_code == 2


@pytest.mark.parametrize("arguments", [["chat"], ["score", "-"]], ids=" ".join)
def test_commands_for_decoders_say_what_an_encoder_can_do(
    call: Call, bert: Path, arguments: list[str]
) -> None:
    result = call(arguments[0], bert, *arguments[1:], input="hello world\n")
    assert result.exit_code == 1 and result.stdout == ""
    assert "glassgear embed" in result.stderr and "glassgear fill" in result.stderr
    assert "fault" not in result.stderr


def test_show_draws_an_encoder(call: Call, bert: Path) -> None:
    result = call("show", bert)
    assert result.exit_code == 0 and "wordpiece" in result.stdout and "pooler" in result.stdout


@pytest.mark.parametrize("command", ["embed", "fill"])
def test_help_has_examples(call: Call, command: str) -> None:
    result = call(command, "--help")
    assert result.exit_code == 0 and f"glassgear {command} b" in result.stdout
    assert max(map(len, result.stdout.splitlines())) <= 100


def test_a_pair_of_texts_as_an_encoder_takes_it_in(call: Call, bert: Path) -> None:
    result = call("tokenize", bert, "The cat", "--pair", "dogs?")
    names = ["[CLS]", "the", "cat", "[SEP]", "dog", "##s", "?", "[SEP]"]
    rows = [line.split() for line in result.stdout.splitlines()]
    assert [int(row[0]) for row in rows] == [WORDS.index(name) for name in names]
    assert [row[1] for row in rows] == list("00001111")
    assert result.stderr.endswith("8 tokens\n")
    found = json.loads(call("tokenize", bert, "The cat", "--pair", "dogs?", "--json").stdout)
    assert [token["type"] for token in found["tokens"]] == [0, 0, 0, 0, 1, 1, 1, 1]
    assert (found["text"], found["pair"], found["count"]) == ("The cat", "dogs?", 8)


def test_truncation_is_said_and_keeps_the_frame(call: Call, bert: Path) -> None:
    result = call("tokenize", bert, "cat " * 9, "--pair", "dog dog", "--truncate", "8")
    assert [line.split()[1] for line in result.stdout.splitlines()] == list("00000111")
    assert result.stdout.splitlines()[-1].endswith("[SEP]") and "note: 6 tokens left out" in result.stderr
    framed = call("tokenize", bert, "cat cat cat", "--add-special", "--truncate", "4").stdout.splitlines()
    assert framed[0].endswith("[CLS]") and framed[-1].endswith("[SEP]") and len(framed) == 4
    bare = call("tokenize", bert, "cat cat cat", "--truncate", "2")
    assert len(bare.stdout.splitlines()) == 2 and "note: 1 token left out" in bare.stderr
    assert "note" not in call("tokenize", bert, "cat cat cat", "--truncate", "3").stderr


def test_pairs_where_there_is_no_form_for_them(call: Call, speaker: str, bert: Path) -> None:
    result = call("tokenize", speaker, "a", "--pair", "b")
    assert result.exit_code == 1 and "no form for pairs" in result.stderr
    assert call("tokenize", bert, "--ids", "1", "--pair", "b").exit_code == 2
    assert call("tokenize", bert, "cat", "--pair", "dog", "--truncate", "2").exit_code == 1
