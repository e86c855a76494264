"""`glassgear score`: the figures of a text."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from tests.cli.conftest import Call
from tests.models import llama2c_file, llama2c_tokenizer


def test_the_figures_of_a_text_the_model_expects(call: Call, speaker: str, tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("abcdef")
    result = call("score", speaker, tmp_path / "text.txt")
    assert (result.exit_code, result.stderr) == (0, "")
    facts = {line[:16].strip(): line[16:].strip() for line in result.stdout.splitlines()}
    assert facts["tokens scored"] == "5" and facts["perplexity"] == "1.0000"
    assert list(facts)[1:3] == ["log-probability", "a token"] and facts["bits per byte"] == "0.0000"


def test_the_figures_agree_with_each_other_and_with_the_model(call: Call, tmp_path: Path) -> None:
    import glassgear

    llama2c_file(tmp_path / "m.bin")
    llama2c_tokenizer(tmp_path / "tokenizer.bin")
    found = json.loads(call("score", tmp_path / "m.bin", "-", "--json", input="the cab").stdout)
    want = glassgear.load(tmp_path / "m.bin").score("the cab")
    assert found["logprob"] == pytest.approx(want.total, abs=1e-9)
    assert [entry["id"] for entry in found["scores"]] == list(want.ids)
    assert sum(entry["logprob"] for entry in found["scores"]) == pytest.approx(found["logprob"])
    count = found["tokens"]
    assert count == len(found["scores"]) == len(want.ids)
    assert found["nats_per_token"] == pytest.approx(-found["logprob"] / count)
    assert found["perplexity"] == pytest.approx(math.exp(found["nats_per_token"]))
    assert found["bits_per_byte"] == pytest.approx(-found["logprob"] / math.log(2) / len("the cab"))


def test_bytes_of_a_token_that_isn_t_scored_don_t_count(call: Call, speaker: str) -> None:
    found = json.loads(call("score", speaker, "-", "--json", input="xa").stdout)  # no BOS: only "a" is scored
    assert found["tokens"] == 1
    assert found["bits_per_byte"] == pytest.approx(-found["logprob"] / math.log(2))


def test_standard_input_is_taken_as_it_is(call: Call, speaker: str) -> None:
    found = json.loads(call("score", speaker, "-", "--json", input="ab\n").stdout)
    assert [entry["piece"] for entry in found["scores"]] == ["b", "Ċ"]


def test_a_line_for_each_token(call: Call, speaker: str) -> None:
    lines = call("score", speaker, "-", "--tokens", input="abx").stdout.splitlines()
    assert lines[0].split() == ["98", "-0.0000", '"b"']
    assert lines[1].split()[0] == "120" and float(lines[1].split()[1]) < -10
    assert lines[2] == "" and lines[3].startswith("tokens scored")


@pytest.mark.parametrize("text", ["", "a"])
def test_a_text_too_short_to_score_fails(call: Call, speaker: str, text: str) -> None:
    result = call("score", speaker, "-", input=text)
    assert result.exit_code == 1 and result.stderr.startswith("error: ") and "fault" not in result.stderr


def test_files_that_can_t_be_read(call: Call, speaker: str, tmp_path: Path) -> None:
    missing = call("score", speaker, tmp_path / "none.txt")
    assert missing.exit_code == 1 and "none.txt: there is no such file" in missing.stderr
    (tmp_path / "latin1.txt").write_bytes(b"abc\xe9")
    foreign = call("score", speaker, tmp_path / "latin1.txt")
    assert foreign.exit_code == 1 and "latin1.txt: isn't UTF-8 text: byte 0xe9 at offset 3" in foreign.stderr
    folder = call("score", speaker, tmp_path)
    assert folder.exit_code == 1 and "can't be read" in folder.stderr
