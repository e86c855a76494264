"""Models by name: fetch one, find one, list and remove what is there.

In: what a user types as MODEL. Out: a path. `resolve` never touches the network, `pull` only
where it must. What a short name stands for is pinned by hash in `wheel.py`.
"""

from __future__ import annotations

import difflib
import os
import shutil
import stat
from contextlib import suppress
from itertools import islice
from os import PathLike
from pathlib import Path

from glassgear.errors import DownloadError, FileError, NotFoundError, SettingError
from glassgear.weights import cache, hub_cache, wheel
from glassgear.weights.cache import CachedModel, Progress
from glassgear.weights.inside import inside, path_of
from glassgear.weights.wheel import PackagedModel

__all__ = ["CachedModel", "Progress", "cached", "known", "present", "pull", "remove", "resolve"]

_MOST_NEIGHBOURS = 5000  # entries of a folder that are compared with a mistyped name
_HUB_PAGE = "https://huggingface.co/"
_FILES = (".toml", ".gguf", ".bin", ".safetensors", ".json", ".model", ".pt", ".pth")  # endings of no name


def known() -> dict[str, str]:
    """The short names that `pull` understands, each with a line about the model."""
    return {name: model.about for name, model in wheel.KNOWN.items()}


def pull(name: str, *, progress: Progress | None = None, verify: bool = False) -> Path:
    """Fetch a model into the cache, unless it is there.

    Args:
        name: a short name such as `smollm2-135m`, or `hf:owner/name[@revision][/file]`.
        progress: called with (stage, bytes done, bytes in all), perhaps from another thread.
        verify: check the hash of a short name's file even if it is there with the right size.

    Returns:
        The file or folder, as `resolve` gives it from then on.

    Raises:
        NotFoundError: no model has that name; the message suggests near ones.
        DownloadError: it can't be fetched; the message says what to do.
    """
    told: Progress = progress or (lambda stage, done, total: None)
    if name.startswith(hub_cache.PREFIX):
        from glassgear.weights import hub

        return hub.fetch(hub_cache.HubName.parse(name), cache.hub_folder(), told)
    if (path := path_of(name)) is not None:
        return path
    model = wheel.KNOWN.get(name)
    if model is None:
        raise NotFoundError(
            _shown(name), f"no model with this name can be fetched{_suggestion(name, known())}"
        )
    target = _place(model)
    if _is_there(model) and not verify:
        return target
    partial = cache.partial_folder()
    try:
        with cache.locked(partial / f"{name}.lock", lambda: told("waiting", 0, 0)) as alone:
            if not _is_good(model, told, verify):
                wheel.fetch(model, target, partial / name, told, alone=alone)
    except DownloadError as error:
        raise DownloadError(f"{error}{_leftover(target)}") from error.__cause__
    except OSError as error:
        raise DownloadError(
            f"{name}: the cache {cache.cache_folder()} can't be used: {error.strerror or error}. "
            "GLASSGEAR_CACHE can name another folder"
        ) from error
    return target


def _place(model: PackagedModel) -> Path:
    return cache.models_folder() / model.name / model.file


def _is_there(model: PackagedModel) -> bool:
    """Whether the file has its size: nothing else than a whole file ever gets its name."""
    with suppress(OSError):
        return _place(model).stat().st_size == model.nbytes
    return False


def _is_good(model: PackagedModel, told: Progress, verify: bool) -> bool:
    if not _is_there(model):
        return False
    if not verify:
        return True
    found = wheel.sha256_of(_place(model), lambda done: told("checking", done, model.nbytes))
    return found == model.sha256


def _leftover(target: Path) -> str:
    """A word on what lies at the place where the model should be."""
    if not target.is_file():
        return ""
    return f". What lies at {target} isn't the pinned file: it stays, but don't rely on it"


def resolve(name_or_path: str | PathLike[str]) -> Path:
    """The path of a model, from what a user typed. Nothing is fetched, and nothing guessed.

    In this order: a path that exists (of a folder with a single GGUF, that file); the name of a model
    that comes with the package; the short name of a model in the cache;
    `hf:owner/name[@revision][/file]` in the hub's cache.

    Raises:
        NotFoundError: none of these; the message suggests what may have been meant.
        FileError: a path that can't be used.
    """
    text = os.fspath(name_or_path) if isinstance(name_or_path, PathLike) else name_or_path
    if not isinstance(text, str):
        raise SettingError(f"a model is a path or a name, found {name_or_path!r:.60}")
    if not text.strip():
        raise NotFoundError("''", "no model was named; `glassgear list` shows what is there")
    if (path := _existing(text)) is not None:
        return cache.model_in(path) if path.is_dir() else path
    if text.startswith(hub_cache.PREFIX):
        return _from_hub(text)
    if (path := path_of(text)) is not None:
        return path
    if text in wheel.KNOWN:
        return _from_known(wheel.KNOWN[text])
    for model in _own_models():
        if model.name == text:
            return model.path
    raise NotFoundError(_shown(text), f"is no file, no folder and no model's name{_suggestion(text)}")


def _existing(text: str) -> Path | None:
    """The path, if something that could be a model lies there."""
    path = Path(text).expanduser() if text.startswith("~") else Path(text)
    try:
        mode = os.stat(path).st_mode
    except PermissionError as error:
        raise FileError(path, f"can't be opened: {error.strerror}") from None
    except (OSError, ValueError):  # not there, too long for a path, a zero byte
        return None
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
        raise FileError(path, "is neither a file nor a folder")
    return path


