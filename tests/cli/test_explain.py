"""`glassgear explain`: one number, its factors, and what is said of mistakes."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

import glassgear
from glassgear.cli import console
from tests.cli.conftest import Call
from tests.models import llama2c_file

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "explain.md"


@pytest.fixture(scope="module")
def random_model(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A model of random weights, of which nearly every number is another than 0; without a tokenizer."""
    path = tmp_path_factory.mktemp("random") / "m.bin"
    llama2c_file(path)
    return str(path)


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


def test_a_number_of_a_run_with_zeros(call: Call, random_model: str, tmp_path: Path) -> None:
    given = ("explain", random_model, "1 2 3", "blocks.1.attention.mixed", "--json", "--index", "2,1")
    plain, zero, other, late = (
        json.loads(call(*given, *more).stdout)
        for more in (
            (),
            ("--zero", "blocks.1.attention:2"),
            ("--zero", "blocks.1.attention:1"),
            ("--zero", "blocks.0.ffn", "--zero", "blocks.1.attention:2"),
        )
    )
    assert zero["exact"] and zero["traced"] == 0 and plain["traced"] != 0
    set_to_zero, without = zero["steps"]
    assert set_to_zero["words"] == "this run sets this number to 0 (ablation)"
    assert without["value"] == plain["result"] == other["result"] and other["exact"]
    assert late["traced"] == 0 and late["steps"][1]["value"] != plain["result"]
    path = tmp_path / "run.safetensors"
    call("trace", random_model, "1 2 3", "--zero", "blocks.1.attention:2", "--save", path)
    saved = json.loads(call(*given[:2], *given[3:], "--open", path, "--zero", "blocks.1.attention:2").stdout)
    assert saved == zero


def test_what_cannot_be_set_to_zero(call: Call, speaker: str) -> None:
    wrong = call("explain", speaker, "Hi", "head", "--zero", "blocks.0.fnn")
    assert wrong.exit_code == 1 and "did you mean blocks.0.ffn" in wrong.stderr
    wrong = call("explain", speaker, "Hi", "head", "--zero", "blocks.0.attention:x")
    assert wrong.exit_code == 2 and "a head is a number" in wrong.stderr


def test_python_takes_a_function_too(random_model: str) -> None:
    model = glassgear.load(random_model)

    def halve(path: str, value: np.ndarray) -> np.ndarray | None:
        return value / 2 if path == "blocks.0.ffn" else None

    half = model.explain([1, 2, 3], "blocks.0.ffn", 2, 5, change=halve)
    whole = model.explain([1, 2, 3], "blocks.0.ffn", 2, 5)
    assert half.exact and half.result == whole.result / 2 and half.made.steps[1].value == whole.result
    assert model.explain([1, 2, 3], "blocks.0.ffn_residual", 2, 5, change=halve).exact
    assert model.explain([1, 2, 3], "blocks.1.ffn_residual", 2, 5, change=halve).exact
    trace = model.trace([1, 2, 3], change=halve)
    with pytest.raises(glassgear.SettingError, match="give its prompt instead"):
        model.explain(trace, "blocks.0.ffn", change=halve)
    for method in (model.trace, model.explain):
        with pytest.raises(glassgear.SettingError, match="change must be a function"):
            method([1, 2, 3], **({"path": "head"} if method == model.explain else {}), change="blocks.0.ffn")


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


@pytest.mark.parametrize("width", [40, 60, 80, 120])
@pytest.mark.parametrize(
    "given",
    [("blocks.2.ffn.down", "--index", 17), ("blocks.1.attention_norm",), ("sampled", "-t", 1, "--seed", 3)],
)
def test_lines_fit_the_terminal_and_end_between_words(
    call: Call, smollm2: Path, monkeypatch: pytest.MonkeyPatch, width: int, given: tuple[object, ...]
) -> None:
    wide = call("explain", smollm2, "The capital of France is", *given)
    monkeypatch.setenv("COLUMNS", str(width))
    result = call("explain", smollm2, "The capital of France is", *given)
    lines = result.stdout.splitlines()
    assert result.exit_code == 0 and max(map(len, lines)) <= width
    known = set(wide.stdout.split()) | {"no", "room", "for:"}
    strange = [
        word
        for word in result.stdout.split()
        if word not in known and word.rstrip(",") not in known and not re.fullmatch(r"[-\d.,e]+", word)
    ]
    assert strange == []


def test_in_a_narrow_terminal_numbers_have_fewer_digits_and_what_is_left_out_is_said(
    call: Call, smollm2: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = ("explain", smollm2, "The capital of France is", "blocks.2.ffn.down", "--index", 17)
    monkeypatch.setenv("COLUMNS", "40")
    out, chinese = call(*given).stdout, call(*given, "--lang", "zh").stdout
    row = next(line for line in out.splitlines() if " channel " in line).split()
    assert all(len(number.strip("-0.").replace(".", "")) <= 4 for number in row[3:])
    assert "no room for: sum so far" in out and "放不下：累加" in chinese
    assert max(console.cells(line) for line in chinese.splitlines()) <= 40
