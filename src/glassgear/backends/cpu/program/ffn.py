"""Feed-forward networks, plain and gated."""

from __future__ import annotations

from glassgear.backends.cpu.layouts import BLOCK, PANEL
from glassgear.backends.cpu.program.walk import Input, Target, Walk, activate, finish, linear, read
from glassgear.backends.cpu.values import Matrix, Source, Units, Value
from glassgear.model.gears import FFN, GatedFFN

__all__ = ["entries", "ffn", "network", "units_of"]


def entries(gear: FFN | GatedFFN) -> list[str]:
    """The matrices that read the input: in the plain form `up` alone."""
    return ["gate", "up"] if isinstance(gear, GatedFFN) else ["up"]


def units_of(hidden: int) -> Units:
    """How the columns inside are shared out: by 32."""
    return Units(BLOCK // PANEL, 0, -(-hidden // BLOCK))


def ffn(at: Walk, path: str, gear: FFN | GatedFFN, x: Input, target: Target | None) -> Value:
    """down(activation(up(x))), or down(activation(gate(x)) * up(x))."""
    return network(at, path, gear, read(at, x, at.matrices(path, entries(gear))), target)


def network(
    at: Walk, path: str, gear: FFN | GatedFFN, x: Source, target: Target | None, name: str = "branch"
) -> Value:
    """The same, of an input in the form that the matrices read; `name`: of the result's buffer."""
    hidden = gear.up.outputs
    rows, biases = [at.buffers.rows(part, hidden) for part in entries(gear)], []
    fitting = hidden % BLOCK == 0
    for part, to in zip(entries(gear), rows, strict=True):
        linear(at, f"{path}.{part}", x, to, units_of(hidden) if fitting else None, bias=at.seeing)
        at.mark(f"{path}.{part}", to)
        biases.append(at.weights.vectors.get(f"{path}.{part}.bias", 0))
    if not fitting:
        at.builder.barrier()
    first, second = rows if len(rows) == 2 else (rows[0], None)
    down: Matrix = at.weights.matrices[f"{path}.down"]
    both = (biases[0], biases[1] if second else 0)
    product = activate(at, path, gear.activation, first, second, down, both)
    return finish(at, f"{path}.down", product, target, name)
