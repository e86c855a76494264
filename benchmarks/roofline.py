"""Draw what was measured under the two roofs of the machine: memory and arithmetic.

    python benchmarks/roofline.py benchmarks/results/FILE.jsonl docs/images/roofline.png \
        --model smollm2-Q4_0.gguf=path/to/it --clock 3.7 --cores 2

A point is a program at a piece of work: across, how many operations it does for each byte of weights
(one token reads all weights once; a prompt of 512 uses each byte 512 times); up, operations a second.
Left of the ridge the memory is the limit, right of it the multipliers. The roofs: read bandwidth as it was
measured in the same runs (their median), and `--int8` or `--float` products a cycle and core
times clock and cores (64 for 512-bit VNNI, 16 for 512-bit multiply-adds).
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from glassgear.model.ledger import ledger
from glassgear.weights.open import open_checkpoint
from glassgear.weights.pull import resolve

WORK = {"tg64": 1, "tg64x8": 8, "pp512": 512, "pp4096": 4096}
MARKS = {"glassgear": "o", "llama_cpp": "s", "openvino": "^"}
NAMES = {"glassgear": "Glassgear", "llama_cpp": "llama.cpp", "openvino": "OpenVINO GenAI"}


@dataclass(frozen=True)
class Point:
    """One program at one piece of work."""

    program: str
    model: str
    work: str
    operations_per_byte: float
    operations_per_second: float


def points(report: dict[str, Any], path: str) -> Iterator[Point]:
    """The points of one line of results."""
    model = open_checkpoint(resolve(path)).model
    whole = ledger(model).matrix_flops
    head = 2 * model.head.dim * model.head.vocab if model.head else 0
    nbytes = report["programs"]["glassgear"]["weight_bytes_per_token"]
    for work, reuse in WORK.items():
        # Only the last token of a prompt meets the head.
        operations = whole - head if work.startswith("pp") else whole
        for program, cell in report["results"].get(work, {}).items():
            if program in MARKS:
                speed = cell["tokens_per_s"] * operations
                yield Point(program, report["model"], work, operations * reuse / nbytes, speed)


def bandwidth(reports: list[dict[str, Any]]) -> float:
    """Bytes a second that a plain reader got, the median of all that were measured."""
    return float(
        median(v for r in reports for w in r.get("read_bandwidth", {}).values() for v in w["memory"])
    )


def main() -> None:
    """Read results, write a picture."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("results", type=Path)
    parser.add_argument("picture", type=Path)
    parser.add_argument(
        "--model", action="append", default=[], metavar="NAME=PATH", help="a model by its name in the results"
    )
    parser.add_argument("--clock", type=float, required=True, help="GHz while it works")
    parser.add_argument("--cores", type=int, required=True)
    parser.add_argument("--int8", type=int, default=64, help="8-bit products a cycle and core")
    parser.add_argument(
        "--float", type=int, default=16, dest="floats", help="float products a cycle and core"
    )
    parser.add_argument("--bandwidth", type=float, help="GB/s, where the results don't say")
    options = parser.parse_args()
    paths = dict(pair.split("=", 1) for pair in options.model)
    reports = [json.loads(line) for line in options.results.read_text(encoding="utf-8").splitlines() if line]
    found = [
        p
        for r in reports
        if r["model"] in paths and "tg64" in r.get("results", {})
        for p in points(r, paths[r["model"]])
    ]
    top = 2e9 * options.clock * options.cores
    memory = options.bandwidth * 1e9 if options.bandwidth else bandwidth(reports)
    draw(
        found,
        memory,
        {"8-bit products": top * options.int8, "float32": top * options.floats},
        options.picture,
    )


def draw(found: list[Point], memory: float, roofs: dict[str, float], picture: Path) -> None:
    """The plot, both axes logarithmic."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(9, 5.5))
    edge = [1.0, 2e4]
    for (name, roof), style in zip(roofs.items(), ("-", "--"), strict=True):
        ridge = roof / memory
        axes.plot([edge[0], ridge, edge[1]], [edge[0] * memory, roof, roof], style, color="0.4", lw=1)
        axes.text(
            edge[1], roof * 1.06, f"{name}: {roof / 1e9:,.0f} Gop/s", ha="right", fontsize=8, color="0.3"
        )
    axes.text(1.1, 1.25 * memory, f"memory: {memory / 1e9:.0f} GB/s", rotation=33, fontsize=8, color="0.3")
    colours = {model: f"C{i}" for i, model in enumerate(dict.fromkeys(p.model for p in found))}
    for p in found:
        own = p.program == "glassgear"
        axes.plot(
            p.operations_per_byte, p.operations_per_second, MARKS[p.program], ms=8 if own else 6,
            color=colours[p.model], mfc=colours[p.model] if own else "none",
        )  # fmt: skip
    for model, colour in colours.items():
        axes.plot([], [], "o", color=colour, label=model.removesuffix(".gguf"))
    for program, mark in MARKS.items():
        axes.plot(
            [], [], mark, color="0.2", mfc="0.2" if program == "glassgear" else "none", label=NAMES[program]
        )
    axes.set(
        xscale="log", yscale="log", xlabel="operations for each byte of weights", ylabel="operations a second"
    )
    axes.grid(alpha=0.25, which="both")
    axes.legend(fontsize=8, loc="upper left")
    picture.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(picture, dpi=130, bbox_inches="tight")


if __name__ == "__main__":
    main()
