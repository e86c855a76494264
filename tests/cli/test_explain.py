"""`glassgear explain`: one number, its factors, and what is said of mistakes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import glassgear
from tests.cli.conftest import Call
from tests.models import llama2c_file

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "explain.md"


def test_a_number_with_its_terms_and_the_verdict(call: Call, speaker: str) -> None:
    result = call(
        "explain", speaker, "Hi there", "blocks.1.ffn.down", "--token", 3, "--index", 17, "--top", 5
    )
    assert (result.exit_code, result.stderr) == (0, "")
    lines = result.stdout.splitlines()
    assert lines[0].startswith("blocks.1.ffn.down[17] of token 3 ")
    assert any(line.startswith("weight: blk.1.ffn_down.weight, F32 [") for line in lines)
    assert "terms, largest first: weight times input" in result.stdout and " more " in result.stdout
    assert "the traced number, bit for bit" in result.stdout


def test_terms_in_the_order_of_the_backend_end_at_the_result(call: Call, speaker: str) -> None:
    out = call("explain", speaker, "Hi", "blocks.0.ffn.up", "--index", 3, "--in-order", "--top", 9999).stdout
    rows = [line.split() for line in out.splitlines() if line[:1].isdigit() and " channel " in line]
    result = next(line for line in out.splitlines() if "bit for bit" in line).split()[0]
    assert [row[0] for row in rows[:3]] == ["0", "1", "2"] and rows[-1][-1] == result


def test_without_an_index_it_is_the_largest_number_and_said(call: Call, speaker: str) -> None:
    result = call("explain", speaker, "Hi", "blocks.0.ffn")
    assert result.exit_code == 0 and "the largest number of blocks.0.ffn" in result.stderr


def test_heads_by_option_or_by_index(call: Call, speaker: str) -> None:
    one = call("explain", speaker, "Hello", "blocks.0.attention.scores", "--head", 1, "--index", 2)
    two = call("explain", speaker, "Hello", "blocks.0.attention.scores", "--index", "1,2")
    assert one.stdout == two.stdout and "seen 2" in one.stdout


def test_inputs_are_followed(call: Call, speaker: str) -> None:
    result = call("explain", speaker, "Hi", "blocks.0.ffn.down", "--index", 3, "--follow", 4, "--follow", 1)
    lines = result.stdout.splitlines()
    assert lines[0].startswith("blocks.0.ffn.down[3] of token") and lines[0].endswith("input 4: channel 4")
    assert lines[1].startswith("blocks.0.ffn.product[4] of token") and lines[1].endswith("input 1: up")
    assert lines[2].startswith("blocks.0.ffn.up[4] of token")
    wrong = call("explain", speaker, "Hi", "blocks.0.ffn.product", "--index", 3, "--follow", 7)
    assert wrong.exit_code == 1 and "has no input 7: it has inputs 0 to 1" in wrong.stderr


def test_json_is_one_object(call: Call, speaker: str) -> None:
    whole = json.loads(call("explain", speaker, "Hi", "blocks.0.ffn.down", "--index", 3, "--json").stdout)
    assert whole["exact"] and whole["result"] == whole["traced"] and len(whole["terms"]) > 5
    few = json.loads(
        call("explain", speaker, "Hi", "blocks.0.ffn.down", "--index", 3, "--json", "--top", 5).stdout
    )
    assert len(few["terms"]) == 5 and few["result"] == whole["result"]


def test_generated_tokens_and_how_they_were_chosen(call: Call, speaker: str) -> None:
    options = ("-n", 3, "-t", 1, "--seed", 7)
    result = call("explain", speaker, "H", "sampled", *options)
    assert result.exit_code == 0 and "random number" in result.stdout and "interval" in result.stdout
    assert "bit for bit" in result.stdout
    likely = call("explain", speaker, "H", "probability", "--top", 3)
    assert likely.exit_code == 0 and "log-probability" in likely.stdout


def test_a_saved_trace_keeps_its_backend(call: Call, speaker: str, tmp_path: Path) -> None:
    path = tmp_path / "run.safetensors"
    glassgear.load(speaker, backend="reference").trace("Hello").save(path)
    result = call("explain", speaker, "blocks.0.ffn", "--index", 3, "--open", path)
    assert result.exit_code == 0 and "backend reference, channel 3" in result.stdout
    both = call("explain", speaker, "Hello", "blocks.0.ffn", "--open", path)
    assert both.exit_code == 2 and "give MODEL and PATH alone with --open" in both.stderr
    more = call("explain", speaker, "blocks.0.ffn", "--open", path, "-n", 3)
    assert more.exit_code == 2 and "doesn't go with --open" in more.stderr


def test_ids_where_there_is_no_tokenizer(call: Call, tmp_path: Path) -> None:
    llama2c_file(tmp_path / "m.bin")
    result = call("explain", tmp_path / "m.bin", "1 2 3", "blocks.0.attention.weights", "--index", "3,1")
    assert result.exit_code == 0 and "of token 2" in result.stdout.splitlines()[0]


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["Hi"], 2, "which value? Give a MODEL, a PROMPT and a PATH"),
        (["Hi", "blocks.0.fnn"], 1, "did you mean blocks.0.ffn"),
        (["Hi", "embed", "--index", "x"], 2, "'x' isn't an index such as 17 or 2,5"),
        (["Hi", "embed", "--index", "1000"], 1, "embed has no number at 1000: it has channel 0 to 263"),
        (["Hi", "embed", "--token", "99"], 1, "there is no token 99: the trace has tokens 0 to"),
        (["Hi", "embed", "--head", "1"], 2, "--head says half of the place"),
        (["Hi", "sampled", "--token", "0"], 1, "nothing was sampled after token 0"),
    ],
)
def test_mistakes_are_said_in_a_sentence(
    call: Call, speaker: str, arguments: list[str], code: int, message: str
) -> None:
    result = call("explain", speaker, *arguments)
    assert result.exit_code == code and message in " ".join(result.stderr.split())
    assert "Traceback" not in result.stderr and not result.stdout


def test_the_weight_that_is_worked_out_by_hand_in_the_docs(call: Call, smollm2: Path) -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    command = next(line for line in text.splitlines() if line.startswith("$ glassgear explain"))
    assert command.endswith("blocks.2.ffn.down --token 3 --index 17 --block 11")
    out = call(
        "explain", smollm2, "The capital of France is", "blocks.2.ffn.down", "--token", 3, "--index", 17,
        "--block", 11,
    ).stdout  # fmt: skip
    shown = [
        line for line in text.splitlines() if line.startswith(("bytes:", "scale:", "minimum:", "weight ="))
    ]
    assert len(shown) == 4 and set(shown) <= set(out.splitlines())
    assert ["382", "15", "15", "0.859069824"] in [line.split()[:4] for line in out.splitlines()]
    assert "the traced number, bit for bit" in out


def test_a_block_of_weights_that_have_none_is_noted(call: Call, speaker: str) -> None:
    result = call("explain", speaker, "Hi", "head", "--index", 3, "--block", 0)
    assert result.exit_code == 0 and "head is no sum over blocks of quantised weights" in result.stderr
    assert "--stats" not in call("explain", "--help").stdout
