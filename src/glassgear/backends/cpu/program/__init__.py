"""A tree of gears, flattened into the steps that run it.

Two programs come from the same walk. The fast one fuses: norms write int8 codes, matrix products
add to the residual stream, activations take biases, multiply and encode. The other, for hooks,
runs the same kernels with every value of the reference backend in a buffer of its own between two
steps, and `marks` say which. What a kernel computes doesn't depend on which of its outputs are
written, so both give the same bits.

One file for each kind of gear; `walk.py` holds what they share, `known.py` what they understand,
`weights.py` what they read.
"""

from __future__ import annotations

from glassgear.backends.base import Output
from glassgear.backends.cpu.program.block import block
from glassgear.backends.cpu.program.head import tail
from glassgear.backends.cpu.program.inputs import enter
from glassgear.backends.cpu.program.known import check_known
from glassgear.backends.cpu.program.walk import Buffers, Inner, Mark, Nest, Walk
from glassgear.backends.cpu.program.weights import Weights, cache_shapes, matrices_of, weights_of
from glassgear.backends.cpu.values import Value

__all__ = [
    "Buffers",
    "Inner",
    "Mark",
    "Nest",
    "Walk",
    "Weights",
    "cache_shapes",
    "check_known",
    "flatten",
    "matrices_of",
    "weights_of",
]


def flatten(at: Walk, output: Output) -> Value | None:
    """Append the steps of a model to `at.builder`, and what can be seen to `at.marks`.

    Returns:
        Where the output of the wanted rows is when they are done; None: where logits go.
    """
    enter(at)
    for i, layer in enumerate(at.model.blocks):
        block(at, f"blocks.{i}", layer)
    return tail(at, output)
