"""A tree of gears as an `nn.Module`: ids [B, t] to logits, hidden states or pooled vectors."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor
from torch.nn import functional

from glassgear.backends.base import Hook, Output
from glassgear.backends.torch import attention, norms  # noqa: F401  # they enter their modules in the table
from glassgear.backends.torch.base import Cache, GearModule, Run, Tables, module_for
from glassgear.backends.torch.ffn import ACTIVATIONS
from glassgear.model.gears import (
    Block,
    Bottleneck,
    Embed,
    Head,
    LearnedPositions,
    Model,
    Neighbours,
    Pooler,
    Residual,
    TokenTypes,
    Transform,
)
from glassgear.weights.tensor import StoredTensor

__all__ = ["ModelModule", "module_of"]


@module_for(Embed, LearnedPositions, TokenTypes)
class TableModule(GearModule):
    """Rows of a table."""

    def __init__(self, gear: Embed | LearnedPositions | TokenTypes, path: str) -> None:
        super().__init__(gear, path)
        self.parameter("weight", *gear.tensors["weight"])
        self.scale = gear.scale if isinstance(gear, Embed) else 1.0
        self.offset = gear.offset if isinstance(gear, LearnedPositions) else 0

    def forward(self, index: Tensor, run: Run) -> Tensor:
        """[B, t] -> [B, t, dim]."""
        rows = functional.embedding(index + self.offset, self.weight)
        return self.see(run, "", rows if self.scale == 1 else rows * self.scale)


@module_for(Neighbours)
class NeighboursModule(GearModule):
    """mix([next, own, previous])."""

    def forward(self, x: Tensor, run: Run) -> Tensor:
        """[B, t, dim] -> [B, t, outputs]."""
        later = functional.pad(x[:, 1:], (0, 0, 0, 1))
        earlier = functional.pad(x[:, :-1], (0, 0, 1, 0))
        return self.see(run, "", self.mix(torch.cat([later, x, earlier], dim=2), run))


@module_for(Block)
class BlockModule(GearModule):
    """One layer."""

    def __init__(self, gear: Block, path: str) -> None:
        super().__init__(gear, path)
        self.steps = gear.steps

    def forward(self, x: Tensor, run: Run) -> Tensor:
        """[B, t, dim] -> the same."""
        for step in self.steps:
            x = _residual(self, step, x, run)
        return self.see(run, "", x)


def _residual(
    inside: GearModule, step: Residual, x: Tensor, run: Run, inputs: dict[str, Tensor] | None = None
) -> Tensor:
    """sum_norm(x + post_norm(gear(norm(x)))), each norm where there is one."""
    name = step.step
    y = x if step.norm is None else inside.part(f"{name}_norm")(x, run)
    sublayer = inside.part(name)
    y = sublayer(y, run) if inputs is None else sublayer(y, run, inputs)
    if step.post_norm is not None:
        y = inside.part(f"{name}_post_norm")(y, run)
    if step.skip:
        y = inside.see(run, f"{name}_residual", x + y)
    return y if step.sum_norm is None else inside.part(f"{name}_sum_norm")(y, run)


@module_for(Bottleneck)
class BottleneckModule(GearModule):
    """Sublayers on a narrower stream."""

    def __init__(self, gear: Bottleneck, path: str) -> None:
        super().__init__(gear, path)
        self.steps = gear.steps

    def forward(self, x: Tensor, run: Run) -> Tensor:
        """[B, t, dim] -> the same."""
        y = self.narrow(x, run)
        if self.part("narrow_norm") is not None:
            y = self.narrow_norm(y, run)
        shared = self.shared(x, run)
        if self.part("shared_norm") is not None:
            shared = self.shared_norm(shared, run)
        inputs = {"query": shared, "key": shared, "value": x}
        for step in self.steps:
            y = _residual(self, step, y, run, inputs if step.gear.label == "attention" else None)
        return self.see(run, "", self.widen(y, run))


@module_for(Transform)
class TransformModule(GearModule):
    """norm(activation(dense(x)))."""

    def __init__(self, gear: Transform, path: str) -> None:
        super().__init__(gear, path)
        self.activation = ACTIVATIONS[gear.activation]

    def forward(self, x: Tensor, run: Run) -> Tensor:
        """[B, t, dim] -> the same."""
        bent = self.see(run, "activated", self.activation(self.dense(x, run)))
        return self.see(run, "", self.norm(bent, run))


@module_for(Pooler)
class PoolerModule(GearModule):
    """tanh(dense(x))."""

    def forward(self, x: Tensor, run: Run) -> Tensor:
        """[B, 1, dim] -> the same."""
        return self.see(run, "", torch.tanh(self.dense(x, run)))


@module_for(Head)
class HeadModule(GearModule):
    """Logits, by a matrix of its own or by the embedding's table."""

    def __init__(self, gear: Head, path: str) -> None:
        super().__init__(gear, path)
        self.gear = gear
        for name, shape in gear.tensors.items():
            self.parameter(name, *shape)

    def forward(self, x: Tensor, run: Run, table: Tensor) -> Tensor:
        """[B, t, dim] -> [B, t, vocab]; `table`: the embedding's."""
        gear = self.gear
        weight = table if gear.tied else self.weight
        logits = functional.linear(x[..., : gear.dim - gear.extra], weight, self.part("bias"))
        if gear.extra:
            logits = logits + functional.linear(x[..., gear.dim - gear.extra :], self.extra)
        if gear.cap:
            logits = gear.cap * torch.tanh(logits / gear.cap)
        return self.see(run, "", logits)


