"""The definition: every gear in NumPy float32, one file each, written as its formula.

Each gear file has `run(gear, x, at)`: the gear, its input rows [T, ...], and its place in the
running model (`scope.Scope`: weights, positions, cache, hook). `machine.py` puts them together.
Everything faster is compared with this.
"""

from glassgear.backends.reference.machine import Reference

__all__ = ["Reference"]
