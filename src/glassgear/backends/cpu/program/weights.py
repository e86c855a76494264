"""What programs read: packed matrices, vectors, norms; and what the cache keeps for each attention gear."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from glassgear.backends.cpu.cache import CacheShape
from glassgear.backends.cpu.fields import NormKind
from glassgear.backends.cpu.layouts import FloatLayout, layout_of
from glassgear.backends.cpu.memory import Memory
from glassgear.backends.cpu.values import Matrix, NormVectors
from glassgear.model.gears import (
    Affine,
    Attention,
    BatchNorm,
    Gear,
    Head,
    LatentAttention,
    LayerNorm,
    Linear,
    Model,
    RMSNorm,
    Router,
    ScaleNorm,
    walk,
)
from glassgear.weights.tensor import StoredTensor

__all__ = ["Weights", "cache_shapes", "matrices_of", "weights_of"]

Tensors = Mapping[str, StoredTensor]
HALF_MOST = float(np.finfo(np.float16).max)


@dataclass(frozen=True)
class Weights:
    """Packed matrices and norms by gear path, and addresses of vectors by path of the tensor."""

    matrices: dict[str, Matrix] = field(default_factory=dict)
    norms: dict[str, NormVectors] = field(default_factory=dict)
    vectors: dict[str, int] = field(default_factory=dict)


def matrices_of(model: Model, tensors: Tensors) -> dict[str, StoredTensor]:
    """The tensors of everything that is a matrix product, by path, in order of use."""
    found = {}
    apart = {f"{path}.kv_up" for path, gear in walk(model) if isinstance(gear, LatentAttention)}
    for path, gear in walk(model):
        if isinstance(gear, Linear | Router) and path not in apart:
            found[path] = tensors[f"{path}.weight"]
        elif isinstance(gear, Head):
            found[path] = tensors["embed.weight" if gear.tied else f"{path}.weight"]
            if gear.extra:
                found[f"{path}.extra"] = tensors[f"{path}.extra"]
    return found


def weights_of(model: Model, tensors: Tensors, memory: Memory) -> Weights:
    """All of a model's weights, packed into `memory`."""
    made, matrices = Weights(), matrices_of(model, tensors)
    made.matrices.update(zip(matrices, memory.matrices(list(matrices.values())), strict=True))
    for path, gear in walk(model):
        for name in ("bias", "correction"):
            if name in gear.tensors and not isinstance(gear, LayerNorm | BatchNorm | Affine):
                made.vectors[f"{path}.{name}"] = memory.vector(tensors[f"{path}.{name}"].float32())
        if isinstance(gear, RMSNorm | LayerNorm | ScaleNorm | BatchNorm | Affine):
            made.norms[path] = _norm(path, gear, tensors, memory)
        elif isinstance(gear, LatentAttention):
            halves = _halves(path, gear, tensors[f"{path}.kv_up.weight"])
            made.matrices.update(zip(halves, memory.matrices(list(halves.values())), strict=True))
    return made


def _norm(path: str, gear: Gear, tensors: Tensors, memory: Memory) -> NormVectors:
    """A norm's vectors, with what is the same for every row worked in."""

    def vector(name: str) -> NDArray[np.float32]:
        return tensors[f"{path}.{name}"].float32()

    kind, width, eps, weight, bias = _parts(gear, vector)
    address = 0 if bias is None else memory.vector(bias)
    return NormVectors(kind, width, eps, memory.vector(weight), address)


Floats = NDArray[np.float32]


def _parts(gear: Gear, vector: Callable[[str], Floats]) -> tuple[NormKind, int, float, Floats, Floats | None]:
    """Kind, width, eps, weight and bias of a norm."""
    match gear:
        case RMSNorm():
            weight = vector("weight")
            offset = np.float32(gear.offset)
            return NormKind.RMS, gear.dim, gear.eps, offset + weight if offset else weight, None
        case LayerNorm():
            bias = vector("bias") if gear.bias else None
            return NormKind.LAYER, gear.dim, gear.eps, vector("weight"), bias
        case ScaleNorm():
            return NormKind.SCALE, gear.dim, gear.eps, np.repeat(vector("weight"), gear.dim), None
        case Affine():
            return NormKind.AFFINE, gear.dim, 0.0, vector("weight"), vector("bias")
        case BatchNorm():
            # In float64: a mean far from 0 would cost the bias its last digits.
            spread = np.sqrt(vector("variance").astype(np.float64) + gear.eps)
            scale = vector("weight") / spread
            bias = (vector("bias") - vector("mean") * scale).astype(np.float32)
            return NormKind.AFFINE, gear.dim, 0.0, scale.astype(np.float32), bias
    raise AssertionError(gear)


def _halves(path: str, gear: LatentAttention, up: StoredTensor) -> dict[str, StoredTensor]:
    """Each head's part of `kv_up` in two: keys, turned round so as to carry queries, and values.

    As floats in any case: a turned matrix has its blocks of codes across its rows. What were codes
    takes 16 bits, whose rounding is far below that of int8.
    """
    made, size = {}, gear.plain_dim + gear.value_dim
    for head in range(gear.heads):
        rows = up.rows(np.arange(head * size, (head + 1) * size))
        for name, values in (("key", rows[: gear.plain_dim].T), ("value", rows[gear.plain_dim :])):
            part = f"{path}.kv_up.{name}.{head}"
            made[part] = _stored(part, values, up)
    return made


def _stored(name: str, values: Floats, like: StoredTensor) -> StoredTensor:
    """Floats as a tensor: of the type that they are packed in, or of 16 bits if that is codes."""
    whole = np.ascontiguousarray(values, np.float32)
    raw = whole.view(np.uint8)
    layout = layout_of(like.type, like.matrix[1])
    kind = layout.key.upper() if isinstance(layout, FloatLayout) else "F16"
    if kind == "F16" and np.abs(whole).max(initial=0) > HALF_MOST:
        kind = "F32"
    elif kind == "F16":
        raw = whole.astype("<f2").view(np.uint8)
    elif kind == "BF16":
        raw = (whole.view(np.uint32) >> 16).astype("<u2").view(np.uint8)
    return StoredTensor(name, kind, whole.shape, raw.reshape(-1), like.file)


def cache_shapes(model: Model) -> list[tuple[int, CacheShape]]:
    """Query heads, and what is kept of a token, of each attention gear."""
    found = []
    for _, gear in walk(model):
        if isinstance(gear, Attention):
            found.append((gear.heads, CacheShape(gear.kv_heads, gear.head_dim, gear.head_dim)))
        elif isinstance(gear, LatentAttention):
            found.append((gear.heads, CacheShape(1, gear.cache_dim, gear.kv_rank, latent=True)))
    return found
