"""What an explanation holds: frozen data, all of it numbers and words."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np

from glassgear.errors import SettingError
from glassgear.trace.explain.terms import Input, Term, Terms, total

__all__ = ["Block", "Explanation", "Made", "Step"]


@dataclass(frozen=True)
class Step:
    """A line of arithmetic on the way: a name, what is done in words, what comes out."""

    name: str
    words: str
    value: float | None = None


@dataclass(frozen=True)
class Block:
    """Some inputs of a quantised weight row that share a scale.

    weight = scale * level + minimum, and the CPU backend adds
    (scale * dot + minimum * activation_sum) * unit; where a scale is for 16 inputs, two of these
    together make 32 under one unit of activations.

    Attributes:
        number: in the row.
        first: its first input.
        stored: the fields of the file's block that it lies in, as the file has them.
        codes: of the weights, as they are stored.
        levels: the integers that they stand for.
        scale: what a level of 1 is worth, as the backend holds it.
        minimum: what is added to every weight; None if the type has none.
        activations: int8 codes of the inputs; empty where inputs stay floats.
        unit: what an activation of 1 is worth; None there.
        dot: the integer sum of levels times activations; None there.
        value: what the block adds to the result.
        running: what the backend holds after it; None where it goes on within 32 inputs, or doesn't add
            block by block.
    """

    number: int
    first: int
    stored: tuple[tuple[str, str], ...]
    codes: tuple[int, ...]
    levels: tuple[int, ...]
    scale: float
    minimum: float | None
    activations: tuple[int, ...]
    unit: float | None
    dot: int | None
    value: float
    running: float | None

    @property
    def activation_sum(self) -> int:
        """The sum of the activations' codes: what the minimum is multiplied by."""
        return sum(self.activations)


@dataclass(frozen=True)
class Made:
    """How a number is made, before it is compared with the trace.

    Attributes:
        result: computed here.
        inputs: the numbers that it is computed from.
        terms: what is added up, in the backend's order where that is known.
        steps: lines of arithmetic before and after the sum.
        blocks: of a quantised weight row.
        magnitude: the sum of the absolute terms, by which rounding errors are measured.
        order: in words, how close to the backend's own operations this is.
        stored: `Q4_1` and the like where weights are quantised.
        summed: what the terms add up to, in words; empty where there is no sum.
    """

    result: float
    inputs: Sequence[Input] = ()
    terms: Terms = field(default_factory=lambda: Terms.of(()))
    steps: tuple[Step, ...] = ()
    blocks: tuple[Block, ...] = ()
    magnitude: float = 0.0
    order: str = ""
    stored: str = ""
    summed: str = ""


def _no_way(path: str, token: int, index: tuple[int, ...]) -> Explanation:
    raise SettingError("this explanation came without the model that it belongs to")


