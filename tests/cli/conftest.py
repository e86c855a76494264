"""Command lines run in this process, and the models they run on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from glassgear.cli.app import app
from tests.cli.speaking import write_speaker

Call = Callable[..., Result]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache; and nothing in the environment that changes what is printed."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("GLASSGEAR_CACHE", str(folder))
    for name in ("NO_COLOR", "GLASSGEAR_DEBUG"):
        monkeypatch.delenv(name, raising=False)
    return folder


@pytest.fixture(scope="session")
def speaker(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A GGUF whose texts are known: see `speaking.py`."""
    path = tmp_path_factory.mktemp("speaker") / "speaker.gguf"
    write_speaker(path)
    return str(path)


@pytest.fixture
def call() -> Call:
    """Run `glassgear ARGUMENTS`; strings as standard input become UTF-8."""

    def run(*arguments: object, input: str | bytes | None = None, **extra: object) -> Result:
        result = CliRunner().invoke(app, [str(a) for a in arguments], input=input, **extra)  # type: ignore[arg-type]
        assert isinstance(result.exception, SystemExit | None), result.exception
        return result

    return run
