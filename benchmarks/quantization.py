"""How far quantised weights stray, and how long it takes: Glassgear beside the `gguf` package and llama.cpp.

    python benchmarks/quantization.py model.gguf --quantizer /path/to/venv/bin/python

Root-mean-square errors of the same matrices, all decoded by Glassgear: random normal values, rows
with heavy tails (Student's t, 3 degrees of freedom), and matrices of `model.gguf`, decoded. Each
error is a multiple of the matrix' own root mean square. llama.cpp runs in the Python that `--quantizer`
names, and quantises all matrices to one type (`pure`), without an importance matrix. The last line is
JSON.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gguf as official
import numpy as np
from numpy.typing import NDArray

from glassgear.weights import gguf, gguf_write, quant
from glassgear.weights.quantize import WRITABLE, quantize
from glassgear.weights.tensor import StoredTensor

QUANTIZER = Path(__file__).resolve().parent / "workers" / "llama_cpp_quantize.py"
LLAMA_CPP = {"Q4_K": "Q4_K_S", "Q5_K": "Q5_K_S"}  # the same thing when all matrices have one type
MATRICES = (
    "blk.0.ffn_down.weight",
    "blk.7.ffn_down.weight",
    "blk.15.ffn_down.weight",
    "blk.29.ffn_down.weight",
)

Floats = NDArray[np.float32]


def matrices(model: Path | None) -> dict[str, Floats]:
    """What is quantised: name -> [rows, columns]; columns are multiples of 256."""
    rng = np.random.default_rng(1)
    made = {
        "normal": rng.standard_normal((1024, 2048)).astype(np.float32),
        "heavy tails": rng.standard_t(3, (1024, 2048)).astype(np.float32),
    }
    if model is not None:
        tensors = gguf.read(model).tensors
        made |= {name: tensors[name].float32() for name in MATRICES if name in tensors}
    return made


def ours(kind: str, values: Floats) -> tuple[Floats, float]:
    """Values there and back, and nanoseconds a value."""
    start = time.perf_counter()
    data = quantize(kind, values)
    seconds = time.perf_counter() - start
    return quant.decode(kind, data.reshape(-1)).reshape(values.shape), seconds / values.size * 1e9


def of_gguf_package(kind: str, values: Floats) -> Floats | None:
    """Values there and back by `gguf.quants`; None for the types that it can't write."""
    number = official.GGMLQuantizationType[kind]
    try:
        data = official.quants.quantize(values, number)
    except NotImplementedError:
        return None
    return quant.decode(kind, np.ascontiguousarray(data).reshape(-1).view(np.uint8)).reshape(values.shape)


def of_llama_cpp(python: str, kind: str, found: dict[str, Floats]) -> dict[str, Floats]:
    """All matrices there and back by llama.cpp."""
    names = {f"blk.{place}.ffn_down.weight": name for place, name in enumerate(found)}
    tensors = [
        StoredTensor(theirs, "F32", found[name].shape, found[name].reshape(-1).view(np.uint8), "made here")
        for theirs, name in names.items()
    ]
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder) / "source.gguf", Path(folder) / "target.gguf"
        gguf_write.write(source, metadata(len(found)), tensors)
        command = [python, str(QUANTIZER), str(source), str(target), LLAMA_CPP.get(kind, kind), "pure"]
        subprocess.run(command, check=True, capture_output=True)
        read = gguf.read(target).tensors
        assert all(tensor.type == kind for tensor in read.values()), [t.type for t in read.values()]
        return {name: read[theirs].float32() for theirs, name in names.items()}


def metadata(layers: int) -> dict[str, Any]:
    """What llama.cpp asks for before it quantises."""
    return {
        "general.architecture": "llama", "llama.block_count": layers, "llama.context_length": 64,
        "llama.embedding_length": 256, "llama.feed_forward_length": 256, "llama.attention.head_count": 4,
        "llama.attention.head_count_kv": 4, "llama.attention.layer_norm_rms_epsilon": 1e-5,
        "llama.rope.dimension_count": 64,
    }  # fmt: skip


def error(values: Floats, decoded: Floats) -> float:
    """Root mean square of the difference, relative to that of the values."""
    difference = decoded.astype(np.float64) - values
    return float(np.sqrt(np.mean(difference**2) / np.mean(values.astype(np.float64) ** 2)))


def main(given: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", type=Path, nargs="?", help="a GGUF whose matrices are quantised again")
    parser.add_argument("--quantizer", metavar="PYTHON", help="one with llama-cpp-python")
    parser.add_argument("--types", default=",".join(kind for kind in WRITABLE if kind != "F32"))
    options = parser.parse_args(given)
    found = matrices(options.model)
    rows: list[dict[str, Any]] = []
    print(f"{'type':<6}{'matrix':<26}{'glassgear':>11}{'gguf':>11}{'llama.cpp':>11}{'ns a value':>12}")
    for kind in options.types.split(","):
        theirs = of_llama_cpp(options.quantizer, kind, found) if options.quantizer else {}
        for name, values in found.items():
            decoded, nanoseconds = ours(kind, values)
            package = of_gguf_package(kind, values)
            row = {
                "type": kind, "matrix": name, "glassgear": error(values, decoded),
                "gguf": None if package is None else error(values, package),
                "llama.cpp": error(values, theirs[name]) if theirs else None, "ns": nanoseconds,
            }  # fmt: skip
            rows.append(row)
            errors = "".join(
                f"{'-' if row[who] is None else format(row[who], '.6f'):>11}"
                for who in ("glassgear", "gguf", "llama.cpp")
            )
            print(f"{kind:<6}{name:<26}{errors}{nanoseconds:>12.1f}", flush=True)
    print(json.dumps(rows))


if __name__ == "__main__":
    main()
