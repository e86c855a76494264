"""Put the model into the package, and what is to be known about its training beside the recipe.

    python models/tiny-stories/ship.py                 after both parts of the recipe
    python models/tiny-stories/ship.py --check RUN     compare a run's losses with those on record

Reads `runs/tiny-stories/`, writes `src/glassgear/weights/shipped/tiny-stories/` with weights in float16, and
here: the losses of both parts and of the larger teacher (`first.jsonl`, ...: every step that was logged up
to 200, then every hundredth), `loss.png`, and `fingerprint.json`: SHA-256 of texts, tokenizer and weights.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from pathlib import Path
from typing import Any

from glassgear.convert import Wanted, convert

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
RUNS = ROOT / "runs" / "tiny-stories"
TARGET = ROOT / "src" / "glassgear" / "weights" / "shipped" / "tiny-stories"
PARTS = ("first", "last")
TOLD = {"first": "told by the smaller teacher, and real", "last": "told by the larger teacher, and real"}
SHIPPED = (
    "config.json",
    "generation_config.json",
    "model.safetensors",
    "tokenizer.json",
    "tokenizer_config.json",
)
MOST_BYTES = 4_000_000


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--check", type=Path, help="a run's folder, whose losses are compared")
    options = parser.parse_args()
    if options.check:
        return check(options.check)
    ship()
    for part in (*PARTS, "teacher"):
        lines = [json.dumps(event) for event in kept(events(RUNS / part))]
        (HERE / f"{part}.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    draw(HERE / "loss.png")
    (HERE / "fingerprint.json").write_text(json.dumps(fingerprint(), indent=1) + "\n", encoding="utf-8")
    return 0


def ship() -> None:
    convert(RUNS / "last" / "model", TARGET, Wanted("folder", "f16", replace=True))
    for path in TARGET.iterdir():
        if path.name not in SHIPPED:
            path.unlink()
    size = sum(path.stat().st_size for path in TARGET.iterdir())
    print(f"{size:,} bytes in {TARGET.relative_to(ROOT)}")
    if size > MOST_BYTES:
        sys.exit(f"that is more than {MOST_BYTES:,}")


def events(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]


def kept(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What goes on record; speeds say more about the machine than about the model."""
    lines = []
    for event in found:
        if event["event"] == "step" and (event["step"] <= 200 or event["step"] % 100 == 0):
            lines.append({key: event[key] for key in ("event", "step", "loss", "gradient", "rate", "tokens")})
        elif event["event"] in ("validation", "sample", "end"):
            lines.append(event)
    return lines


def check(run: Path) -> int:
    """Whether a run's losses are those on record, as far as it went."""
    record = HERE / f"{run.name if run.name in ('last', 'teacher') else 'first'}.jsonl"
    logged = [json.loads(line) for line in record.read_text(encoding="utf-8").splitlines()]
    wanted = {event["step"]: event["loss"] for event in logged if event["event"] == "step"}
    found = {event["step"]: event["loss"] for event in events(run) if event["event"] == "step"}
    both = sorted(wanted.keys() & found.keys())
    if not both:
        sys.exit(f"{run} has no step that is on record")
    worst = max(both, key=lambda step: abs(wanted[step] - found[step]))
    off = abs(wanted[worst] - found[worst])
    equal = sum(wanted[step] == found[step] for step in both)
    print(f"steps {both[0]} to {both[-1]}: {equal} of {len(both)} losses bit for bit, "
          f"the furthest {off:.2g} away (step {worst})")  # fmt: skip
    return int(off > 1e-3)


def draw(path: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure((9, 4), layout="constrained")
    axes = figure.subplots(1, 2)
    begin = 0
    for part in PARTS:
        found = events(RUNS / part)
        steps = [event for event in found if event["event"] == "step"]
        looks = [event for event in found if event["event"] == "validation"]
        axes[0].plot(
            [begin + e["tokens"] / 1e6 for e in steps], [e["loss"] for e in steps], lw=0.5, label=part
        )
        share = steps[-1]["tokens"] / steps[-1]["step"]
        axes[1].plot(
            [begin + e["step"] * share / 1e6 for e in looks], [e["nats_per_byte"] for e in looks], "o-", ms=3,
            label=f"{part}: {TOLD[part]}",
        )  # fmt: skip
        begin += steps[-1]["tokens"] / 1e6
    axes[0].set(xlabel="million tokens", ylabel="loss, nats per token", yscale="log")
    axes[1].set(xlabel="million tokens", ylabel="nats per byte, held out")
    for one in axes:
        one.legend()
        one.grid(alpha=0.3)
    figure.savefig(path, dpi=110)


def fingerprint() -> dict[str, str]:
    files = {f"text/{path.name}": path for path in sorted((RUNS / "text").glob("*.txt"))}
    files |= {path.name: path for path in sorted(TARGET.iterdir()) if path.name in SHIPPED}
    return {name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in files.items()}


if __name__ == "__main__":
    sys.exit(main())
