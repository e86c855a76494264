"""How much of a gradient arrives at the first layer, with and without a way past each sublayer."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from glassgear.lab.frame import (
    BY_HAND,
    INNER_GEARS,
    Claim,
    Column,
    Experiment,
    Figure,
    Result,
    Settings,
    Table,
    Verdict,
    option,
)
from glassgear.lab.models import random_model, require_torch

__all__ = ["EXPERIMENT", "Depths", "norms_by_depth"]

TOY = 0.5  # what the article lets a layer keep of a gradient
KINDS = (
    ("residual, pre-norm", {"residual": True, "norm": "rmsnorm"}),
    ("no residual, pre-norm", {"residual": False, "norm": "rmsnorm"}),
    ("no residual, no norm", {"residual": False, "norm": "none"}),
)


@dataclass(frozen=True)
class Depths(Settings):
    """Sizes of the networks."""

    deepest: int = option(100, "Layers of the deepest network.", small=61, least=10)
    dim: int = option(32, "Width of the networks.", small=16, least=8)
    tokens: int = option(16, "Tokens of the text that is read.", small=8, least=2)


def norms_by_depth(settings: Depths, layers: int, kind: dict[str, Any]) -> list[float]:
    """The length of the gradient behind each block, from the embedding (0) to the last (`layers`).

    The loss is the cross-entropy of random next tokens; everything is float64, so that what is small
    is still seen.

    Raises:
        NotHereError: PyTorch isn't installed.
    """
    require_torch()
    import torch

    from glassgear.backends.torch import module_of

    vocab = 64
    made = random_model(
        {
            "name": "deep", "vocab": vocab, "dim": settings.dim, "layers": layers, "head": "own",
            "context": settings.tokens, "embedding_scale": settings.dim**0.5, "attention": {"heads": 2},
            "ffn": {"kind": "plain", "activation": "silu"}, **kind,
        },
        settings.seed, "reference",
    )  # fmt: skip
    module = module_of(made.gears, made.checkpoint.tensors).double()
    rng = np.random.default_rng(settings.seed)
    ids, following = (torch.from_numpy(rng.integers(0, vocab, (1, settings.tokens))) for _ in range(2))
    streams: list[Any] = []

    def keep(_module: Any, _inputs: Any, output: Any) -> None:
        output.retain_grad()
        streams.append(output)

    for part in (module.embed, *module.blocks):
        part.register_forward_hook(keep)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # matrices this small are slower with more
    try:
        logits = module(ids)
        torch.nn.functional.cross_entropy(logits[0], following[0]).backward()  # type: ignore[no-untyped-call]
    finally:
        torch.set_num_threads(threads)
    return [float(stream.grad.norm()) for stream in streams]


def run(settings: Depths) -> Result:
    """Random networks of 10, 61 and 100 layers beside the line 0.5 to the power of the depth."""
    depths = sorted({depth for depth in (10, 61, 100) if depth < settings.deepest} | {settings.deepest})
    curves: dict[tuple[str, int], list[float]] = {}
    rows: list[tuple[str, int, float, float]] = []
    for depth in depths:
        rows.append(("0.5 a layer, on paper", depth, TOY**depth, TOY))
        for name, kind in KINDS:
            found = curves[name, depth] = norms_by_depth(settings, depth, kind)
            left = found[0] / found[-1] if found[-1] else 0.0
            rows.append((name, depth, left, left ** (1 / depth)))
    kept = {(name, depth): share for name, depth, share, _ in rows}
    deep = depths[-1]
    highway, normed, bare = (kept[name, deep] for name, _ in KINDS)
    good = highway > 1e-2 and bare < 1e-9 and highway > 10 * normed
    columns = (
        Column("network"), Column("layers", "d"), Column("arrives at layer 0", ".1e"),
        Column("a layer keeps", ".3f"),
    )  # fmt: skip
    return Result(
        Verdict(
            "confirmed" if good else "depends",
            f"with the way past, {highway:.2g} times the last layer's gradient arrives in front of {deep} "
            f"random layers; without it {bare:.0e}, and {normed:.0e} where norms keep the values' size.",
            f"有残差通路时，穿过 {deep} 个随机层后，到达最前面的梯度是最后一层的 {highway:.2g} 倍；"
            f"没有残差时只剩 {bare:.0e}，即使用归一化保持数值大小也只有 {normed:.0e}。",
        ),
        (Table("The gradient's length in front of the first block, behind the last = 1", columns,
               tuple(rows)),),
        (Figure("depth", lambda canvas: _draw(canvas, curves, depths)),),
        {
            "toy_10": TOY**10, "toy_61": TOY**61, "residual": highway, "norm_alone": normed, "neither": bare,
            "layers": deep, "factor_of_neither": kept[KINDS[2][0], deep] ** (1 / deep),
        },
        (
            "Networks of the PyTorch backend with random weights of variance 1 / inputs, before "
            "any training; attention and SiLU(x W_up) W_down in each layer; the stream begins at size 1.",
            "The last column is what 0.5 stands for on paper: SiLU's slope at 0 is 0.5.",
            f"0.5^10 = {TOY**10:.4f}, 0.5^61 = {TOY**61:.0e}.",
        ),
    )  # fmt: skip


def _draw(canvas: Any, curves: dict[tuple[str, int], list[float]], depths: list[int]) -> None:
    for axes, depth in zip(np.atleast_1d(canvas.subplots(1, len(depths), sharey=True)), depths, strict=True):
        axes.plot([(depth - i) * math.log10(TOY) for i in range(depth + 1)], "k:", label="0.5 a layer")
        for name, _ in KINDS:
            found = curves[name, depth]
            axes.plot([math.log10(v / found[-1]) if v and found[-1] else math.nan for v in found], label=name)
        axes.set(title=f"{depth} layers", xlabel="behind block", ylim=(-40, 4))
    axes.legend(fontsize=8)
    canvas.supylabel("log10 of the gradient's length")


EXPERIMENT = Experiment(
    "gradient-highway",
    "How much of the gradient arrives at the first of 10, 61 or 100 layers?",
    Claim(
        "without residual a gradient of 0.5 a layer is 0.001 after 10 layers and 4e-19 after 61; with it 100 "
        "layers train",
        f"{INNER_GEARS}; {BY_HAND}",
    ),
    Depths,
    run,
)
