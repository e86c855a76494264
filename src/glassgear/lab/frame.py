"""What an experiment is, and what comes out of one. Plain data: nothing is drawn or printed here."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, field, fields
from typing import Any, Literal

from glassgear.errors import GlassgearError, SettingError

__all__ = [
    "BY_HAND",
    "INNER_GEARS",
    "READING",
    "Cell",
    "Claim",
    "Column",
    "Experiment",
    "Figure",
    "NotHereError",
    "Option",
    "Outcome",
    "Result",
    "Settings",
    "Table",
    "Verdict",
    "option",
]

INNER_GEARS = "从零学习大模型（4）"
READING = "llama2.c 源码阅读"
BY_HAND = "从一条直线到大模型输出一个token（八）"
"""The articles whose claims are measured, by their titles."""

Outcome = Literal["confirmed", "refuted", "depends"]
Cell = str | int | float | None  # None: there is no such number


class NotHereError(GlassgearError):
    """An experiment needs what isn't on this machine: PyTorch, or a model."""


@dataclass(frozen=True)
class Claim:
    """What is said, in our words, and where."""

    text: str
    source: str


@dataclass(frozen=True)
class Verdict:
    """What the measurement says about the claim, in one sentence of each language."""

    outcome: Outcome
    english: str
    chinese: str


@dataclass(frozen=True)
class Column:
    """A column of a table: its name, and how Python formats its numbers (empty: text)."""

    name: str
    format: str = ""


@dataclass(frozen=True)
class Table:
    """Rows of cells; as narrow as a terminal of 80 columns."""

    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]

    def __post_init__(self) -> None:
        assert all(len(row) == len(self.columns) for row in self.rows), self.title

    def text(self, row: int, column: int) -> str:
        """A cell as people read it."""
        value = self.rows[row][column]
        if value is None:
            return "-"
        form = self.columns[column].format
        if isinstance(value, float) and form.endswith("f"):
            sign = form[:1] if form[:1] in "+-" else ""
            form = (
                f"{sign}z{form.removeprefix(sign)}"  # no minus in front of a number that is 0 as it is shown
            )
        return value if isinstance(value, str) else format(value, form)

    def to_json(self) -> dict[str, Any]:
        """Title and rows by column; numbers that aren't finite become None."""
        names = [column.name for column in self.columns]
        rows = [dict(zip(names, map(_finite, row), strict=True)) for row in self.rows]
        return {"title": self.title, "rows": rows}


@dataclass(frozen=True)
class Figure:
    """A picture: a function that draws into a `matplotlib.figure.Figure`."""

    name: str
    draw: Callable[[Any], None]


@dataclass(frozen=True)
class Result:
    """What came out.

    Attributes:
        verdict: about the claim.
        tables: what was measured.
        figures: the same, drawn.
        facts: the numbers that the verdict rests on, by name.
        notes: what a reader should know: what was chosen, what was left out and why.
    """

    verdict: Verdict
    tables: tuple[Table, ...]
    figures: tuple[Figure, ...] = ()
    facts: Mapping[str, Cell] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Settings:
    """What all experiments take.

    Attributes:
        small: the smallest sizes that still show the effect.
        seed: of whatever is drawn.
    """

    small: bool = False
    seed: int = 0


@dataclass(frozen=True)
class Option:
    """A setting of an experiment's own, as the command line needs it."""

    name: str
    default: Any
    small: Any
    help: str
    kind: Any  # int, float or str
    least: float | None


def option(default: Any, help: str, *, small: Any = None, least: float | None = None) -> Any:
    """A field of a `Settings` class that is an option.

    Args:
        default: its value; None where text may be left out.
        help: a sentence for the command line.
        small: its value with `small`; None: the same.
        least: the smallest number that makes sense.
    """
    return field(default=default, metadata={"help": help, "small": small, "least": least})


@dataclass(frozen=True)
class Experiment:
    """A question that can be run.

    Attributes:
        name: as it is called.
        question: in one line.
        claim: what is said about it.
        settings: class of its settings.
        run: settings -> result.
    """

    name: str
    question: str
    claim: Claim
    settings: type[Settings]
    run: Callable[[Any], Result]

    @property
    def options(self) -> tuple[Option, ...]:
        """Its own settings."""
        return tuple(
            Option(
                f.name, f.default, f.metadata["small"], f.metadata["help"],
                str if f.default is None else type(f.default), f.metadata["least"],
            )
            for f in fields(self.settings)
            if "help" in f.metadata and f.default is not MISSING
        )  # fmt: skip

    def with_options(self, *, small: bool = False, seed: int = 0, **given: Any) -> Settings:
        """Settings from those that were given; others have their default, or the small one.

        Raises:
            SettingError: an option that it doesn't have, or a number that is too small.
        """
        known = {one.name: one for one in self.options}
        if strange := sorted(set(given) - set(known)):
            raise SettingError(
                f"{self.name} has no option {strange[0]!r}; its own: {', '.join(known) or 'none'}"
            )
        chosen = {name: one.small for name, one in known.items() if small and one.small is not None}
        chosen |= {name: value for name, value in given.items() if value is not None}
        for name, value in chosen.items():
            least = known[name].least
            if least is not None and not value >= least:
                raise SettingError(f"{name} of {self.name} should be at least {least:g}, found {value}")
        return self.settings(small=small, seed=seed, **chosen)

    def to_json(self, settings: Settings, result: Result) -> dict[str, Any]:
        """Everything about a run, as data that JSON can hold."""
        verdict = result.verdict
        return {
            "name": self.name,
            "question": self.question,
            "claim": {"text": self.claim.text, "source": self.claim.source},
            "settings": {f.name: getattr(settings, f.name) for f in fields(settings)},
            "verdict": {
                "outcome": verdict.outcome, "english": verdict.english, "chinese": verdict.chinese
            },
            "facts": {name: _finite(value) for name, value in result.facts.items()},
            "tables": [table.to_json() for table in result.tables],
            "notes": list(result.notes),
        }  # fmt: skip


def _finite(value: Cell) -> Cell:
    return None if isinstance(value, float) and not math.isfinite(value) else value
