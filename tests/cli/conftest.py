"""Command lines run in this process, and the models they run on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from glassgear.cli import console
from glassgear.cli.app import app
from tests.cli.speaking import write_speaker

Call = Callable[..., Result]
COMPILING = {"compiling kernels for this processor, once"}


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing in the environment that changes what is printed."""
    for name in ("COLUMNS", "NO_COLOR", "GLASSGEAR_DEBUG"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache instead of the user's."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("GLASSGEAR_CACHE", str(folder))
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
        console._told.update(COMPILING)  # on a new machine the first run says so
        result = CliRunner().invoke(app, [str(a) for a in arguments], input=input, **extra)  # type: ignore[arg-type]
        assert isinstance(result.exception, SystemExit | None), result.exception
        return result

    return run
