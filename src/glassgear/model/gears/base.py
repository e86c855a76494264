"""What all gears have in common, and the walk over a tree of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import ClassVar, Literal

__all__ = ["Activation", "Gear", "Shape", "tensors", "walk"]

Shape = tuple[int, ...]
Activation = Literal["silu", "gelu", "gelu_tanh", "relu", "identity"]


@dataclass(frozen=True)
class Gear:
    """A node of the tree. Its fields that are gears are its parts, named by the field."""

    label: ClassVar[str] = ""  # the name a part takes where its place alone doesn't give one

    @property
    def parts(self) -> dict[str, Gear]:
        """The gears inside this one, by the name that enters their path, in order of use."""
        return {f.name: value for f in fields(self) if isinstance(value := getattr(self, f.name), Gear)}

    @property
    def tensors(self) -> dict[str, Shape]:
        """The parameters this gear holds itself: name -> shape."""
        return {}

    def _repr_html_(self) -> str:
        """For notebooks: the tree of its parts."""
        from glassgear.model.display import gear_html

        return gear_html(self)


def walk(gear: Gear, path: str = "") -> Iterator[tuple[str, Gear]]:
    """Yield every gear below `gear` with its path, in the order in which a token meets them."""
    yield path, gear
    for name, part in gear.parts.items():
        yield from walk(part, f"{path}.{name}" if path else name)


def tensors(gear: Gear) -> dict[str, Shape]:
    """Every parameter tensor below `gear`: path such as `blocks.0.ffn.up.weight` -> shape."""
    return {
        f"{path}.{name}" if path else name: shape
        for path, part in walk(gear)
        for name, shape in part.tensors.items()
    }
