"""The real process: pipes, encodings, signals, and what a terminal shows."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.speaking import BARE, write_speaker

POSIX = os.name == "posix"
if POSIX:
    from tests.cli.terminal import Terminal

on_posix = pytest.mark.skipif(not POSIX, reason="pseudo-terminals and SIGINT are POSIX")
# The backend without kernels to compile, so that a fresh process starts at once.
QUICK = ("--backend", "reference")


def start(*arguments: str, **environment: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "glassgear", *arguments],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        env={**os.environ, **environment},
    )  # fmt: skip


@pytest.fixture(scope="module")
def endless(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A model with room for an "L" that never ends."""
    path = tmp_path_factory.mktemp("endless") / "endless.gguf"
    write_speaker(path, context=1_000_000, template=BARE)
    return str(path)


@pytest.mark.parametrize("environment", [{"PYTHONIOENCODING": "ascii"}, {"LC_ALL": "C", "PYTHONUTF8": "0"}])
def test_text_is_utf8_whatever_the_locale_says(speaker: str, environment: dict[str, str]) -> None:
    process = start("run", speaker, "-", "--echo", *QUICK, **environment)
    out, err = process.communicate("歪🦙E\n".encode())
    assert (process.returncode, out, err) == (0, "歪🦙Eé.\n".encode(), b"")


def test_a_message_with_any_character_can_be_printed(speaker: str) -> None:
    process = start("show", "歪.gguf", PYTHONIOENCODING="ascii")
    _, err = process.communicate()
    assert process.returncode == 1 and "歪.gguf".encode() in err


def test_newlines_are_line_feeds_alone(speaker: str) -> None:
    process = start("tokenize", speaker, "ab", PYTHONIOENCODING="cp1252")
    out, _ = process.communicate()
    assert out == b'97  "a"\n98  "b"\n'


def test_a_reader_that_leaves_ends_the_run_quietly(endless: str) -> None:
    process = start("run", endless, "L", "-n", "-1", *QUICK)
    assert process.stdout is not None and process.stderr is not None and process.stdin is not None
    assert process.stdout.read(3) == b"LLL"
    process.stdout.close()
    process.stdin.close()
    assert process.stderr.read() == b""
    assert process.wait(60) == 141


def test_a_pipe_that_stays_open_isn_t_waited_for(speaker: str) -> None:
    process = start("run", speaker, "w", *QUICK)
    assert process.stdout is not None and process.stdout.read() == b"xyz.\n"
    assert process.wait(60) == 0
    process.communicate()


def test_text_arrives_while_it_is_made(endless: str) -> None:
    process = start("run", endless, "L", "-n", "-1", *QUICK)
    assert process.stdout is not None and process.stdout.read(1) == b"L"
    assert process.poll() is None
    process.kill()
    process.communicate()


@on_posix
def test_ctrl_c_ends_a_run_quietly_with_130(endless: str) -> None:
    process = start("run", endless, "L", "-n", "-1", "--json", *QUICK)
    assert process.stdout is not None
    first = process.stdout.readline()
    process.send_signal(signal.SIGINT)
    rest, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (130, b"")
    assert first.startswith(b'{"text": "L"')
    assert b'"finish_reason": "interrupted"' in rest.splitlines()[-1]


def chat(endless: str, tmp_path: Path, *options: str, **environment: str) -> Terminal:
    environment = {"GLASSGEAR_CACHE": str(tmp_path / "cache"), "NO_COLOR": "1", **environment}
    return Terminal(["chat", endless, *QUICK, *options], environment)


PROMPT = r"(?m)^> "


@on_posix
def test_a_chat_on_a_terminal(speaker: str, tmp_path: Path) -> None:
    with chat(speaker, tmp_path) as terminal:
        greeting = terminal.wait_for(PROMPT)
        assert "speaker.gguf · 569.4 k parameters · context 512" in greeting
        terminal.type("hello\r")
        assert "\r\nH!\r\n" in terminal.wait_for(PROMPT)
        terminal.type("/help\r")
        assert "/reset" in terminal.wait_for(PROMPT)
        terminal.type("/exit\r")
        assert terminal.exit_code() == 0


@on_posix
def test_ctrl_c_stops_an_answer_and_keeps_the_chat(endless: str, tmp_path: Path) -> None:
    with chat(endless, tmp_path) as terminal:
        terminal.wait_for(PROMPT)
        terminal.type("L\r")
        terminal.wait_for("LLLL")
        terminal.type("\x03")
        assert terminal.wait_for(r"\(stopped\)").count("\r\n") == 1
        terminal.wait_for(PROMPT)
        terminal.type("w\r")
        assert "xyz." in terminal.wait_for(PROMPT)
        terminal.type("/stats\r")
        said = terminal.wait_for(PROMPT)
        assert int(said.split("prompt")[1].split(maxsplit=1)[0]) >= len("[user]L[assistant]LLLL[user]w")
        terminal.type("\x04")
        assert terminal.exit_code() == 0


@on_posix
def test_ctrl_c_at_the_prompt_leaves_when_pressed_twice(speaker: str, tmp_path: Path) -> None:
    with chat(speaker, tmp_path) as terminal:
        terminal.wait_for(PROMPT)
        terminal.interrupt()
        terminal.wait_for("Ctrl-C again leaves")
        terminal.wait_for(PROMPT)
        terminal.type("hello\r")
        terminal.wait_for("H!")
        terminal.wait_for(PROMPT)
        terminal.interrupt()
        terminal.wait_for("Ctrl-C again leaves")
        terminal.wait_for(PROMPT)
        terminal.interrupt()
        assert terminal.exit_code() == 130


