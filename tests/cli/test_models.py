"""`glassgear pull` and `glassgear list`, without a network."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

from glassgear.errors import DownloadError
from glassgear.weights import pull
from tests.cli.conftest import Call

TEXT = "西安今天的天气怎么样？"


@pytest.fixture
def fetching(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A pull that goes through its stages and brings nothing."""

    def fake(name: str, *, progress: Callable[[str, int, int], None], verify: bool = False) -> Path:
        for stage in ("waiting", "downloading", "checking", "extracting"):
            for done in (0, 500_000, 1_000_000):
                progress(stage, done, 1_000_000)
        return tmp_path / f"{name}{'-verified' if verify else ''}.gguf"

    monkeypatch.setattr(pull, "pull", fake)


def test_pull_prints_the_place_and_tells_its_stages_aside(call: Call, fetching: None, tmp_path: Path) -> None:
    result = call("pull", "some-model")
    assert (result.exit_code, result.stdout) == (0, f"{tmp_path / 'some-model.gguf'}\n")
    assert result.stderr.splitlines() == [
        "Waiting for another fetch (1.0 MB) ...",
        "Downloading (1.0 MB) ...",
        "Checking (1.0 MB) ...",
        "Unpacking (1.0 MB) ...",
    ]


def test_pull_can_verify(call: Call, fetching: None, tmp_path: Path) -> None:
    assert call("pull", "some-model", "--verify").stdout == f"{tmp_path / 'some-model-verified.gguf'}\n"


def test_pull_of_an_unknown_name_suggests_near_ones(call: Call, cache: Path) -> None:
    result = call("pull", "smolm2-135m")
    assert result.exit_code == 1 and "did you mean `smollm2-135m`?" in result.stderr


def test_a_fetch_that_fails_is_one_sentence(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(name: str, **options: object) -> Path:
        raise DownloadError("no network")

    monkeypatch.setattr(pull, "pull", fails)
    result = call("pull", "x")
    assert (result.exit_code, result.stderr) == (1, "error: no network\n")


def test_an_empty_cache(call: Call, cache: Path) -> None:
    lines = call("list").stdout.splitlines()
    assert len(lines) == 3 and lines[1].split()[0] == "tiny-stories"
    assert lines[2].startswith("worked-example") and "an example; comes with Glassgear" in lines[2]
    found = json.loads(call("list", "--json").stdout)
    assert [model["name"] for model in found["models"]] == ["tiny-stories", "worked-example"]
    assert "smollm2-135m" in found["fetchable"]


def test_models_are_listed_by_name_and_can_be_used_by_it(call: Call, cache: Path, speaker: str) -> None:
    folder = cache / "models" / "my-model"
    folder.mkdir(parents=True)
    (folder / "weights.gguf").write_bytes(Path(speaker).read_bytes())
    lines = call("list").stdout.splitlines()
    assert lines[0].split() == ["name", "size", "kind", "from", "path"]
    assert lines[1].split()[:4] == ["my-model", "2.3", "MB", "gguf"]
    found, *_ = json.loads(call("list", "--json").stdout)["models"]
    assert found["name"] == "my-model" and found["path"] == str(folder / "weights.gguf")
    assert call("run", "my-model", "w", "--backend", "reference").stdout == "xyz.\n"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["show", "worked-example"], "worked example"),
        (["params", "worked-example"], "152"),
        (["trace", "worked-example", TEXT, "--select", "blocks.0.ffn.up"], "ffn.up"),
        (
            ["explain", "worked-example", TEXT, "blocks.0.ffn.up", "--token", 0, "--index", 0],
            "of token 0 '西安'",
        ),
        (["tokenize", "worked-example", TEXT], '4  "怎么样"'),
        (["pull", "worked-example"], "worked_example.toml"),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_the_worked_example_is_named_like_any_model(
    call: Call, arguments: list[object], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # out of the checkout, which has a copy of its file
    result = call(*arguments)
    assert result.exit_code == 0 and said in result.stdout, result.output


def test_what_the_worked_example_can_t_do_is_said_in_a_sentence(call: Call) -> None:
    sampled = call("sample", "worked-example", TEXT)
    assert sampled.exit_code == 1 and "reads a text in both directions" in sampled.stderr
    read = call("trace", "worked-example", "0 1 2")
    assert read.exit_code == 1 and "knows the words 西安 今天" in read.stderr


def test_the_advice_of_the_lab_is_a_command_that_runs(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    told = call("lab", "worked-example", "--json", "--no-plot").stdout
    advice = re.search(r"glassgear (explain worked-example [^\n]*?--index 0)", told.replace('\\"', '"'))
    assert advice is not None, told
    assert "the traced number, bit for bit" in call(*shlex.split(advice[1])).stdout
