"""`glassgear convert`: what it prints, exit codes, and that nothing is half there."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from glassgear.weights import gguf
from tests.cli.conftest import Call


def test_the_target_s_path_is_the_result(call: Call, speaker: str, tmp_path: Path) -> None:
    done = call("convert", speaker, tmp_path / "m.gguf", "--type", "q8_0")
    assert done.exit_code == 0
    assert done.stdout == f"{tmp_path / 'm.gguf'}\n"
    assert "21 tensors" in done.stderr
    assert "whose rows the type doesn't divide took the next that does" in done.stderr
    assert {tensor.type for tensor in gguf.read(tmp_path / "m.gguf").tensors.values()} <= {
        "Q8_0",
        "F16",
        "F32",
    }


def test_json_says_what_was_done(call: Call, speaker: str, tmp_path: Path) -> None:
    done = call("convert", speaker, tmp_path / "folder", "--type", "BF16", "--json")
    found = json.loads(done.stdout)
    assert done.exit_code == 0
    assert (found["source_kind"], found["kind"], found["types"]) == ("gguf", "folder", {"BF16": 21})
    assert found["bytes"] == sum(
        path.stat().st_size for path in (tmp_path / "folder").glob("*.safetensors")
    ) - (8 + int.from_bytes((tmp_path / "folder" / "model.safetensors").read_bytes()[:8], "little"))
    assert found["notices"] == [] and found["fallbacks"] == {}


def test_what_was_written_runs(call: Call, speaker: str, tmp_path: Path) -> None:
    call("convert", speaker, tmp_path / "folder")
    texts = [
        call("run", model, "abc", "-n", "5", "-t", "0", "--backend", "reference").stdout
        for model in (speaker, tmp_path / "folder")
    ]
    assert texts[0] == texts[1]
    assert "defgh" in texts[0]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["folder", "--type", "q4_k"], "a Hugging Face folder can't hold q4_k"),
        (["m.bin", "--type", "f16"], "leave out --type"),
        (["m.gguf", "--bin-version", "1"], "--bin-version is for a llama2.c .bin alone"),
        (["m.gguf", "--type", "q3_k"], "'q3_k' is not one of"),
        (["m", "--to", "zip"], "'zip' is not one of"),
        (["m.bin", "--bin-version", "3"], "3 is not in the range"),
        ([], "Missing argument 'OUT'"),
    ],
)
def test_a_command_written_wrongly_is_exit_code_2(
    options: list[str], words: str, call: Call, speaker: str, tmp_path: Path
) -> None:
    done = call("convert", speaker, *(tmp_path / o if i == 0 else o for i, o in enumerate(options)))
    assert done.exit_code == 2
    assert words in done.stderr
    assert not list(tmp_path.iterdir())


def test_a_target_that_is_there_is_exit_code_1_without_force(
    call: Call, speaker: str, tmp_path: Path
) -> None:
    (tmp_path / "m.gguf").write_text("old")
    done = call("convert", speaker, tmp_path / "m.gguf")
    assert (done.exit_code, done.stdout) == (1, "")
    assert "is there already: choose another name, or --force to replace it" in done.stderr
    assert (tmp_path / "m.gguf").read_text() == "old"
    assert call("convert", speaker, tmp_path / "m.gguf", "--force").exit_code == 0


def test_a_source_that_is_not_there_is_exit_code_1(call: Call, cache: Path, tmp_path: Path) -> None:
    done = call("convert", tmp_path / "nothing.gguf", tmp_path / "m.gguf")
    assert (done.exit_code, done.stdout) == (1, "")
    assert "Traceback" not in done.stderr


def test_what_a_bin_cannot_hold_is_exit_code_1(call: Call, speaker: str, tmp_path: Path) -> None:
    done = call("convert", speaker, tmp_path / "m", "--to", "bin")
    assert done.exit_code == 1
    assert "llama2.c" in done.stderr
    assert not list(tmp_path.iterdir())


def test_the_kind_can_be_forced(call: Call, speaker: str, tmp_path: Path) -> None:
    assert call("convert", speaker, tmp_path / "model", "--to", "gguf").exit_code == 0
    assert gguf.read(tmp_path / "model").tensors