def _from_known(model: PackagedModel) -> Path:
    path = _place(model)
    if _is_there(model):
        return path
    if path.exists():
        raise NotFoundError(
            model.name,
            f"{path} has {path.stat().st_size:,} bytes instead of {model.nbytes:,}: "
            f"`glassgear pull {model.name}` fetches it again",
        )
    size = f"{model.wheel_nbytes / 1e6:.0f} MB"
    raise NotFoundError(
        model.name, f"isn't on this machine yet: `glassgear pull {model.name}` fetches it ({size})"
    )


def _from_hub(text: str) -> Path:
    name = hub_cache.HubName.parse(text)
    found = hub_cache.find(name, cache.hub_folder())
    if found is not None:
        return found
    near = _near(text, [model.name for model in present()])
    meant = f"; did you mean {near}?" if near else ""
    raise NotFoundError(
        text, f"isn't in the cache, or not all of it: `glassgear pull {text}` fetches it{meant}"
    )


def _suggestion(text: str, names: dict[str, str] | None = None) -> str:
    """What may have been meant: near names, near files, or a hub address in another form."""
    if text.startswith(_HUB_PAGE):
        words = text.removeprefix(_HUB_PAGE).split("/")
        return f": write hf:{'/'.join(words[:2])}" if len(words) > 1 and all(words[:2]) else ""
    if names is not None:
        near = _near(text, list(names))
    else:
        near = _near(text, [*known(), *(model.name for model in present())]) or _near_file(text)
    meant = f"; did you mean {near}?" if near else ""
    with suppress(NotFoundError):
        name = hub_cache.HubName.parse(hub_cache.PREFIX + text)
        if not _looks_like_a_file(text) and not os.path.isdir(name.owner):
            return (
                f"{meant} If it is on Hugging Face, write {name}"
                if meant
                else f"; on Hugging Face it is {name}"
            )
    if meant:
        return meant
    return "; `glassgear list` shows the models that are there" if names is None else _what_there_is(names)


def _looks_like_a_file(text: str) -> bool:
    """Whether a user means a path: then it is no name of a repository, though it has a slash."""
    return text.startswith((".", "/", "~", "\\")) or text.lower().endswith(_FILES)


def _what_there_is(names: dict[str, str]) -> str:
    return f": there is {', '.join(names)}, and what is on Hugging Face as hf:owner/name"


def _near(text: str, candidates: list[str], before: str = "") -> str:
    """Up to three near ones, in backticks, `before` in front of each; empty if none is near."""
    if len(text) > 300:  # a text in a model's place: comparing takes quadratic time
        return ""
    folded = {candidate.casefold(): candidate for candidate in candidates if candidate.isprintable()}
    asked = text.casefold()
    near = difflib.get_close_matches(asked, folded, n=3, cutoff=0.6)
    near += [other for other in sorted(folded) if len(asked) > 2 and asked in other and other not in near]
    shown = [f"`{before}{folded[other]}`" for other in near[:3]]
    return " or ".join([", ".join(shown[:-1]), shown[-1]] if len(shown) > 1 else shown)


def _near_file(text: str) -> str:
    """Near ones among the files and folders beside a path that isn't there, as a user would write them."""
    typed, name = os.path.split(text)
    with suppress(OSError, ValueError):
        with os.scandir(Path(typed or ".").expanduser()) as entries:
            names = [entry.name for entry in islice(entries, _MOST_NEIGHBOURS)]
        shown = [other for other in names if not other.startswith(".")]
        return _near(name, shown, text[: len(text) - len(name)])
    return ""


def _shown(text: str) -> str:
    """A text as the beginning of a message: one line, not too long."""
    line = "".join(c if c.isprintable() else "?" for c in text)
    return line if len(line) <= 120 else f"{line[:100]}..."


def present() -> list[CachedModel]:
    """Every model that can be named here, by name: those that come with the package, and the cache's."""
    found = {model.name: model for model in (*cached(), *inside())}
    return [found[name] for name in sorted(found)]


def cached() -> list[CachedModel]:
    """The models in the cache, by name. What is no whole model is passed over."""
    found = {model.name: model for model in _own_models()}
    with suppress(OSError):
        for model in hub_cache.models(cache.hub_folder()):
            found.setdefault(model.name, model)
    return [found[name] for name in sorted(found)]


def _own_models() -> list[CachedModel]:
    """The models with a short name: fetched ones, and any that a user put there."""
    found = []
    for folder in cache.subfolders(cache.models_folder()):
        with suppress(FileError, OSError):
            model = wheel.KNOWN.get(folder.name)
            if model is not None and not _is_there(model):
                continue
            path = _place(model) if model else cache.model_in(folder)
            files = [path] if path.is_file() else [file for file in path.iterdir() if file.is_file()]
            nbytes = sum(file.stat().st_size for file in files)
            source = model.source if model else "put there by hand"
            found.append(
                CachedModel(folder.name, path, nbytes, source, "folder" if path.is_dir() else "gguf")
            )
    return found


def remove(name: str) -> CachedModel:
    """Delete a model from the cache.

    Returns:
        What was removed.

    Raises:
        NotFoundError: `cached` has no such name.
        FileError: the system refuses, as Windows does while a program uses the file.
    """
    model = next((model for model in cached() if model.name == name), None)
    if model is None and (path := path_of(name)) is not None:
        raise FileError(path, "comes with Glassgear and goes with it: it isn't in the cache")
    if model is None:
        near = _near(name, [model.name for model in cached()])
        meant = f"; did you mean {near}?" if near else ""
        raise NotFoundError(_shown(name), f"isn't in the cache{meant}")
    try:
        if name.startswith(hub_cache.PREFIX):
            hub_cache.remove(model, cache.hub_folder())
        else:
            shutil.rmtree(cache.models_folder() / name)
    except OSError as error:
        raise FileError(model.path, f"can't be removed: {error.strerror or error}") from error
    return model
