"""The outline of a tree: what is drawn and listed, with everything that occurs again told once.

In: a ledger. Out: nodes, one for all blocks (or experts) of a gear that are alike and stored alike,
wherever among their neighbours they stand. A model of 60 blocks of 256 experts has some thirty nodes.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from math import prod

from glassgear.model.gears import Block, Gear, Shape
from glassgear.model.ledger import Count, Counts, Ledger

__all__ = ["Node", "numbers", "outline"]


@dataclass(frozen=True)
class Node:
    """A gear, or several that are alike.

    Attributes:
        names: each one's name among its neighbours: `blocks.0`, `blocks.1`, ...
        path: of the first.
        gear: what each of them is.
        tensors: what each holds itself: name -> shape.
        types: how these are stored, without repetition.
        count: of one of them.
        nbytes: of one of them.
        times: how many there are in the whole model.
        parts: the nodes below.
    """

    names: tuple[str, ...]
    path: str
    gear: Gear
    tensors: dict[str, Shape]
    types: tuple[str, ...]
    count: Count
    nbytes: int
    times: int
    parts: tuple[Node, ...]

    def walk(self) -> Iterator[Node]:
        """This node and all below it, in the order of use."""
        yield self
        for part in self.parts:
            yield from part.walk()


def outline(counted: Ledger, *, every: bool = False) -> Node:
    """The outline of a model.

    Args:
        counted: its ledger.
        every: tell blocks one by one even where they are alike.
    """
    return _Outline(counted, every).node(counted.model, "", ("",), 1)


class _Outline:
    def __init__(self, counted: Ledger, every: bool) -> None:
        self._stored = counted.stored
        self._usual = counted.type_name, counted.bits
        self._whole = counted.nbytes
        self._every = every
        self._counts = Counts()
        self._known: dict[int, int] = {}  # where all is stored alike: gear -> kind
        self._kinds: dict[Hashable, int] = {}  # what makes gears alike -> its number
        self._nbytes: list[int] = []  # of each kind

    def node(self, gear: Gear, path: str, names: tuple[str, ...], times: int) -> Node:
        """The node of a gear at a path, which stands for `names`."""
        groups: dict[Hashable, list[str]] = {}
        below = gear.parts
        for name, part in below.items():
            single = "." not in name or (self._every and isinstance(part, Block))
            key = name if single else self._kind(part, _below(path, name))
            groups.setdefault(key, []).append(name)
        parts = tuple(
            self.node(below[found[0]], _below(path, found[0]), tuple(found), times * len(found))
            for found in groups.values()
        )
        types = dict.fromkeys(self._stored_as(_below(path, n), s)[0] for n, s in gear.tensors.items())
        nbytes = self._nbytes[self._kind(gear, path)] if path else self._whole
        return Node(
            names, path, gear, gear.tensors, tuple(types), self._counts.of(gear), nbytes, times, parts
        )

    def _stored_as(self, path: str, shape: Shape) -> tuple[str, int]:
        if self._stored is not None:
            return self._stored[path]
        kind, bits = self._usual
        return kind, int(prod(shape) * bits / 8)

    def _kind(self, gear: Gear, path: str) -> int:
        """A number that gears share if they are alike and stored alike."""
        if self._stored is None and id(gear) in self._known:
            return self._known[id(gear)]
        own = tuple(self._stored_as(_below(path, name), shape) for name, shape in gear.tensors.items())
        parts = tuple(self._kind(part, _below(path, name)) for name, part in gear.parts.items())
        kind = self._kinds.setdefault((gear, own, parts), len(self._kinds))
        if kind == len(self._nbytes):
            self._nbytes.append(sum(size for _, size in own) + sum(self._nbytes[part] for part in parts))
        self._known[id(gear)] = kind
        return kind


def _below(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def numbers(names: tuple[str, ...]) -> str:
    """`blocks.0` to `blocks.29` as `blocks.0-29`; with gaps, `blocks.0-4,6-10,…`."""
    stem, _, _ = names[0].rpartition(".")
    found = [int(name.rpartition(".")[2]) for name in names]
    runs: list[list[int]] = []
    for number in found:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    shown = [str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs]
    return f"{stem}.{','.join(shown[:2])}" + (",\u2026" if len(shown) > 2 else "")
