"""What all modules have in common: a gear, a path, parts, and the run that passes through them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import Tensor, nn

from glassgear.backends.base import Hook
from glassgear.model.gears import Gear, Linear, Rope
from glassgear.model.rope import attention_factor, inverse_frequencies

__all__ = ["Cache", "GearModule", "Run", "build", "module_for", "rotate"]


class Cache:
    """Keys and values, or latents, of one sequence: gear path -> tensors [1, heads, S, width]."""

    def __init__(self) -> None:
        self.length = 0
        self._held: dict[str, tuple[Tensor, ...]] = {}

    def extend(self, path: str, *new: Tensor) -> tuple[Tensor, ...]:
        """Put tensors [1, heads, t, width] behind what is there; the whole of each."""
        held = self._held.get(path)
        if held is not None:
            # What lies past `length` belongs to a step that was called off or taken back.
            new = tuple(torch.cat([h[:, :, : self.length], n], dim=2) for h, n in zip(held, new, strict=True))
        self._held[path] = new
        return new


@dataclass
class Run:
    """One pass: positions [t] that all sequences of the batch share, and what goes with them."""

    positions: Tensor
    types: Tensor | None = None
    cache: Cache | None = None
    hook: Hook | None = None
    _rotations: dict[Rope, tuple[Tensor, Tensor]] = field(default_factory=dict)

    def rotation(self, rope: Rope) -> tuple[Tensor, Tensor]:
        """Cos and sin [t, dim/2] of the positions, float32."""
        if rope not in self._rotations:
            where = self.positions
            frequencies = torch.tensor(inverse_frequencies(rope), dtype=torch.float32, device=where.device)
            angle = where.float()[:, None] * frequencies
            factor = attention_factor(rope)
            self._rotations[rope] = (angle.cos() * factor, angle.sin() * factor)
        return self._rotations[rope]

    def see(self, path: str, value: Tensor, shape: tuple[int, ...] = (-1,)) -> Tensor:
        """Show a value [1, t, ...] to the hook as [t, *shape]; its answer takes the value's place."""
        if self.hook is None:
            return value
        rows = value.detach().float().cpu().numpy()
        changed = self.hook(path, rows.reshape(value.shape[1], *shape))
        if changed is None:
            return value
        return torch.as_tensor(changed, dtype=value.dtype, device=value.device).reshape(value.shape)


class GearModule(nn.Module):
    """A gear with its parts as submodules, so that parameters are called by their gear path.

    Args:
        gear: what it computes.
        path: where it stands.
    """

    def __init__(self, gear: Gear, path: str) -> None:
        super().__init__()
        self.path = path
        for name, part in gear.parts.items():
            if isinstance(part, Rope):
                continue
            full = f"{path}.{name}" if path else name
            many, _, number = name.partition(".")
            if number:
                if not hasattr(self, many):
                    setattr(self, many, nn.ModuleList())
                getattr(self, many).append(build(part, full))
            else:
                setattr(self, name, build(part, full))

    if TYPE_CHECKING:  # parts and parameters are looked up by name

        def __getattr__(self, name: str) -> Any: ...

    def parameter(self, name: str, *shape: int) -> None:
        """A trainable tensor of this gear."""
        setattr(self, name, nn.Parameter(torch.empty(shape)))

    def part(self, name: str) -> Any:
        """A submodule, or None."""
        return getattr(self, name, None)

    def see(self, run: Run, name: str, value: Tensor, shape: tuple[int, ...] = (-1,)) -> Tensor:
        """Show a value of this gear."""
        return run.see(f"{self.path}.{name}" if name else self.path, value, shape)


class LinearModule(GearModule):
    """y = x W^T (+ b)."""

    def __init__(self, gear: Linear, path: str) -> None:
        super().__init__(gear, path)
        self.parameter("weight", gear.outputs, gear.inputs)
        self.bias: nn.Parameter | None = None
        if gear.bias:
            self.parameter("bias", gear.outputs)

    def forward(self, x: Tensor, run: Run) -> Tensor:
        """[..., inputs] -> [..., outputs]."""
        y = nn.functional.linear(x, self.weight, self.bias)
        return self.see(run, "", y) if x.dim() == 3 else y


_MODULES: dict[type[Gear], Callable[[Any, str], nn.Module]] = {Linear: LinearModule}
M = TypeVar("M", bound=nn.Module)


def module_for(*kinds: type[Gear]) -> Callable[[type[M]], type[M]]:
    """Say which gears a module class runs."""

    def note(made: type[M]) -> type[M]:
        for kind in kinds:
            _MODULES[kind] = made
        return made

    return note


def build(gear: Gear, path: str) -> nn.Module:
    """The module of a gear."""
    return _MODULES[type(gear)](gear, path)


def rotate(rope: Rope, x: Tensor, run: Run) -> Tensor:
    """Turn the first `rope.dim` channels of every head: [B, t, heads, head_dim] -> the same."""
    cos, sin = (table[:, None, :].to(x.dtype) for table in run.rotation(rope))
    turned, rest = x[..., : rope.dim], x[..., rope.dim :]
    if rope.pairing == "half":
        a, b = turned.chunk(2, dim=-1)
        out = torch.cat([a * cos - b * sin, a * sin + b * cos], dim=-1)
    else:
        a, b = turned[..., 0::2], turned[..., 1::2]
        out = torch.stack([a * cos - b * sin, a * sin + b * cos], dim=-1).flatten(-2)
    return torch.cat([out, rest], dim=-1) if rest.shape[-1] else out
