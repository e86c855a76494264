"""What enters the first block: embeddings, and what is added to them.

Rows of tables are looked up by `machine.py`; here are the sums, and what a hook may see of them.
"""

from __future__ import annotations

from glassgear.backends.cpu.program.walk import Input, Walk, add_up, linear, normed_in_place, read
from glassgear.backends.cpu.values import Value

__all__ = ["enter"]


def enter(at: Walk) -> None:
    """Embeddings, through their neighbours, plus positions, plus token types, normed."""
    model, x = at.model, at.buffers.x
    at.mark("embed", at.buffers.embedded)
    if model.neighbours is not None:
        _neighbours(at, at.buffers.embedded, x)
    for name, gear in (("positions", model.positions), ("token_types", model.token_types)):
        if gear is not None:
            rows = at.buffers.rows(name, gear.dim)
            at.mark(name, rows)
            add_up(at, rows, x)
    if model.embed_norm is not None:
        normed_in_place(at, "embed_norm", x)


def _neighbours(at: Walk, embedded: Value, x: Value) -> None:
    beside = at.buffers.rows("neighbours", 3 * embedded.width)
    at.builder.neighbours(embedded, beside)
    source = read(at, Input(beside), at.matrices("neighbours", ["mix"]), name="neighbours")
    linear(at, "neighbours.mix", source, x)
    at.builder.barrier()
    at.mark("neighbours.mix", x)
    at.mark("neighbours", x)
