"""Models of one's own: a few tables of plain values become a tree of gears.

In: what a TOML file says, as dictionaries. Out: a `Model`, or an error that names the key, what was
found and what is possible. docs/designs.md is the reference of the format.

`sections.py` reads values and keeps count of keys, `gears.py` makes one gear from one table,
`build.py` puts a model together.
"""

from __future__ import annotations

from glassgear.model.designs.build import design

__all__ = ["design"]
