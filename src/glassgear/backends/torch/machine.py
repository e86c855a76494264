"""The PyTorch backend: batch steps over a module, on a CPU or a GPU."""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from glassgear.backends.base import Chunk, Hook, Output, Track, check_chunks, wanted_rows
from glassgear.backends.torch.base import Cache
from glassgear.backends.torch.module import module_of
from glassgear.errors import SettingError
from glassgear.model.gears import Model
from glassgear.weights.tensor import StoredTensor

__all__ = ["Torch"]

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


class Torch:
    """Runs a model in PyTorch. Implements `backends.base.Backend`.

    Sequences of a step run one after the other: this backend is for training, for GPUs and for
    comparing, not for serving many at once.

    Args:
        model: the tree of gears.
        tensors: gear path -> stored tensor.
        device: where, as PyTorch names it: `cpu`, `cuda`, `cuda:1`, `mps`.
        dtype: `float32`, `bfloat16` or `float16`.
        threads: how many CPU threads PyTorch takes, in the whole process; None: as it is.
        compiled: run the module through `torch.compile`.
    """

    name = "torch"

    def __init__(
        self,
        model: Model,
        tensors: Mapping[str, StoredTensor],
        *,
        device: str = "cpu",
        dtype: str = "float32",
        threads: int | None = None,
        compiled: bool = False,
    ) -> None:
        if dtype not in DTYPES:
            raise SettingError(f"dtype {dtype!r} is none of {', '.join(DTYPES)}")
        if threads is not None:
            torch.set_num_threads(threads)
        self.model = model
        self.device = _device(device)
        self.module = module_of(model, tensors).to(self.device, DTYPES[dtype]).eval()
        self._run = torch.compile(self.module) if compiled else self.module
        self._caches: weakref.WeakKeyDictionary[Track, Cache] = weakref.WeakKeyDictionary()

    def open(self) -> Track:
        """A new, empty sequence."""
        track = Track()
        self._caches[track] = Cache()
        return track

    def truncate(self, track: Track, length: int) -> None:
        """Forget all but the first `length` tokens of a sequence."""
        assert 0 <= length <= track.length
        track.length = self._caches[track].length = length

    def close(self, track: Track) -> None:
        """End a sequence."""
        if not track.closed:
            track.length, track.closed = 0, True
            self._caches.pop(track, None)

    def step(
        self, chunks: Sequence[Chunk], hook: Hook | None = None, output: Output = "logits"
    ) -> list[NDArray[np.float32]]:
        """Run new tokens through the model; see `backends.base.Backend.step`."""
        check_chunks(self.model, chunks, output)
        before = [chunk.track.length for chunk in chunks]
        try:
            return [self._one(chunk, hook, output) for chunk in chunks]
        except BaseException:
            for chunk, length in zip(chunks, before, strict=True):
                self.truncate(chunk.track, min(length, chunk.track.length))
            raise

    def _one(self, chunk: Chunk, hook: Hook | None, output: Output) -> NDArray[np.float32]:
        cache = self._caches[chunk.track]
        ids = torch.tensor([list(chunk.ids)], device=self.device)
        types = None if chunk.types is None else torch.tensor([list(chunk.types)], device=self.device)
        rows = torch.from_numpy(wanted_rows(chunk)).to(self.device)
        run = self.module if hook is not None else self._run
        with torch.inference_mode():
            out = run(ids, types, cache=cache, hook=hook, output=output, wanted=rows)
        chunk.track.length = cache.length
        values: NDArray[np.float32] = out[0].float().cpu().numpy()
        return values


def _device(name: str) -> torch.device:
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as trouble:
        reason = str(trouble).splitlines()[0]
        raise SettingError(f"PyTorch has no device {name!r} here: {reason}") from trouble
    return device
