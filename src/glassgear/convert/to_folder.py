"""Plan a Hugging Face folder."""

from __future__ import annotations

import json
import os
import secrets
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from glassgear.convert.configs import WRITERS
from glassgear.convert.plan import foreign_tensors, norm_offsets, repaired
from glassgear.convert.targets import (
    Plan,
    as_unsupported,
    content_of,
    end_ids_of,
    families_for,
    refuse_differences,
)
from glassgear.convert.tokenizer_files import (
    sentencepiece_model,
    templates_by_file,
    tokenizer_config,
    tokenizer_json,
)
from glassgear.convert.values import Made, Progress, TypeRule, streamed
from glassgear.convert.vocabularies import Content, check_same_ids
from glassgear.errors import FileError, SettingError, UnsupportedError
from glassgear.model.families.base import Family, Found
from glassgear.model.gears import Model
from glassgear.model.settings import Settings
from glassgear.text.sources import tokenizer_from_file
from glassgear.weights import safetensors
from glassgear.weights.atomic import PART_SUFFIX
from glassgear.weights.checkpoint import Checkpoint
from glassgear.weights.folder import CONFIG, GENERATION_CONFIG, TOKENIZER_FILES, WEIGHTS, read_folder
from glassgear.weights.names import without_prefix
from glassgear.weights.pooling import pooling_files, pooling_settings
from glassgear.weights.quant import TYPES
from glassgear.weights.streamed import StreamedTensor
from glassgear.weights.tensor import StoredTensor

__all__ = ["plan_folder", "write_folder"]

_DTYPES = {"F32": "float32", "F16": "float16", "BF16": "bfloat16"}
_TEMPLATES = "additional_chat_templates"

Files = Mapping[str, bytes]


def plan_folder(checkpoint: Checkpoint, target: Path, rule: TypeRule, progress: Progress) -> Plan:
    """See the module. A folder keeps its files and its tensors' names; only types change.

    Raises:
        UnsupportedError: the model or its tokenizer can't be said in such files.
    """
    if checkpoint.container == "folder":
        return _of_folder(checkpoint, target, rule, progress)
    config, made = _from_tree(checkpoint)
    kinds = {one.name: _kind(one, rule) for one in made}
    tensors = [streamed(one, kinds[one.name], progress) for one in made]
    content = content_of(checkpoint)
    ends = end_ids_of(checkpoint, content)
    files = _settings(config, kinds, content, ends) | _pooling_files(checkpoint)
    files |= _tokenizer_files(checkpoint, content)
    notices = () if content else ("the model came without a tokenizer, so the folder has none",)

    def check(folder: Path) -> None:
        if content is not None:
            theirs = tokenizer_from_file(folder)
            assert theirs is not None
            check_same_ids(content.tokenizer, theirs, checkpoint.path)

    return _plan(target, files, tensors, check, notices)


def _plan(
    target: Path,
    files: Files,
    tensors: list[StreamedTensor] | list[StreamedTensor | StoredTensor],
    check: Callable[[Path], None],
    notices: tuple[str, ...],
) -> Plan:
    return Plan(
        sum(tensor.nbytes for tensor in tensors),
        {tensor.name: tensor.type for tensor in tensors},
        lambda: write_folder(target, files, {tensor.name: tensor for tensor in tensors}, check),
        notices,
    )


def _kind(made: Made, rule: TypeRule) -> str:
    """All tensors have the wanted type; without one each keeps its own, or is F32 where it is quantised."""
    if rule.matrices:
        return rule.matrices
    return made.stored_type if made.stored_type in _DTYPES and not made.transposed else "F32"


def _from_tree(checkpoint: Checkpoint) -> tuple[dict[str, Any], list[Made]]:
    """Config and tensors, under the first family that can say all of the model."""
    model = checkpoint.model
    trouble: UnsupportedError | None = None
    for family in families_for(model):
        writer = WRITERS.get(family.name)
        if writer is None or writer.hf is None or family.from_hf is None:
            continue
        prefix = _prefix(family, model)
        try:
            config = writer.hf(model)
            theirs = _read_back(checkpoint, family, config, prefix)
            refuse_differences(checkpoint.path, model, theirs, f"a folder of type {config['model_type']}")
        except (UnsupportedError, SettingError) as error:
            trouble = trouble or as_unsupported(checkpoint, error)
            continue
        tensors = repaired(model, theirs, checkpoint.tensors)
        offsets = norm_offsets(model, theirs)
        return config, foreign_tensors(tensors, family.hf_names, prefix=prefix, offsets=offsets)
    raise trouble or UnsupportedError(
        checkpoint.path, f"is of the family {model.family}, which isn't written as a folder by this version"
    )


def _prefix(family: Family, model: Model) -> str:
    """What stands before names: that of a text model's own class; an encoder alone has none."""
    alone = model.head is None and not model.causal
    return family.hf_prefixes[-1] if family.hf_prefixes and not alone else ""


def _read_back(checkpoint: Checkpoint, family: Family, config: Mapping[str, Any], prefix: str) -> Model:
    """The tree that a reader would make of the config and the tensors' shapes."""
    assert family.from_hf is not None
    made = foreign_tensors(checkpoint.tensors, family.hf_names, prefix=prefix)
    shapes = {without_prefix(one.name, family.hf_prefixes): one.shape for one in made}
    return family.from_hf(Settings(config, checkpoint.path), Found(shapes))


