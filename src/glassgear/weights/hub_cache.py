"""The hub's cache on this machine: names of the form `hf:owner/name[@revision][/file]`.

In: such a name. Out: a path. Nothing but the layout of the cache is needed for that, so
`huggingface_hub` isn't imported: `models--OWNER--NAME` with `refs/REVISION` (a commit),
`snapshots/COMMIT/FILE` (links, or copies where the system has none) and `blobs/HASH` (contents).
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from glassgear.errors import FileError, NotFoundError
from glassgear.weights.cache import CachedModel, model_in, parts, subfolders
from glassgear.weights.folder import CONFIG, weight_files
from glassgear.weights.mapped import foreign
from glassgear.weights.pooling import pooling_files

__all__ = ["PREFIX", "HubName", "find", "is_commit", "is_model_file", "models", "remove", "repository_folder"]

PREFIX = "hf:"
_WORD = r"[A-Za-z0-9_](?:[A-Za-z0-9_.-]*[A-Za-z0-9_])?"
_NAME = re.compile(rf"hf:(?P<owner>{_WORD})/(?P<name>{_WORD})(?:@(?P<revision>{_WORD}))?(?:/(?P<file>.+))?")
_COMMIT = re.compile(r"[0-9a-f]{40}")
_FILE_SUFFIXES = (".gguf", ".bin")  # .bin: llama2.c
_HEAD_BYTES = 1024


@dataclass(frozen=True)
class HubName:
    """`hf:owner/name[@revision][/file]`, taken apart.

    A revision is a branch, a tag or a commit without `/`; a file is a GGUF or a llama2.c `.bin`.
    """

    owner: str
    name: str
    revision: str | None = None
    file: str | None = None

    @classmethod
    def parse(cls, text: str) -> HubName:
        """Take a name apart.

        Raises:
            NotFoundError: it has another form; nothing of it is used for a path then.
        """
        found = _NAME.fullmatch(text)
        if not found or ".." in text or "--" in found["owner"] + "/" + found["name"]:
            raise NotFoundError(
                text[:120],
                "isn't a Hugging Face name: write hf:owner/name, hf:owner/name@revision, or "
                "hf:owner/name/file.gguf",
            )
        file: str | None = found["file"]
        if file is not None and not is_model_file(file):
            raise NotFoundError(
                text, f"{file!r} isn't a model file's name: it should end in .gguf (or .bin of llama2.c)"
            )
        return cls(found["owner"], found["name"], found["revision"], file)

    def __str__(self) -> str:
        revision = f"@{self.revision}" if self.revision else ""
        file = f"/{self.file}" if self.file else ""
        return f"{PREFIX}{self.repository}{revision}{file}"

    @property
    def repository(self) -> str:
        """`owner/name`, as the hub knows it."""
        return f"{self.owner}/{self.name}"

    def with_file(self, file: str) -> HubName:
        """The name of one file of the repository."""
        return replace(self, file=file)


def is_model_file(file: str) -> bool:
    """Whether a path inside a repository could be a model, and stays inside of it."""
    pieces = file.split("/")
    safe = all(piece.strip(". ") and piece.isprintable() for piece in pieces)
    return safe and file.lower().endswith(_FILE_SUFFIXES) and frozenset('\\:*?"<>|').isdisjoint(file)


def find(name: HubName, hub: Path) -> Path | None:
    """The model in the hub's cache; None if it isn't there, or not all of it.

    Raises:
        UnsupportedError: the repository holds several GGUF files, so that one must be named.
    """
    snapshot = _snapshot(name, hub)
    if snapshot is None:
        return None
    if name.file is not None:
        folder, _, file = name.file.rpartition("/")
        whole = all((snapshot / folder / part).is_file() for part in parts(file))
        return snapshot / name.file if whole else None
    try:
        found = model_in(snapshot)
        whole = _is_whole(found)
    except NotFoundError:
        return None
    return found if whole else None


def _is_whole(found: Path) -> bool:
    """Whether all files of a model are there: an interrupted download leaves some of them."""
    if found.is_file():
        return all((found.parent / part).is_file() for part in parts(found.name))
    try:
        return (found / CONFIG).is_file() and all(path.is_file() for path in weight_files(found))
    except FileError:
        return False


def repository_folder(name: HubName, hub: Path) -> Path:
    """Where the hub's cache keeps a repository."""
    return hub / f"models--{name.owner}--{name.name}"


