"""From what a user names to a running model: path or name -> checkpoint -> backend."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from glassgear.arguments import whole
from glassgear.errors import SettingError

if TYPE_CHECKING:
    from glassgear.backends.base import Backend
    from glassgear.language_model import LanguageModel
    from glassgear.text.base import Tokenizer
    from glassgear.weights.checkpoint import Checkpoint

__all__ = ["load", "load_tokenizer"]

BACKENDS = ("cpu", "reference", "torch")
MOST_THREADS = 1024


def load(
    path_or_name: str | os.PathLike[str],
    tokenizer: str | os.PathLike[str] | Tokenizer | None = None,
    backend: Literal["cpu", "reference", "torch"] = "cpu",
    threads: int | None = None,
    *,
    context: int | None = None,
    cache_type: Literal["f32", "f16"] | None = None,
    on_compile: Callable[[str], None] | None = None,
    device: str | None = None,
    dtype: Literal["float32", "bfloat16", "float16"] | None = None,
) -> LanguageModel:
    """Load a model.

    Args:
        path_or_name: a GGUF file, a llama2.c `.bin`, a Hugging Face folder, or a name that
            `glassgear list` shows.
        tokenizer: another tokenizer than the model's own: a file, or one already loaded.
        backend: what runs the model: `cpu` at the machine's speed, `reference` in NumPy float32,
            `torch` in PyTorch (`pip install "glassgear[torch]"`).
        threads: how many CPU threads; None: the backend's choice.
        context: most tokens of a sequence; None: as many as the model was trained for.
        cache_type: `f32` or `f16` keys and values; None: the backend's choice.
        on_compile: is told in a line when kernels have to be compiled first, which takes some
            seconds once on a machine.
        device: of the torch backend: `cpu`, `cuda`, `cuda:1`, ...
        dtype: of the torch backend: what weights and values are computed in; None: float32.

    Raises:
        GlassgearError: nothing there, damaged, or not supported; the message says which.
    """
    from glassgear.language_model import LanguageModel
    from glassgear.weights.open import open_checkpoint
    from glassgear.weights.pull import resolve

    if context is not None:
        context = whole("context", context, 1)
    if threads is not None:
        threads = whole("threads", threads, 1, MOST_THREADS)
    checkpoint = open_checkpoint(resolve(path_or_name))
    found: Tokenizer | None
    if tokenizer is None:
        found = _own_tokenizer(checkpoint)
    elif isinstance(tokenizer, str | os.PathLike):
        found = load_tokenizer(tokenizer)
    elif hasattr(tokenizer, "encode_parts"):
        found = tokenizer
    else:
        raise SettingError(f"tokenizer must be a path or a tokenizer, found {tokenizer!r:.60}")
    runner = _backend(backend, checkpoint, threads, cache_type, on_compile, device, dtype)
    return LanguageModel(checkpoint, runner, found, context=context)


def _backend(
    name: str,
    checkpoint: Checkpoint,
    threads: int | None,
    cache_type: str | None,
    on_compile: Callable[[str], None] | None,
    device: str | None = None,
    dtype: str | None = None,
) -> Backend:
    if name not in BACKENDS:
        raise SettingError(f"no backend is called {name!r}: choose one of {', '.join(BACKENDS)}")
    if cache_type not in (None, "f32", "f16"):
        raise SettingError(f"cache type {cache_type!r} is neither f32 nor f16")
    if name != "torch" and (device or dtype):
        raise SettingError(f"device and dtype are for the torch backend, not for {name}")
    for tensor in checkpoint.tensors.values():
        tensor.check_finite()
    width = {"f32": "float32", "f16": "float16", None: None}[cache_type]
    if name == "cpu":
        from glassgear.backends.cpu import CPU

        return CPU(
            checkpoint.model, checkpoint.tensors, cache_type=width, threads=threads, on_compile=on_compile
        )
    if name == "torch":
        return _torch(checkpoint, threads, device, dtype)
    from glassgear.backends.reference import Reference

    return Reference(checkpoint.model, checkpoint.tensors, cache_type=width or "float32")


def _torch(checkpoint: Checkpoint, threads: int | None, device: str | None, dtype: str | None) -> Backend:
    try:
        from glassgear.backends.torch import Torch
    except ImportError as trouble:
        if trouble.name != "torch":
            raise
        raise SettingError('this needs PyTorch: pip install "glassgear[torch]"') from trouble
    return Torch(
        checkpoint.model, checkpoint.tensors,
        device=device or "cpu", dtype=dtype or "float32", threads=threads,
    )  # fmt: skip


def load_tokenizer(path: str | os.PathLike[str]) -> Tokenizer:
    """The tokenizer of a model, of a vocabulary-only GGUF, or in a file of its own.

    Args:
        path: a model path or name, a `tokenizer.json`, `tokenizer.bin` (llama2.c) or
            `tokenizer.model` (SentencePiece).

    Raises:
        GlassgearError: nothing there, damaged, or a model without a tokenizer.
    """
    from glassgear.errors import TokenizerError
    from glassgear.text.sources import tokenizer_from_file, tokenizer_from_metadata
    from glassgear.weights.open import vocabulary_of
    from glassgear.weights.pull import resolve

    found = resolve(path)
    vocabulary = vocabulary_of(found)
    if isinstance(vocabulary, Mapping):
        made = tokenizer_from_metadata(vocabulary, str(found))
    else:
        made = tokenizer_from_file(found if vocabulary is None else vocabulary)
    if made is None:
        raise TokenizerError(f"{found} holds no tokenizer")
    return made


def _own_tokenizer(checkpoint: Checkpoint) -> Tokenizer | None:
    from glassgear.text.sources import tokenizer_from_file, tokenizer_from_metadata

    source: Mapping[str, Any] | Path | None = checkpoint.vocabulary
    if source is None:
        return None
    if isinstance(source, Mapping):
        return tokenizer_from_metadata(source, checkpoint.path)
    return tokenizer_from_file(source)
