"""How far every family strays from transformers: a table in Markdown.

    python benchmarks/parity.py                       # all families, on both backends
    python benchmarks/parity.py --family gemma3 --cases

Each family's test module (`tests/families/test_*.py`) lists `CASES`: tiny random float32 models that
transformers makes, saved as a folder or as llama.cpp's converter would write a GGUF. Every case is run
whole, in chunks, token by token and in a batch of two lengths where the family allows it; a cell holds
the largest absolute difference of any output value over all cases of a family. Needs torch and
transformers.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

REPOSITORY = Path(__file__).resolve().parent.parent
CONTAINERS = ("folder", "gguf")
BACKENDS = ("reference", "cpu")

Cell = float | str | None  # the largest difference, or what went wrong, or nothing
Row = dict[tuple[str, str], Cell]  # container, backend -> cell


def cases_of(folder: Path) -> list[Any]:
    """The cases of all test modules of families, in the order in which families are registered."""
    sys.path.insert(0, str(REPOSITORY))
    from glassgear.model.families import FAMILIES

    modules = (
        importlib.import_module(f"tests.families.{path.stem}") for path in sorted(folder.glob("test_*.py"))
    )
    found = [case for module in modules for case in getattr(module, "CASES", ())]
    order = [family.name for family in FAMILIES]
    return sorted(found, key=lambda case: order.index(case.family) if case.family in order else len(order))


def measure(case: Any, backend: str) -> float | str:
    """The largest difference of one case, or the first line of what stopped it."""
    with TemporaryDirectory() as folder:
        try:
            return float(case.largest(Path(folder), backend))
        except Exception as error:  # a table with a hole in it is worth more than none
            return (str(error).splitlines() or [""])[0][:60] or type(error).__name__


def worst(measured: Sequence[float | str]) -> Cell:
    """What a cell shows of several cases: what went wrong, else the largest."""
    wrong = [one for one in measured if isinstance(one, str)]
    return wrong[0] if wrong else max(one for one in measured if isinstance(one, float))


def table(rows: Sequence[tuple[str, Row]]) -> str:
    """Markdown: a row for each name, a column for each container and backend."""
    columns = [(container, backend) for container in CONTAINERS for backend in BACKENDS]
    heads = ["", *(f"{'GGUF' if c == 'gguf' else c}, {backend}" for c, backend in columns)]
    lines = [heads, ["---", *["---:"] * len(columns)]]
    lines += [[name, *(_cell(found.get(column)) for column in columns)] for name, found in rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _cell(value: Cell) -> str:
    return "" if value is None else f"{value:.1e}" if isinstance(value, float) else f"fails: {value}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table; 1 if a case failed or strays by more than the tolerance."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--family", action="append", help="only this one (may be repeated)")
    parser.add_argument("--backend", action="append", choices=BACKENDS, help="only this one")
    parser.add_argument("--cases", action="store_true", help="a row for each case")
    parser.add_argument("--tolerance", type=float, default=1e-4)
    options = parser.parse_args(arguments)
    cases = [
        c for c in cases_of(REPOSITORY / "tests/families") if not options.family or c.family in options.family
    ]
    if not cases:
        parser.error(f"no cases of {', '.join(options.family or ['any family'])}")
    found: dict[str, dict[tuple[str, str], list[float | str]]] = {}
    for case in cases:
        name = f"{case.family}: {case.variant}" if options.cases else case.family
        for backend in options.backend or BACKENDS:
            measured = measure(case, backend)
            found.setdefault(name, {}).setdefault((case.container, backend), []).append(measured)
            print(f"{case}, {backend}: {measured}", file=sys.stderr)
    rows = [
        (name, {key: worst(cells) for key, cells in cells_of.items()}) for name, cells_of in found.items()
    ]
    print(table(rows))
    good = all(isinstance(v, float) and v < options.tolerance for _, row in rows for v in row.values())
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