@dataclass(frozen=True)
class Explanation:
    """How one number of one token came about.

    Attributes:
        path: of the value.
        token: number of the token.
        text: what the token stands for; empty without a tokenizer.
        index: place of the number in the token's value.
        axes: what each part of the index counts.
        backend: whose arithmetic is shown.
        gear: kind of the gear that made it.
        formula: how it is made, in words.
        source: where the formula is from.
        weights: role -> tensor, its type and its shape.
        made: the arithmetic.
        traced: what the backend computed; None for what it doesn't show.
    """

    path: str
    token: int
    text: str
    index: tuple[int, ...]
    axes: tuple[str, ...]
    backend: str
    gear: str
    formula: str
    source: str
    weights: tuple[tuple[str, str], ...]
    made: Made
    traced: float | None
    _explain: Callable[[str, int, tuple[int, ...]], Explanation] = field(
        default=_no_way, repr=False, compare=False
    )

    @property
    def result(self) -> float:
        """The number as it was computed here."""
        return self.made.result

    @property
    def inputs(self) -> Sequence[Input]:
        """The traced numbers that it is computed from."""
        return self.made.inputs

    @property
    def terms(self) -> Terms:
        """What is added up."""
        return self.made.terms

    @property
    def exact(self) -> bool:
        """Whether result and trace have the same bits."""
        if self.traced is None:
            return False
        return self.result == self.traced or (math.isnan(self.result) and math.isnan(self.traced))

    @property
    def difference(self) -> float | None:
        """The traced number less the result; None where nothing was traced."""
        if self.traced is None:
            return None
        return 0.0 if self.exact else self.traced - self.result

    @property
    def ulps(self) -> float | None:
        """The difference in units of the last place of the traced float32."""
        if self.difference is None or not math.isfinite(self.difference):
            return self.difference
        assert self.traced is not None
        return self.difference / float(np.spacing(np.float32(abs(self.traced))))

    @property
    def verdict(self) -> str:
        """In a sentence, how the result compares with the trace."""
        if self.traced is None:
            return "the backend doesn't show this number: it follows from those that it shows"
        if self.exact:
            return "the traced number, bit for bit"
        share = abs(self.difference or 0) / self.made.magnitude if self.made.magnitude else math.inf
        return (
            f"the trace has {self.traced:.9g}: {self.difference:+.2g}, {self.ulps:+.3g} units of its last "
            f"place, {share:.1g} of the sum of absolute terms"
        )

    def follow(self, number: int) -> Explanation:
        """The explanation of an input.

        Raises:
            SettingError: there is no input of this number.
        """
        count = len(self.inputs)
        if not 0 <= number < count:
            have = f"has inputs 0 to {count - 1}" if count else "is computed from no traced number"
            raise SettingError(f"{self.path} has no input {number}: it {have}")
        one = self.inputs[number]
        if not one.path:
            raise SettingError(f"input {number} of {self.path} isn't computed: {one.name}")
        return self._explain(one.path, one.token, one.index)

    def largest(self, top: int | None = None) -> tuple[tuple[Term, ...], float]:
        """Terms by size, and what those beyond the first `top` add up to."""
        order = self.terms.by_size()
        kept = order if top is None else order[:top]
        left = self.terms.values[order[len(kept) :]]
        return tuple(self.terms[int(i)] for i in kept), total(left)

    def to_json(self, top: int | None = None) -> dict[str, Any]:
        """As data that JSON can hold; numbers that aren't finite become None.

        Args:
            top: list so many of the largest terms, without the inputs of the others; None: all, in order.
        """
        terms, rest = (self.terms, 0.0) if top is None else self.largest(top)
        made = self.made
        return {
            "path": self.path, "token": self.token, "text": self.text, "index": list(self.index),
            "axes": list(self.axes), "backend": self.backend, "gear": self.gear, "formula": self.formula,
            "source": self.source, "weights": dict(self.weights), "result": _finite(self.result),
            "traced": _finite(self.traced), "exact": None if self.traced is None else self.exact,
            "difference": _finite(self.difference), "ulps": _finite(self.ulps),
            "magnitude": _finite(made.magnitude), "verdict": self.verdict, "order": made.order,
            "stored": made.stored, "sum_of": made.summed,
            "inputs": [{"number": i} | _data(self.inputs[i]) for i in self._shown(terms)],
            "terms": [_data(term) for term in terms],
            **({} if top is None else {"rest": _finite(rest)}),
            "steps": [_data(step) for step in made.steps],
            "blocks": [_data(block) for block in made.blocks],
        }  # fmt: skip

    def _shown(self, terms: Sequence[Term]) -> list[int]:
        """Numbers of the inputs of some terms, and of those that are in no term."""
        shown = np.ones(len(self.inputs) + 1, np.bool_)  # the last place is that of no input, -1
        shown[self.terms.inputs] = False
        shown[np.array([number for term in terms for number in term.inputs], np.int64)] = True
        return [int(i) for i in np.flatnonzero(shown[:-1])]

    def __str__(self) -> str:
        """As text, the largest twelve terms."""
        from glassgear.trace.explain.page import as_text

        return as_text(self)

    def _repr_html_(self) -> str:
        from glassgear.trace.explain.page import as_html

        return as_html(self)


def _finite(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else value


def _data(made: Any) -> dict[str, Any]:
    """A flat dataclass as a dictionary; pairs of names and values become one too."""
    found: dict[str, Any] = {}
    for entry in fields(made):
        value = getattr(made, entry.name)
        if isinstance(value, float):
            value = _finite(value)
        elif entry.name in ("factors", "stored"):
            value = {name: _finite(v) if isinstance(v, float) else v for name, v in value}
        elif isinstance(value, tuple):
            value = list(value)
        found[entry.name] = value
    return found
