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


class Tables:
    """Rotation tables of a model, from position 0 on; made once, and anew when a text gets longer."""

    def __init__(self) -> None:
        self._held: dict[Rope, tuple[Tensor, Tensor]] = {}

    def upto(self, rope: Rope, length: int, device: torch.device) -> tuple[Tensor, Tensor]:
        """Cos and sin [length or more, dim/2], float32."""
        held = self._held.get(rope)
        if held is None or len(held[0]) < length or held[0].device != device:
            # What is made in inference mode can't be used for training afterwards.
            with torch.inference_mode(False):
                held = self._held[rope] = _table(rope, 1 << max(length - 1, 63).bit_length(), device)
        return held


def _table(rope: Rope, length: int, device: torch.device) -> tuple[Tensor, Tensor]:
    frequencies = torch.tensor(inverse_frequencies(rope), dtype=torch.float32, device=device)
    angle = torch.arange(length, device=device).float()[:, None] * frequencies
    factor = attention_factor(rope)
    return angle.cos() * factor, angle.sin() * factor


@dataclass
class Run:
    """One pass: positions [t] that all sequences of the batch share, and what goes with them.

    Attributes:
        positions: int64 [t], `first` and the following ones.
        types: token types [B, t].
        cache: of the one sequence that is continued.
        hook: sees values.
        first: the first position.
        tables: the model's rotation tables.
    """

    positions: Tensor
    types: Tensor | None = None
    cache: Cache | None = None
    hook: Hook | None = None
    first: int = 0
    tables: Tables = field(default_factory=Tables)

    def rotation(self, rope: Rope) -> tuple[Tensor, Tensor]:
        """Cos and sin [t, dim/2] of the positions, float32."""
        cos, sin = self.tables.upto(rope, self.first + len(self.positions), self.positions.device)
        rows = slice(self.first, self.first + len(self.positions))
        return cos[rows], sin[rows]

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
        if run.hook is None:
            return value
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
    if torch.compiler.is_compiling():  # the compiler fuses what is written plainly, and needs no help
        return _plainly_turned(x, cos, sin, rope.dim, rope.pairing)
    turned: Tensor = _Rotation.apply(x, cos, sin, rope.dim, rope.pairing)  # type: ignore[no-untyped-call]
    return turned


def _plainly_turned(x: Tensor, cos: Tensor, sin: Tensor, dim: int, pairing: str) -> Tensor:
    part = x[..., :dim]
    a, b = part.chunk(2, dim=-1) if pairing == "half" else (part[..., 0::2], part[..., 1::2])
    both = a * cos - b * sin, a * sin + b * cos
    out = torch.cat(both, dim=-1) if pairing == "half" else torch.stack(both, dim=-1).flatten(-2)
    return torch.cat([out, x[..., dim:]], dim=-1) if dim < x.shape[-1] else out


class _Rotation(torch.autograd.Function):
    """A rotation, whose gradient is the rotation back: no table of zeros is made for the slices."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, cos: Tensor, sin: Tensor, dim: int, pairing: str) -> Tensor:
        """[.., t, 1 or heads, head_dim] -> the same."""
        ctx.save_for_backward(cos, sin)
        ctx.dim, ctx.pairing = dim, pairing
        return _turned(x, cos, sin, dim, pairing)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        """The transposed matrix of a turn (times a factor) is the turn back (times it)."""
        cos, sin = ctx.saved_tensors
        return _turned(grad, cos, -sin, ctx.dim, ctx.pairing), None, None, None, None


def _turned(x: Tensor, cos: Tensor, sin: Tensor, dim: int, pairing: str) -> Tensor:
    out = torch.empty_like(x, memory_format=torch.contiguous_format)
    halves = pairing == "half"
    for target, given, other, sign in ((0, 0, 1, -1.0), (1, 1, 0, 1.0)):
        part, own, its = (
            t[..., n * dim // 2 : (n + 1) * dim // 2] if halves else t[..., n:dim:2]
            for t, n in ((out, target), (x, given), (x, other))
        )
        torch.mul(own, cos, out=part).addcmul_(its, sin, value=sign)
    if dim < x.shape[-1]:
        out[..., dim:] = x[..., dim:]
    return out
