"""Plan a GGUF file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from glassgear.convert.configs import WRITERS, rope_factors
from glassgear.convert.plan import foreign_tensors, interleaved, norm_offsets, repaired
from glassgear.convert.targets import (
    Plan,
    as_unsupported,
    content_of,
    end_ids_of,
    families_for,
    refuse_differences,
)
from glassgear.convert.tokenizer_files import gguf_keys
from glassgear.convert.values import Made, Progress, TypeRule, streamed, type_in_gguf
from glassgear.convert.vocabularies import check_same_ids
from glassgear.errors import SettingError, UnsupportedError
from glassgear.model.families.base import Family, Found
from glassgear.model.gears import Model
from glassgear.model.gears import tensors as parameters
from glassgear.model.settings import Settings
from glassgear.text.sources import tokenizer_from_metadata
from glassgear.weights import gguf, gguf_write
from glassgear.weights.checkpoint import Checkpoint
from glassgear.weights.pooling import GGUF_TYPES, pooling_settings
from glassgear.weights.tensor import StoredTensor

__all__ = ["plan_gguf"]

# `enum llama_ftype` of llama.cpp, by the type that most weights have.
_FILE_TYPES = {
    "F32": 0, "F16": 1, "Q4_0": 2, "Q4_1": 3, "Q8_0": 7, "Q5_0": 8, "Q5_1": 9, "Q2_K": 10, "Q3_K": 12,
    "Q4_K": 14, "Q5_K": 16, "Q6_K": 18, "IQ4_NL": 25, "IQ4_XS": 30, "BF16": 32,
}  # fmt: skip
_ABOUT_THE_FILE = ("general.file_type", "general.quantization_version", "split.")


def plan_gguf(checkpoint: Checkpoint, target: Path, rule: TypeRule, progress: Progress) -> Plan:
    """See the module. A GGUF keeps its metadata and its tensors' names; only types change.

    Raises:
        UnsupportedError: the model or its tokenizer can't be said in GGUF metadata.
    """
    if checkpoint.container == "gguf":
        file = gguf.read(checkpoint.path)
        made = [Made(name, tensor.shape, (tensor,)) for name, tensor in file.tensors.items()]
        kept = {k: v for k, v in file.metadata.items() if not k.startswith(_ABOUT_THE_FILE)}
        return _plan(target, kept, made, rule, progress)
    checkpoint, left_out = _encoder_alone(checkpoint)
    metadata, made = _from_tree(checkpoint)
    keys, notices = _vocabulary(checkpoint)
    if checkpoint.sampling:
        notices += (
            "the settings for sampling that the source recommends are left out: GGUF has no keys for them",
        )
    notices += _window_notice(checkpoint.model, metadata)
    return _plan(target, metadata | keys, made, rule, progress, left_out + notices)


def _window_notice(model: Model, metadata: Mapping[str, Any]) -> tuple[str, ...]:
    """A word about a key that llama.cpp reads over in files of this architecture."""
    window = metadata.get("llama.attention.sliding_window", 0)
    if not 0 < window < model.context:
        return ()
    return (
        f"llama.cpp takes no notice of the window of {window:,} tokens in files of the architecture llama: "
        "its texts may differ past that length",
    )


def _encoder_alone(checkpoint: Checkpoint) -> tuple[Checkpoint, tuple[str, ...]]:
    """An encoder without what GGUF has no place for; a decoder as it is."""
    model = checkpoint.model
    alone = replace(model, pooler=None, transform=None, head=None)
    if model.causal or alone == model:
        return checkpoint, ()
    kept = parameters(alone)
    tensors = {path: tensor for path, tensor in checkpoint.tensors.items() if path in kept}
    notice = "the pooler and the head for masked words are left out: a GGUF holds the encoder alone"
    return replace(checkpoint, model=alone, tensors=tensors), (notice,)


def _plan(
    target: Path,
    metadata: Mapping[str, Any],
    made: list[Made],
    rule: TypeRule,
    progress: Progress,
    notices: tuple[str, ...] = (),
) -> Plan:
    tensors = [streamed(one, type_in_gguf(one, rule), progress) for one in made]
    weight = Counter[str]()
    for tensor in tensors:
        weight[tensor.type] += int(np.prod(tensor.shape))
    most = weight.most_common(1)[0][0]
    about = {"general.file_type": _FILE_TYPES[most], "general.quantization_version": 2}
    again = sorted({one.stored_type or "" for one in made} & set(_FILE_TYPES) - {"F32", "F16", "BF16"})
    if rule.matrices not in (None, "F32", *again) and again:
        notices += (
            f"the source is quantised already ({', '.join(again)}): what that lost stays lost, and rounding "
            "again adds to it",
        )
    return Plan(
        sum(tensor.nbytes for tensor in tensors),
        {tensor.name: tensor.type for tensor in tensors},
        lambda: gguf_write.write(target, {**metadata, **about}, tensors),
        notices,
    )


def _from_tree(checkpoint: Checkpoint) -> tuple[dict[str, Any], list[Made]]:
    """Settings and tensors, under the first family that can say all of the model."""
    model = checkpoint.model
    trouble: UnsupportedError | None = None
    for family in families_for(model):
        writer = WRITERS.get(family.name)
        if writer is None or writer.gguf is None or family.from_gguf is None or not family.gguf_types:
            continue
        try:
            settings = writer.gguf(model)
            theirs = _read_back(checkpoint, family, settings)
            refuse_differences(
                checkpoint.path, model, theirs, f"a GGUF of architecture {family.gguf_types[0]}"
            )
        except (UnsupportedError, SettingError) as error:
            trouble = trouble or as_unsupported(checkpoint, error)
            continue
        return _metadata(checkpoint, family, settings), _tensors(checkpoint, family, theirs)
    raise trouble or UnsupportedError(
        checkpoint.path, f"is of the family {model.family}, which isn't written as GGUF by this version"
    )


def _read_back(checkpoint: Checkpoint, family: Family, settings: Mapping[str, Any]) -> Model:
    """The tree that a reader would make of the settings and the tensors' shapes."""
    assert family.from_gguf is not None
    made = foreign_tensors(checkpoint.tensors, family.gguf_names)
    prefix = f"{family.gguf_types[0]}."
    values = {key: _as_stored(value) for key, value in settings.items()}
    found = Found({one.name: one.shape for one in made}, rope_factors(checkpoint.model))
    return family.from_gguf(Settings(values, checkpoint.path, prefix), found)


