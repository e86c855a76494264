"""`glassgear train` on a folder that holds a run already, and settings that can't be."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Call
from tests.train.support import corpus, damage, settings

pytest.importorskip("torch")

from glassgear.train.data import documents
from glassgear.train.tokenizer import train_tokenizer

CONFIG = """
out = "run"
[data]
files = ["stories.txt"]
tokenizer = 320
validation = 0.1
[model]
dim = 32
layers = 1
heads = 4
[train]
context = 32
batch = 2
steps = 4
evaluate_batches = 1
sample_every = 0
threads = 1
device = "cpu"
"""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    corpus(tmp_path / "stories.txt")
    path = tmp_path / "small.toml"
    path.write_text(CONFIG, encoding="utf-8")
    return path


def in_a_line(text: str) -> str:
    return " ".join(text.split())


def times(folder: Path) -> dict[str, int]:
    return {str(path): path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()}


def test_fewer_steps_than_are_done_are_nothing_to_do(call: Call, config: Path) -> None:
    assert call("train", config, "--quiet").exit_code == 0
    before = times(config.parent / "run")
    result = call("train", config, "--steps", 3)
    assert (result.exit_code, result.stdout) == (0, ""), result.stderr
    said = in_a_line(result.stderr)
    assert "the run is at step 4 already, past the 3 asked for: nothing is to do" in said
    assert "More steps than that go on" in said and "Going on" not in said and "no model yet" not in said
    events = [json.loads(line) for line in call("train", config, "--steps", 3, "--json").stdout.splitlines()]
    assert events[-1] == {"event": "end", "reason": "past", "step": 4}
    assert times(config.parent / "run") == before


def test_a_run_without_a_model_says_how_to_get_one(call: Call, config: Path) -> None:
    assert call("train", config, "--quiet", "--until", 3).exit_code == 0
    said = in_a_line(call("train", config, "--quiet", "--steps", 2).stderr)
    assert f"it has no model yet: glassgear train {config} --export-only writes" in said
    assert not (config.parent / "run" / "model").exists()


def test_a_damaged_checkpoint_is_said_and_goes_when_a_newer_one_is_whole(call: Call, config: Path) -> None:
    more = ("--set", "train.save_every=10", "--steps", 30)
    assert call("train", config, "--quiet", "--until", 25, *more).exit_code == 0
    folder = config.parent / "run"
    assert sorted(path.name for path in folder.glob("step-*")) == ["step-00000020", "step-00000025"]
    damage(folder / "step-00000025" / "model.safetensors", "cut")
    result = call("train", config, "--quiet", "--until", 27, *more)
    said = in_a_line(result.stderr)
    assert result.exit_code == 0 and "is damaged" in said and "the checkpoint before it is taken" in said
    whole = folder / "step-00000027"
    assert f"{folder / 'step-00000025'} was damaged and is deleted: {whole} is whole" in said
    assert sorted(path.name for path in folder.glob("step-*")) == ["step-00000020", "step-00000027"]


def test_after_a_full_disk_no_damaged_checkpoint_is_called_whole(
    call: Call, config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    more = ("--set", "train.save_every=2")
    assert call("train", config, "--quiet", *more).exit_code == 0
    damage(config.parent / "run" / "step-00000004" / "model.safetensors", "flipped")

    def full(*given: object, **more: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("glassgear.weights.safetensors.write", full)
    result = call("train", config, "--quiet", "--steps", 5, *more)
    assert result.exit_code == 1 and "step-00000002 is whole: the same command goes on" in result.stderr


def test_a_run_that_is_done_says_so(call: Call, config: Path) -> None:
    assert call("train", config, "--quiet").exit_code == 0
    result = call("train", config)
    assert result.exit_code == 0 and result.stdout.startswith("The model is in")
    assert "All 4 steps are done already" in result.stderr and "Going on" not in result.stderr


@pytest.mark.parametrize("quiet", [True, False])
def test_damaged_ids_are_said_in_a_line_and_made_anew(call: Call, config: Path, quiet: bool) -> None:
    assert call("train", config, "--quiet").exit_code == 0
    ids = config.parent / "run" / "data" / "train.ids"
    before = ids.read_bytes()
    damage(ids, "cut")
    result = call("train", config, "--steps", 5, *(["--quiet"] if quiet else []))
    assert result.exit_code == 0, result.stderr
    (line,) = [line for line in result.stderr.splitlines() if "made anew" in line]
    assert f"{ids} has {len(before) // 2:,} bytes, not the {len(before):,} that were written" in line
    assert ids.read_bytes() == before


@pytest.mark.parametrize("given", ["file", "options"])
def test_a_tokenizer_with_more_entries_than_rows_ends_with_2_before_any_work(
    call: Call, config: Path, given: str
) -> None:
    path = config.parent / "tokenizer.json"
    train_tokenizer(documents(settings(config.parent).data), 320, path)
    more = ["--set", f"data.tokenizer={path}", "--set", "model.vocab=300"]
    if given == "file":
        text = CONFIG.replace("tokenizer = 320", f'tokenizer = "{path.name}"')
        config.write_text(text.replace("[model]", "[model]\nvocab = 300"), encoding="utf-8")
        more = []
    result = call("train", config, *more)
    said = in_a_line(result.stderr)
    assert result.exit_code == 2
    assert "model.vocab is 300: the tokenizer has 320 entries" in said and "give at least 320" in said
    assert not (config.parent / "run").exists()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("foo=3", "`foo` can't be set: no such setting; [data] has"),
        ("stepz=3", "`stepz` can't be set: did you mean `steps`?"),
        ("steps=x", "`steps` is 'x'; a whole number is needed"),
        ("steps=", "`steps` is ''; a whole number is needed"),
        ("steps=5\ny=3", "`steps` is '5\\ny=3'; a whole number is needed"),
        ("steps=" + "9" * 5000, "a whole number is needed"),
        ("steps=0x" + "F" * 5000, "`steps` is out of range"),
        ("betas=" + "[" * 3000, "`betas` should be a list of numbers"),
        ("steps", "should be KEY=VALUE"),
        ("threads=100000", "threads is 100,000: the most are 1,024"),
        ("data.tokenizer=260", "a tokenizer of 260 entries is too small: at least 267 are needed"),
        ("=3", "should be KEY=VALUE"),
        ("", "should be KEY=VALUE"),
        (".steps=3", "`.steps` can't be set: it should be TABLE.KEY"),
        ("train={steps=3}", "`train` can't be set: it is a table"),
        ("tran.steps=3", "no table is `tran`; did you mean `train`?"),
        ("train.out=there", "--out, not --set"),
        ("sample_prompt=\udcff", "isn't valid UTF-8"),
    ],
)
def test_a_change_that_cannot_be_is_one_clear_line(
    call: Call, config: Path, change: str, message: str
) -> None:
    result = call("train", config, "--set", change)
    assert result.exit_code == 2
    (line,) = [line for line in result.stderr.splitlines() if line and not line.startswith(("Usage", "Try"))]
    assert line.startswith("Error: ") and message in line
    together = change.startswith(("threads=", "data.tokenizer="))  # these are judged with the whole file
    assert ("with what the options change" in line) is together
    assert not (config.parent / "run").exists()
