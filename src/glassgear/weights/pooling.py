"""How a checkpoint wants texts turned into vectors.

In: a checkpoint. Out: `PoolingSettings`, from the files that sentence-transformers writes beside the
weights (`modules.json`, `1_Pooling/config.json`, `sentence_bert_config.json`,
`config_sentence_transformers.json`) or from a GGUF's `<architecture>.pooling_type`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from glassgear.errors import FormatError, UnsupportedError
from glassgear.weights.checkpoint import Checkpoint
from glassgear.weights.json_object import quoted, read_array, read_object

__all__ = ["Pooling", "PoolingSettings", "is_pooling_file", "pooling_files", "pooling_settings"]

MODULES, TRANSFORMER, PROMPTS = (
    "modules.json", "sentence_bert_config.json", "config_sentence_transformers.json",
)  # fmt: skip
_IN_FOLDER = re.compile(r"\d+_Pooling/config\.json")  # as sentence-transformers names it

Pooling = Literal["mean", "cls", "last", "pooler"]

GGUF_TYPES: Mapping[int, Pooling] = {1: "mean", 2: "cls", 3: "last"}
MODES: Mapping[str, Pooling] = {
    "mean": "mean", "cls": "cls", "lasttoken": "last",
    "pooling_mode_mean_tokens": "mean", "pooling_mode_cls_token": "cls", "pooling_mode_lasttoken": "last",
}  # fmt: skip


@dataclass(frozen=True)
class PoolingSettings:
    """What a checkpoint says; None and the like where it is silent.

    Attributes:
        pooling: which states become the vector.
        normalize: whether the vector's length is made 1.
        most: tokens of a text that the model was trained to embed.
        lowercase: texts are lower-cased before they are encoded.
        prompt: put in front of every text.
        trouble: why vectors can't be made as the checkpoint wants; empty if they can.
    """

    pooling: Pooling | None = None
    normalize: bool | None = None
    most: int | None = None
    lowercase: bool = False
    prompt: str = ""
    trouble: str = ""


def pooling_settings(checkpoint: Checkpoint) -> PoolingSettings:
    """Read what a checkpoint says.

    Raises:
        FormatError: a damaged file.
        UnsupportedError: a setting whose meaning isn't known.
    """
    if isinstance(checkpoint.vocabulary, Mapping):
        return _gguf(checkpoint.path, checkpoint.vocabulary)
    folder = Path(checkpoint.path)
    return _folder(folder) if (folder / MODULES).is_file() else PoolingSettings()


def is_pooling_file(name: str) -> bool:
    """Whether a file of a folder, `a.json` or `b/a.json`, says something about vectors."""
    return name in (MODULES, TRANSFORMER, PROMPTS) or _IN_FOLDER.fullmatch(name) is not None


def pooling_files(folder: Path) -> list[Path]:
    """Those files that a folder has."""
    found = [*folder.glob("*.json"), *folder.glob("*_Pooling/*.json")]
    return sorted(path for path in found if is_pooling_file(path.relative_to(folder).as_posix()))


def _gguf(path: str, metadata: Mapping[str, Any]) -> PoolingSettings:
    key = f"{metadata.get('general.architecture')}.pooling_type"
    kind = metadata.get(key, 0)
    if kind == 0:
        return PoolingSettings()
    if kind == 4:
        return PoolingSettings(trouble="the model ranks texts (a reranker), it wasn't made to embed them")
    if kind not in GGUF_TYPES:
        raise UnsupportedError(path, f"`{key}` is {kind!r:.40}; mean (1), cls (2) and last (3) are known")
    return PoolingSettings(GGUF_TYPES[kind])


def _folder(folder: Path) -> PoolingSettings:
    found = replace(PoolingSettings(normalize=False), **_transformer(folder), **_prompt(folder))
    for kind, path in _modules(folder / MODULES):
        if kind == "Pooling":
            config = _inside(folder, path) / "config.json"
            found = replace(found, **_pooling(config, bool(found.prompt)))
        elif kind == "Normalize":
            found = replace(found, normalize=True)
        elif kind != "Transformer":
            trouble = f"{MODULES} puts a module `{kind}` behind it, which isn't run here"
            found = replace(found, trouble=trouble)
    return found


def _modules(file: Path) -> list[tuple[str, str]]:
    """Kind and folder of each module in order; a kind is a class whose home has moved between versions."""
    modules = []
    for module in read_array(file):
        kind, path = (module.get("type"), module.get("path")) if isinstance(module, dict) else (None, None)
        if not isinstance(kind, str) or not isinstance(path, str):
            raise FormatError(file, f"a module should have a `type` and a `path`, found {module!r:.80}")
        modules.append((kind.rpartition(".")[2][:60], path))
    return modules


def _inside(folder: Path, name: str) -> Path:
    """A subfolder by its bare name; what a file names is never a way out of its folder."""
    if not name or name.startswith(".") or not set('/\\:*?"<>|\0').isdisjoint(name):
        raise FormatError(folder / MODULES, f"{quoted(name)} should be the name of a folder beside it")
    return folder / name


def _pooling(file: Path, prompted: bool) -> dict[str, Any]:
    config = read_object(file)
    mode = config.get("pooling_mode")
    chosen = [mode] if isinstance(mode, str) else mode if isinstance(mode, list) else []
    chosen = [*chosen, *(key for key, on in config.items() if key.startswith("pooling_mode_") and on is True)]
    if len(chosen) != 1:
        how = " and ".join(map(str, chosen))[:80] or "nothing"
        return {"trouble": f"its vectors are joined of {how} ({file.parent.name}/config.json)"}
    if chosen[0] not in MODES:
        return {"trouble": f"its states are pooled by `{str(chosen[0])[:60]}`, which isn't run here"}
    if prompted and config.get("include_prompt") is False:
        return {"trouble": "its vectors leave out the states of a prompt, which isn't run here"}
    return {"pooling": MODES[chosen[0]]}


def _transformer(folder: Path) -> dict[str, Any]:
    file = folder / TRANSFORMER
    config = read_object(file) if file.is_file() else {}
    most = config.get("max_seq_length")
    if most is not None and (not isinstance(most, int) or isinstance(most, bool) or most < 1):
        raise FormatError(file, f"`max_seq_length` should be a number of tokens, found {most!r:.40}")
    return {"most": most, "lowercase": config.get("do_lower_case") is True}


def _prompt(folder: Path) -> dict[str, Any]:
    file = folder / PROMPTS
    config = read_object(file) if file.is_file() else {}
    name, prompts = config.get("default_prompt_name"), config.get("prompts")
    if not isinstance(name, str):
        return {}
    prompt = prompts.get(name) if isinstance(prompts, dict) else None
    if not isinstance(prompt, str):
        raise FormatError(file, f"`default_prompt_name` is {name!r:.40}, but no such prompt is there")
    return {"prompt": prompt}
