"""What a run does differently from its model: zeroed values, other activations.

A value is zeroed by the backend's ordinary hook. Another activation is another tree over the same
weights, and so another program.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar, cast, get_args

import numpy as np
from numpy.typing import NDArray

from glassgear.backends.base import Hook
from glassgear.errors import SettingError
from glassgear.model.gears import (
    FFN,
    Activation,
    Block,
    Bottleneck,
    Experts,
    GatedFFN,
    Gear,
    Model,
    Sublayer,
    walk,
)
from glassgear.trace.unknown import unknown_path

__all__ = ["ACTIVATIONS", "Activate", "Change", "Zero", "Zeroing", "hook_of", "tree_with"]

Floats = NDArray[np.float32]
G = TypeVar("G", bound=Gear)
ACTIVATIONS: tuple[str, ...] = get_args(Activation)
RESIDUAL = "_residual"


@dataclass(frozen=True)
class Zero:
    """A value that becomes zero.

    Attributes:
        path: of a value; of a block: what its steps add to the stream; of a residual sum
            (`blocks.3.attention_residual`): what came past the step, so that its output alone goes on.
        head: of which head alone, or None.
    """

    path: str
    head: int | None = None


@dataclass(frozen=True)
class Activate:
    """Another activation for a feed-forward network, or for all of them below a path ("": everywhere)."""

    path: str
    to: str


Change = Zero | Activate


def tree_with(model: Model, changes: Iterable[Change]) -> Model:
    """The tree with its activations exchanged; the model itself if none is.

    Raises:
        SettingError: no such activation, or no feed-forward network at the path; near ones are named.
    """
    for change in changes:
        if isinstance(change, Activate):
            if change.to not in ACTIVATIONS:
                raise SettingError(
                    f"no activation is called {change.to!r}: choose one of {', '.join(ACTIVATIONS)}"
                )
            model = _activated(model, change)
    return model


def _activated(model: Model, change: Activate) -> Model:
    networks = [path for path, gear in walk(model) if isinstance(gear, FFN | GatedFFN | Experts)]
    chosen = [path for path in networks if not change.path or _below(path, change.path)]
    if not chosen:
        raise unknown_path(change.path, networks, "there is no feed-forward network at")
    to, paths = cast(Activation, change.to), frozenset(chosen)
    blocks = tuple(_in_block(block, f"blocks.{i}", paths, to) for i, block in enumerate(model.blocks))
    return replace(model, blocks=blocks)


def _below(path: str, above: str) -> bool:
    return path == above or path.startswith(f"{above}.")


def _in_block(gear: G, path: str, paths: frozenset[str], to: Activation) -> G:
    """A block, or a bottleneck, with the networks at `paths` changed."""
    assert isinstance(gear, Block | Bottleneck)
    steps = tuple(
        replace(step, gear=_in_step(step.gear, f"{path}.{step.step}", paths, to)) for step in gear.steps
    )
    return cast(G, replace(gear, steps=steps))


def _in_step(gear: Sublayer, path: str, paths: frozenset[str], to: Activation) -> Sublayer:
    if isinstance(gear, Bottleneck):
        return _in_block(gear, path, paths, to)
    if path not in paths:
        return gear
    if isinstance(gear, Experts):
        shared = None if gear.shared is None else replace(gear.shared, activation=to)
        return replace(gear, expert=replace(gear.expert, activation=to), shared=shared)
    return replace(gear, activation=to) if isinstance(gear, FFN | GatedFFN) else gear


@dataclass(frozen=True, eq=False)
class Zeroing:
    """What a run sets to zero; called, it makes a hook for one pass of the model at a time.

    Attributes:
        zeros: path of a value -> the heads that become zero; None among them: all of it.
        cuts: path of a residual sum -> path of what is added there, which alone goes on.
        axes: path of each value -> names of its axes.
    """

    zeros: Mapping[str, frozenset[int | None]]
    cuts: Mapping[str, str]
    axes: Mapping[str, tuple[str, ...]]

    def __call__(self) -> Hook:
        """A hook."""
        return _Hook(self).hook

    def changes(self, path: str) -> bool:
        """Whether anything of a value is another than its gear computes."""
        return path in self.zeros or path in self.cuts

    def zeroed(self, path: str, index: Sequence[int]) -> bool:
        """Whether a number of a token's value is set to zero.

        Args:
            path: of the value.
            index: of the number, without the token.
        """
        heads = self.zeros.get(path, frozenset())
        return None in heads or (bool(heads) and self._head(path, index) in heads)

    def _head(self, path: str, index: Sequence[int]) -> int:
        return index[[name for name in self.axes[path] if name != "token"].index("head")]


def hook_of(model: Model, known: Mapping[str, tuple[str, ...]], changes: Sequence[Change]) -> Zeroing | None:
    """What zeroes values; None: nothing is zeroed.

    Args:
        model: the tree.
        known: path of each value -> names of its axes.
        changes: those that aren't `Zero` are left to `tree_with`.

    Raises:
        SettingError: no such value or head; near paths, or the heads that there are, are named.
    """
    zeros: dict[str, set[int | None]] = {}
    cuts: dict[str, str] = {}
    steps = _steps(model)
    for change in changes:
        if not isinstance(change, Zero):
            continue
        block = re.fullmatch(r"blocks\.\d+", change.path)
        if change.path in steps and change.path in known and change.head is None:
            cuts[change.path] = steps[change.path]
        elif block and change.head is None and change.path in known:
            for residual, added in steps.items():
                if residual.rpartition(".")[0] == change.path:
                    zeros.setdefault(added, set()).add(None)
        else:
            path = _value(change, known, model)
            zeros.setdefault(path, set()).add(change.head)
    if not zeros and not cuts:
        return None
    return Zeroing({path: frozenset(heads) for path, heads in zeros.items()}, cuts, known)


def _steps(model: Model) -> dict[str, str]:
    """Path of each residual sum -> path of what is added there."""
    found = {}
    for path, gear in walk(model):
        if isinstance(gear, Block | Bottleneck):
            for step in gear.steps:
                name = f"{path}.{step.step}"
                found[name + RESIDUAL] = name if step.post_norm is None else f"{name}_post_norm"
    return found


def _value(change: Zero, known: Mapping[str, tuple[str, ...]], model: Model) -> str:
    path = change.path
    if change.head is None:
        if path not in known:
            raise unknown_path(path, [*known, *_steps(model)], "there is no value called")
        return path
    if path in known and "head" not in known[path] and f"{path}.mixed" in known:
        path = f"{path}.mixed"
    if path not in known:
        raise unknown_path(path, list(known), "there is no value called")
    if "head" not in known[path]:
        raise SettingError(f"{path} has no heads: {', '.join(known[path])} are its axes")
    count = _heads(model, path)
    if count is not None and not 0 <= change.head < count:
        raise SettingError(f"{path} has the heads 0 to {count - 1}, not {change.head}")
    return path


def _heads(model: Model, path: str) -> int | None:
    """Heads of a value inside an attention gear: keys and values may have fewer than queries."""
    gear = dict(walk(model)).get(path.rpartition(".")[0])
    few = path.rpartition(".")[2] in ("key", "value", "key_norm", "key_rotated")
    count: int | None = getattr(gear, "kv_heads" if few else "heads", None)
    return count


@dataclass(eq=False)
class _Hook:
    """A hook and what it remembers within a pass: what was last added to the stream."""

    zeroing: Zeroing
    seen: dict[str, Floats] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.added = {path: residual for residual, path in self.zeroing.cuts.items()}

    def hook(self, path: str, value: Floats) -> Floats | None:
        """The value with zeros in it, or what a cut sum is; None: as it was."""
        out: Floats | None = None
        if path in self.zeroing.cuts:
            out = self.seen.pop(path)
        if path in self.zeroing.zeros:
            out = (value if out is None else out).copy()
            for head in self.zeroing.zeros[path]:
                here = _rows(self.zeroing.axes[path], head)
                out[here] = _zero(path, out[here])
        if path in self.added:
            self.seen[self.added[path]] = np.array(value if out is None else out, np.float32)
        return out


def _zero(path: str, value: Floats) -> Floats:
    """Zeros; the mask of scores stays, or tokens would see later ones."""
    if path.rpartition(".")[2] != "scores":
        return np.zeros_like(value)
    return np.where(np.isneginf(value), value, np.float32(0))


def _rows(axes: tuple[str, ...], head: int | None) -> tuple[slice | int, ...]:
    if head is None:
        return (slice(None),)
    return (slice(None),) * axes.index("head") + (head,)
