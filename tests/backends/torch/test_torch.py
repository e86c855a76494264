"""The PyTorch backend against the reference: every gear, whole and in pieces, and what hooks see."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from glassgear.backends.base import Backend, Chunk
from glassgear.backends.reference import Reference
from glassgear.errors import SettingError
from glassgear.model.gears import Model, tensors
from tests.models import random_tensors, stored
from tests.trees import TREES, VOCAB

torch = pytest.importorskip("torch")

from glassgear.backends.torch import ModelModule, Torch  # noqa: E402

IDS = np.random.default_rng(3).integers(0, VOCAB, 24).tolist()
Seen = dict[str, list[NDArray[np.float32]]]


def made(name: str) -> tuple[Model, Reference, Torch]:
    model = TREES[name]()
    weights = random_tensors(model)
    for path in weights:
        if path.endswith("variance"):
            weights[path] = stored(path, np.abs(weights[path].float32()) + 0.5)
        elif path.endswith("correction"):
            weights[path] = stored(path, np.linspace(-0.5, 0.5, weights[path].shape[0]))
    return model, Reference(model, weights), Torch(model, weights)


def pieces(backend: Backend, sizes: list[int], output: str) -> NDArray[np.float32]:
    track, first, out = backend.open(), 0, []
    for size in sizes:
        chunk = Chunk(track, IDS[first : first + size], "all")
        out += backend.step([chunk], output=output)  # type: ignore[arg-type]
        first += size
    backend.close(track)
    return np.concatenate(out)


def close(a: NDArray[np.float32], b: NDArray[np.float32]) -> bool:
    return a.shape == b.shape and float(np.abs(a - b).max()) <= 1e-5 * max(1.0, float(np.abs(b).max()))


@pytest.mark.parametrize("name", TREES)
def test_every_tree_gives_the_reference_s_values(name: str) -> None:
    model, reference, backend = made(name)
    for output in ("hidden", "logits") if model.head else ("hidden",):
        whole = pieces(reference, [24], output)
        assert close(pieces(backend, [24], output), whole)
        if model.causal:
            assert close(pieces(backend, [5, 7, 1, 11], output), whole)


@pytest.mark.parametrize("name", TREES)
def test_a_hook_sees_what_it_sees_in_the_reference(name: str) -> None:
    model, reference, backend = made(name)
    output = "logits" if model.head else "hidden"
    seen: list[Seen] = [{}, {}]
    for here, into in zip((reference, backend), seen, strict=True):

        def look(path: str, value: NDArray[np.float32], into: Seen = into) -> None:
            into.setdefault(path, []).append(np.array(value))

        here.step([Chunk(here.open(), IDS, "all")], look, output)  # type: ignore[arg-type]
    assert list(seen[0]) == list(seen[1])
    for path, values in seen[0].items():
        for mine, theirs in zip(seen[1][path], values, strict=True):
            finite = np.isfinite(theirs)
            assert mine.shape == theirs.shape, path
            assert np.array_equal(np.isfinite(mine), finite), path
            error = np.abs(mine[finite] - theirs[finite]).max()
            assert error <= 1e-4 * max(1, np.abs(theirs[finite]).max()), path


def test_a_hook_changes_what_comes_after() -> None:
    _, reference, backend = made("llama")

    def ablate(path: str, value: NDArray[np.float32]) -> NDArray[np.float32] | None:
        return np.zeros_like(value) if path == "blocks.0.ffn" else None

    outs = [b.step([Chunk(b.open(), IDS, "last")], ablate)[0] for b in (reference, backend)]
    assert close(outs[1], outs[0])
    assert not close(outs[1], backend.step([Chunk(backend.open(), IDS, "last")])[0])


def test_pooled_output_and_token_types() -> None:
    _, reference, backend = made("encoder")
    types = [0] * 10 + [1] * 14
    outs = [b.step([Chunk(b.open(), IDS, "first", types)], output="pooled")[0] for b in (reference, backend)]
    assert close(outs[1], outs[0])


@pytest.mark.parametrize("name", TREES)
def test_parameters_are_called_by_their_gear_path(name: str) -> None:
    model = TREES[name]()
    module = ModelModule(model)
    named = {n: tuple(p.shape) for n, p in [*module.named_parameters(), *module.named_buffers()]}
    assert named == tensors(model)


def test_a_cache_can_be_cut_and_continued() -> None:
    _, _, backend = made("latent attention")
    track = backend.open()
    whole = backend.step([Chunk(track, IDS, "all")])[0]
    backend.truncate(track, 10)
    assert close(backend.step([Chunk(track, IDS[10:], "all")])[0], whole[10:])


def test_a_device_that_is_not_there_is_named() -> None:
    model = TREES["llama"]()
    with pytest.raises(SettingError, match="no device 'nonsense'"):
        Torch(model, random_tensors(model), device="nonsense")


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 1e-3), ("bfloat16", 0.15)])
def test_a_gpu_gives_the_same(dtype: str, tolerance: float) -> None:
    model = TREES["llama"]()
    weights = random_tensors(model)
    cpu, gpu = Torch(model, weights), Torch(model, weights, device="cuda", dtype=dtype)
    outs = [b.step([Chunk(b.open(), IDS, "all")])[0] for b in (cpu, gpu)]
    assert np.abs(outs[0] - outs[1]).max() <= tolerance * np.abs(outs[0]).max()
