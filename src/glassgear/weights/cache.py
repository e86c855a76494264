r"""Where fetched models are kept on this machine, and what lies there.

    CACHE/models/NAME/   models by short name; the folder holds a GGUF or a model folder's files
    CACHE/partial/       what a fetch has of a model until it is whole, and the locks of fetches
    CACHE/hub/           Hugging Face models, if `GLASSGEAR_CACHE` is set; else they lie in the
                         cache that `huggingface_hub` shares with other programs

Nothing here opens a model or the network.
"""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Literal

from glassgear.errors import NotFoundError, UnsupportedError
from glassgear.weights.folder import CONFIG, TOKENIZER_FILES

__all__ = [
    "CachedModel",
    "Progress",
    "cache_folder",
    "first_parts",
    "hub_folder",
    "locked",
    "model_in",
    "models_folder",
    "partial_folder",
    "parts",
    "subfolders",
]

Stage = Literal["waiting", "downloading", "checking", "extracting", "offline"]
Progress = Callable[[Stage, int, int], None]
"""Called with a stage, and the bytes done and in all (0: unknown), perhaps from another thread.

`waiting`: another process fetches the same model. `offline`: the network can't be reached, so
the copy in the cache is taken as it is.
"""

_POLL_SECONDS = 0.2
_SPLIT = re.compile(r"(.*)-(\d{5})-of-(\d{5})\.gguf", re.DOTALL | re.IGNORECASE)


@dataclass(frozen=True)
class CachedModel:
    """A model that is on this machine.

    Attributes:
        name: what a user types in a model's place.
        path: the file or folder.
        nbytes: bytes on the disk.
        source: where it came from, in words.
        container: `gguf`, `folder` or `llama2c`.
    """

    name: str
    path: Path
    nbytes: int
    source: str
    container: str


def cache_folder(environment: Mapping[str, str] = os.environ, platform: str = sys.platform) -> Path:
    r"""The folder for everything that Glassgear fetches; it may not exist yet.

    `GLASSGEAR_CACHE` wins; else macOS `~/Library/Caches/glassgear`, Windows
    `%LOCALAPPDATA%\glassgear`, and `$XDG_CACHE_HOME/glassgear` or `~/.cache/glassgear` elsewhere.
    """
    if chosen := environment.get("GLASSGEAR_CACHE"):
        return Path(chosen).expanduser().absolute()
    if platform == "darwin":
        return Path.home() / "Library" / "Caches" / "glassgear"
    if platform == "win32":
        local = environment.get("LOCALAPPDATA")
        return (Path(local) if local else Path.home() / "AppData" / "Local") / "glassgear"
    xdg = environment.get("XDG_CACHE_HOME", "")
    # The XDG base directory specification tells programs to ignore a relative value.
    base = Path(xdg) if os.path.isabs(xdg) else Path.home() / ".cache"
    return base / "glassgear"


def hub_folder(environment: Mapping[str, str] = os.environ) -> Path:
    """The folder for Hugging Face models, in the layout of `huggingface_hub`.

    That is `hub` in `GLASSGEAR_CACHE` where it is set, and otherwise the cache of
    `huggingface_hub` itself (its constants.py gives the order), so that nothing is fetched twice.
    """
    if environment.get("GLASSGEAR_CACHE"):
        return cache_folder(environment) / "hub"
    for variable in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"):
        if chosen := environment.get(variable):
            return Path(os.path.expandvars(chosen)).expanduser().absolute()
    home = environment.get("HF_HOME")
    base = environment.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    hub_home = Path(os.path.expandvars(home)) if home else Path(base, "huggingface")
    return hub_home.expanduser().absolute() / "hub"


def models_folder() -> Path:
    """Where models with a short name lie, each in a folder of that name."""
    return cache_folder() / "models"


def partial_folder() -> Path:
    """Where a fetch keeps what it has so far."""
    return cache_folder() / "partial"


@contextmanager
def locked(path: Path, waiting: Callable[[], None]) -> Iterator[bool]:
    """Hold a lock that one process at a time can hold; a process that ends lets go of it.

    Args:
        path: the lock's file. It stays, empty.
        waiting: called several times a second while another process holds the lock.

    Yields:
        Whether the lock is held: False on file systems without locks.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as file:
        held = _lock(file)
        while held is None:
            waiting()
            time.sleep(_POLL_SECONDS)
            held = _lock(file)
        yield held  # closing the file lets go


def _lock(file: IO[bytes]) -> bool | None:
    """True: held now; None: another process holds it; False: there are no locks here."""
    try:
        if sys.platform == "win32":
            import msvcrt

            file.seek(0)
            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
        else:
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):  # as flock and as Windows say that it is taken
        return None
    except OSError:
        return False
    return True


def subfolders(folder: Path) -> list[Path]:
    """The folders in a folder, by name; none if it isn't there. Names that can't be printed are left out."""
    try:
        found = [Path(entry.path) for entry in os.scandir(folder) if entry.is_dir()]
    except OSError:
        return []
    return sorted(path for path in found if path.name.isprintable())


def parts(name: str) -> list[str]:
    """All parts of a GGUF that was split, from the name of one of them; else the name alone."""
    split = _SPLIT.fullmatch(name)
    if not split or not 0 < int(split[3]) <= 1000:
        return [name]
    return [f"{split[1]}-{part + 1:05}-of-{split[3]}{name[-5:]}" for part in range(int(split[3]))]


def first_parts(names: Iterable[str]) -> list[str]:
    """The GGUF files among names, a split one by its first part only."""
    ggufs = sorted(name for name in names if name.lower().endswith(".gguf"))
    return [name for name in ggufs if parts(name)[0] == name]


def model_in(folder: Path) -> Path:
    """The model that a folder holds: itself, if it has a config, or the only GGUF in it.

    A folder of tokenizer files alone is taken as itself too: it is one to tokenize with. Whether
    it can be read is for `read_folder` to find out.

    Raises:
        NotFoundError: it holds no model, or can't be listed.
        UnsupportedError: it holds several, so that a file must be named.
    """
    try:
        names = frozenset(os.listdir(folder))
    except OSError as error:
        raise NotFoundError(folder, f"can't be read: {error.strerror or error}") from None
    ggufs = first_parts(names)
    weights = any(name.endswith(".safetensors") for name in names)
    if CONFIG in names and (weights or not ggufs):
        return folder
    if len(ggufs) == 1:
        return folder / ggufs[0]
    if ggufs:
        shown = ", ".join(f"`{name}`" for name in ggufs[:6]) + (", ..." if len(ggufs) > 6 else "")
        raise UnsupportedError(folder, f"holds {len(ggufs)} GGUF files; give the path of one: {shown}")
    if weights or not names.isdisjoint(TOKENIZER_FILES):
        return folder
    raise NotFoundError(folder, f"is a folder without a model: it has neither a {CONFIG} nor a GGUF file")
