"""Feed-forward networks and mixtures of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from glassgear.backends.torch.base import GearModule, Run, module_for
from glassgear.model.gears import FFN, Activation, Experts, GatedFFN, Router

__all__ = ["ACTIVATIONS"]

ACTIVATIONS: dict[Activation, Callable[[Tensor], Tensor]] = {
    "silu": functional.silu,
    "gelu": functional.gelu,
    "gelu_tanh": lambda x: functional.gelu(x, approximate="tanh"),
    "relu": functional.relu,
    "identity": lambda x: x,
}


@module_for(FFN)
class FFNModule(GearModule):
    """down(activation(up(x)))."""

    def __init__(self, gear: FFN, path: str) -> None:
        super().__init__(gear, path)
        self.activation = ACTIVATIONS[gear.activation]

    def forward(self, x: Tensor, run: Run) -> Tensor:
        """[B, t, dim] -> the same."""
        bent = self.see(run, "activated", self.activation(self.up(x, run)))
        return self.see(run, "", self.down(bent, run))


@module_for(GatedFFN)
class GatedFFNModule(GearModule):
    """down(activation(gate(x)) * up(x))."""

    def __init__(self, gear: GatedFFN, path: str) -> None:
        super().__init__(gear, path)
        self.activation = ACTIVATIONS[gear.activation]

    def forward(self, x: Tensor, run: Run) -> Tensor:
        """[B, t, dim] -> the same."""
        gate, up = self.gate(x, run), self.up(x, run)
        bent = self.see(run, "activated", self.activation(gate))
        return self.see(run, "", self.down(self.see(run, "product", bent * up), run))


@module_for(Router)
class RouterModule(GearModule):
    """The weight of every expert for every token, 0 where it isn't chosen."""

    def __init__(self, gear: Router, path: str) -> None:
        super().__init__(gear, path)
        self.gear = gear
        self.parameter("weight", gear.count, gear.dim)
        if gear.correction:
            self.register_buffer("correction", torch.zeros(gear.count))

    def forward(self, x: Tensor, run: Run) -> Tensor:
        """[B, t, dim] -> [B, t, count]."""
        gear = self.gear
        logits = self.see(run, "logits", functional.linear(x.float(), self.weight.float()))
        scores = logits.softmax(-1) if gear.score == "softmax" else logits.sigmoid()
        scores = self.see(run, "scores", scores)
        chosen = self._choose(scores + self.correction if gear.correction else scores)
        weights = scores.gather(-1, chosen)
        if gear.normalize:
            weights = weights / (weights.sum(-1, keepdim=True) + 1e-20)
        out = torch.zeros_like(scores).scatter(-1, chosen, weights * gear.scale)
        return self.see(run, "", out)

    def _choose(self, scores: Tensor) -> Tensor:
        gear = self.gear
        if gear.groups > 1:
            grouped = scores.reshape(*scores.shape[:-1], gear.groups, -1)
            best = grouped.sort(-1, descending=True).values
            worth = best[..., :2].sum(-1) if gear.group_score == "top2" else best[..., 0]
            kept = _best(worth, gear.groups_kept)
            shut = torch.ones_like(worth, dtype=torch.bool).scatter(-1, kept, False)
            scores = grouped.masked_fill(shut[..., None], -torch.inf).flatten(-2)
        return _best(scores, gear.used)


def _best(values: Tensor, count: int) -> Tensor:
    """Where the largest are; of equal ones the first."""
    return torch.sort(values, dim=-1, descending=True, stable=True).indices[..., :count]


@module_for(Experts)
class ExpertsModule(GearModule):
    """The chosen experts' outputs by weight, and the shared expert's."""

    def forward(self, x: Tensor, run: Run) -> Tensor:
        """[B, t, dim] -> the same."""
        weights = self.router(x, run)
        flat, table = x.flatten(0, 1), weights.flatten(0, 1)
        out = torch.zeros_like(flat)
        for number in torch.nonzero((table != 0).any(0)).flatten().tolist():
            rows = torch.nonzero(table[:, number]).flatten()
            y = self.experts[number](flat[rows][None], run)[0]
            out = out.index_add(0, rows, (table[rows, number, None] * y).to(out.dtype))
        out = out.reshape(x.shape)
        shared: Any = self.part("shared")
        return self.see(run, "", out if shared is None else out + shared(x, run))