def _settings(
    config: dict[str, Any], kinds: Mapping[str, str], content: Content | None, ends: frozenset[int]
) -> dict[str, bytes]:
    """config.json and generation_config.json."""
    kind = max(kinds.values(), key=lambda one: TYPES[one].nbytes)  # the one that loses nothing
    roles = content.vocabulary.roles if content else {}
    # What isn't there is said to be null: configs of some families have ids of their own in mind.
    ids: dict[str, Any] = {f"{role}_token_id": roles.get(role) for role in ("bos", "pad")}
    ids["eos_token_id"] = None
    if ends:
        ids["eos_token_id"] = min(ends) if len(ends) == 1 else _ends(roles, ends)
    config = {**config, **ids, "torch_dtype": _DTYPES[kind]}
    return {CONFIG: _json(config), GENERATION_CONFIG: _json({k: v for k, v in ids.items() if v is not None})}


def _ends(roles: Mapping[str, int], ends: frozenset[int]) -> Any:
    """The end ids, that of the tokenizer first."""
    return sorted(ends, key=lambda token: (token != roles.get("eos"), token))


def _json(value: Any) -> bytes:
    return (json.dumps(value, ensure_ascii=False, indent=2) + "\n").encode()


def _tokenizer_files(checkpoint: Checkpoint, content: Content | None) -> dict[str, bytes]:
    if content is None:
        return {}
    files = {
        "tokenizer.json": _json(tokenizer_json(content)),
        "tokenizer_config.json": _json(tokenizer_config(content, checkpoint.model.context)),
    }
    if content.kind == "spm":
        files["tokenizer.model"] = sentencepiece_model(content.vocabulary)
    return files | {name: text.encode() for name, text in templates_by_file(content.vocabulary).items()}


def _pooling_files(checkpoint: Checkpoint) -> dict[str, bytes]:
    """How states become one vector, as sentence-transformers writes it; none if the source is silent."""
    pooling = pooling_settings(checkpoint).pooling
    if pooling is None:
        return {}
    home = "sentence_transformers.models"
    modules = [
        {"idx": 0, "name": "0", "path": "", "type": f"{home}.Transformer"},
        {"idx": 1, "name": "1", "path": "1_Pooling", "type": f"{home}.Pooling"},
    ]
    modes = {"cls": "cls_token", "mean": "mean_tokens", "last": "lasttoken"}
    config = {"word_embedding_dimension": checkpoint.model.dim} | {
        f"pooling_mode_{name}": mode == pooling for mode, name in modes.items()
    }
    return {"modules.json": _json(modules), "1_Pooling/config.json": _json(config)}


def _of_folder(checkpoint: Checkpoint, target: Path, rule: TypeRule, progress: Progress) -> Plan:
    """The same folder in another type."""
    folder = read_folder(checkpoint.path)
    tensors: list[StreamedTensor | StoredTensor] = []
    for name, tensor in folder.tensors.items():
        if tensor.type in _DTYPES:
            made = Made(name, tensor.shape, (tensor,))
            tensors.append(streamed(made, _kind(made, rule), progress))
        else:
            tensors.append(tensor)
    config = folder.config
    if rule.matrices:
        config = {k: v for k, v in config.items() if k != "dtype"} | {"torch_dtype": _DTYPES[rule.matrices]}
    files = {CONFIG: _json(config)}
    kept = [folder.path / name for name in (GENERATION_CONFIG, *TOKENIZER_FILES)]
    kept += sorted((folder.path / _TEMPLATES).glob("*.jinja")) + pooling_files(folder.path)
    for path in kept:
        if path.is_file():
            files[path.relative_to(folder.path).as_posix()] = path.read_bytes()
    return _plan(target, files, tensors, lambda folder: None, ())


# --------------------------------------------------------------------------------------------


def write_folder(
    target: Path,
    files: Files,
    tensors: Mapping[str, StreamedTensor | StoredTensor],
    check: Callable[[Path], None],
) -> None:
    """Write everything into a folder beside the target, which then takes its name."""
    part = target.with_name(f".{target.name}.{secrets.token_hex(4)}{PART_SUFFIX}")
    try:
        part.mkdir()
        for name, data in files.items():
            place = part / name
            place.parent.mkdir(exist_ok=True)
            place.write_bytes(data)
        check(part)
        safetensors.write(part / WEIGHTS, tensors, {"format": "pt"})
        _take_name(part, target)
    except OSError as error:
        raise FileError(target, f"can't be written: {error.strerror or error}") from error
    finally:
        shutil.rmtree(part, ignore_errors=True)


def _take_name(part: Path, target: Path) -> None:
    """Put the new folder in the old one's place; that goes when the new one is there."""
    if not target.exists():
        os.replace(part, target)
        return
    old = target.with_name(f".{target.name}.{secrets.token_hex(4)}.old")
    os.replace(target, old)
    try:
        os.replace(part, target)
    except OSError:
        os.replace(old, target)
        raise
    shutil.rmtree(old, ignore_errors=True)
