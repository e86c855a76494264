"""Hugging Face model folders: configs as plain dicts, and the tensors of all shards.

In: a folder. Out: `Folder`. What the keys of a config mean is for the families to say.

What a file of the folder names is never taken as a way out of it: a shard in the index is a bare
file name or it is refused. Links in the folder itself are followed, wherever they lead: whoever
owns the folder made them, and the cache of `huggingface_hub` consists of nothing else.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

from glassgear.errors import FileError, FormatError, NotFoundError, UnsupportedError
from glassgear.weights import safetensors
from glassgear.weights.json_object import quoted, read_object
from glassgear.weights.tensor import StoredTensor

__all__ = [
    "CONFIG",
    "GENERATION_CONFIG",
    "TOKENIZER_FILES",
    "WEIGHTS",
    "WEIGHTS_INDEX",
    "Folder",
    "read_folder",
    "weight_files",
]

CONFIG, GENERATION_CONFIG = "config.json", "generation_config.json"
WEIGHTS, WEIGHTS_INDEX = "model.safetensors", "model.safetensors.index.json"
TOKENIZER_FILES = (
    "tokenizer.json", "tokenizer.model", "tokenizer_config.json", "special_tokens_map.json",
    "added_tokens.json", "vocab.json", "merges.txt", "vocab.txt", "chat_template.jinja",
    "chat_template.json",
)  # fmt: skip

_MOST_INDEX_BYTES = 32 << 20  # the index of DeepSeek-V3, with 91,991 tensors, has 9 million
_PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl")
_NEVER_IN_A_NAME = frozenset('/\\:*?"<>|')  # apart from paths: drives and streams of Windows, wildcards
_AGAIN = "the download may have broken off, so fetch it again"


@dataclass(frozen=True, eq=False)
class Folder:
    """What a model folder says.

    Attributes:
        path: the folder.
        config: `config.json`.
        generation_config: `generation_config.json`; empty if there is none.
        tensors: name in the files -> tensor, of all shards, still mapped.
        tokenizer_files: those of `TOKENIZER_FILES` that are there, by name.
    """

    path: Path
    config: dict[str, Any]
    generation_config: dict[str, Any]
    tensors: dict[str, StoredTensor]
    tokenizer_files: dict[str, Path]


def read_folder(path: str | PathLike[str]) -> Folder:
    """Read a folder as `save_pretrained` of transformers writes it, or the hub holds it.

    Raises:
        NotFoundError: no such folder, no `config.json`, or no weights in it.
        FormatError: a damaged file, an index that leaves the folder or promises what isn't there.
        UnsupportedError: weights in a form that isn't read, such as pickles.
    """
    path = Path(path)
    names = _names(path)
    if CONFIG not in names:
        raise _no_config(path, names)
    config = read_object(path / CONFIG)
    generation = read_object(path / GENERATION_CONFIG) if GENERATION_CONFIG in names else {}
    tokenizer_files = {name: path / name for name in TOKENIZER_FILES if name in names}
    return Folder(path, config, generation, _tensors(path, names), tokenizer_files)


def weight_files(path: str | PathLike[str]) -> list[Path]:
    """The safetensors files that hold a folder's weights; no tensor is looked at.

    `model.safetensors` is taken before an index, as transformers does.

    Raises:
        FileError: as `read_folder`, for weights that are missing or in another form.
    """
    path = Path(path)
    names = _names(path)
    if WEIGHTS in names:
        return [path / WEIGHTS]
    if WEIGHTS_INDEX in names:
        return [path / shard for shard in _by_shard(path, _weight_map(path))]
    raise _no_weights(path, names)


def _names(path: Path) -> frozenset[str]:
    """What lies in the folder. A link that leads nowhere is listed too: opening it says so."""
    try:
        return frozenset(os.listdir(path))
    except FileNotFoundError:
        raise NotFoundError(path, "there is no such folder") from None
    except NotADirectoryError:
        raise FormatError(path, f"is a file, where a folder with a {CONFIG} is needed") from None
    except OSError as error:
        raise FileError(path, f"can't be read: {error.strerror or error}") from error
    except ValueError as error:  # a zero byte in the path
        raise NotFoundError(path, f"is not a path: {error}") from None


def _tensors(path: Path, names: frozenset[str]) -> dict[str, StoredTensor]:
    if WEIGHTS in names:
        return safetensors.read(_there(path / WEIGHTS))
    if WEIGHTS_INDEX not in names:
        raise _no_weights(path, names)
    shards = _by_shard(path, _weight_map(path))
    for shard, promised in shards.items():  # nothing is opened while one of them is missing
        _there(path / shard, promised[0])
    return _merged(path, shards)


def _merged(path: Path, shards: Mapping[str, list[str]]) -> dict[str, StoredTensor]:
    """The tensors of all shards. The index decides which copy counts; what it omits comes along."""
    found = {shard: safetensors.read(path / shard) for shard in shards}
    tensors: dict[str, StoredTensor] = {}
    for shard, promised in shards.items():
        for name in promised:
            if name not in found[shard]:
                raise FormatError(
                    path / shard,
                    f"lacks tensor {quoted(name)}, which {WEIGHTS_INDEX} says it holds: {_AGAIN}",
                )
            tensors[name] = found[shard][name]
    indexed = frozenset(tensors)
    for shard, held in found.items():
        for name, tensor in held.items():
            if name in indexed:
                continue
            if name in tensors:
                raise FormatError(
                    path / shard,
                    f"holds tensor {quoted(name)}, as does {quoted(Path(tensors[name].file).name)}, "
                    f"and {WEIGHTS_INDEX} doesn't say which counts",
                )
            tensors[name] = tensor
    return tensors


def _weight_map(path: Path) -> dict[str, str]:
    """Tensor -> shard, every shard a bare file name of this folder."""
    index = path / WEIGHTS_INDEX
    weight_map = read_object(_there(index), _MOST_INDEX_BYTES).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise FormatError(index, "has no `weight_map` that says which shard holds which tensor")
    for tensor, shard in weight_map.items():
        if not isinstance(shard, str):
            raise FormatError(
                index, f"tensor {quoted(tensor)}: its shard should be a file name, found {shard!r:.60}"
            )
        if not _is_bare(shard):
            raise FormatError(
                index,
                f"tensor {quoted(tensor)} is said to lie in {quoted(shard)}: a shard must be the bare name "
                "of a `.safetensors` file in the same folder, without any path",
            )
    return weight_map


def _is_bare(shard: str) -> bool:
    stem, dot, suffix = shard.rpartition(".")
    return (
        bool(dot)
        and suffix == "safetensors"
        and stem.strip(". ") != ""
        and len(shard) <= 255
        and shard.isprintable()
        and _NEVER_IN_A_NAME.isdisjoint(shard)
    )


def _by_shard(path: Path, weight_map: Mapping[str, str]) -> dict[str, list[str]]:
    shards: dict[str, list[str]] = {}
    for tensor, shard in weight_map.items():
        shards.setdefault(shard, []).append(tensor)
    return shards


def _there(path: Path, tensor: str = "") -> Path:
    """The path, if a file lies there; a name alone may be a link whose target is gone."""
    if path.is_file():
        return path
    promised = f", which should hold tensor {quoted(tensor)}," if tensor else ""
    if path.is_symlink():
        raise NotFoundError(path, f"this link{promised} leads to no file: fetch the model again")
    if path.exists():
        raise FormatError(path, f"this name{promised} isn't that of a regular file")
    raise NotFoundError(path, f"this file{promised} isn't there: {_AGAIN}")


def _no_config(path: Path, names: frozenset[str]) -> FileError:
    ggufs = sorted(name for name in names if name.lower().endswith(".gguf"))
    if ggufs:
        return NotFoundError(
            path, f"has no {CONFIG}; give the path of the GGUF file in it, as {quoted(ggufs[0])}"
        )
    what = f"has no {CONFIG}" if names else f"is empty: it has no {CONFIG}"
    return NotFoundError(
        path, f"{what}, so it is no model folder as transformers and the Hugging Face hub have them"
    )


def _no_weights(path: Path, names: frozenset[str]) -> FileError:
    """Say what lies there in place of weights that can be read."""
    pickles = sorted(name for name in names if name.lower().endswith(_PICKLES))
    others = sorted(name for name in names if name.endswith(".safetensors"))
    if others:
        return NotFoundError(
            path,
            f"has neither {WEIGHTS} nor {WEIGHTS_INDEX}, only {quoted(others[0])}, "
            "which may be one part of a model, or an adapter",
        )
    if pickles:
        return UnsupportedError(
            path,
            f"holds its weights only as a pickle, {quoted(pickles[0])}. Opening a pickle can run any program "
            "hidden in it, so it is never opened: take the model's safetensors files, or convert it yourself "
            "if you trust its origin (with transformers: "
            "`AutoModelForCausalLM.from_pretrained(OLD).save_pretrained(NEW)`)",
        )
    index = next((name for name in sorted(names) if name.endswith((".h5", ".msgpack", ".onnx"))), None)
    if index:
        return UnsupportedError(
            path, f"holds its weights only as {quoted(index)}: take the model's safetensors files"
        )
    return NotFoundError(
        path, f"has a {CONFIG} but no weights: there is neither {WEIGHTS} nor {WEIGHTS_INDEX}"
    )
