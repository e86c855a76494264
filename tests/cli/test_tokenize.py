"""`glassgear tokenize`: pieces and ids, from models and from tokenizer files; ids back to text."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Call
from tests.cli.speaking import END, IDS, TEXT_END


def test_a_line_for_each_token_and_the_count_aside(call: Call, speaker: str) -> None:
    result = call("tokenize", speaker, "a zq\n")
    assert result.exit_code == 0
    assert result.stdout == ' 97  "a"\n 32  " "\n256  "zq"\n 10  "\\n"\n'
    assert result.stderr == "4 tokens\n"


def test_half_characters_are_shown_as_bytes(call: Call, speaker: str) -> None:
    assert call("tokenize", speaker, "é").stdout == '195  "\\xc3"\n169  "\\xa9"\n'


def test_control_tokens_only_on_demand(call: Call, speaker: str) -> None:
    assert len(call("tokenize", speaker, END).stdout.splitlines()) == len(END)
    assert call("tokenize", speaker, END, "--special").stdout == f"{IDS[END]}  {END}\n"


def test_what_a_model_expects_around_a_text(call: Call, shared: Path) -> None:
    tokenizer = shared / "data" / "llama2c" / "tok512.bin"
    plain = call("tokenize", tokenizer, "hello", "--json")
    added = call("tokenize", tokenizer, "hello", "--json", "--add-special")
    ids = [[token["id"] for token in json.loads(found.stdout)["tokens"]] for found in (plain, added)]
    assert ids[1] == [1, *ids[0]]


def test_json(call: Call, speaker: str) -> None:
    result = call("tokenize", speaker, f"é{TEXT_END}", "--json", "--special")
    assert json.loads(result.stdout) == {
        "text": f"é{TEXT_END}",
        "count": 3,
        "tokens": [
            {"id": 195, "piece": "Ã", "bytes": "c3", "special": False},
            {"id": 169, "piece": "©", "bytes": "a9", "special": False},
            {"id": IDS[TEXT_END], "piece": TEXT_END, "bytes": TEXT_END.encode().hex(), "special": True},
        ],
    }
    assert result.stderr == ""


def test_standard_input_is_taken_as_it_is(call: Call, speaker: str) -> None:
    result = call("tokenize", speaker, "-", "--json", input="a\n")
    assert [token["id"] for token in json.loads(result.stdout)["tokens"]] == [97, 10]


@pytest.mark.parametrize("ids", ["104,105,195,169", "104 105 195 169", "[104, 105, 195, 169]"])
def test_ids_become_text(call: Call, speaker: str, ids: str) -> None:
    assert call("tokenize", speaker, "--ids", ids).stdout == "hié\n"


def test_control_tokens_among_ids_are_hidden_unless_asked_for(call: Call, speaker: str) -> None:
    ids = f"104,{IDS[END]},105"
    assert call("tokenize", speaker, "--ids", ids).stdout == "hi\n"
    assert call("tokenize", speaker, "--ids", ids, "--special").stdout == f"h{END}i\n"


def test_ids_as_json(call: Call, speaker: str) -> None:
    found = json.loads(call("tokenize", speaker, "--ids", "104", "--json").stdout)
    assert found == {
        "text": "h",
        "tokens": [{"id": 104, "piece": "h", "bytes": "68", "special": False}],
    }


@pytest.mark.parametrize("token", [-1, 260, 10**30])
def test_an_id_outside_the_vocabulary_fails(call: Call, speaker: str, token: int) -> None:
    result = call("tokenize", speaker, f"--ids=1,{token}")
    assert result.exit_code == 1
    assert result.stderr == f"error: id {token} is outside the vocabulary, 0 to 259\n"


def test_ids_that_are_no_numbers_are_a_usage_error(call: Call, speaker: str) -> None:
    result = call("tokenize", speaker, "--ids", "1,two")
    assert result.exit_code == 2 and "whole numbers" in result.stderr


@pytest.mark.parametrize("arguments", [[], ["text", "--ids", "1"]])
def test_either_text_or_ids(call: Call, speaker: str, arguments: list[str]) -> None:
    result = call("tokenize", speaker, *arguments)
    assert result.exit_code == 2 and "either TEXT or --ids" in result.stderr


def test_no_text_is_no_tokens(call: Call, speaker: str) -> None:
    result = call("tokenize", speaker, "")
    assert (result.exit_code, result.stdout, result.stderr) == (0, "", "0 tokens\n")


@pytest.mark.parametrize(
    ("name", "ids"),
    [
        ("llama2c/llama2-tokenizer.bin", [15043, 3186]),
        ("llama2c/llama2-tokenizer.model", [15043, 3186]),
        ("vocab/ggml-vocab-llama-spm.gguf", [15043, 3186]),
        ("vocab/ggml-vocab-gpt-2.gguf", [15496, 995]),
    ],
)
def test_files_that_hold_a_tokenizer_alone(call: Call, shared: Path, name: str, ids: list[int]) -> None:
    result = call("tokenize", shared / "data" / name, "Hello world", "--json")
    assert [token["id"] for token in json.loads(result.stdout)["tokens"]] == ids


def test_a_tokenizer_json(call: Call, tmp_path: Path) -> None:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    made = Tokenizer(models.BPE({"a": 0, "b": 1, "ab": 2}, [("a", "b")]))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    made.save(str(tmp_path / "tokenizer.json"))
    result = call("tokenize", tmp_path / "tokenizer.json", "abba")
    assert result.stdout == '2  "ab"\n1  "b"\n0  "a"\n'


def test_a_model_without_a_tokenizer_is_said(call: Call, tmp_path: Path) -> None:
    from tests.models import llama2c_file

    llama2c_file(tmp_path / "m.bin")
    result = call("tokenize", tmp_path / "m.bin", "text")
    assert result.exit_code == 1 and "m.bin" in result.stderr and "fault in" not in result.stderr
