"""`glassgear train`: what it shows, what it leaves behind, and how it ends."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Call
from tests.train.support import corpus

pytest.importorskip("torch")

from glassgear.cli.train_view import sparkline, speed, time_left
from glassgear.train import Trainer, read_settings
from glassgear.train.checkpoint import newest_whole
from glassgear.train.journal import read_journal
from glassgear.train.lock import only_one
from glassgear.weights import safetensors

posix = pytest.mark.skipif(os.name != "posix", reason="needs signals and pseudo-terminals")

CONFIG = """
out = "run"
[data]
files = ["stories.txt"]
tokenizer = 320
validation = 0.1
[model]
dim = 32
layers = 2
heads = 4
[train]
context = 32
batch = 4
accumulate = 2
steps = 8
warmup = 2
log_every = 2
evaluate_every = 4
evaluate_batches = 2
save_every = 4
sample_every = 4
sample_prompt = "One day"
threads = 1
device = "cpu"
"""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    corpus(tmp_path / "stories.txt")
    path = tmp_path / "small.toml"
    path.write_text(CONFIG, encoding="utf-8")
    return path


def test_lines_where_nobody_looks_on_and_the_model_at_the_end(call: Call, config: Path) -> None:
    result = call("train", config)
    assert result.exit_code == 0, result.stderr
    folder = config.parent / "run" / "model"
    assert result.stdout == f"The model is in {folder}. To run it: glassgear run {folder} 'One day'\n"
    lines = result.stderr.splitlines()
    assert lines[:2] == ["Training a tokenizer ...", "Encoding ..."]
    assert re.fullmatch(
        r"[\d,]+ parameters, [\d,]+ tokens to learn from, [\d,]+ held out; .* on cpu", lines[2]
    )
    steps = [line for line in lines if re.match(r"step +\d+  loss \d\.\d{4}  [\d,]+ tok/s, \d+% of", line)]
    assert [int(line.split()[1]) for line in steps] == [2, 4, 6, 8]
    assert steps[0].endswith(" left") and not steps[-1].endswith(" left")
    assert sum("nats per token" in line and "per byte" in line for line in lines) == 2
    assert sum("it says: One day" in line for line in lines) == 2
    run = call("run", folder, "One day", "-n", 4, "-t", 0, "--backend", "torch")
    assert run.exit_code == 0, run.stderr


def test_a_run_pauses_where_it_is_told_to(call: Call, config: Path) -> None:
    result = call("train", config, "--until", 3)
    assert (result.exit_code, result.stdout) == (0, ""), result.stderr
    said = " ".join(result.stderr.split())
    assert "Paused after step 3, which is saved in" in said
    assert "The same command without --until goes on" in said
    assert "already past step 2. Paused" in " ".join(call("train", config, "--until", 2).stderr.split())
    assert [path.name for path in (config.parent / "run").glob("step-*")] == ["step-00000003"]
    assert call("train", config).stdout.startswith("The model is in")


def test_the_hint_after_a_pause_repeats_what_was_given(call: Call, config: Path) -> None:
    options = ("--out", config.parent / "a folder", "--set", "model.dim=16", "--set", "data.validation=0.2")
    said = call("train", config, "--until", 1, *options).stderr
    line = next(line for line in said.splitlines() if "--export-only" in line)
    words = shlex.split(line[line.index("glassgear train") :].removesuffix(" writes its model."))
    assert words[1:] == ["train", str(config), "--export-only", *map(str, options)]
    assert call(*words[1:]).exit_code == 0


def test_a_run_that_is_past_its_steps_says_so(call: Call, config: Path) -> None:
    assert call("train", config, "--quiet").exit_code == 0
    result = call("train", config, "--quiet", "--steps", 5)
    assert result.exit_code == 0 and "at step 8 already, past the 5 asked for" in result.stderr


def test_a_model_runs_in_pytorch_on_a_device_and_in_a_type(call: Call, speaker: str) -> None:
    options = ("One", "-n", 4, "-t", 0)
    want = call("run", speaker, *options).stdout
    for more in ((), ("--device", "cpu"), ("--dtype", "bfloat16"), ("--dtype", "float16", "--device", "cpu")):
        found = call("run", speaker, *options, "--backend", "torch", *more)
        assert (found.exit_code, found.stdout) == (0, want), found.stderr
    wrong = call("run", speaker, *options, "--backend", "torch", "--device", "nonsense")
    assert wrong.exit_code == 1 and "no device 'nonsense'" in wrong.stderr
    wrong = call("run", speaker, *options, "--dtype", "bfloat16")
    assert wrong.exit_code == 1 and "for the torch backend" in wrong.stderr


def test_json_lines_for_programs(call: Call, config: Path) -> None:
    result = call("train", config, "--json", "--steps", 4)
    events = [json.loads(line) for line in result.stdout.splitlines()]
    assert result.exit_code == 0 and result.stderr == ""
    kinds = [event["event"] for event in events]
    assert [kind for kind in kinds if kind != "data"] == [
        "start", "step", "step", "validation", "sample", "saved", "exported", "end", "model",
    ]  # fmt: skip
    assert {"loss", "gradient", "rate", "tokens", "tokens_per_second", "share_of_gemm"} <= set(
        next(e for e in events if e["event"] == "step")
    )
    assert events[-1]["path"] == str(config.parent / "run" / "model")


def test_quiet_says_the_end_alone(call: Call, config: Path) -> None:
    result = call("train", config, "--quiet", "--steps", 2, "--out", config.parent / "other")
    assert (result.exit_code, result.stderr, len(result.stdout.splitlines())) == (0, "", 1)
    assert (config.parent / "other" / "model" / "config.json").is_file()


def test_settings_on_the_command_line_win(call: Call, config: Path) -> None:
    result = call(
        "train", config, "--quiet", "--steps", 2, "--set", "model.dim=16", "--set", "train.sample_prompt=Tim",
        "--set", "train.betas=[0.8, 0.9]",
    )  # fmt: skip
    assert result.exit_code == 0, result.stderr
    made = json.loads((config.parent / "run" / "settings.json").read_text())
    assert (made["steps"], made["model"]["dim"], made["sample_prompt"], made["betas"]) == (
        2, 16, "Tim", [0.8, 0.9],
    )  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--set", "train.stepz=1"), "did you mean `steps`"),
        (("--set", "train.steps"), "should be KEY=VALUE"),
        (("--set", "tran.steps=1"), "can't be set"),
        (("--set", "train.steps=x"), "whole number is needed"),
        (("--set", "train.learning_rate=-1"), "must be above 0 and below 10"),
        (("--set", "train.seed=-1"), "seed is -1"),
        (("--set", "train.context=1"), "at least 2"),
        (("--set", "data.separator=''"), "data.separator is empty"),
        (("--set", "model.layers=0"), "model.layers is 0: it must be above 0"),
        (("--set", "model.dim=x"), "model.dim is 'x': a whole number is needed"),
        (("--set", "model.heads=5"), "doesn't divide by 5 heads"),
        (("--set", "model.headz=4"), "did you mean `heads`"),
        (("--set", "model.vocab=300"), "the tokenizer has 320 entries"),
        (("--set", "out=x"), "--out, not --set"),
        (("--steps", "0"), "--steps"),
        (("--nonsense",), "No such option"),
    ],
)
def test_a_command_that_is_written_wrongly_ends_with_2(
    call: Call, config: Path, arguments: tuple[str, ...], message: str
) -> None:
    result = call("train", config, *arguments)
    assert result.exit_code == 2
    assert message in " ".join(result.stderr.split())
    assert not (config.parent / "run").exists()


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ("steps = 8", "stepz = 8", "did you mean `steps`"),
        ('"stories.txt"', '"nothing.txt"', "there is no such file"),
        ("tokenizer = 320", "tokenizer = 30000", "give more text, or ask for fewer"),
        ("heads = 4", "heads = 5", "doesn't divide by 5 heads"),
        ("context = 32", "context = 30000", "give more text, or a smaller context"),
        ('device = "cpu"', 'device = "nonsense"', "no device 'nonsense'"),
        ("tokenizer = 320", 'tokenizer = "small.toml"', "is no tokenizer.json"),
    ],
)
def test_what_cannot_work_is_said_in_a_sentence(
    call: Call, config: Path, before: str, after: str, message: str
) -> None:
    config.write_text(CONFIG.replace(before, after), encoding="utf-8")
    result = call("train", config, "--quiet")
    assert result.exit_code == 1
    (line,) = result.stderr.splitlines()
    assert line.startswith("error: ") and message in line


@pytest.mark.parametrize("text", ["", "  \n", "One story alone."])
def test_empty_and_tiny_texts_are_refused(call: Call, config: Path, text: str) -> None:
    (config.parent / "stories.txt").write_text(text, encoding="utf-8")
    result = call("train", config, "--quiet")
    assert result.exit_code == 1 and "at least 2" in result.stderr


def test_another_config_in_the_same_folder_is_refused_and_loses_nothing(call: Call, config: Path) -> None:
    assert call("train", config, "--quiet").exit_code == 0
    before = sorted(p.name for p in (config.parent / "run").iterdir())
    result = call("train", config, "--quiet", "--set", "model.layers=3")
    assert result.exit_code == 1 and "comes from a run with model.layers 2 (now 3)" in result.stderr
    assert sorted(p.name for p in (config.parent / "run").iterdir()) == before
    assert call("run", config.parent / "run" / "model", "One", "-n", 2).exit_code == 0


def test_two_trainers_in_one_folder(call: Call, config: Path) -> None:
    (config.parent / "run").mkdir()
    with only_one(config.parent / "run"):
        result = call("train", config, "--quiet")
    assert result.exit_code == 1 and "is training in" in result.stderr


def test_a_full_disk_is_said_and_the_run_goes_on_later(
    call: Call, config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, calls = safetensors.write, [0]

    def full(path: Any, *rest: Any, **more: Any) -> None:
        calls[0] += 1
        if calls[0] == 3:
            raise OSError(28, "No space left on device")
        real(path, *rest, **more)

    monkeypatch.setattr(safetensors, "write", full)
    result = call("train", config, "--quiet")
    assert result.exit_code == 1 and "No space left on device" in result.stderr
    assert "step-00000004 is whole" in result.stderr
    monkeypatch.undo()
    assert call("train", config, "--quiet").exit_code == 0


def test_a_full_disk_names_the_file(call: Call, config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("glassgear.weights.atomic.os.fsync", full)
    result = call("train", config, "--quiet")
    assert result.exit_code == 1
    assert f"No space left on device ({config.parent / 'run' / 'data' / 'tokenizer.json'})" in result.stderr


def test_a_diverged_run_ends_with_1(call: Call, config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = Trainer._loss_of
    monkeypatch.setattr(Trainer, "_loss_of", lambda self, ids: real(self, ids) * float("nan"))
    result = call("train", config, "--quiet")
    assert result.exit_code == 1 and result.stdout == ""
    assert result.stderr.count("the step is skipped") == 3 and "the run diverged" in result.stderr
    assert "No checkpoint was written yet" in result.stderr
    assert not (config.parent / "run" / "model").exists()


def test_the_model_is_written_on_demand(call: Call, config: Path) -> None:
    result = call("train", config, "--export-only")
    assert result.exit_code == 1 and "train first" in result.stderr
    call("train", config, "--quiet")
    made = config.parent / "run" / "model" / "model.safetensors"
    made.unlink()
    assert call("train", config, "--export-only").exit_code == 0
    assert made.is_file()


@pytest.mark.skipif(find_spec("matplotlib") is None, reason="needs matplotlib")
def test_losses_are_drawn(call: Call, config: Path) -> None:
    result = call("train", config, "--quiet", "--plot")
    assert result.exit_code == 0 and "loss.png" in result.stdout
    assert (config.parent / "run" / "loss.png").read_bytes()[:4] == b"\x89PNG"


def test_a_plot_without_matplotlib_is_refused_first(
    call: Call, config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = find_spec
    monkeypatch.setattr(
        "importlib.util.find_spec", lambda name, *rest: None if name == "matplotlib" else real(name, *rest)
    )
    result = call("train", config, "--plot")
    assert result.exit_code == 1 and "glassgear[plot]" in result.stderr
    assert not (config.parent / "run").exists()


@posix
@pytest.mark.parametrize(("name", "code"), [("SIGTERM", 143), ("SIGINT", 130), ("SIGHUP", 129)])
def test_an_interrupted_run_saves_and_says_how_to_go_on(
    call: Call, config: Path, name: str, code: int
) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "glassgear", "train", str(config), "--steps", "100000"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    journal, until = config.parent / "run" / "metrics.jsonl", time.monotonic() + 120
    while time.monotonic() < until and not journal.exists():
        time.sleep(0.05)
    process.send_signal(signal.Signals[name])
    out, error = process.communicate(timeout=60)
    assert (process.returncode, out) == (code, "")
    said = re.search(r"Interrupted after step ([\d,]+), which is saved", error)
    assert said is not None and "Traceback" not in error
    result = call("train", config, "--steps", int(said[1].replace(",", "")) + 2)
    assert result.exit_code == 0 and f"Going on after step {said[1]}." in result.stderr


@posix
def test_a_terminal_shows_a_panel_and_control_c_ends_it(config: Path) -> None:
    from tests.cli.terminal import Terminal

    size = {"COLUMNS": "100", "LINES": "40"}
    with Terminal(["train", str(config), "--steps", "100000"], size) as terminal:
        terminal.wait_for("tok/s, .* of the GEMM rate")
        terminal.wait_for("held out.*per byte")
        terminal.wait_for("it says.*One day")
        terminal.type("\x03")
        terminal.wait_for("Interrupted after step")
        assert terminal.exit_code() == 130
    assert re.search("[▁▂▃▄▅▆▇█]", terminal.shown) and " left)" not in terminal.shown


@posix
@pytest.mark.parametrize("views", [(), ("--json",)], ids=["panel", "json"])
def test_a_run_whose_terminal_is_closed_is_saved(config: Path, views: tuple[str, ...]) -> None:
    from tests.cli.terminal import Terminal

    terminal = Terminal(
        ["train", str(config), "--steps", "100000", *views], {"COLUMNS": "100", "LINES": "40"}
    )
    try:
        terminal.wait_for("tok/s|tokens_per_second")
    finally:
        code = terminal.hang_up()
    assert code == 129
    events = read_journal(config.parent / "run")
    assert events[-1]["event"] == "end" and events[-1]["reason"] == "interrupted"
    newest = newest_whole(config.parent / "run")
    assert newest is not None and int(newest.name[5:]) == events[-1]["step"]


@posix
def test_a_closed_terminal_does_not_end_a_run_that_ignores_it(config: Path) -> None:
    from tests.cli.terminal import Terminal

    ignored = "import signal\nsignal.signal(signal.SIGHUP, signal.SIG_IGN)\n"
    terminal = Terminal(["train", str(config), "--steps", "60"], {"COLUMNS": "100"}, ignored)
    try:
        terminal.wait_for("tok/s")
    finally:
        code = terminal.hang_up()
    assert code == 0 and read_journal(config.parent / "run")[-1]["reason"] == "done"
    assert (config.parent / "run" / "model" / "model.safetensors").is_file()


def test_of_several_processes_the_first_alone_talks(config: Path) -> None:
    """By the last command of `train --help`, as it stands; without its `accumulate` it says what to give."""
    from glassgear.cli.train import EXAMPLES

    (line,) = [line for line in EXAMPLES.splitlines() if line.startswith("torchrun")]
    line = line.replace("stories.toml", str(config)).replace("runs/two", str(config.parent / "run"))
    words = shlex.split(line)
    config.write_text(CONFIG.replace("accumulate = 2\n", ""), encoding="utf-8")

    def run(words: list[str]) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "torch.distributed.run", "--standalone", *words[1:]], check=False,
            capture_output=True, text=True, timeout=300, env={**os.environ, "OMP_NUM_THREADS": "1"},
        )  # fmt: skip

    refused, done = run(words[: words.index("--set")]), run(words)
    assert refused.returncode and refused.stderr.count("error: accumulate is 1: 2 processes can't share") == 1
    assert "--set train.accumulate=2 gives each the same" in refused.stderr
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.count("The model is in") == 1
    assert done.stderr.count("2 processes") == 1 and done.stderr.count("step       8  loss") == 1


def test_a_share_that_cannot_be_told_is_none() -> None:
    about = {"tokens_per_second": 1234.5, "share_of_gemm": 0.678}
    assert speed(about) == "1,234 tok/s, 68% of the GEMM rate"
    busy = speed(about | {"share_of_gemm": None})
    assert busy == "1,234 tok/s, the machine is too busy for the GEMM rate"


def test_a_sparkline_goes_from_low_to_high() -> None:
    assert sparkline([], 8) == ""
    assert sparkline([1.0, 2.0, 3.0], 8) == "▁▅█"
    assert sparkline([5.0] * 30, 4) == "▁▁▁▁"
    assert len(sparkline(list(range(1000)), 48)) == 48


@pytest.mark.parametrize(
    ("seconds", "said"), [(0, ""), (42, "42 s"), (600, "10 min"), (3 * 3600 + 125, "3 h 02 min")]
)
def test_the_time_left_in_words(config: Path, seconds: int, said: str) -> None:
    made = read_settings(config)
    rate = made.tokens_per_step / max(seconds, 1) * (made.steps if seconds else 1)
    event = {"step": 0 if seconds else made.steps, "tokens_per_second": rate}
    assert time_left(made, event) == said
