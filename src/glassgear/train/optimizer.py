"""Initial weights, and which of them decay."""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch
from torch import nn

from glassgear.backends.torch import ModelModule
from glassgear.model.gears import (
    BatchNorm,
    Embed,
    Head,
    LearnedPositions,
    Model,
    Norm,
    Residual,
    ScaleNorm,
    TokenTypes,
    walk,
)

__all__ = ["adamw", "initialise"]


def initialise(module: ModelModule, seed: int, *, by_depth: bool = True) -> None:
    """Fill a module with weights to start from, the same on every machine for a seed.

    Matrices get a standard deviation of sqrt(2 / (5 * inputs)) (Nguyen & Salazar 2019); those whose
    output is added to the residual stream are divided by sqrt(number of such sums), so that the
    stream doesn't grow with depth (Radford et al. 2019). Tables get 0.02, norms 1, biases 0, ScaleNorm's
    number sqrt(dim) (Nguyen & Salazar 2019).

    Args:
        module: it.
        seed: of the weights.
        by_depth: False leaves out the division.
    """
    random = torch.Generator().manual_seed(seed)
    model = module.gears
    gears = dict(walk(model))
    sums = max(1, sum(isinstance(g, Residual) for g in _residuals(model)))
    ends = _branch_ends(model)
    with torch.no_grad():
        for path, parameter in module.named_parameters():
            owner, _, name = path.rpartition(".")
            gear = gears[owner]
            if isinstance(gear, ScaleNorm):
                parameter.fill_(math.sqrt(gear.dim))
            elif isinstance(gear, Norm):
                parameter.fill_(1.0 - getattr(gear, "offset", 0.0) if name == "weight" else 0.0)
            elif name == "bias":
                parameter.zero_()
            else:
                tables = isinstance(gear, Embed | LearnedPositions | TokenTypes | Head)
                spread = 0.02 if tables else math.sqrt(2 / (5 * parameter.shape[-1]))
                if by_depth and owner in ends:
                    spread /= math.sqrt(sums)
                parameter.copy_(torch.randn(parameter.shape, generator=random) * spread)
        for path, buffer in module.named_buffers():
            is_variance = isinstance(gears[path.rpartition(".")[0]], BatchNorm) and path.endswith("variance")
            buffer.fill_(1.0 if is_variance else 0.0)


def _residuals(model: Model) -> Iterable[Residual]:
    return [step for block in model.blocks for step in block.steps if step.skip]


def _branch_ends(model: Model) -> set[str]:
    """Paths of the matrices whose output is added to the stream."""
    found = set()
    for i, block in enumerate(model.blocks):
        for step in block.steps:
            if step.skip:
                found |= {
                    f"blocks.{i}.{step.step}.{name}" for name in ("output", "down", "widen", "shared.down")
                }
                found |= {
                    path
                    for path, _ in walk(step.gear, f"blocks.{i}.{step.step}")
                    if ".experts." in path and path.endswith(".down")
                }
    return found


def adamw(
    module: nn.Module, *, rate: float, betas: tuple[float, float], eps: float, decay: float, fused: bool
) -> torch.optim.AdamW:
    """AdamW (Loshchilov & Hutter 2019) that decays matrices and tables, not norms and biases."""
    matrices = [p for p in module.parameters() if p.requires_grad and p.dim() >= 2]
    vectors = [p for p in module.parameters() if p.requires_grad and p.dim() < 2]
    groups = [{"params": matrices, "weight_decay": decay}, {"params": vectors, "weight_decay": 0.0}]
    return torch.optim.AdamW([g for g in groups if g["params"]], lr=rate, betas=betas, eps=eps, fused=fused)
