"""A checkpoint: a tree of gears, and a stored tensor for every parameter it has.

In: a path. Out: `Checkpoint`. Which file holds what is decided here; the containers
(`gguf.py`, `safetensors.py`, `llama2c.py`) know nothing of gears, the backends nothing of files.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from glassgear.model.gears import Model
from glassgear.weights.tensor import StoredTensor

__all__ = ["Checkpoint"]


@dataclass(frozen=True)
class Checkpoint:
    """Everything a file or folder says about one model.

    Attributes:
        path: where it was found.
        container: `gguf`, `folder` or `llama2c`; without tensors, what describes the model.
        model: the tree of gears.
        tensors: gear path -> stored tensor, one for each of `gears.tensors(model)`; none where a
            model is known by its description alone.
        vocabulary: what the tokenizer is made from: GGUF metadata, or the folder's path.
        end_ids: the ids that end a text, as the generation config says; empty if it is silent.
        sampling: sampling settings that the checkpoint recommends (`temperature`, `top_k`, ...).
        notices: what a user should know (ignored tensors and the like).
    """

    path: str
    container: str
    model: Model
    tensors: Mapping[str, StoredTensor]
    vocabulary: Mapping[str, Any] | Path | None = None
    end_ids: frozenset[int] = frozenset()
    sampling: Mapping[str, float] = field(default_factory=dict)
    notices: tuple[str, ...] = ()
