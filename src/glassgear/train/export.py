"""The model of a run, for other programs: a Hugging Face folder, or a design with its weights."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from glassgear.convert.to_folder import plan_folder, write_folder
from glassgear.convert.values import TypeRule
from glassgear.errors import FileError, FormatError, NotFoundError, UnsupportedError
from glassgear.model.gears import tensors as tensors_of
from glassgear.train import checkpoint
from glassgear.train.data import Corpus, read_corpus
from glassgear.train.model import model_of
from glassgear.train.settings import TrainSettings
from glassgear.weights import safetensors
from glassgear.weights.atomic import replacing
from glassgear.weights.checkpoint import Checkpoint

__all__ = ["export"]

TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json")


def export(settings: TrainSettings) -> Path:
    """Write the newest whole checkpoint of a run as `OUT/model`, in place of what is there.

    Returns:
        What `glassgear run` takes: the folder; for a design that no published family has, the model
        file in it.

    Raises:
        NotFoundError: the run has no checkpoint or no text yet.
        FormatError: its checkpoints are damaged, or of another model.
        FileError: the system refuses.
    """
    folder = Path(settings.out)
    corpus = read_corpus(folder / "data")
    model = model_of(settings.model, corpus.vocab, settings.context)
    path = _newest(folder)
    found = safetensors.read(path / "model.safetensors")
    if {name: tensor.shape for name, tensor in found.items()} != tensors_of(model):
        raise FormatError(path, "holds another model than the settings describe")
    bare = Checkpoint(str(path), "training run", model, found, end_ids=corpus.ends)
    target = folder / "model"
    try:
        plan_folder(bare, target, TypeRule(), _untold)
    except UnsupportedError:
        return _design(settings, bare, corpus, target)
    try:
        plan_folder(replace(bare, vocabulary=folder / "data"), target, TypeRule(), _untold).write()
    except UnsupportedError:  # a tokenizer that can't be written anew goes along as it is
        plan_folder(bare, target, TypeRule(), _untold).write()
        for name, data in _tokenizer_files(corpus).items():
            with replacing(target / name) as file:
                file.write(data)
    return target


def _untold(count: int) -> None:
    """Nobody looks on: models that are trained here are written in a moment."""


def _newest(folder: Path) -> Path:
    if path := checkpoint.newest_whole(folder):
        return path
    if checkpoint.checkpoints(folder):
        raise FormatError(folder, "holds no checkpoint that is whole")
    raise NotFoundError(folder, "holds no checkpoint yet: train first")


def _tokenizer_files(corpus: Corpus) -> dict[str, bytes]:
    beside = [corpus.tokenizer.with_name(name) for name in TOKENIZER_FILES]
    return {path.name: path.read_bytes() for path in beside if path.is_file()}


def _design(settings: TrainSettings, found: Checkpoint, corpus: Corpus, target: Path) -> Path:
    """The design's own file, completed by vocabulary, context and the name of its weights."""
    source = Path(str(settings.model["design"]))
    try:
        values = tomllib.loads(source.read_text(encoding="utf-8"))
    except OSError as trouble:
        raise FileError(source, f"can't be read: {trouble.strerror or trouble}") from trouble
    values = {"vocab": corpus.vocab} | values | {"context": settings.context, "weights": "model.safetensors"}
    files = {"model.toml": "\n".join(_toml(values)).encode() + b"\n", **_tokenizer_files(corpus)}
    write_folder(target, files, found.tensors, lambda folder: None)
    return target / "model.toml"


def _toml(values: Mapping[str, Any], name: str = "") -> Iterator[str]:
    """Lines of TOML: numbers, texts and lists first, then tables, then lists of tables."""
    tables = {key: v for key, v in values.items() if isinstance(v, dict)}
    lists = {key: v for key, v in values.items() if isinstance(v, list) and v and isinstance(v[0], dict)}
    for key, value in values.items():
        if key not in tables and key not in lists:
            yield f"{_key(key)} = {json.dumps(value, ensure_ascii=False)}"
    for key, table in tables.items():
        yield f"\n[{name}{_key(key)}]"
        yield from _toml(table, f"{name}{_key(key)}.")
    for key, many in lists.items():
        for table in many:
            yield f"\n[[{name}{_key(key)}]]"
            yield from _toml(table, f"{name}{_key(key)}.")


def _key(name: str) -> str:
    plain = name.replace("_", "").replace("-", "")
    return name if plain.isalnum() and plain.isascii() else json.dumps(name, ensure_ascii=False)