class ModelModule(GearModule):
    """The whole machine. A tied head has no parameter of its own.

    Args:
        model: the tree.
    """

    def __init__(self, model: Model) -> None:
        super().__init__(model, "")
        self.gears = model
        self._tables = Tables()

    def forward(
        self,
        ids: Tensor,
        types: Tensor | None = None,
        *,
        cache: Cache | None = None,
        hook: Hook | None = None,
        output: Output = "logits",
        wanted: Tensor | None = None,
    ) -> Tensor:
        """Run sequences of one length.

        Args:
            ids: int64 [B, t].
            types: token types [B, t], for models that have them; None: all 0.
            cache: of the one sequence that these tokens continue, or None.
            hook: sees values, of one sequence.
            output: see `backends.base.Backend.step`.
            wanted: rows that give output; None: all.

        Returns:
            [B, rows, vocab] or [B, rows, dim].
        """
        first = cache.length if cache is not None else 0
        positions = torch.arange(first, first + ids.shape[1], device=ids.device)
        run = Run(positions, types, cache, hook, first, self._tables)
        x = self._input(ids, run)
        for block in self.part("blocks") or ():
            x = block(x, run)
        if cache is not None:
            cache.length += ids.shape[1]
        if wanted is not None:
            x = x[:, wanted]
        if self.part("norm") is not None:
            x = self.norm(x, run)
        if output == "pooled":
            x = self.pooler(x, run)
        elif output == "logits":
            x = x if self.part("transform") is None else self.transform(x, run)
            x = self.head(x, run, self.embed.weight)
        return x

    def _input(self, ids: Tensor, run: Run) -> Tensor:
        x: Tensor = self.embed(ids, run)
        if self.part("neighbours") is not None:
            x = self.neighbours(x, run)
        if self.part("positions") is not None:
            x = x + self.positions(run.positions[None], run)
        if self.part("token_types") is not None:
            x = x + self.token_types(torch.zeros_like(ids) if run.types is None else run.types, run)
        return x if self.part("embed_norm") is None else self.embed_norm(x, run)


def module_of(model: Model, tensors: Mapping[str, StoredTensor]) -> ModelModule:
    """A module with a checkpoint's weights, float32.

    Args:
        model: the tree.
        tensors: gear path -> stored tensor.
    """
    made = ModelModule(model)
    named = dict(made.named_parameters()) | dict(made.named_buffers())
    with torch.no_grad():
        for path, target in named.items():
            target.copy_(torch.from_numpy(tensors[path].float32().copy()))
    return made
