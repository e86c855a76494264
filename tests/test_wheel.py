"""The built wheel, installed into an environment of its own, away from the sources."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

from tests.models import llama2c_file, llama2c_tokenizer

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("build")
    out = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(out), str(ROOT)],
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    (made,) = out.glob("*.whl")
    return made


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The `glassgear` command of an environment that has the wheel, and borrows what it depends on."""
    home = tmp_path_factory.mktemp("environment")
    venv.create(home, with_pip=False)
    scripts = home / ("Scripts" if os.name == "nt" else "bin")
    pip = [sys.executable, "-m", "pip", "--python", str(scripts / "python"), "--disable-pip-version-check"]
    subprocess.run([*pip, "install", "--no-deps", "--quiet", str(wheel)], check=True)
    (site,) = home.rglob("site-packages")
    # A plain path: the `.pth` of an editable install that may lie there isn't followed.
    (site / "borrowed.pth").write_text(sysconfig.get_path("purelib") + "\n", encoding="utf-8")
    return scripts / "glassgear"


def call(command: Path, *arguments: object) -> str:
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
    done = subprocess.run(
        [str(command), *map(str, arguments)],
        check=True, capture_output=True, text=True, encoding="utf-8", env=environment, cwd=command.parent,
    )  # fmt: skip
    return done.stdout


def test_it_holds_the_package_and_nothing_else(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    inside = ("py.typed", "cli/__init__.py", "lab/worked_example.toml")
    assert {f"glassgear/{name}" for name in inside} <= set(names)
    assert {name.split("/")[0].split("-")[0] for name in names} == {"glassgear"}


def test_it_holds_a_model_of_at_most_4_mb(wheel: Path) -> None:
    folder = "glassgear/weights/shipped/tiny-stories/"
    held = [entry for entry in zipfile.ZipFile(wheel).infolist() if entry.filename.startswith(folder)]
    names = {entry.filename.removeprefix(folder) for entry in held}
    assert {"config.json", "model.safetensors", "tokenizer.json"} <= names
    assert sum(entry.file_size for entry in held) <= 4_000_000


def test_it_says_its_version_and_runs_a_model(installed: Path, tmp_path: Path) -> None:
    llama2c_file(tmp_path / "m.bin")
    llama2c_tokenizer(tmp_path / "tokenizer.bin")
    assert call(installed, "--version").startswith("glassgear ")
    text = call(installed, "run", tmp_path / "m.bin", "the", "-n", 5, "-t", 0, "--backend", "reference")
    assert text.endswith("\n")
    assert '4  "怎么样"' in call(installed, "tokenize", "worked-example", "西安今天的天气怎么样？")
    story = call(installed, "run", "--seed", 1, "-n", 40, "--backend", "reference")
    assert story.startswith("Once upon a time")
    python = installed.parent / "python"
    where = call(python, "-c", "import glassgear; print(glassgear.__file__)")
    assert str(installed.parent.parent) in where