def _as_stored(value: Any) -> Any:
    """GGUF's floats have 32 bits."""
    return float(np.float32(value)) if isinstance(value, float) else value


def _metadata(checkpoint: Checkpoint, family: Family, settings: Mapping[str, Any]) -> dict[str, Any]:
    kind = family.gguf_types[0]
    pooling = pooling_settings(checkpoint).pooling
    numbers = {name: number for number, name in GGUF_TYPES.items()}
    if pooling in numbers:
        settings = {**settings, "pooling_type": numbers[pooling]}
    return {
        "general.architecture": kind,
        "general.type": "model",
        "general.name": Path(checkpoint.path).stem,
        **{f"{kind}.{key}": value for key, value in settings.items()},
    }


def _tensors(checkpoint: Checkpoint, family: Family, theirs: Model) -> list[Made]:
    tensors = repaired(checkpoint.model, theirs, checkpoint.tensors)
    if family.gguf_interleaved:
        tensors = interleaved(theirs, tensors)
    offsets = norm_offsets(checkpoint.model, theirs)
    made = foreign_tensors(tensors, family.gguf_names, offsets=offsets)
    factors = rope_factors(checkpoint.model)
    if factors is not None:
        values = np.array(factors, "<f4")
        data = values.view(np.uint8)
        stored = StoredTensor("rope_freqs.weight", "F32", values.shape, data, checkpoint.path)
        made.append(Made(stored.name, stored.shape, (stored,)))
    return made


def _vocabulary(checkpoint: Checkpoint) -> tuple[dict[str, Any], tuple[str, ...]]:
    content = content_of(checkpoint)
    if content is None:
        return {"tokenizer.ggml.model": "no_vocab"}, (
            "the model came without a tokenizer, so the GGUF has none",
        )
    rows = checkpoint.model.vocab
    if len(content.vocabulary.pieces) > rows:
        raise UnsupportedError(
            checkpoint.path,
            f"has {len(content.vocabulary.pieces):,} pieces in its tokenizer, more than the {rows:,} rows of "
            "its embedding table: a GGUF needs one row for each",
        )
    keys, left = gguf_keys(content, rows, end_ids_of(checkpoint, content))
    theirs = tokenizer_from_metadata(keys, checkpoint.path)
    assert theirs is not None
    check_same_ids(content.tokenizer, theirs, checkpoint.path)
    if left:
        names = ", ".join(content.vocabulary.pieces[token] for token in left)
        return keys, (f"GGUF has no room for the end tokens {names}: readers won't stop there",)
    return keys, ()
