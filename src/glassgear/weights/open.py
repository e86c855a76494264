"""Which file is what: a path becomes a `Checkpoint`.

The kind of a file is told by its first bytes, never by its name. Each container is read by its
own module; here its settings become a tree of gears and its tensors get their paths.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from glassgear.errors import FormatError, UnsupportedError
from glassgear.model.families import llama
from glassgear.weights import llama2c, names
from glassgear.weights.checkpoint import Checkpoint
from glassgear.weights.mapped import HEAD_BYTES, foreign, map_file
from glassgear.weights.tensor import StoredTensor

__all__ = ["open_checkpoint", "vocabulary_of"]

HF_FAMILIES = ("llama",)
GGUF_FAMILIES = ("llama",)
UNKNOWN = "no model: its first bytes fit no format that is known here"
SAMPLING = ("temperature", "top_k", "top_p", "min_p", "repetition_penalty")


def open_checkpoint(path: Path) -> Checkpoint:
    """Open a GGUF file, a llama2.c `.bin` or a Hugging Face folder. Weights stay mapped.

    Raises:
        NotFoundError: nothing is there.
        FormatError: it is damaged, or no model at all; the message says what it looks like.
        UnsupportedError: a valid model of a kind that this version doesn't run.
    """
    if path.is_dir():
        return _folder(path)
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
    family = file.metadata.get("general.architecture")
    if family not in GGUF_FAMILIES:
        raise UnsupportedError(
            path, f"holds the architecture {family!r}; this version runs {', '.join(GGUF_FAMILIES)}"
        )
    found = dict(file.tensors)
    embed, rope = found.get("token_embd.weight"), found.pop("rope_freqs.weight", None)
    if embed is None or len(embed.shape) != 2:
        trouble = "holds a vocabulary but no weights" if not found else "has no `token_embd.weight`"
        raise FormatError(path, trouble)
    config = llama.from_gguf(
        file.metadata,
        str(path),
        vocab=embed.shape[0],
        tied="output.weight" not in found,
        biases=frozenset(name.split(".", 2)[2] for name in found if re.match(r"blk\.0\.\w+\.bias$", name)),
        rope_factors=None if rope is None else tuple(rope.float32().reshape(-1).tolist()),
    )
    model = llama.llama(config)
    tensors = names.match(str(path), model, found, names.GGUF_LLAMA)
    if config.rope.pairing == "half":
        tensors |= _unpermuted(tensors, config)
    return Checkpoint(str(path), "gguf", model, tensors, file.metadata)


def _unpermuted(tensors: Mapping[str, StoredTensor], config: llama.LlamaConfig) -> dict[str, StoredTensor]:
    """Rows of W_q and W_k back in the order of Hugging Face's files.

    llama.cpp's converter interleaves the two halves of every head, so that its rotation can
    pair neighbours. Only the order in which rows are read changes here; no weight is copied.
    """
    out = {}
    for part, heads in (("query", config.heads), ("key", config.kv_heads)):
        rows = np.arange(heads * config.head_dim, dtype=np.intp)
        order = rows.reshape(heads, config.head_dim // 2, 2).swapaxes(1, 2).reshape(-1)
        for path, tensor in tensors.items():
            if f".attention.{part}." in path:
                out[path] = tensor.reordered(order)
    return out


def _folder(path: Path) -> Checkpoint:
    from glassgear.weights.folder import read_folder

    folder = read_folder(path)
    family = folder.config.get("model_type")
    if family not in HF_FAMILIES:
        raise UnsupportedError(
            path, f"holds a model of type {family!r}; this version runs {', '.join(HF_FAMILIES)}"
        )
    config = llama.from_hf(folder.config, str(path / "config.json"))
    model = llama.llama(config)

    def ignorable(name: str) -> bool:
        # Tables that follow from the config, and the copy of a tied head.
        return name.endswith("rotary_emb.inv_freq") or (config.tied and name == "lm_head.weight")

    tensors = names.match(str(path), model, folder.tensors, names.HF_LLAMA, ignorable=ignorable)
    generation = folder.generation_config
    ends = generation.get("eos_token_id")
    if ends is None:
        ends = folder.config.get("eos_token_id")
    return Checkpoint(
        str(path), "folder", model, tensors, path,
        end_ids=_ids(path, ends, config.vocab),
        sampling=_sampling(generation),
    )  # fmt: skip


def _ids(path: Path, value: Any, vocab: int) -> frozenset[int]:
    """`eos_token_id` is a number, a list of numbers, or absent."""
    values = value if isinstance(value, list) else [] if value is None else [value]
    if not all(isinstance(v, int) and not isinstance(v, bool) for v in values):
        raise FormatError(path, f"`eos_token_id` should be an id or a list of ids, found {value!r:.60}")
    if strange := [v for v in values if not 0 <= v < vocab]:
        raise FormatError(path, f"`eos_token_id` names id {strange[0]}, but the vocabulary has {vocab}")
    return frozenset(values)


def _sampling(generation: Mapping[str, Any]) -> dict[str, float]:
    """The sampling settings that a generation config recommends, if it wants sampling at all."""
    if not generation.get("do_sample"):
        return {}
    return {
        key: generation[key]
        for key in SAMPLING
        if isinstance(generation.get(key), int | float) and not isinstance(generation[key], bool)
    }
