"""Tiny models made on the spot, in memory and as files."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np

from glassgear.model.families.llama import LlamaConfig, llama
from glassgear.model.gears import Model, Rope, tensors
from glassgear.weights.tensor import StoredTensor


def tiny_config(**changes: object) -> LlamaConfig:
    """A Llama of a few thousand parameters: 8 query heads on 2 key/value heads."""
    sizes: dict[str, object] = {
        "dim": 64, "hidden": 96, "layers": 2, "heads": 8, "kv_heads": 2, "head_dim": 8, "vocab": 100,
        "context": 2048, "eps": 1e-5, "rope": Rope(8, 10000.0), "tied": False,
    }  # fmt: skip
    return LlamaConfig(**(sizes | changes))  # type: ignore[arg-type]


def stored(name: str, values: np.ndarray) -> StoredTensor:
    """A float32 array as a tensor of a file."""
    values = np.ascontiguousarray(values, np.float32)
    return StoredTensor(name, "F32", values.shape, values.view(np.uint8).reshape(-1), "made in memory")


def random_tensors(model: Model, seed: int = 0) -> dict[str, StoredTensor]:
    """Normal weights that keep the size of what passes through them; norms around one."""
    rng = np.random.default_rng(seed)
    made = {}
    for path, shape in tensors(model).items():
        values = rng.standard_normal(shape)
        made[path] = stored(path, 1 + 0.1 * values if len(shape) == 1 else values * shape[-1] ** -0.5)
    return made


def tiny(seed: int = 0, **changes: object) -> tuple[Model, dict[str, StoredTensor]]:
    """A tree and weights for it."""
    model = llama(tiny_config(**changes))
    return model, random_tensors(model, seed)


def llama2c_sizes(tied: bool = True, vocab: int = 32) -> dict[str, int]:
    """Sizes of a `.bin` of a few kilobytes."""
    sizes = {"dim": 16, "hidden": 24, "layers": 2, "heads": 4, "kv_heads": 2, "vocab": vocab, "context": 64}
    return sizes | {"tied": int(tied)}


def llama2c_arrays(sizes: dict[str, int], seed: int = 0) -> dict[str, list[np.ndarray]]:
    """Random weights by the names of llama2.c's export, one array a layer."""
    rng = np.random.default_rng(seed)
    dim, hidden, layers = sizes["dim"], sizes["hidden"], sizes["layers"]
    kv = dim * sizes["kv_heads"] // sizes["heads"]
    shapes = {
        "attention_norm": (dim,), "wq": (dim, dim), "wk": (kv, dim), "wv": (kv, dim), "wo": (dim, dim),
        "ffn_norm": (dim,), "w1": (hidden, dim), "w2": (dim, hidden), "w3": (hidden, dim),
    }  # fmt: skip
    made = {
        name: [rng.standard_normal(shape).astype("<f4") for _ in range(layers)]
        for name, shape in shapes.items()
    }
    made["embed"] = [rng.standard_normal((sizes["vocab"], dim)).astype("<f4")]
    made["norm"] = [rng.standard_normal(dim).astype("<f4")]
    made["head"] = [] if sizes["tied"] else [rng.standard_normal((sizes["vocab"], dim)).astype("<f4")]
    return made


V0_ORDER = ("embed", "attention_norm", "wq", "wk", "wv", "wo", "ffn_norm", "w1", "w2", "w3", "norm")
V1_ORDER = ("attention_norm", "ffn_norm", "norm", "embed", "wq", "wk", "wv", "wo", "w1", "w2", "w3", "head")


def llama2c_file(
    path: Path,
    version: int = 0,
    *,
    tied: bool = True,
    group: int = 4,
    scales_at_end: bool = False,
    seed: int = 0,
    vocab: int = 32,
) -> dict[str, list[np.ndarray]]:
    """Write a llama2.c checkpoint; returns its weights."""
    sizes = llama2c_sizes(tied, vocab)
    arrays = llama2c_arrays(sizes, seed)
    seven = [sizes[k] for k in ("dim", "hidden", "layers", "heads", "kv_heads", "vocab", "context")]
    if version == 0:
        if not tied:
            seven[5] = -seven[5]
        tables = np.zeros(2 * sizes["context"] * sizes["dim"] // sizes["heads"] // 2, "<f4")
        body = [a for name in V0_ORDER for a in arrays[name]] + [tables] + arrays["head"]
        path.write_bytes(struct.pack("<7i", *seven) + b"".join(a.tobytes() for a in body))
        return arrays
    head = struct.pack("<Ii7iB", 0x616B3432, version, *seven, tied)
    ordered = [a for name in V1_ORDER for a in arrays[name]]
    if version == 1:
        path.write_bytes(head.ljust(256, b"\0") + b"".join(a.tobytes() for a in ordered))
        return arrays
    head += struct.pack("<i", group)
    floats = [a for a in ordered if a.ndim == 1]
    codes, scales = zip(*(_int8(a, group) for a in ordered if a.ndim == 2), strict=True)
    if scales_at_end:
        body = b"".join(codes) + b"".join(scales)
    else:
        body = b"".join(c + s for c, s in zip(codes, scales, strict=True))
    path.write_bytes(head.ljust(256, b"\0") + b"".join(a.tobytes() for a in floats) + body)
    return arrays


def _int8(values: np.ndarray, group: int) -> tuple[bytes, bytes]:
    groups = values.reshape(-1, group)
    scale = np.abs(groups).max(axis=1) / np.float32(127)
    return np.round(groups / scale[:, None]).astype(np.int8).tobytes(), scale.astype("<f4").tobytes()


def llama2c_tokenizer(path: Path, vocab: int = 32) -> None:
    """A tokenizer.bin too small for byte fallback: control tokens, then letters and a few words."""
    words = ["<unk>", "\n<s>\n", "\n</s>\n", " ", *"abcdefghijklmnopqrstuvwxyz", "th", "he"][:vocab]
    out = struct.pack("<i", max(len(w) for w in words))
    for rank, word in enumerate(words):
        raw = word.encode()
        out += struct.pack("<fi", -float(rank), len(raw)) + raw
    path.write_bytes(out)
