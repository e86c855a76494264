"""Which file is what: a path becomes a `Checkpoint`.

The kind of a file is told by its first bytes, never by its name; a model file (TOML), which is a text
like any other, alone by its ending. Each container is read by its own module; here its settings become a
tree of gears and its tensors get their paths.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from glassgear.errors import FormatError, TokenizerError, UnsupportedError
from glassgear.model.families import by_gguf_type, by_hf_type
from glassgear.model.families.base import Family, Found
from glassgear.model.gears import Attention, Model, walk
from glassgear.model.settings import Settings
from glassgear.weights import described, float8, llama2c, names
from glassgear.weights.checkpoint import Checkpoint
from glassgear.weights.mapped import HEAD_BYTES, foreign, map_file
from glassgear.weights.tensor import StoredTensor

__all__ = ["open_checkpoint", "vocabulary_of"]

UNKNOWN = "no model: its first bytes fit no format that is known here"
SAMPLING = ("temperature", "top_k", "top_p", "min_p", "repetition_penalty")


def open_checkpoint(path: Path) -> Checkpoint:
    """Open a GGUF file, a llama2.c `.bin` or a Hugging Face folder. Weights stay mapped.

    A model file (TOML) says what a model is and has no tensors: see `described.py`.

    Raises:
        NotFoundError: nothing is there.
        FormatError: it is damaged, or no model at all; the message says what it looks like.
        UnsupportedError: a valid model of a kind that this version doesn't run.
    """
    if path.is_dir():
        return _folder(path)
    if described.is_described(path):
        return described.read_design(path)
    kind = _kind(path)
    if kind == "gguf":
        return _gguf(path)
    if kind == "llama2c":
        return _llama2c(path)
    if kind == "a safetensors file":
        raise FormatError(path, "is a bare safetensors file: give the folder that also holds its config.json")
    raise FormatError(path, f"is {kind}")


def vocabulary_of(path: Path) -> Mapping[str, Any] | Path | None:
    """What a model's tokenizer is made from: GGUF metadata, or a file; None if `path` is no model.

    Raises:
        FormatError: something that can't be a tokenizer file either, such as a pickle or a web page.
    """
    if path.is_dir():
        return path
    if described.is_described(path):
        raise TokenizerError(
            f"{path} describes a model, and no tokenizer: name a tokenizer's file, or a model with one"
        )
    kind = _kind(path)
    if kind == "gguf":
        from glassgear.weights import gguf

        return gguf.read(path).metadata
    if kind == "llama2c":
        return _beside(path)
    if kind == UNKNOWN or kind.startswith("JSON"):
        return None
    raise FormatError(path, f"is {kind}")


def _kind(path: Path) -> str:
    """`gguf`, `llama2c`, or what else it looks like, in words."""
    head = map_file(path)[:HEAD_BYTES]
    if head[:4] in (b"GGUF", b"FUGG"):
        return "gguf"
    if head[:4] == llama2c.MAGIC or llama2c.looks_like_version_0(head):
        return "llama2c"
    return foreign(head) or UNKNOWN


def _llama2c(path: Path) -> Checkpoint:
    model, tensors = llama2c.read(path)
    # Token 1 (BOS) parts the stories in llama2.c's training data; its programs stop there.
    return Checkpoint(str(path), "llama2c", model, tensors, _beside(path), end_ids=frozenset({1, 2}))


def _beside(path: Path) -> Path | None:
    """llama2.c looks for its tokenizer in the folder it runs in; we look beside the model."""
    for name in ("tokenizer.bin", "tokenizer.model", "tokenizer.json"):
        if (path.parent / name).is_file():
            return path.parent / name
    return None


def _gguf(path: Path) -> Checkpoint:
    from glassgear.weights import gguf

    file = gguf.read(path)
    kind = file.metadata.get("general.architecture")
    family = by_gguf_type().get(kind) if isinstance(kind, str) else None
    if kind is None:
        raise FormatError(path, "doesn't say what it holds: its metadata has no general.architecture")
    if family is None or family.from_gguf is None:
        raise UnsupportedError(
            path, f"holds the architecture {kind!r}; this version runs {_listed(by_gguf_type())}"
        )
    tensors = dict(file.tensors)
    rope = tensors.pop("rope_freqs.weight", None)
    if not tensors:
        raise FormatError(path, "holds a vocabulary but no weights")
    prefix = f"{kind}."
    settings = {k.removeprefix(prefix): v for k, v in file.metadata.items() if k.startswith(prefix)}
    settings.pop("pooling_type", None)  # about embedding texts: `pooling.py` reads it
    factors = None if rope is None else tuple(rope.float32().reshape(-1).tolist())
    model = family.from_gguf(Settings(settings, str(path), prefix), _found(tensors, factors))
    placed, notices = names.match(str(path), model, tensors, family.gguf_names, skip=family.skip)
    if family.gguf_interleaved:
        placed |= _unpermuted(placed, model)
    return Checkpoint(str(path), "gguf", model, placed, file.metadata, notices=notices)


def _listed(kinds: Mapping[str, Family]) -> str:
    return ", ".join(kinds)


def _found(tensors: Mapping[str, StoredTensor], factors: tuple[float, ...] | None = None) -> Found:
    return Found({name: tensor.shape for name, tensor in tensors.items()}, factors)


def _unpermuted(tensors: Mapping[str, StoredTensor], model: Model) -> dict[str, StoredTensor]:
    """Rows of W_q and W_k back in the order of Hugging Face's files.

    llama.cpp's converter interleaves the two halves of every head, so that its rotation can
    pair neighbours. Only the order in which rows are read changes here; no weight is copied.
    """
    out = {}
    for path, gear in walk(model):
        if not isinstance(gear, Attention) or gear.rope is None or gear.rope.pairing != "half":
            continue
        for part, heads in (("query", gear.heads), ("key", gear.kv_heads)):
            rows = np.arange(heads * gear.head_dim, dtype=np.intp)
            order = rows.reshape(heads, gear.head_dim // 2, 2).swapaxes(1, 2).reshape(-1)
            for name in ("weight", "bias"):
                full = f"{path}.{part}.{name}"
                if full in tensors:
                    out[full] = tensors[full].reordered(order)
    return out


def _folder(path: Path) -> Checkpoint:
    from glassgear.weights.folder import read_folder

    folder = read_folder(path)
    kind = folder.config.get("model_type")
    family = by_hf_type().get(kind) if isinstance(kind, str) else None
    if family is None or family.from_hf is None:
        raise UnsupportedError(
            path, f"holds a model of type {kind!r}; this version runs {_listed(by_hf_type())}"
        )
    plain = names.renamed(path, folder.tensors)
    config, found = float8.with_scales(str(path / "config.json"), folder.config, plain)
    tensors = names.renamed(path, found, lambda name: names.without_prefix(name, family.hf_prefixes))
    model = family.from_hf(Settings(config, str(path / "config.json")), _found(tensors))
    placed, notices = names.match(
        str(path), model, tensors, family.hf_names, skip=family.skip, prefixes=family.hf_prefixes
    )
    generation = folder.generation_config
    ends = generation.get("eos_token_id")
    if ends is None:
        ends = folder.config.get("eos_token_id")
    known, strange = _ids(path, ends, model.vocab)
    return Checkpoint(
        str(path), "folder", model, placed, path,
        end_ids=known, sampling=_sampling(generation), notices=(*notices, *strange),
    )  # fmt: skip


def _ids(path: Path, value: Any, vocab: int) -> tuple[frozenset[int], list[str]]:
    """`eos_token_id` is a number, a list of numbers, or absent; and what to say of ids that aren't there."""
    values = value if isinstance(value, list) else [] if value is None else [value]
    if not all(isinstance(v, int) and not isinstance(v, bool) for v in values):
        raise FormatError(path, f"`eos_token_id` should be an id or a list of ids, found {value!r:.60}")
    known = frozenset(v for v in values if 0 <= v < vocab)
    return known, [
        f"`eos_token_id` names id {v}, but the vocabulary has {vocab:,}: it can't end a text"
        for v in values
        if v not in known
    ]


def _sampling(generation: Mapping[str, Any]) -> dict[str, float]:
    """The sampling settings that a generation config recommends, if it wants sampling at all."""
    if not generation.get("do_sample"):
        return {}
    return {
        key: generation[key]
        for key in SAMPLING
        if isinstance(generation.get(key), int | float) and not isinstance(generation[key], bool)
    }