def is_commit(revision: str | None) -> bool:
    """Whether a revision is a whole commit, which never changes."""
    return revision is not None and _COMMIT.fullmatch(revision) is not None


def _snapshot(name: HubName, hub: Path) -> Path | None:
    repository = repository_folder(name, hub)
    commit = name.revision or "main"
    if not is_commit(commit):
        try:
            commit = (repository / "refs" / commit).read_text("ascii").strip()
        except (OSError, ValueError):
            return None
    snapshot = repository / "snapshots" / commit
    return snapshot if is_commit(commit) and snapshot.is_dir() else None


def models(hub: Path) -> Iterator[CachedModel]:
    """Every model in the hub's cache that could be run; anything else there is passed over."""
    for repository in subfolders(hub):
        kind, *names = repository.name.split("--")
        if kind == "models" and len(names) == 2:
            revisions = _revisions(repository)
            for snapshot in subfolders(repository / "snapshots"):
                for revision in revisions.get(snapshot.name, [snapshot.name]):
                    yield from _listed(HubName(names[0], names[1], revision), snapshot)


def _revisions(repository: Path) -> dict[str, list[str | None]]:
    """Commit -> the revisions that name it, None for the default branch."""
    found: dict[str, list[str | None]] = {}
    with suppress(OSError):
        for ref in sorted(path for path in (repository / "refs").iterdir() if path.is_file()):
            with suppress(OSError, ValueError):
                commit = ref.read_text("ascii").strip()
                found.setdefault(commit, []).append(None if ref.name == "main" else ref.name)
    return found


def _listed(name: HubName, snapshot: Path) -> Iterator[CachedModel]:
    """The models of a snapshot: the folder, or each file that is one."""
    if not is_commit(snapshot.name) or not _NAME.fullmatch(str(name)):
        return
    source, short = f"Hugging Face {name.repository}", None
    with suppress(FileError):
        found = model_in(snapshot)
        if _is_whole(found):
            short = found
            container = "folder" if found == snapshot else "gguf"
            yield CachedModel(str(name), found, _nbytes(found), source, container)
    for path in sorted(path for path in snapshot.rglob("*") if path.suffix.lower() in _FILE_SUFFIXES):
        file = path.relative_to(snapshot).as_posix()
        if path != short and is_model_file(file) and _is_runnable(path):
            container = "gguf" if path.suffix.lower() == ".gguf" else "llama2c"
            yield CachedModel(str(name.with_file(file)), path, _nbytes(path), source, container)


def _is_runnable(path: Path) -> bool:
    """A whole GGUF, named by its first part; or a `.bin` of llama2.c: most others are pickles."""
    if path.suffix.lower() == ".gguf":
        return parts(path.name)[0] == path.name and _is_whole(path)
    from glassgear.weights import llama2c

    try:
        with path.open("rb") as file:
            head = file.read(_HEAD_BYTES)
    except OSError:
        return False
    named = head.startswith(llama2c.MAGIC)
    return foreign(head) is None and (named or llama2c.looks_like_version_0(head))


def _files(found: Path) -> list[Path]:
    """The files that make up a model."""
    if found.is_dir():
        return sorted({*(path for path in found.iterdir() if path.is_file()), *pooling_files(found)})
    return [found.parent / part for part in parts(found.name)]


def _nbytes(found: Path) -> int:
    return sum(path.stat().st_size for path in _files(found) if path.is_file())


def remove(model: CachedModel, hub: Path) -> None:
    """Delete a model's files, and the contents that no other snapshot links to.

    Raises:
        OSError: the system refuses.
    """
    repository = hub / Path(*model.path.relative_to(hub).parts[:1])
    for path in _files(model.path):
        content = path.resolve()
        path.unlink()
        linked = (other.resolve() for other in (repository / "snapshots").rglob("*") if other.is_symlink())
        if content.is_relative_to(repository.resolve()) and content not in linked:
            content.unlink(missing_ok=True)
    if not any(path.is_symlink() or path.is_file() for path in (repository / "snapshots").rglob("*")):
        shutil.rmtree(repository)
