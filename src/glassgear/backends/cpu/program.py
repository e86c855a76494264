"""A tree of gears, flattened into the steps that run it.

Two programs come from the same walk. The fast one fuses: norms write int8 codes, matrix products
add to the residual stream, activations multiply and encode. The other, for hooks, runs the same
kernels with every value of the reference backend in a buffer of its own between two steps, and
`marks` say which. What a kernel computes doesn't depend on which of its outputs are written, so
both give the same bits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from glassgear.backends.cpu.builder import Builder, Matrix, Memory, Source, Units, Value, is_float
from glassgear.backends.cpu.cache import LayerCache
from glassgear.backends.cpu.layouts import BLOCK, PANEL
from glassgear.model.gears import Attention, GatedFFN, Linear, Model, Residual, RMSNorm, Rope, walk

__all__ = ["Buffers", "Mark", "Weights", "flatten", "linears"]


@dataclass(frozen=True)
class Mark:
    """A value that can be seen when `steps` steps are done.

    Attributes:
        steps: how many.
        path: its name.
        value: where it is; `None` for logits and for scores, which have places of their own.
        shape: of a row.
        kind: `rows`, `wanted` (rows whose logits are asked for), `logits`, or `scores`.
        layer: number of the attention gear, for scores.
    """

    steps: int
    path: str
    value: Value | None
    shape: tuple[int, ...]
    kind: str = "rows"
    layer: int = 0


@dataclass(frozen=True)
class Weights:
    """Packed matrices by gear path, and addresses of vectors by path of the tensor."""

    matrices: Mapping[str, Matrix]
    vectors: Mapping[str, int]


def linears(model: Model) -> list[str]:
    """Paths of everything that is a matrix product, in order of use; the head last."""
    return [path for path, gear in walk(model) if isinstance(gear, Linear)] + ["head"]


class Buffers:
    """The values between steps, shared by all layers and by both programs."""

    def __init__(self, model: Model, memory: Memory) -> None:
        self._memory = memory
        self._made: dict[tuple[str, int], object] = {}
        self.x = memory.rows(model.embed.dim)

    def rows(self, name: str, width: int, private: bool = False) -> Value:
        """The buffer of this name and width."""
        key = (name, width)
        if key not in self._made:
            self._made[key] = self._memory.rows(width, private)
        made = self._made[key]
        assert isinstance(made, Value)
        return made

    def source(
        self, name: str, width: int, readers: Sequence[Matrix], private: bool, floats: bool = False
    ) -> Source:
        """What `readers` need of a value of this name: floats, codes, or both."""
        wants_floats = floats or any(is_float(m) for m in readers)
        wants_codes = any(not is_float(m) for m in readers)
        codes = None
        if wants_codes:
            key = (f"{name} codes", width)
            codes = self._made.setdefault(key, self._memory.codes(width, private))
        return Source(self.rows(name, width, private) if wants_floats else None, codes)  # type: ignore[arg-type]


@dataclass
class _Walk:
    """One flattening in progress."""

    model: Model
    builder: Builder
    weights: Weights
    buffers: Buffers
    layers: Sequence[LayerCache]
    half: bool
    ropes: list[Rope]
    seeing: bool
    marks: list[Mark] = field(default_factory=list)
    attention_gears: int = 0

    def mark(self, path: str, value: Value, shape: tuple[int, ...], kind: str = "rows") -> None:
        """Note that a value is complete now."""
        if self.seeing:
            self.marks.append(Mark(len(self.builder.steps), path, value, shape, kind))


def flatten(
    model: Model,
    builder: Builder,
    weights: Weights,
    buffers: Buffers,
    layers: Sequence[LayerCache],
    half: bool,
    ropes: list[Rope],
    seeing: bool,
) -> list[Mark]:
    """Append the steps of `model` to `builder`.

    Args:
        model: the tree.
        builder: where steps go.
        weights: packed.
        buffers: for the values between.
        layers: where each attention gear's keys and values lie.
        half: whether they are float16.
        ropes: distinct rotations; those of the model that are missing are appended.
        seeing: make the program for hooks.

    Returns:
        What can be seen, in order; empty for the fast program.
    """
    at = _Walk(model, builder, weights, buffers, layers, half, ropes, seeing)
    at.mark("embed", buffers.x, (model.embed.dim,))
    for i, block in enumerate(model.blocks):
        path = f"blocks.{i}"
        for residual in block.steps:
            _residual(at, path, residual)
        at.mark(path, buffers.x, (model.embed.dim,))
    _head(at)
    return at.marks


def _residual(at: _Walk, path: str, step: Residual) -> None:
    """X + gear(norm(x))."""
    label = step.gear.label
    inner = f"{path}.{label}"
    emit: Callable[..., None] = _attention if isinstance(step.gear, Attention) else _gated_ffn
    emit(at, inner, step.gear, step.norm, f"{inner}_norm")
    at.mark(f"{inner}_residual", at.buffers.x, (at.model.embed.dim,))


def _normed(at: _Walk, path: str, norm: RMSNorm, readers: Sequence[Matrix], *, last: bool = False) -> Source:
    """The normed residual stream, in the form that `readers` want."""
    name = "last" if last else "normed"
    private = not at.seeing
    to = at.buffers.source(name, norm.dim, readers, private=True, floats=at.seeing)
    weight = at.weights.vectors[f"{path}.weight"]
    if private:
        at.builder.norm(at.buffers.x, weight, norm.eps, to, wanted=last)
        return to
    assert to.floats is not None
    at.builder.norm(at.buffers.x, weight, norm.eps, Source(to.floats, None), wanted=last)
    at.mark(path, to.floats, (norm.dim,), "wanted" if last else "rows")
    if to.codes is not None:
        at.builder.quantize(to.floats, to.codes, wanted=last)
    return to


def _encoded(at: _Walk, x: Value, name: str, reader: Matrix) -> Source:
    """A buffer of floats, also as codes if `reader` wants them."""
    if is_float(reader):
        return Source(x, None)
    to = at.buffers.source(name, x.width, [reader], private=True)
    assert to.codes is not None
    at.builder.quantize(x, to.codes)
    return to


def _linear(at: _Walk, path: str, x: Source, to: Value, units: Units | None = None) -> bool:
    """W x (+ b) into a buffer. Returns whether work was shared out by `units`."""
    matrix = at.weights.matrices[path]
    whole = units is not None and matrix.rows % (units.size * PANEL) == 0
    shared = units if whole and units is not None else Units(1, 0, matrix.panels)
    at.builder.matmul(matrix, x, to, shared)
    bias = at.weights.vectors.get(f"{path}.bias")
    if bias is not None:
        at.builder.bias(bias, to, matrix.panels, shared)
    return whole


def _add_linear(at: _Walk, path: str, x: Source) -> None:
    """X += W input (+ b): the end of a residual branch."""
    matrix = at.weights.matrices[path]
    units = Units(1, 0, matrix.panels)
    has_bias = f"{path}.bias" in at.weights.vectors
    if not (at.seeing or has_bias):
        at.builder.matmul(matrix, x, at.buffers.x, units, add=True)
        at.builder.barrier()
        return
    out = at.buffers.rows("branch", matrix.rows)
    _linear(at, path, x, out)
    at.builder.barrier()
    at.mark(path, out, (matrix.rows,))
    at.mark(path.rpartition(".")[0], out, (matrix.rows,))
    at.builder.add(out, at.buffers.x)
    at.builder.barrier()


def _attention(at: _Walk, path: str, gear: Attention, norm: RMSNorm, norm_path: str) -> None:
    names = ("query", "key", "value")
    matrices = [at.weights.matrices[f"{path}.{name}"] for name in names]
    normed = _normed(at, norm_path, norm, matrices)
    heads = (gear.heads, gear.kv_heads, gear.kv_heads)
    total = sum(heads)
    firsts = (0, gear.heads, gear.heads + gear.kv_heads)
    values = [at.buffers.rows(name, n * gear.head_dim) for name, n in zip(names, heads, strict=True)]
    # A thread that has computed whole heads can turn and store them without waiting for others.
    panels = max(1, gear.head_dim // PANEL)
    fitting = gear.head_dim % PANEL == 0
    for name, value, first in zip(names, values, firsts, strict=True):
        units = Units(panels, first, total) if fitting else None
        _linear(at, f"{path}.{name}", normed, value, units)
    if not fitting:
        at.builder.barrier()
    for name, value in zip(names, values, strict=True):
        at.mark(f"{path}.{name}", value, (value.width,))
    q, k = _rotated(at, path, gear, values, firsts, total)
    layer = at.attention_gears
    at.attention_gears += 1
    place = at.layers[layer]
    at.builder.store("keys", k, place, at.half, Units(1, firsts[1], total))
    at.builder.store("values", values[2], place, at.half, Units(1, firsts[2], total))
    at.builder.barrier()
    mixed = at.buffers.rows("mixed", gear.heads * gear.head_dim)
    at.builder.attend(q, mixed, gear.heads // gear.kv_heads, gear.scale, place, at.half)
    at.builder.barrier()
    if at.seeing:
        at.marks.append(
            Mark(len(at.builder.steps), path, mixed, (gear.heads, gear.head_dim), "scores", layer)
        )
    at.mark(f"{path}.mixed", mixed, (gear.heads, gear.head_dim))
    output = at.weights.matrices[f"{path}.output"]
    _add_linear(at, f"{path}.output", _encoded(at, mixed, "mixed", output))


def _rotated(
    at: _Walk, path: str, gear: Attention, values: Sequence[Value], firsts: Sequence[int], total: int
) -> tuple[Value, Value]:
    """Queries and keys, turned if the gear has rotary positions."""
    q, k = values[:2]
    if gear.rope is None:
        return q, k
    if gear.rope not in at.ropes:
        at.ropes.append(gear.rope)
    rope = (gear.rope.dim, int(gear.rope.pairing == "interleaved"), at.ropes.index(gear.rope))
    out = []
    for name, value, first, heads in (("query", q, 0, gear.heads), ("key", k, firsts[1], gear.kv_heads)):
        to = at.buffers.rows(f"{name} rotated", value.width)
        at.builder.rotate(value, to, heads, gear.head_dim, rope, Units(1, first, total))
        at.mark(f"{path}.{name}_rotated", to, (heads, gear.head_dim))
        out.append(to)
    return out[0], out[1]


def _gated_ffn(at: _Walk, path: str, gear: GatedFFN, norm: RMSNorm, norm_path: str) -> None:
    gate, up, down = (at.weights.matrices[f"{path}.{name}"] for name in ("gate", "up", "down"))
    normed = _normed(at, norm_path, norm, [gate, up])
    hidden = gear.gate.outputs
    gate_rows, up_rows = at.buffers.rows("gate", hidden), at.buffers.rows("up", hidden)
    units = Units(BLOCK // PANEL, 0, -(-hidden // BLOCK))
    fitting = hidden % BLOCK == 0
    for name, rows in (("gate", gate_rows), ("up", up_rows)):
        _linear(at, f"{path}.{name}", normed, rows, units if fitting else None)
        at.mark(f"{path}.{name}", rows, (hidden,))
    if not fitting:
        at.builder.barrier()
    product = at.buffers.source("product", hidden, [down], private=False, floats=at.seeing)
    if at.seeing:
        _seen_product(at, path, gear, gate_rows, up_rows, product, units)
    else:
        at.builder.activate(gear.activation, gate_rows, up_rows, product, units)
        at.builder.barrier()
    _add_linear(at, f"{path}.down", product)


def _seen_product(
    at: _Walk, path: str, gear: GatedFFN, gate: Value, up: Value, product: Source, units: Units
) -> None:
    """activation(gate) * up in steps, each of which can be seen and changed."""
    alone, both = at.buffers.rows("activated", gate.width), product.floats
    assert both is not None
    at.builder.activate(gear.activation, gate, up, Source(None, None), units, alone)
    at.mark(f"{path}.activated", alone, (gate.width,))
    at.builder.multiply(alone, up, both)
    at.mark(f"{path}.product", both, (gate.width,))
    if product.codes is not None:
        at.builder.quantize(both, product.codes)


def _head(at: _Walk) -> None:
    matrix = at.weights.matrices["head"]
    normed = _normed(at, "norm", at.model.norm, [matrix], last=True)
    at.builder.matmul(matrix, normed, None, Units(1, 0, matrix.panels), wanted=True)
    if at.seeing:
        at.marks.append(Mark(len(at.builder.steps), "head", None, (at.model.head.vocab,), "logits"))
