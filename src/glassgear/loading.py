"""From what a user names to a running model: path or name -> checkpoint -> backend."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from glassgear.arguments import whole
from glassgear.errors import NotFoundError, SettingError

if TYPE_CHECKING:
    from glassgear.backends.base import Backend
    from glassgear.language_model import LanguageModel
    from glassgear.model.gears import Model
    from glassgear.text.base import Tokenizer
    from glassgear.weights.checkpoint import Checkpoint

__all__ = ["load", "load_tokenizer", "with_gears", "without_weights"]

BACKENDS = ("cpu", "reference", "torch")
DTYPES = ("float32", "bfloat16", "float16")  # of the torch backend
MOST_THREADS = 1024


def load(
    path_or_name: str | os.PathLike[str] | Checkpoint,
    tokenizer: str | os.PathLike[str] | Tokenizer | None = None,
    backend: Literal["cpu", "reference", "torch"] = "cpu",
    threads: int | None = None,
    *,
    context: int | None = None,
    cache_type: Literal["f32", "f16"] | None = None,
    on_compile: Callable[[str], None] | None = None,
    device: str | None = None,
    dtype: Literal["float32", "bfloat16", "float16"] | None = None,
    random: bool = False,
    seed: int = 0,
) -> LanguageModel:
    """Load a model.

    Args:
        path_or_name: a GGUF file, a llama2.c `.bin`, a Hugging Face folder, or a name that
            `glassgear list` shows; with `random` also a model file (TOML) or a published config. Or
            the checkpoint of one of these, for who has opened it already.
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

        random: take random weights, whether or not the model has its own.
        seed: of these.

    Raises:
        GlassgearError: nothing there, damaged, not supported, or more than there is memory for; the
            message says which.
    """
    from glassgear.language_model import LanguageModel
    from glassgear.weights.checkpoint import Checkpoint
    from glassgear.weights.described import open_named

    if context is not None:
        context = whole("context", context, 1)
    if threads is not None:
        threads = whole("threads", threads, 1, MOST_THREADS)
    checkpoint = path_or_name if isinstance(path_or_name, Checkpoint) else open_named(path_or_name)
    if random:
        checkpoint = _with_random_weights(checkpoint, whole("seed", seed, 0), backend)
    elif not checkpoint.tensors:
        raise NotFoundError(checkpoint.path, without_weights(checkpoint))
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


def with_gears(
    model: LanguageModel,
    gears: Model,
    threads: int | None = None,
    *,
    cache_type: Literal["f32", "f16"] | None = None,
    on_compile: Callable[[str], None] | None = None,
    device: str | None = None,
    dtype: Literal["float32", "bfloat16", "float16"] | None = None,
) -> LanguageModel:
    """The weights and the tokenizer of a loaded model under another tree, which has the same tensors.

    Args:
        model: the loaded model.
        gears: the other tree, with another activation, say.
        threads: this and what follows as for `load`.
        cache_type: see `load`.
        on_compile: see `load`.
        device: see `load`.
        dtype: see `load`.
    """
    from glassgear.language_model import LanguageModel
    from glassgear.model.gears import tensors

    if tensors(gears) != tensors(model.gears):
        raise SettingError("the other tree needs other tensors than the model has")
    checkpoint = replace(model.checkpoint, model=gears)
    runner = _backend(model.backend.name, checkpoint, threads, cache_type, on_compile, device, dtype)
    return LanguageModel(checkpoint, runner, model._tokenizer, context=model.context)


def without_weights(checkpoint: Checkpoint, command: str = "run") -> str:
    """What is wrong with a checkpoint that can't be run, and which command can draw weights for it."""
    from glassgear.weights.pull import known

    name = checkpoint.path
    fetch = f"`glassgear pull {name}` fetches one that has, and " if name in known() else ""
    return (
        f"is a {checkpoint.container}, which has no weights: {fetch}`glassgear {command} --random` draws "
        "some (random=True in Python); `glassgear show` and `glassgear params` need none"
    )


def _with_random_weights(checkpoint: Checkpoint, seed: int, backend: str) -> Checkpoint:
    """Random weights for a model that fits into memory.

    Raises:
        SettingError: it doesn't; the message says how much it needs and how much there is.
    """
    from glassgear.measure.machine import free_memory
    from glassgear.model.ledger import ledger
    from glassgear.weights.described import with_random_weights

    # All backends but the reference keep weights in a form of their own, beside those that were drawn.
    copies, why = (1, "") if backend == "reference" else (2, " (as drawn, and as the backend keeps them)")
    needed = ledger(checkpoint.model).nbytes * copies
    free = free_memory()
    if free is not None and needed > free:
        raise SettingError(
            f"random weights for {checkpoint.path} need {needed / 1e9:,.1f} GB of memory in float32{why}, "
            f"and {free / 1e9:,.1f} GB are free; `glassgear show` and `glassgear params` need none"
        )
    return with_random_weights(checkpoint, seed)


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
    from glassgear.weights.inside import is_example
    from glassgear.weights.open import vocabulary_of
    from glassgear.weights.pull import resolve

    found = resolve(path)
    if is_example(found):
        return _words_of_the_example()
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
    from glassgear.weights.inside import is_example

    source: Mapping[str, Any] | Path | None = checkpoint.vocabulary
    if source is None:
        return _words_of_the_example() if is_example(checkpoint.path) else None
    if isinstance(source, Mapping):
        return tokenizer_from_metadata(source, checkpoint.path)
    return tokenizer_from_file(source)


def _words_of_the_example() -> Tokenizer:
    from glassgear.text.words import Words
    from glassgear.weights.inside import EXAMPLE_WORDS

    return Words(EXAMPLE_WORDS)
