"""Exit codes, messages and help, the same for every command."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

import glassgear
from glassgear.cli import console, run
from glassgear.cli.app import SECTIONS, app
from tests.cli.conftest import Call

COMMANDS = [name for names in SECTIONS.values() for name in names]


def test_the_version(call: Call) -> None:
    assert call("--version").stdout == f"glassgear {glassgear.__version__}\n"


def test_help_lists_every_command_with_a_line(call: Call) -> None:
    out = call("--help").stdout
    for name in COMMANDS:
        (line,) = [line for line in out.splitlines() if line.startswith(f"  {name} ")]
        assert len(line.split()) > 2


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help_with_examples_that_parse(call: Call, name: str) -> None:
    result = call(name, "--help")
    assert result.exit_code == 0 and result.stdout == call(name, "-h").stdout
    assert f"glassgear {name} " in result.stdout.split("Examples:")[1] or name == "list"
    assert max(map(len, result.stdout.split("Examples:")[0].splitlines())) <= 100


def test_no_command_brings_up_help(call: Call) -> None:
    result = call()
    assert "Talk to a model:" in result.output and result.exit_code in (0, 2)


@pytest.mark.parametrize(
    ("typed", "words"),
    [("rum", "Did you mean run?"), ("tokenise", "Did you mean tokenize?"), ("xyzzy", "--help` lists them")],
)
def test_a_mistyped_command_brings_up_near_ones(call: Call, typed: str, words: str) -> None:
    result = call(typed, "model")
    assert result.exit_code == 2 and words in result.stderr


def test_a_model_in_place_of_a_command(call: Call, speaker: str) -> None:
    result = call(speaker, "Once upon a time")
    assert result.exit_code == 2 and f"To run a model: glassgear run {speaker}" in result.stderr


def make_pickle(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as archive:  # as torch.save writes it
        archive.writestr("archive/data.pkl", b"\x80\x02}q\x00.")
        archive.writestr("archive/version", b"3\n")


def make_pointer(path: Path) -> None:
    path.write_text(
        "version https://git-lfs.github.com/spec/v1\noid sha256:" + "0" * 64 + "\nsize 98362432\n"
    )


def make_page(path: Path) -> None:
    path.write_text("<!DOCTYPE html>\n<html><head><title>Not found</title></head></html>\n")


def make_cut(path: Path) -> None:
    path.write_bytes(b"GGUF\x03\0\0\0")


BAD: dict[str, tuple[Callable[[Path], object], str]] = {
    "missing.gguf": (lambda path: None, "is no file, no folder and no model's name"),
    "folder": (Path.mkdir, "is a folder without a model"),
    "model.pt": (make_pickle, "pickle"),
    "lfs.gguf": (make_pointer, "Git LFS pointer"),
    "page.gguf": (make_page, "web page"),
    "cut.gguf": (make_cut, "cut.gguf: "),
    "empty.gguf": (Path.touch, "empty.gguf: "),
}


@pytest.mark.parametrize("command", ["run", "chat", "show", "tokenize", "score"])
@pytest.mark.parametrize("name", BAD)
def test_a_bad_model_is_one_sentence(
    call: Call, tmp_path: Path, cache: Path, command: str, name: str
) -> None:
    make, words = BAD[name]
    make(tmp_path / name)
    more = ["text"] if command in ("run", "tokenize") else ["-"] if command == "score" else []
    result = call(command, tmp_path / name, *more, input="some text\n")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith("error: ") and result.stderr.count("\n") == 1
    assert name in result.stderr and "fault in" not in result.stderr
    assert words in result.stderr or (command == "tokenize" and "is no tokenizer" in result.stderr)


def test_a_mistyped_model_brings_up_near_ones_and_is_no_prompt(call: Call, cache: Path) -> None:
    result = call("run", "smolm2-135m", "hi")
    assert result.exit_code == 1 and "did you mean `smollm2-135m`?" in result.stderr
    prompt = call("run", "Once upon a time there was")
    assert prompt.exit_code == 1 and "is no file, no folder and no model's name" in prompt.stderr


def test_a_tokenizer_that_isn_t_there(call: Call, speaker: str, tmp_path: Path) -> None:
    result = call("run", speaker, "x", "--tokenizer", tmp_path / "none.json")
    assert result.exit_code == 1 and "none.json" in result.stderr


def test_a_fault_asks_for_a_report_and_shows_its_trace_on_demand(
    call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        raise KeyError("boom")

    monkeypatch.setattr(run, "open_model", fails)
    short = call("run", "x", "y")
    assert short.exit_code == 1 and "Traceback" not in short.stderr
    assert short.stderr == (
        "error: this is a fault in Glassgear: KeyError: 'boom'. "
        "Please report it with what GLASSGEAR_DEBUG=1 prints\n"
    )
    monkeypatch.setenv("GLASSGEAR_DEBUG", "1")
    long = call("run", "x", "y")
    assert long.exit_code == 1 and "Traceback" in long.stderr and "in fails" in long.stderr


def test_debug_shows_the_trace_of_an_ordinary_error_too(
    call: Call, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GLASSGEAR_DEBUG", "1")
    result = call("show", "nothing-there")
    assert result.stderr.startswith("error: nothing-there") and "NotFoundError" in result.stderr


@pytest.mark.parametrize(
    ("trouble", "code", "words"),
    [
        (KeyboardInterrupt(), 130, ""),
        (BrokenPipeError(), 141, ""),
        (MemoryError(), 1, "isn't enough memory"),
        (OSError(28, "No space left on device", "file"), 1, "No space left on device (file)"),
    ],
)
def test_what_the_system_does_to_us(
    call: Call, monkeypatch: pytest.MonkeyPatch, trouble: BaseException, code: int, words: str
) -> None:
    def fails(*_: object) -> None:
        raise trouble

    monkeypatch.setattr(run, "open_model", fails)
    result = call("run", "x", "y")
    assert result.exit_code == code and result.stdout == ""
    assert words in result.stderr and bool(result.stderr) == bool(words)


def test_colours_only_where_they_are_wanted(
    call: Call, speaker: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "\x1b[" not in call("show", speaker).output
    assert "\x1b[" in call("show", speaker, color=True).output
    for name, value in (("NO_COLOR", "1"), ("TERM", "dumb")):
        with monkeypatch.context() as environment:
            environment.setenv(name, value)
            assert "\x1b[" not in call("show", speaker, color=True).output


def test_names_from_a_file_can_t_steer_the_terminal(call: Call) -> None:
    result = call("show", "evil\x1b]0;title\x07name")
    assert result.exit_code == 1 and "\x1b" not in result.stderr and "\x07" not in result.stderr


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\tb\nc", "a\tb\nc"),
        ("\x1b[2J", "␛[2J"),
        ("\x00\x07\x7f", "␀␇␡"),
        ("\x9b1m", "\ufffd1m"),
        ("歪🦙é", "歪🦙é"),
    ],
)
def test_control_characters_become_visible(text: str, shown: str) -> None:
    assert console.visible(text) == shown


@pytest.mark.parametrize(("text", "width"), [("abc", 3), ("歪", 2), ("🦙", 2), ("e\u0301", 1), ("", 0)])
def test_width_in_cells(text: str, width: int) -> None:
    assert console.cells(text) == width
    assert console.padded(text, 4) == text + " " * (4 - width)
    assert console.padded(text, 4, right=True) == " " * (4 - width) + text


def test_the_program_can_be_started_as_a_module() -> None:
    import subprocess
    import sys

    done = subprocess.run(
        [sys.executable, "-m", "glassgear", "--version"], capture_output=True, text=True, check=True,
        env=dict(os.environ),
    )  # fmt: skip
    assert done.stdout == f"glassgear {glassgear.__version__}\n"


def test_commands_are_imported_when_they_are_used() -> None:
    assert set(COMMANDS) == set(app.list_commands(None))  # type: ignore[arg-type]
    assert app.get_command(None, "nonsense") is None  # type: ignore[arg-type]


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such signals")
def test_a_signal_to_end_leaves_nothing_half_written(tmp_path: Path) -> None:
    program = (
        "import os, signal\n"
        "from pathlib import Path\n"
        "from glassgear.cli.app import _told_to_end\n"
        "from glassgear.weights.atomic import replacing\n"
        "with _told_to_end(), replacing(Path('out.gguf')) as file:\n"
        "    file.write(b'half')\n"
        "    os.kill(os.getpid(), signal.SIGTERM)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, check=False, timeout=60)
    assert done.returncode == 128 + signal.SIGTERM
    assert not list(tmp_path.iterdir())
