"""Norms; sums of squares in float32 whatever the dtype of the stream."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from glassgear.backends.torch.base import GearModule, Run, module_for
from glassgear.model.gears import Affine, BatchNorm, LayerNorm, Norm, RMSNorm, ScaleNorm

__all__ = ["NormModule"]


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
            return functional.rms_norm(x, (gear.dim,), weight.to(x.dtype), gear.eps)
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
