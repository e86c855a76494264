"""Models that experiments ask: one that the user names, the smallest at hand, or a random one."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from glassgear.errors import GlassgearError, TokenizerError
from glassgear.lab.frame import NotHereError, Settings
from glassgear.language_model import LanguageModel
from glassgear.weights.checkpoint import Checkpoint
from glassgear.weights.tensor import StoredTensor

if TYPE_CHECKING:
    from glassgear.backends.torch import ModelModule

__all__ = ["BUILT_IN", "model_of", "random_model", "require_torch", "start_ids", "stories", "title",
           "trained_model"]  # fmt: skip

Name = Literal["cpu", "reference", "torch"]
BUILT_IN = "tiny-stories"
"""The model that comes with Glassgear, by the name that `load` knows it by."""


def model_of(
    settings: Settings,
    name: str | None,
    backend: Name = "cpu",
    *,
    most: int | None = None,
    threads: int | None = None,
) -> LanguageModel | None:
    """The model of a run.

    Args:
        settings: of the run; `small` looks for none that wasn't named.
        name: a path or a name; None: the one that comes with Glassgear, or the smallest that
            `glassgear list` shows.
        backend: what runs it.
        most: of those that were fetched and weren't named, the largest file in bytes that is taken.
        threads: of the CPU backend; None: its choice.

    Returns:
        None where none was named and none is at hand.

    Raises:
        GlassgearError: the one that was named can't be loaded.
    """
    from glassgear.loading import load
    from glassgear.weights import pull

    if name is not None:
        return load(name, backend=backend, threads=threads)
    if settings.small:
        return None
    fetched = sorted(pull.cached(), key=lambda model: model.nbytes)
    for found in (BUILT_IN, *(model.name for model in fetched if most is None or model.nbytes <= most)):
        try:
            return load(found, backend=backend, threads=threads)
        except GlassgearError:  # one that this version doesn't run; the next may do
            continue
    return None


def title(model: LanguageModel) -> str:
    """A model's name without its folder."""
    return Path(model.checkpoint.path).name


def random_model(
    design: Mapping[str, Any], seed: int, backend: Name = "cpu", *, threads: int | None = None
) -> LanguageModel:
    """A model of one's own description with random weights.

    Args:
        design: what a model file says, see docs/designs.md.
        seed: of the weights.
        backend: what runs it.
        threads: of the CPU backend; None: its choice.

    Raises:
        NotHereError: the backend is PyTorch, which isn't installed.
    """
    from glassgear.backends.cpu import CPU
    from glassgear.backends.reference import Reference
    from glassgear.model.designs import design as designed
    from glassgear.weights.random_weights import random_tensors

    model = designed(design, "design")
    tensors = random_tensors(model, seed)
    checkpoint = Checkpoint(model.family, "random weights", model, tensors)
    if backend == "torch":
        require_torch()
        from glassgear.backends.torch import Torch

        return LanguageModel(checkpoint, Torch(model, tensors), None)
    made = CPU(model, tensors, threads=threads) if backend == "cpu" else Reference(model, tensors)
    return LanguageModel(checkpoint, made, None)


def trained_model(module: ModelModule, *, threads: int | None = None) -> LanguageModel:
    """A module's weights on the CPU backend, without a tokenizer.

    Args:
        module: trained or not; it isn't changed.
        threads: of the backend; None: its choice.
    """
    from glassgear.backends.cpu import CPU

    model = module.gears
    tensors = {}
    for path, value in (*module.named_parameters(), *module.named_buffers()):
        numbers = np.ascontiguousarray(value.detach().cpu().numpy(), np.float32)
        data = numbers.reshape(-1).view(np.uint8)
        tensors[path] = StoredTensor(path, "F32", numbers.shape, data, "trained weights")
    checkpoint = Checkpoint(model.family, "a model trained here", model, tensors)
    return LanguageModel(checkpoint, CPU(model, tensors, threads=threads), None)


def require_torch() -> None:
    """Refuse to go on without PyTorch.

    Raises:
        NotHereError: it isn't installed.
    """
    try:
        import torch  # noqa: F401
    except ImportError:
        raise NotHereError('this experiment needs PyTorch: pip install "glassgear[torch]"') from None


def start_ids(model: LanguageModel) -> list[int]:
    """What a text begins with; without a tokenizer the lowest end id, which llama2.c's models begin with."""
    try:
        return model.encode(None)
    except TokenizerError:
        return [min(model.end_ids, default=0)]


def stories(model: LanguageModel, count: int, seed: int, longest: int = 200) -> list[int]:
    """Ids of texts that a model makes by its own probabilities, one after the other.

    Args:
        model: it.
        count: ids in all.
        seed: of the first text.
        longest: most tokens of a text; never more than half of the context.
    """
    ids: list[int] = []
    start = start_ids(model)
    plain = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0}
    while len(ids) < count:
        ids += start
        for piece in model.generate(start, max_tokens=min(longest, model.context // 2), seed=seed, **plain):
            ids += (token for token in piece.ids if token not in model.end_ids)
        seed += 1
    return ids[:count]