@on_posix
def test_errors_on_a_terminal_don_t_end_the_chat(endless: str, tmp_path: Path) -> None:
    with chat(endless, tmp_path, "--ctx", "20") as terminal:
        terminal.wait_for(PROMPT)
        terminal.type("a message longer than twenty tokens\r")
        assert "error: the conversation is 41 tokens, the context holds 20" in terminal.wait_for(PROMPT)
        terminal.type("w\r")
        assert "xyz." in terminal.wait_for(PROMPT)


@on_posix
def test_several_lines_on_a_terminal(speaker: str, endless: str, tmp_path: Path) -> None:
    with chat(endless, tmp_path) as terminal:
        terminal.wait_for(PROMPT)
        terminal.type("one\\\r")
        terminal.wait_for(r"(?m)^\. ")
        terminal.type("w\r")
        assert "xyz." in terminal.wait_for(PROMPT)


@on_posix
def test_what_was_typed_is_there_again_in_the_next_chat(endless: str, tmp_path: Path) -> None:
    pytest.importorskip("readline")
    with chat(endless, tmp_path) as terminal:
        terminal.wait_for(PROMPT)
        terminal.type("remember v\r")
        terminal.wait_for("wxyz")
        terminal.wait_for(PROMPT)
        terminal.type("\x04")
        terminal.exit_code()
    history = tmp_path / "cache" / "chat_history"
    assert "remember v" in history.read_text()
    assert history.stat().st_mode & 0o077 == 0
    with chat(endless, tmp_path) as terminal:
        terminal.wait_for(PROMPT)
        terminal.type("\x1b[A")  # arrow up
        terminal.wait_for("remember v")
        terminal.type("\r")
        terminal.wait_for("wxyz")


@on_posix
def test_a_terminal_sees_the_prompt_first_and_no_control_characters(speaker: str) -> None:
    with Terminal(["run", speaker, "O", *QUICK], {"NO_COLOR": "1"}) as terminal:
        assert terminal.exit_code() == 0
        assert terminal.shown.split("\r")[-2].strip() == "O␛[."
    with Terminal(["run", speaker, "w", *QUICK], {}) as terminal:
        assert terminal.exit_code() == 0
        assert terminal.shown.endswith("\x1b[1mw\x1b[0mxyz.\r\n")


@on_posix
def test_a_terminal_hears_that_the_default_limit_cut_the_text(endless: str) -> None:
    with Terminal(["run", endless, "L", *QUICK], {"NO_COLOR": "1"}) as terminal:
        assert terminal.exit_code() == 0
        assert "(stopped after 256 tokens; -n -1 goes on to the end)" in terminal.shown


@on_posix
def test_pieces_stand_on_backgrounds_on_a_terminal(speaker: str) -> None:
    with Terminal(["tokenize", speaker, "éa\nb"], {}) as terminal:
        assert terminal.exit_code() == 0
        assert (
            "\x1b[30m\x1b[44mé\x1b[0m\x1b[30m\x1b[42ma\x1b[0m\x1b[30m\x1b[45m↵\x1b[0m\r\n\x1b[30m\x1b[46mb\x1b[0m"
            in terminal.shown
        )
        assert '195  "\\xc3"' in terminal.shown
    with Terminal(["tokenize", speaker, "ab"], {"NO_COLOR": "1"}) as terminal:
        assert terminal.exit_code() == 0
        assert "\x1b" not in terminal.shown


@on_posix
def test_a_progress_bar_on_a_terminal_leaves_the_path_alone(tmp_path: Path) -> None:
    code = (
        "import sys, time\n"
        "from glassgear.weights import pull\n"
        "def fake(name, *, progress, verify):\n"
        "    for done in range(0, 100_000_001, 20_000_000):\n"
        "        progress('downloading', done, 100_000_000); time.sleep(0.05)\n"
        "    progress('extracting', 0, 0)\n"
        "    return '/somewhere/model.gguf'\n"
        "pull.pull = fake\n"
    )
    with Terminal(["pull", "x"], {}, before=code) as terminal:
        assert terminal.exit_code() == 0
        assert "Downloading" in terminal.shown and "MB" in terminal.shown
        assert terminal.shown.endswith("/somewhere/model.gguf\r\n")


INTERRUPTED = """
import sys

class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            raise KeyboardInterrupt

sys.meta_path.insert(0, Finder())
{run}
"""


@pytest.mark.parametrize(
    ("module", "run"),
    [
        ("glassgear.cli.app", "from glassgear.cli import main; main()"),
        ("click", "from glassgear.cli import main; main()"),
        ("glassgear.cli", "import runpy; runpy.run_module('glassgear', run_name='__main__')"),
        ("numpy", "sys.argv = ['glassgear', 'show', 'tiny-stories']; from glassgear.cli import main; main()"),
    ],
)
def test_ctrl_c_in_the_middle_of_an_import_is_quiet(module: str, run: str) -> None:
    code = INTERRUPTED.format(module=module, run=run)
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_before_ctrl_c_is_caught_next_to_nothing_is_imported() -> None:
    code = "import sys; before = set(sys.modules); import glassgear.cli; print(*set(sys.modules) - before)"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    new = {name for name in done.stdout.split() if not name.startswith(("glassgear", "_", "importlib"))}
    assert "glassgear.cli" in done.stdout.split() and new <= {"warnings"}, new
