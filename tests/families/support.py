"""What tests of families share: tiny models of transformers, and how far ours strays from them.

A test module of a family lists its `CASES`: each writes a tiny random model and tells where. Tests and
`benchmarks/parity.py` run the same ones.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from numpy.typing import NDArray

from glassgear.backends.base import Backend, Chunk
from glassgear.model.gears import Model
from glassgear.model.settings import Settings
from glassgear.weights import gguf_write
from glassgear.weights.checkpoint import Checkpoint
from glassgear.weights.open import open_checkpoint
from tests.models import stored

BACKENDS = ("reference", "cpu")
TOLERANCE = 1e-4
IDS = (3, 14, 15, 92, 65, 35, 89, 79, 32, 38, 46, 26)
EPS = 2.0**-17  # exact in float32, which is what a GGUF keeps

Floats = NDArray[np.float32]
Theirs = Callable[[Any, Sequence[int]], Floats]


def made(model_class: str, config: Any, seed: int = 0) -> Any:
    """A random float32 model of transformers whose norms and biases aren't all ones and zeros.

    Args:
        model_class: the name of a class in transformers.
        config: its config.
        seed: of the weights.
    """
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(seed)
    model = getattr(transformers, model_class)(config).float().eval()
    with torch.no_grad():
        for name, value in model.named_parameters():
            if "norm" in name.lower() or name.endswith("bias") or "ln_" in name:
                value.add_(0.2 * torch.randn_like(value))
    return model


def config_of(config_class: str, **values: Any) -> Any:
    """A config of transformers; skips where it isn't installed."""
    return getattr(pytest.importorskip("transformers"), config_class)(**values)


def save(model: Any, folder: Path) -> Path:
    """Write a model as a Hugging Face folder."""
    model.save_pretrained(folder)
    return folder


def edit(folder: Path, **changes: object) -> Path:
    """Change keys of a folder's config.json; None removes one."""
    path = folder / "config.json"
    config = json.loads(path.read_text(encoding="utf-8")) | changes
    path.write_text(json.dumps({k: v for k, v in config.items() if v is not None}), encoding="utf-8")
    return folder


def logits_of(model: Any, ids: Sequence[int], **options: Any) -> Floats:
    """What transformers computes for one text: [T, vocab], or [T, dim] of a model without a head."""
    import torch

    with torch.no_grad():
        found = model(torch.tensor([list(ids)]), **options)
    rows: Floats = (found.logits if hasattr(found, "logits") else found.last_hidden_state)[0].float().numpy()
    return rows


def backend_of(name: str, checkpoint: Checkpoint) -> Backend:
    """A backend that computes and keeps everything in float32."""
    if name == "cpu":
        from glassgear.backends.cpu import CPU

        return CPU(checkpoint.model, checkpoint.tensors, threads=1, cache_type="float32")
    from glassgear.backends.reference import Reference

    return Reference(checkpoint.model, checkpoint.tensors)


def run(backend: Backend, ids: Sequence[int], sizes: Sequence[int] | None = None) -> Floats:
    """Every row of one text, given in chunks of `sizes`: [T, vocab], or hidden states without a head."""
    track, out, start = backend.open(), [], 0
    for size in sizes or [len(ids)]:
        out.append(backend.step([Chunk(track, ids[start : start + size], "all")], None, _output(backend))[0])
        start += size
    backend.close(track)
    return np.concatenate(out)


def _output(backend: Backend) -> Literal["logits", "hidden"]:
    return "hidden" if backend.model.head is None else "logits"


