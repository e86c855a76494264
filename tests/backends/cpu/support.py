"""Small models and matrices with random weights, and a way to run single kernels."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from glassgear.backends.cpu import features, pack
from glassgear.backends.cpu.fields import (
    ACTIVATION_BLOCK,
    GROUP,
    PRODUCT_SCRATCH,
    STEP_FIELDS,
    TILE,
    Frame,
    Step,
    quantized_bytes,
)
from glassgear.backends.cpu.layouts import BLOCK, QuantLayout
from glassgear.backends.cpu.machine_code import Kernel, entry, machine_code
from glassgear.model.families.llama import LlamaConfig, llama
from glassgear.model.gears import Model, Rope, tensors
from glassgear.weights.quant import TYPES
from glassgear.weights.tensor import StoredTensor

Floats = NDArray[np.float32]

QUANTISED = (
    "Q4_0",
    "Q4_1",
    "Q5_0",
    "Q5_1",
    "Q8_0",
    "Q2_K",
    "Q3_K",
    "Q4_K",
    "Q5_K",
    "Q6_K",
    "IQ4_NL",
    "IQ4_XS",
)


def stored(rng: np.random.Generator, type_name: str, rows: int, columns: int) -> StoredTensor:
    """Random blocks of a type, with scales of a sensible size."""
    kind = TYPES[type_name]
    count = rows * columns // kind.values
    blocks = rng.integers(0, 256, count * kind.nbytes, dtype=np.uint8).view(kind.layout).copy()
    for name in {"scale", "minimum"} & set(kind.layout.names or ()):
        blocks[name] = (rng.standard_normal(count) * 0.01).astype(np.float16)
    if type_name == "BF16":
        blocks["value"] = rng.standard_normal(count).astype(np.float32).view(np.uint32) >> 16
    elif type_name in ("F32", "F16"):
        blocks["value"] = rng.standard_normal(count)
    return StoredTensor("w", type_name, (rows, columns), blocks.view(np.uint8).reshape(-1), "random")


def model(
    seed: int = 0, *, dim: int = 64, hidden: int = 172, layers: int = 2, heads: int = 8, kv_heads: int = 2,
    head_dim: int = 8, vocab: int = 97, pairing: str = "half", tied: bool = False, bias: bool = False,
    rope_dim: int | None = None, type_name: str = "F32",
) -> tuple[Model, dict[str, StoredTensor]]:  # fmt: skip
    """A random llama; its matrices are stored as `type_name`, its vectors as F32."""
    rope = Rope(rope_dim or head_dim, 10000.0, pairing)  # type: ignore[arg-type]
    made = llama(
        LlamaConfig(
            dim, hidden, layers, heads, kv_heads, head_dim, vocab, 512, 1e-5, rope, tied,
            attention_bias=bias, mlp_bias=bias,
        )
    )  # fmt: skip
    rng = np.random.default_rng(seed)
    weights = {}
    for path, shape in tensors(made).items():
        if len(shape) == 2 and type_name != "F32":
            weights[path] = stored(rng, type_name, *shape)
            continue
        values = rng.standard_normal(shape) * (0.08 if len(shape) == 2 else 0.3) + ("norm" in path)
        raw = values.astype(np.float32).view(np.uint8).reshape(-1)
        weights[path] = StoredTensor(path, "F32", shape, raw, "random")
    return made, weights


def run(kernel: tuple[str, ...], step: NDArray[np.int64], frame: NDArray[np.int64], threads: int = 1) -> None:
    """Run one kernel for each thread's share, one after the other."""
    key = Kernel(kernel)
    function = entry(machine_code(features.target()).addresses([key])[key])
    for thread in range(threads):
        function(int(step.ctypes.data), int(frame.ctypes.data), thread, threads)


def quantized(x: Floats) -> tuple[NDArray[np.uint8], Floats]:
    """Activation blocks of some rows, and what they are worth as floats."""
    rows, columns = x.shape
    room = np.zeros((rows + TILE, columns), np.float32)
    room[:rows] = x
    codes = np.zeros(quantized_bytes(rows + TILE, columns), np.uint8)
    step, frame = np.zeros(STEP_FIELDS, np.int64), np.zeros(len(Frame), np.int64)
    frame[Frame.ROWS], frame[Frame.SHARED_OUT] = rows, 1
    step[Step.INPUT], step[Step.INPUT_STRIDE] = room.ctypes.data, 4 * columns
    step[Step.CODES], step[Step.COLUMNS] = codes.ctypes.data, columns
    run(("rows", "quantize"), step, frame)
    grouped = codes.reshape(-1, columns // BLOCK, GROUP, ACTIVATION_BLOCK)
    blocks = grouped.transpose(0, 2, 1, 3).reshape(-1, columns // BLOCK, ACTIVATION_BLOCK)
    worth = np.ascontiguousarray(blocks[:rows, :, :32]).view(np.int8) * np.ascontiguousarray(
        blocks[:rows, :, 32:36]
    ).view(np.float32)
    return codes, worth.reshape(rows, columns)


def multiply(
    tensor: StoredTensor, x: Floats, threads: int = 1, there: Floats | None = None
) -> tuple[Floats, Floats]:
    """[there +] x W^T by the kernels, and the x that they saw (rounded to int8 for quantised types)."""
    plan = pack.plan(tensor)
    weights = np.zeros(plan.nbytes + 4096, np.uint8)
    pack.fill(plan, weights[: plan.nbytes])
    rows, target = len(x), features.target()
    out = np.zeros((rows + TILE, plan.panels * 16), np.float32)
    step, frame = np.zeros(STEP_FIELDS, np.int64), np.zeros(len(Frame), np.int64)
    frame[Frame.ROWS], frame[Frame.SHARED_OUT] = rows, 1
    scratch = np.zeros((threads, PRODUCT_SCRATCH), np.uint8)
    frame[Frame.SCRATCH], frame[Frame.SCRATCH_BYTES] = scratch.ctypes.data, scratch.strides[0]
    room = np.zeros((rows + TILE, plan.columns), np.float32)
    room[:rows] = x
    codes, seen = np.zeros(0, np.uint8), x
    if isinstance(plan.layout, QuantLayout):
        codes, seen = quantized(x)
        kernel = ("matmul", "quant_matmul", plan.layout.key, target.kernels)
    else:
        kernel = ("matmul", "float_matmul", plan.layout.key, str(int(target.kernels == "avx512vnni")))
    step[Step.INPUT] = codes.ctypes.data if codes.size else room.ctypes.data
    step[Step.INPUT_STRIDE], step[Step.COLUMNS] = 4 * plan.columns, plan.columns
    step[Step.OUTPUT], step[Step.OUTPUT_STRIDE] = out.ctypes.data, out.strides[0]
    step[Step.WEIGHTS], step[Step.PANELS] = weights.ctypes.data, plan.panels
    step[Step.UNIT], step[Step.UNITS] = 1, plan.panels
    if there is not None:
        step[Step.ADD] = 1
        out[:rows, : plan.rows] = there
    run(kernel, step, frame, threads)
    return out[:rows, : plan.rows], seen
