"""The steps that programs are made of: one method for each kernel, which fills in its fields.

Which steps a model needs is decided in `program/`.
"""

from __future__ import annotations

import numpy as np

from glassgear.backends.cpu.cache import LayerCache
from glassgear.backends.cpu.fields import Step
from glassgear.backends.cpu.layouts import PANEL, QuantLayout
from glassgear.backends.cpu.memory import Memory
from glassgear.backends.cpu.steps import Fields, Steps
from glassgear.backends.cpu.values import Codes, Matrix, NormVectors, Source, Units, Value
from glassgear.model.gears import Router

__all__ = ["Builder", "float_bits"]


class Builder(Steps):
    """Appends steps.

    Args:
        memory: where buffers come from.
        kernels: which family computes products of codes.
        alone: every step ends with a meeting, so that values can be seen between steps.
    """

    def __init__(self, memory: Memory, kernels: str, alone: bool) -> None:
        super().__init__(memory, alone)
        self._wide = kernels == "avx512vnni"
        self._dot = kernels

    def beside(self, alone: bool = False) -> Builder:
        """A builder for steps that aren't a part of this program, but run inside of it."""
        return Builder(self.memory, self._dot, alone)

    def norm(
        self, x: Value, vectors: NormVectors, to: Source, *, add_to: Value | None = None,
        heads: Units | None = None, gather: bool = False,
    ) -> None:  # fmt: skip
        """A norm of rows, or of each head of them.

        Args:
            x: what is normed.
            vectors: of the norm.
            to: where the result goes; `x` itself may be it.
            add_to: rows that the result is added to, as far apart as those of `to`.
            heads: how heads are shared out, each as wide as the norm; None: whole rows.
            gather: of all rows of `x` take those whose output is wanted.
        """
        fields = {Step.INPUT: x.address, Step.INPUT_STRIDE: x.stride, Step.COLUMNS: vectors.width}
        fields |= {Step.WEIGHTS: vectors.weight, Step.C: vectors.bias, Step.B: vectors.kind}
        fields |= {Step.A: float_bits(vectors.eps), Step.F: int(gather), Step.D: int(heads is not None)}
        fields |= {Step.E: add_to.address if add_to else 0} | _target(to)
        if heads is not None:
            fields |= {Step.PANELS: x.width // vectors.width} | _shared_out(heads)
        self._step(("norms", "norm"), fields)
        if heads is None:
            self.barrier(2 if fields[Step.PRIVATE] else 1)

    def quantize(self, x: Value, to: Codes) -> None:
        """Floats to activation blocks."""
        fields = {Step.INPUT: x.address, Step.INPUT_STRIDE: x.stride, Step.COLUMNS: x.width}
        fields |= {Step.CODES: to.address, Step.PRIVATE: to.private}
        self._step(("rows", "quantize"), fields)
        self.barrier(2 if to.private else 1)

    def matmul(self, matrix: Matrix, x: Source, to: Value | None, units: Units, *, add: bool = False) -> None:
        """A matrix times rows; without `to`, logits."""
        fields = {Step.WEIGHTS: matrix.address, Step.COLUMNS: matrix.columns, Step.PANELS: matrix.panels}
        fields |= {Step.ADD: int(add)} | _shared_out(units)
        if to is not None:
            fields |= {Step.OUTPUT: to.address, Step.OUTPUT_STRIDE: to.stride}
        if isinstance(matrix.layout, QuantLayout):
            assert x.codes is not None
            fields |= {Step.INPUT: x.codes.address, Step.PRIVATE: x.codes.private}
            self._step(("matmul", "quant_matmul", matrix.layout.key, self._dot), fields)
            return
        assert x.floats is not None
        fields |= {Step.INPUT: x.floats.address, Step.INPUT_STRIDE: x.floats.stride}
        fields |= {Step.PRIVATE: x.floats.private}
        self._step(("matmul", "float_matmul", matrix.layout.key, str(int(self._wide))), fields)

    def join(
        self, x: Value | None, to: Value | None, panels: int, units: Units, *, bias: int = 0,
        add: bool = False, cap: float = 0.0, gather: bool = False,
    ) -> None:  # fmt: skip
        """Put x [+ bias] to where it goes, or add it to what is there; softly capped.

        Args:
            x: None: what `to` holds.
            to: None: the logits.
            panels: of 16 columns.
            units: how they are shared out.
            bias: address of a vector; 0 for none.
            add: to what `to` holds.
            cap: above 0, values v become cap * tanh(v / cap).
            gather: of all rows of `x` take those whose output is wanted.
        """
        fields = {Step.PANELS: panels, Step.WEIGHTS: bias, Step.ADD: int(add), Step.A: float_bits(cap)}
        fields |= {Step.B: int(gather)} | _shared_out(units)
        if x is not None:
            fields |= {Step.INPUT: x.address, Step.INPUT_STRIDE: x.stride}
        if to is not None:
            fields |= {Step.OUTPUT: to.address, Step.OUTPUT_STRIDE: to.stride}
        self._step(("columns", "join"), fields)

    def place_heads(self, x: Value, to: Value, apart: tuple[int, int], width: int, units: Units) -> None:
        """`width` floats of each head; `apart`: floats from head to head in `x` and in `to`."""
        fields = {Step.INPUT: x.address, Step.INPUT_STRIDE: x.stride, Step.A: width, Step.B: 4 * apart[0]}
        fields |= {Step.OUTPUT: to.address, Step.OUTPUT_STRIDE: to.stride, Step.C: 4 * apart[1]}
        self._step(("columns", "place_heads"), fields | {Step.PANELS: units.total} | _shared_out(units))

    def copy(self, x: Value) -> None:
        """A copy of rows, without a meeting after it. It does nothing until it is told where to.

        For that, a program's PANELS become UNITS, OUTPUT and OUTPUT_STRIDE the place, BARRIER what D says.
        """
        pieces = next(n for n in (4, 2, 1) if x.width % n == 0)
        fields = {Step.INPUT: x.address, Step.INPUT_STRIDE: x.stride, Step.A: x.width // pieces}
        fields |= {Step.OUTPUT: x.address, Step.OUTPUT_STRIDE: x.stride} | _shared_out(Units(1, 0, pieces))
        self._copy(x, ("columns", "copy"), fields | {Step.PANELS: 0, Step.BARRIER: 0})

    def neighbours(self, x: Value, to: Value) -> None:
        """Each row beside the next and the one before."""
        fields = {Step.INPUT: x.address, Step.INPUT_STRIDE: x.stride, Step.COLUMNS: x.width}
        fields |= {Step.OUTPUT: to.address, Step.OUTPUT_STRIDE: to.stride}
        self._step(("columns", "neighbours"), fields)
        self.barrier()

    def rotate(
        self, x: Value, to: Value, heads: int, head_dim: int, rope: tuple[int, int, int], units: Units
    ) -> None:
        """Turn heads by position; `rope`: channels, 1 for neighbours, number of the table."""
        fields = {Step.INPUT: x.address, Step.INPUT_STRIDE: x.stride}
        fields |= {Step.OUTPUT: to.address, Step.OUTPUT_STRIDE: to.stride, Step.PANELS: heads}
        fields |= {Step.A: head_dim, Step.B: rope[0], Step.C: rope[1], Step.D: rope[2]}
        self._step(("cache", "rotate"), fields | _shared_out(units))

    def store(self, what: str, x: Value, place: LayerCache, half: bool, units: Units) -> None:
        """`keys` or `values` of the new tokens into the cache; a latent layer has its rows in `values`."""
        shape, keys = place.shape, what == "keys"
        assert half == (place.kind > 0) and not (keys and shape.latent)
        width = shape.key_dim if keys or shape.latent else shape.value_dim
        offset, head = (place.keys, place.key_head) if keys else (place.values, place.value_head)
        fields = {Step.INPUT: x.address, Step.INPUT_STRIDE: x.stride, Step.PANELS: shape.kv_heads}
        fields |= {Step.A: width, Step.B: offset, Step.C: head, Step.VALUE_ROW: place.value_row}
        kernel = (f"store_{what[:-1]}_codes",) if place.kind == 2 else (f"store_{what}", str(place.kind))
        self._step(("cache", *kernel), fields | _shared_out(units))

    def attend(
        self, q: Value, to: Value, group: int, scale: float, place: LayerCache, half: bool, *,
        window: int = 0, causal: bool = True, cap: float = 0.0,
    ) -> None:  # fmt: skip
        """softmax(q k^T * scale) v over the cache, for `group` query heads to a key head.

        Args:
            q: queries, [heads, key_dim] in each row.
            to: mixed values, [heads, value_dim] in each row.
            group: query heads to a key head.
            scale: what scores are multiplied by.
            place: where keys and values lie.
            half: whether they take 16 bits.
            window: a token sees so many positions, its own the last of them; 0 for all.
            causal: a token sees none behind it. If not, it sees all of its sequence, whose new
                tokens must be in one pass.
            cap: above 0, scores s become cap * tanh(s / cap) (Gemma 2).
        """
        assert half == (place.kind > 0) and (causal or not window)
        shape = place.shape
        fields = {Step.INPUT: q.address, Step.INPUT_STRIDE: q.stride, Step.PANELS: shape.kv_heads}
        fields |= {Step.OUTPUT: to.address, Step.OUTPUT_STRIDE: to.stride, Step.UNIT_FIRST: self._queue()}
        fields |= {Step.A: shape.key_dim, Step.B: place.keys, Step.C: place.values, Step.F: group}
        fields |= {Step.D: place.key_head, Step.E: place.value_head, Step.H: float_bits(scale)}
        fields |= {Step.VALUE_DIM: shape.value_dim, Step.WINDOW: window, Step.BOTH_WAYS: int(not causal)}
        fields |= {Step.CAP: float_bits(cap), Step.VALUE_ROW: place.value_row}
        choices = (str(place.kind), "6" if self._wide else "1")
        self._step(("attention", "attention", *choices), fields)

    def activate(
        self, name: str, gate: Value, up: Value | None, to: Source, units: Units, *,
        alone: Value | None = None, biases: tuple[int, int] = (0, 0),
    ) -> None:  # fmt: skip
        """activation(gate + bias) * (up + bias), or without `up`; `alone` takes the first factor."""
        assert up is None or gate.stride == up.stride
        fields = {Step.INPUT: gate.address, Step.INPUT_STRIDE: gate.stride}
        fields |= {Step.A: up.address - gate.address if up else 0, Step.B: alone.address if alone else 0}
        fields |= {Step.C: biases[0], Step.D: biases[1], Step.PANELS: units.total}
        fields |= _target(to) | {Step.UNIT: 1, Step.UNIT_FIRST: units.first, Step.UNITS: units.total}
        fields[Step.OUTPUT_STRIDE] = gate.stride
        self._step(("rows", "activate", name), fields)

    def multiply(self, x: Value, other: Value, to: Value) -> None:
        """The product of two buffers, number by number."""
        fields = {
            Step.INPUT: x.address,
            Step.INPUT_STRIDE: x.stride,
            Step.A: other.address,
            Step.B: other.stride,
        }
        fields |= {Step.OUTPUT: to.address, Step.OUTPUT_STRIDE: to.stride, Step.COLUMNS: x.width}
        self._step(("rows", "multiply"), fields)

    def score(self, x: Value, to: Value, sigmoid: bool) -> None:
        """A router's logits to scores."""
        fields = {Step.INPUT: x.address, Step.INPUT_STRIDE: x.stride, Step.COLUMNS: x.width}
        fields |= {Step.OUTPUT: to.address, Step.OUTPUT_STRIDE: to.stride, Step.A: int(sigmoid)}
        self._step(("experts", "score"), fields)

    def route(self, x: Value, to: Value, router: Router, correction: int, plan: int) -> None:
        """Scores to weights of the experts that are used, and to the plan of the pass."""
        fields = {Step.INPUT: x.address, Step.INPUT_STRIDE: x.stride, Step.COLUMNS: router.count}
        fields |= {Step.OUTPUT: to.address, Step.OUTPUT_STRIDE: to.stride, Step.WEIGHTS: correction}
        fields |= {Step.A: router.used, Step.C: router.groups, Step.D: router.groups_kept}
        fields |= {Step.E: int(router.group_score == "max"), Step.F: int(router.normalize)}
        fields |= {Step.H: float_bits(router.scale), Step.G: plan, Step.UNIT_FIRST: self._queue()}
        self._step(("experts", "route"), fields)
        self.barrier()

    def gather(self, x: Source, to: Source, router: Router, plan: int) -> None:
        """Rows to the slots of their experts, in the forms that `to` has."""
        fields = {Step.A: router.used, Step.C: router.count, Step.G: plan, Step.COLUMNS: router.dim}
        if to.floats is not None:
            assert x.floats is not None
            floats = {Step.INPUT: x.floats.address, Step.INPUT_STRIDE: x.floats.stride}
            floats |= _target(Source(to.floats, None)) | {Step.PRIVATE: x.floats.private}
            self._step(("experts", "gather"), fields | floats)
        if to.codes is not None:
            assert x.codes is not None
            codes = {Step.B: x.codes.address, Step.CODES: to.codes.address, Step.PRIVATE: x.codes.private}
            self._step(("experts", "gather"), fields | codes)
        self.barrier()

    def dispatch(self, steps: Steps, router: Router, units: int, plan: int) -> None:
        """The steps of every expert, one after the other, over its own rows.

        Args:
            steps: those of expert 0, then as many of expert 1, and so on.
            router: of the gear.
            units: of an expert that threads share out; 0: it isn't shared out.
            plan: address.
        """
        each, rest = divmod(len(steps.steps), router.count)
        assert rest == 0
        fields = {Step.WEIGHTS: self._table(steps), Step.A: each, Step.B: units}
        fields |= {Step.C: router.count, Step.G: plan, Step.UNIT_FIRST: self._queue()}
        self._step(("experts", "dispatch"), fields)
        self.barrier()

    def combine(
        self, x: Value, weights: Value, other: Value | None, to: Value, router: Router, plan: int, *,
        add: bool,
    ) -> None:  # fmt: skip
        """Weighted results of the experts, and other rows, to one row each."""
        panels = -(-to.width // PANEL)
        fields = {Step.INPUT: x.address, Step.INPUT_STRIDE: x.stride, Step.ADD: int(add), Step.G: plan}
        fields |= {Step.OUTPUT: to.address, Step.OUTPUT_STRIDE: to.stride, Step.PANELS: panels}
        fields |= {Step.A: weights.address, Step.B: weights.stride}
        fields |= {Step.E: router.used, Step.F: router.count}
        if other is not None:
            fields |= {Step.C: other.address, Step.D: other.stride}
        self._step(("experts", "combine"), fields | _shared_out(Units(1, 0, panels)))
        self.barrier()


def float_bits(value: float) -> int:
    """A float32 as the int64 field that holds it."""
    return int(np.float32(value).view(np.uint32))


def _shared_out(units: Units) -> Fields:
    return {Step.UNIT: units.size, Step.UNIT_FIRST: units.first, Step.UNITS: units.total}


def _target(to: Source) -> Fields:
    fields: Fields = {}
    private = 0
    if to.floats is not None:
        fields |= {Step.OUTPUT: to.floats.address, Step.OUTPUT_STRIDE: to.floats.stride}
        private = to.floats.private
    if to.codes is not None:
        assert to.floats is None or private == to.codes.private
        fields |= {Step.CODES: to.codes.address}
        private = to.codes.private
    return fields | {Step.PRIVATE: private}
