"""`glassgear run`: prompts, streams, options, JSON, and llama2.c letter for letter."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Call
from tests.cli.speaking import IDS, TEXT_END
from tests.models import llama2c_file, llama2c_tokenizer


def lines(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


@pytest.mark.parametrize(("prompt", "said"), [("tuvw", "xyz."), ("abcxy", "z."), ("E", "é."), ("", "wxyz.")])
def test_it_continues_the_prompt_and_closes_the_line(
    call: Call, speaker: str, prompt: str, said: str
) -> None:
    result = call("run", speaker, prompt)
    assert (result.exit_code, result.stdout, result.stderr) == (0, f"{said}\n", "")


def test_without_a_prompt_it_starts_from_nothing_and_leaves_standard_input_alone(
    call: Call, speaker: str
) -> None:
    assert call("run", speaker, input="not read").stdout == "wxyz.\n"


@pytest.mark.parametrize("piped", ["tuvw", "tuvw\n", "tuvw\r\n", "\ufefftuvw\n"])
def test_a_dash_reads_standard_input_without_its_last_newline(call: Call, speaker: str, piped: str) -> None:
    assert call("run", speaker, "-", input=piped).stdout == "xyz.\n"


def test_only_one_newline_is_taken_off(call: Call, speaker: str) -> None:
    assert call("run", speaker, "-", "-n", "1", input="tuvw\n\n").stdout == "H\n"


def test_standard_input_that_is_no_utf8_is_said(call: Call, speaker: str) -> None:
    result = call("run", speaker, "-", input=b"caf\xe9 au lait")
    assert result.exit_code == 1
    assert "standard input: isn't UTF-8 text: byte 0xe9 at offset 3" in result.stderr


def test_an_argument_that_is_no_utf8_is_a_usage_error(call: Call, speaker: str) -> None:
    result = call("run", speaker, "caf\udce9")
    assert result.exit_code == 2 and "UTF-8" in result.stderr


@pytest.mark.parametrize(("option", "text"), [("--echo", "tuvwxyz.\n"), ("--no-echo", "xyz.\n")])
def test_the_prompt_is_printed_first_on_demand(call: Call, speaker: str, option: str, text: str) -> None:
    assert call("run", speaker, "tuvw", option).stdout == text


def test_n_counts_new_tokens(call: Call, speaker: str) -> None:
    assert call("run", speaker, "abc", "-n", "3").stdout == "def\n"
    assert call("run", speaker, "abc", "-n", "0").stdout == "\n"


def test_stop_strings_end_the_text_and_are_not_shown(call: Call, speaker: str) -> None:
    assert call("run", speaker, "abc", "--stop", "jk", "--stop", "gh").stdout == "def\n"


def test_the_end_token_can_be_passed(call: Call, speaker: str) -> None:
    assert call("run", speaker, "y", "--ignore-eos", "-n", "6").stdout == "z.wxy\n"


def test_control_tokens_in_a_prompt_are_text_unless_asked_for(call: Call, speaker: str) -> None:
    assert call("run", speaker, TEXT_END, "-n", "1").stdout == ".\n"  # what follows ">"
    assert call("run", speaker, TEXT_END, "--special", "-n", "1").stdout == "w\n"


def test_a_full_context_is_said(call: Call, speaker: str) -> None:
    result = call("run", speaker, "LLL", "--ctx", "8", "-n", "-1", "--json")
    last = lines(result.stdout)[-1]
    assert result.exit_code == 0 and last["finish_reason"] == "context"
    assert last["usage"] == {"prompt_tokens": 3, "completion_tokens": 6}
    assert "the context of 8 tokens is full" in result.stderr and "--ctx 512" in result.stderr


def test_a_prompt_beyond_the_context_fails(call: Call, speaker: str) -> None:
    result = call("run", speaker, "L" * 9, "--ctx", "8")
    assert result.exit_code == 1
    assert "error: the prompt is 9 tokens, the context holds 8" in result.stderr


def test_json_has_a_line_for_each_piece_and_figures_on_the_last(call: Call, speaker: str) -> None:
    found = lines(call("run", speaker, "E", "--json", "--seed", "7").stdout)
    assert [(line["text"], line["ids"]) for line in found] == [
        ("é", [0xC3, 0xA9]),
        (".", [ord(".")]),
        ("", [IDS[TEXT_END]]),
    ]
    assert all(set(line) == {"text", "ids"} for line in found[:-1])
    last = found[-1]
    assert last["finish_reason"] == "stop" and last["seed"] == 7
    assert last["usage"] == {"prompt_tokens": 1, "completion_tokens": 4}
    assert last["timings"]["load_s"] > 0 and last["timings"]["first_token_s"] > 0


def test_json_log_probabilities(call: Call, speaker: str) -> None:
    (found,) = lines(call("run", speaker, "a", "-n", "1", "--json", "--logprobs", "2").stdout)
    (mark,) = found["logprobs"]
    assert (mark["id"], mark["piece"]) == (ord("b"), "b") and mark["logprob"] == pytest.approx(0, abs=1e-3)
    assert mark["top"][0]["id"] == ord("b") and len(mark["top"]) == 2


def test_log_probabilities_as_a_table(call: Call, speaker: str) -> None:
    result = call("run", speaker, "x", "-n", "2", "--logprobs", "1")
    assert [line.split() for line in result.stdout.splitlines()] == [
        ['"y"', "-0.000", "100.0%", '"y"'],
        ['"z"', "-0.000", "100.0%", '"z"'],
    ]


def test_stats_go_to_stderr_with_a_seed_that_repeats_the_text(call: Call, tmp_path: Path) -> None:
    llama2c_file(tmp_path / "m.bin", vocab=32)
    llama2c_tokenizer(tmp_path / "tokenizer.bin")
    first = call("run", tmp_path / "m.bin", "ab", "-n", "20", "-t", "2", "-p", "1", "--stats")
    seed = first.stderr.split("seed")[1].split()[0]
    again = call("run", tmp_path / "m.bin", "ab", "-n", "20", "-t", "2", "-p", "1", "-s", seed)
    assert first.exit_code == 0 and again.stdout == first.stdout
    assert {line.split()[0] for line in first.stderr.splitlines()} >= {"load", "prompt", "answer", "finish"}
    assert "seed" not in first.stdout


@pytest.mark.parametrize(
    "options",
    [["-t", "-1"], ["-t", "warm"], ["-p", "1.5"], ["-k", "-2"], ["--min-p", "2"], ["-s", "-1"], ["-n", "-2"],
     ["--ctx", "0"], ["--threads", "0"], ["--cache-type", "f8"], ["--backend", "magic"], ["--no-such-option"],
     ["--repeat-penalty", "0"], ["--logprobs", "-1"], ["a", "third"]],
)  # fmt: skip
def test_a_command_written_wrongly_is_a_usage_error(call: Call, speaker: str, options: list[str]) -> None:
    result = call("run", speaker, "prompt", *options)
    assert result.exit_code == 2 and result.stdout == "" and "Usage:" in result.stderr


def test_not_a_number_is_refused(call: Call, speaker: str) -> None:
    result = call("run", speaker, "x", "-t", "nan")
    assert result.exit_code == 1 and "temperature must be" in result.stderr


@pytest.mark.parametrize("width", ["f32", "f16"])
def test_the_cache_can_be_of_either_width(call: Call, speaker: str, width: str) -> None:
    assert call("run", speaker, "w", "--cache-type", width).stdout == "xyz.\n"


GOLDEN = {
    "golden-greedy.txt": ["-t", "0", "-n", "256"],
    "golden-topp.txt": ["-t", "1.0", "-p", "0.9", "-s", "133742", "-n", "256"],
    "golden-multinomial.txt": ["-t", "1.0", "-p", "1.0", "-s", "7", "-n", "128"],
    "golden-prompt.txt": ["-t", "0.8", "-p", "0.9", "-s", "42", "-n", "100", "The dog"],
    "golden-bytes.txt": ["-t", "0", "-n", "60", "小狗🐶 says"],
}


@pytest.mark.parametrize("golden", GOLDEN)
def test_llama2c_letter_for_letter(call: Call, shared: Path, golden: str) -> None:
    folder = shared / "data" / "llama2c"
    result = call(
        "run", folder / "stories260K.bin", "--tokenizer", folder / "tok512.bin", *GOLDEN[golden], "--llama2c"
    )
    assert result.stdout_bytes == (folder / golden).read_bytes()


def test_llama2c_from_its_other_files(call: Call, shared: Path) -> None:
    folder = shared / "data" / "llama2c"
    options = ["--tokenizer", folder / "tok512.bin", "-t", "0", "--llama2c"]
    assert (
        call("run", folder / "stories260K.v1.bin", *options).stdout_bytes
        == (folder / "golden-greedy.txt").read_bytes()
    )
    # runq also rounds activations to int8, so only the beginning is the same.
    quantised = call("run", folder / "stories260K.v2-g4.bin", *options).stdout_bytes
    assert quantised[:400] == (folder / "golden-v2-greedy.txt").read_bytes()[:400]


@pytest.fixture
def tiny_llama2c(tmp_path: Path) -> str:
    """A random model of 64 positions, its tokenizer beside it."""
    llama2c_file(tmp_path / "m.bin")
    llama2c_tokenizer(tmp_path / "tokenizer.bin")
    return str(tmp_path / "m.bin")


def test_llama2c_counts_the_positions_of_the_prompt(call: Call, tiny_llama2c: str) -> None:
    def printed(*options: str) -> list[dict[str, Any]]:
        return lines(call("run", tiny_llama2c, *options, "--llama2c", "--json", "-s", "5").stdout)

    for count in ("0", "64", "65", "-1"):  # all mean the whole context, as does more
        made = printed("abc", "-n", count)
        assert made[-1]["finish_reason"] in ("stop", "length")
        assert made[-1]["usage"]["completion_tokens"] <= 64 - 4
    assert printed("abc", "-n", "6")[-1]["usage"]["completion_tokens"] <= 2
    short = printed("abc", "-n", "3")  # " ", "a", "b"; a space at the start isn't shown
    assert "".join(line["text"] for line in short) == "ab"
    assert short[-1]["usage"] == {"prompt_tokens": 5, "completion_tokens": 0}


def test_llama2c_ends_with_a_newline_always(call: Call, tiny_llama2c: str) -> None:
    assert call("run", tiny_llama2c, "ab", "-n", "3", "--llama2c").stdout == "ab\n"


def test_llama2c_refuses_what_that_program_lacks(call: Call, tiny_llama2c: str) -> None:
    result = call("run", tiny_llama2c, "--llama2c", "-k", "5", "--stop", "x", "--no-echo")
    assert result.exit_code == 2 and "llama2.c has no -k, --stop, --no-echo" in result.stderr


def test_text_goes_on_where_the_prompt_ends_space_included(call: Call, shared: Path) -> None:
    folder = shared / "data" / "llama2c"
    result = call(
        "run", folder / "stories260K.bin", "Once upon a", "--tokenizer", folder / "tok512.bin", "-t", "0",
        "-n", "6", "--echo",
    )  # fmt: skip
    assert result.stdout.startswith("Once upon a time, there was")


def test_smollm2_goes_on_as_it_should(call: Call, smollm2: Path) -> None:
    result = call("run", smollm2, "The capital of France is", "-t", "0", "-n", "3")
    assert (result.exit_code, result.stdout) == (0, " Paris.\n")
