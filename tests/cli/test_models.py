"""`glassgear pull` and `glassgear list`, without a network."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from glassgear.errors import DownloadError
from glassgear.weights import pull
from tests.cli.conftest import Call


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
    assert len(lines) == 2 and lines[1].split()[0] == "tiny-stories"
    found = json.loads(call("list", "--json").stdout)
    assert [model["name"] for model in found["models"]] == ["tiny-stories"]
    assert "smollm2-135m" in found["fetchable"]


def test_models_are_listed_by_name_and_can_be_used_by_it(call: Call, cache: Path, speaker: str) -> None:
    folder = cache / "models" / "my-model"
    folder.mkdir(parents=True)
    (folder / "weights.gguf").write_bytes(Path(speaker).read_bytes())
    lines = call("list").stdout.splitlines()
    assert lines[0].split() == ["name", "size", "kind", "from", "path"]
    assert lines[1].split()[:4] == ["my-model", "2.3", "MB", "gguf"]
    found, _ = json.loads(call("list", "--json").stdout)["models"]
    assert found["name"] == "my-model" and found["path"] == str(folder / "weights.gguf")
    assert call("run", "my-model", "w", "--backend", "reference").stdout == "xyz.\n"