def differences(
    backend: Backend, model: Any, ids: Sequence[int], theirs: Theirs = logits_of
) -> dict[str, float]:
    """Largest difference to transformers, for each way of giving `ids`: whole, in chunks, in a batch.

    A model whose tokens see later ones can't be given in chunks.
    """
    want = theirs(model, ids)
    ways = {"whole": [len(ids)]}
    if backend.model.causal:
        ways |= {"5 and the rest": [5, len(ids) - 5], "one by one": [1] * min(len(ids), 12)}
        if len(ids) > 12:
            ways["one by one"].append(len(ids) - 12)
    found = {way: _largest(run(backend, ids, sizes), want) for way, sizes in ways.items()}
    short = ids[1:8]
    both = [Chunk(backend.open(), part, "all") for part in (ids, short)]
    rows = backend.step(both, None, _output(backend))
    for chunk in both:
        backend.close(chunk.track)
    found["batch"] = max(_largest(rows[0], want), _largest(rows[1], theirs(model, short)))
    return found


def _largest(ours: Floats, theirs: Floats) -> float:
    assert ours.shape == theirs.shape
    assert np.isfinite(ours).all()
    return float(np.abs(ours - theirs).max())


def check_parity(
    path: Path,
    model: Any,
    ids: Sequence[int] = IDS,
    backends: Sequence[str] = BACKENDS,
    tolerance: float = TOLERANCE,
    theirs: Theirs = logits_of,
) -> None:
    """Hold a file or folder to what transformers computes, in every way of giving the ids."""
    checkpoint = open_checkpoint(path)
    for name in backends:
        found = differences(backend_of(name, checkpoint), model, ids, theirs)
        assert max(found.values()) < tolerance, (name, found)


@dataclass(frozen=True)
class Case:
    """A tiny model of a family, in one container.

    Attributes:
        family: as `Family.name`.
        variant: what is particular about it.
        container: `folder` or `gguf`.
        write: writes it below a folder; returns where, and the model of transformers.
        ids: what is run.
        theirs: what transformers computes for ids.
    """

    family: str
    variant: str
    container: Literal["folder", "gguf"]
    write: Callable[[Path], tuple[Path, Any]]
    ids: Sequence[int] = IDS
    theirs: Theirs = logits_of

    def __str__(self) -> str:
        return f"{self.family}, {self.variant}, {self.container}"

    def check(self, folder: Path, backend: str, tolerance: float = TOLERANCE) -> None:
        """See `check_parity`."""
        path, model = self.write(folder)
        check_parity(path, model, self.ids, (backend,), tolerance, self.theirs)

    def largest(self, folder: Path, backend: str) -> float:
        """The largest difference to transformers."""
        path, model = self.write(folder)
        made = backend_of(backend, open_checkpoint(path))
        return max(differences(made, model, self.ids, self.theirs).values())


def each_case(cases: Sequence[Case]) -> Any:
    """Decorator: a test with `case` and `backend` runs for every case on every backend."""
    every = pytest.mark.parametrize("case", cases, ids=str)

    def decorate(test: Any) -> Any:
        return every(pytest.mark.parametrize("backend", BACKENDS)(test))

    return decorate


def write_gguf(
    path: Path,
    model: Any,
    names: Mapping[str, str],
    metadata: Mapping[str, Any],
    change: Callable[[str, Floats], Floats | None] = lambda name, values: values,
) -> Path:
    """Write the weights of a model of transformers as a GGUF.

    Args:
        path: where.
        model: the model.
        names: part of a tensor's name -> what llama.cpp's converter writes in its place; all that
            occur in a name are replaced, in order.
        metadata: keys and values.
        change: name in transformers, values -> what the converter stores, or None to leave it out.
    """
    tensors = []
    for name, value in model.state_dict().items():
        values = change(name, value.float().numpy())
        if values is None:
            continue
        stem = name
        for theirs, ours in names.items():
            stem = stem.replace(theirs, ours)
        tensors.append(stored(stem, values))
    gguf_write.write(path, metadata, tensors)
    return path


def model_of(from_hf: Callable[..., Model], config: Mapping[str, Any], found: Any = None) -> Model:
    """The tree of a config.json that is given as a dict."""
    from glassgear.model.families.base import Found

    return from_hf(Settings(config, "config.json"), Found({}) if found is None else found)
