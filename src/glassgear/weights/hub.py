"""Models of the Hugging Face hub, fetched through `huggingface_hub` (the extra `hub`).

In: a `HubName`. Out: a path in the hub's cache, which `huggingface_hub` fills: it resumes what
broke off, and knows the user's login, mirrors and proxies.
"""

from __future__ import annotations

import glob
import os
import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from glassgear.errors import DownloadError, FileError
from glassgear.weights.cache import Progress, first_parts, parts
from glassgear.weights.folder import CONFIG, GENERATION_CONFIG, TOKENIZER_FILES, WEIGHTS, WEIGHTS_INDEX
from glassgear.weights.hub_cache import HubName, find, is_commit, is_model_file, repository_folder
from glassgear.weights.pooling import is_pooling_file

__all__ = ["fetch"]

_SMALL_FILES = frozenset({CONFIG, GENERATION_CONFIG, WEIGHTS_INDEX, *TOKENIZER_FILES})
_SHARD = re.compile(r"model-\d{5}-of-\d{5}\.safetensors")
_POLL_SECONDS = 0.2
_TIMEOUT_SECONDS = 15.0


def fetch(name: HubName, hub: Path, progress: Progress) -> Path:
    """Bring a model into the hub's cache. What is there and whole is never fetched again.

    A branch or tag is looked up each time, since it may have moved on; without network the copy
    in the cache is taken. A commit that is there is returned at once.

    Raises:
        DownloadError: no `huggingface_hub`, no network, no such repository, no right to read it,
            or no model in it.
        UnsupportedError: the repository holds several GGUF files, so that one must be named.
    """
    if is_commit(name.revision) and (found := find(name, hub)):
        return found
    try:
        import huggingface_hub
    except ImportError:
        raise DownloadError(
            f"{name} needs the package huggingface_hub: `pip install 'glassgear[hub]'`{_existing(name, hub)}"
        ) from None
    endpoint = os.environ.get("HF_ENDPOINT") or None
    try:
        api = huggingface_hub.HfApi(endpoint=endpoint)
        info = api.model_info(
            name.repository, revision=name.revision, files_metadata=True, timeout=_TIMEOUT_SECONDS
        )
        sizes = {file.rfilename: file.size or 0 for file in info.siblings or ()}
        wanted = _wanted(name, sizes)
        total = sum(sizes[file] for file in wanted)
        with _watched(repository_folder(name, hub) / "blobs", total, progress), _quiet():
            huggingface_hub.snapshot_download(
                name.repository, revision=name.revision, cache_dir=hub, endpoint=endpoint,
                allow_patterns=[glob.escape(file) for file in wanted],
            )  # fmt: skip
    except DownloadError:
        raise
    except Exception as error:  # its kinds differ between versions: requests, httpx, its own
        return _after_failure(name, hub, error, progress)
    found = find(name, hub)
    if found is None:
        raise DownloadError(
            f"{name} arrived incomplete: run the same command again, which fetches what is missing"
        )
    progress("downloading", total, total)
    return found


def _wanted(name: HubName, sizes: Mapping[str, int]) -> list[str]:
    """Which files of a repository make up the model."""
    if name.file is not None:
        folder, slash, file = name.file.rpartition("/")
        wanted = [folder + slash + part for part in parts(file)]
        missing = [part for part in wanted if part not in sizes]
        if missing:
            others = [file for file in sizes if is_model_file(file)]
            raise DownloadError(
                f"{name.repository} on Hugging Face has no {missing[0]}{_choice(name, others)}"
            )
        return wanted
    weights = _safetensors(sizes)
    if CONFIG in sizes and weights:
        return weights + [file for file in sizes if file in _SMALL_FILES or is_pooling_file(file)]
    ggufs = [file for file in first_parts(sizes) if "/" not in file]
    if len(ggufs) == 1:
        return parts(ggufs[0])
    others = first_parts(sizes) or [file for file in sizes if is_model_file(file) and not weights]
    if any(file.lower().endswith(".gguf") for file in others):
        raise DownloadError(
            f"{name.repository} on Hugging Face holds several GGUF files{_choice(name, others)}"
        )
    if CONFIG in sizes and others:
        raise DownloadError(
            f"{name.repository} on Hugging Face holds its weights only as pickles ({others[0]}), and "
            "opening a pickle can run any program hidden in it: look for a safetensors or GGUF version of it"
        )
    raise DownloadError(
        f"{name.repository} on Hugging Face has no model that Glassgear reads: neither a {CONFIG} with "
        f"safetensors nor a GGUF{_choice(name, others)}"
    )


def _safetensors(sizes: Mapping[str, int]) -> list[str]:
    """The weights that `read_folder` will take, without copies in other precisions or namings."""
    if WEIGHTS in sizes:
        return [WEIGHTS]
    if WEIGHTS_INDEX not in sizes:
        return []
    there = [file for file in sizes if file.endswith(".safetensors") and "/" not in file]
    return [file for file in there if _SHARD.fullmatch(file)] or there


def _choice(name: HubName, files: list[str]) -> str:
    """An offer of the files that could be named."""
    if not files:
        return ""
    shown = ", ".join(str(name.with_file(file)) for file in sorted(files)[:12])
    return f"; name one: {shown}" + (f" and {len(files) - 12} more" if len(files) > 12 else "")


def _existing(name: HubName, hub: Path) -> str:
    with suppress(FileError):
        if found := find(name, hub):
            return f". A copy that was fetched earlier lies at {found}"
    return ""


def _after_failure(name: HubName, hub: Path, error: Exception, progress: Progress) -> Path:
    """The copy in the cache if only the network is at fault; else what to do."""
    kinds = {kind.__name__ for kind in type(error).__mro__}
    where = f"https://huggingface.co/{name.repository}"
    if "GatedRepoError" in kinds:
        trouble = f"asks for its terms to be accepted: do so at {where}, then log in with `hf auth login`"
    elif "RepositoryNotFoundError" in kinds:
        trouble = "isn't on Hugging Face, or is private: check the spelling, or log in with `hf auth login`"
    elif "RevisionNotFoundError" in kinds:
        trouble = f"has no revision {name.revision!r}: see {where}/tree/main"
    else:
        found = find(name, hub)
        if found is not None:
            progress("offline", 0, 0)
            return found
        said = " ".join(str(error).split())[:300] or type(error).__name__
        raise DownloadError(
            f"{name} can't be fetched: {said}. Check the network (and HF_ENDPOINT, HF_HUB_OFFLINE, proxies) "
            "and run the same command again: what has arrived is kept"
        ) from error
    raise DownloadError(f"{name.repository} {trouble}{_existing(name, hub)}") from error


@contextmanager
def _watched(blobs: Path, total: int, progress: Progress) -> Iterator[None]:
    """Tell how much has arrived by the growth of the cache, which every version of the hub shares."""
    before = _size(blobs)
    done = threading.Event()

    def watch() -> None:
        while not done.wait(_POLL_SECONDS):
            progress("downloading", min(max(0, _size(blobs) - before), total), total)

    progress("downloading", 0, total)
    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def _size(folder: Path) -> int:
    size = 0
    with suppress(OSError):
        for entry in os.scandir(folder):
            with suppress(OSError):
                size += entry.stat().st_size
    return size


@contextmanager
def _quiet() -> Iterator[None]:
    """Without the hub's own progress bars: the caller draws one."""
    from huggingface_hub import utils

    tools: Any = utils
    if tools.are_progress_bars_disabled():
        yield
        return
    tools.disable_progress_bars()
    try:
        yield
    finally:
        tools.enable_progress_bars()
