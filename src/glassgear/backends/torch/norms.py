"""Norms; sums of squares in float32 whatever the dtype of the stream."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from glassgear.backends.torch.base import GearModule, Run, module_for
from glassgear.model.gears import Affine, BatchNorm, LayerNorm, Norm, RMSNorm, ScaleNorm

__all__ = ["NormModule"]


class _RMS(torch.autograd.Function):
    """RMSNorm with a gradient of its own: PyTorch's has no kernel for a CPU and goes through many."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        """X / sqrt(mean(x^2) + eps) * weight, [.., dim]; the weight's gradient is summed over all rows."""
        wide = x.float()
        length = torch.linalg.vector_norm(wide, dim=-1, keepdim=True)
        scale = (length.square_() / x.shape[-1] + eps).rsqrt_()
        ctx.save_for_backward(x, weight, scale)
        y: Tensor = (wide * scale).mul_(weight)
        return y.to(x.dtype)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        """With y = x * scale: dx = scale * (g - y * mean(g * y)), g the gradient times the weight."""
        x, weight, scale = ctx.saved_tensors
        y, wide = x.float() * scale, grad.float()
        shared = wide * y
        of_weight = shared.flatten(0, -2).sum(0).to(weight.dtype) if ctx.needs_input_grad[1] else None
        mean = (shared @ weight.float()).unsqueeze(-1).div_(x.shape[-1])
        of_x = (wide * weight).sub_(y.mul_(mean)).mul_(scale).to(x.dtype)
        return of_x, of_weight, None


@module_for(RMSNorm, LayerNorm, ScaleNorm, BatchNorm, Affine)
class NormModule(GearModule):
    """Any norm, by its gear."""

    def __init__(self, gear: Norm, path: str) -> None:
        super().__init__(gear, path)
        self.gear = gear
        for name, shape in gear.tensors.items():
            if name in ("mean", "variance"):  # statistics, not weights
                self.register_buffer(name, torch.zeros(shape) if name == "mean" else torch.ones(shape))
            else:
                self.parameter(name, *shape)

    def forward(self, x: Tensor, run: Run) -> Tensor:
        """[..., dim] -> the same."""
        return self.see(run, "", self._normed(x), (x.shape[-1],) if x.dim() == 3 else tuple(x.shape[2:]))

    def _normed(self, x: Tensor) -> Tensor:
        gear = self.gear
        if isinstance(gear, RMSNorm):
            weight = self.weight + gear.offset if gear.offset else self.weight
            if torch.compiler.is_compiling():
                return functional.rms_norm(x, (gear.dim,), weight.to(x.dtype), gear.eps)
            made: Tensor = _RMS.apply(x, weight, gear.eps)  # type: ignore[no-untyped-call]
            return made
        if isinstance(gear, LayerNorm):
            return functional.layer_norm(x, (gear.dim,), self.weight, self.part("bias"), gear.eps)
        if isinstance(gear, ScaleNorm):
            length: Tensor = x.float().norm(dim=-1, keepdim=True).clamp_min(gear.eps)
            y: Tensor = (x / length.to(x.dtype)) * self.weight
            return y
        if isinstance(gear, BatchNorm):
            return self._batch_norm(x, gear)
        y = x * self.weight + self.bias
        return y

    def _batch_norm(self, x: Tensor, gear: BatchNorm) -> Tensor:
        """With the batch's own statistics while training, which are then kept as moving means."""
        flat = x.reshape(-1, gear.dim)
        y = functional.batch_norm(
            flat, self.mean, self.variance, self.weight, self.bias, self.training, 0.1, gear.eps
        )
        return y.reshape(x.shape)
