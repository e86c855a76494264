"""Make the models that are measured besides the ones that people publish.

    python benchmarks/make_models.py FOLDER --source smollm2.gguf --quantizer /path/to/venv/bin/python

From `--source` (SmolLM2-135M as it is published): the same model in Q4_0, Q8_0 and F16; quantising
again what was quantised costs accuracy, not speed. With random weights: a Llama of width 768, which
K-quants need (their blocks hold 256 values), in F16, Q4_K_M and Q6_K, with the vocabulary of the
source; and the shape of llama2.c's stories110M in float32. What is there already stays.
"""

from __future__ import annotations

import argparse
import os
import struct
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glassgear.weights import gguf, gguf_write
from glassgear.weights.tensor import StoredTensor

SEED = 20240
QUANTIZER = Path(__file__).resolve().parent / "workers" / "llama_cpp_quantize.py"

Floats = NDArray[np.float32]
Shapes = Mapping[str, tuple[int, ...]]


def random_weights(shapes: Shapes, seed: int = SEED) -> Iterator[tuple[str, Floats]]:
    """Weights one by one: norms of ones, matrices that keep the size of what passes through them."""
    rng = np.random.default_rng(seed)
    for name, shape in shapes.items():
        if len(shape) == 1:
            yield name, np.ones(shape, np.float32)
        else:
            yield name, rng.standard_normal(shape, np.float32) * np.float32(shape[-1] ** -0.5)


# --------------------------------------------------------------------------------------------
# A random Llama as GGUF


def llama_metadata(source: Mapping[str, Any], sizes: Mapping[str, int]) -> dict[str, Any]:
    """What a GGUF file says of a Llama of these sizes with the vocabulary of another file."""
    vocabulary = {key: value for key, value in source.items() if key.startswith("tokenizer.")}
    head_dim = sizes["dim"] // sizes["heads"]
    return {
        "general.architecture": "llama",
        "general.name": f"random llama {sizes['dim']}",
        "general.file_type": 1,  # mostly F16
        "llama.block_count": sizes["layers"],
        "llama.context_length": sizes["context"],
        "llama.embedding_length": sizes["dim"],
        "llama.feed_forward_length": sizes["hidden"],
        "llama.attention.head_count": sizes["heads"],
        "llama.attention.head_count_kv": sizes["kv_heads"],
        "llama.attention.layer_norm_rms_epsilon": 1e-5,
        "llama.rope.freq_base": 10000.0,
        "llama.rope.dimension_count": head_dim,
        "llama.vocab_size": len(source["tokenizer.ggml.tokens"]),
    } | vocabulary


def llama_shapes(sizes: Mapping[str, int], vocab: int) -> dict[str, tuple[int, ...]]:
    """Name and shape of every tensor of such a file; the head is tied."""
    dim, hidden = sizes["dim"], sizes["hidden"]
    narrow = dim // sizes["heads"] * sizes["kv_heads"]
    shapes: dict[str, tuple[int, ...]] = {"token_embd.weight": (vocab, dim), "output_norm.weight": (dim,)}
    for layer in range(sizes["layers"]):
        parts = {
            "attn_norm": (dim,), "attn_q": (dim, dim), "attn_k": (narrow, dim), "attn_v": (narrow, dim),
            "attn_output": (dim, dim), "ffn_norm": (dim,), "ffn_gate": (hidden, dim), "ffn_up": (hidden, dim),
            "ffn_down": (dim, hidden),
        }  # fmt: skip
        shapes |= {f"blk.{layer}.{part}.weight": shape for part, shape in parts.items()}
    return shapes


def stored(name: str, values: Floats) -> StoredTensor:
    """Matrices in F16, vectors in F32: what llama.cpp's own converter writes."""
    kind = "F32" if values.ndim == 1 else "F16"
    data = values.astype("<f4" if kind == "F32" else "<f2")
    return StoredTensor(name, kind, values.shape, data.view(np.uint8).reshape(-1), "made here")


WIDE = {"dim": 768, "hidden": 2048, "layers": 12, "heads": 12, "kv_heads": 4, "context": 8192}


def write_random_gguf(path: Path, source: Path, sizes: Mapping[str, int] = WIDE) -> None:
    """A Llama with random F16 weights and the vocabulary of `source`."""
    metadata = gguf.read(source).metadata
    shapes = llama_shapes(sizes, len(metadata["tokenizer.ggml.tokens"]))
    tensors = [stored(name, values) for name, values in random_weights(shapes)]
    gguf_write.write(path, llama_metadata(metadata, sizes), tensors)


# --------------------------------------------------------------------------------------------
# A random Llama as llama2.c reads it

STORIES_110M = {
    "dim": 768, "hidden": 2048, "layers": 12, "heads": 12, "kv_heads": 12, "vocab": 32000, "context": 1024,
}  # fmt: skip


def write_random_llama2c(path: Path, sizes: Mapping[str, int] = STORIES_110M) -> None:
    """A version 0 checkpoint of llama2.c with random weights and a tied head (`export.py` there)."""
    dim, hidden, layers = sizes["dim"], sizes["hidden"], sizes["layers"]
    head_dim = dim // sizes["heads"]
    narrow = head_dim * sizes["kv_heads"]
    # One array a kind of matrix, all layers in it, as the file has them.
    shapes: dict[str, tuple[int, ...]] = {
        "embed": (sizes["vocab"], dim), "attention_norm": (layers * dim,),
        "wq": (layers, dim, dim), "wk": (layers, narrow, dim), "wv": (layers, narrow, dim),
        "wo": (layers, dim, dim), "ffn_norm": (layers * dim,),
        "w1": (layers, hidden, dim), "w2": (layers, dim, hidden), "w3": (layers, hidden, dim),
        "norm": (dim,),
    }  # fmt: skip
    partial = path.with_suffix(".partial")
    with partial.open("wb") as file:
        order = ("dim", "hidden", "layers", "heads", "kv_heads", "vocab", "context")
        file.write(struct.pack("<7i", *(sizes[name] for name in order)))
        for _, values in random_weights(shapes):
            file.write(values.astype("<f4").tobytes())
        file.write(bytes(2 * 4 * sizes["context"] * head_dim // 2))  # rotary tables, which nobody reads
    os.replace(partial, path)


# --------------------------------------------------------------------------------------------


def quantize(quantizer: str, source: Path, target: Path, kind: str) -> None:
    """`source` in another type, by llama.cpp in the Python `quantizer`."""
    partial = target.with_suffix(".partial")
    subprocess.run([quantizer, str(QUANTIZER), str(source), str(partial), kind], check=True)
    os.replace(partial, target)


def main(given: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--source", type=Path, required=True, help="SmolLM2-135M as GGUF")
    parser.add_argument("--quantizer", required=True, metavar="PYTHON", help="one with llama-cpp-python")
    options = parser.parse_args(given)
    folder: Path = options.folder
    folder.mkdir(parents=True, exist_ok=True)
    wide = folder / "random-768-F16.gguf"
    stories = folder / "random-110m.bin"
    if not stories.exists():
        write_random_llama2c(stories)
    if not wide.exists():
        write_random_gguf(wide, options.source)
    for path in (stories, wide):
        print(f"{path}  {path.stat().st_size:,} bytes")
    kinds = [(options.source, "smollm2", kind) for kind in ("Q4_0", "Q8_0", "F16")]
    kinds += [(wide, "random-768", kind) for kind in ("Q4_K_M", "Q6_K")]
    for source, name, kind in kinds:
        target = folder / f"{name}-{kind}.gguf"
        if not target.exists():
            quantize(options.quantizer, source, target, kind)
        print(f"{target}  {target.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
