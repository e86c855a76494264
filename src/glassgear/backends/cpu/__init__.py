"""The fast backend: the same gears at the speed of the machine, in Python and Numba.

`machine.py` runs batch steps; `program/` turns a tree of gears into steps; `pack.py` and
`layouts.py` lay weights out for the kernels; `kernels/` holds what is compiled.
"""

from glassgear.backends.cpu.machine import CPU

__all__ = ["CPU"]
