"""What it costs to record every value: the time of a full trace beside that of the same text untraced.

    python benchmarks/trace_cost.py smollm2-135m [--threads 1,2] [--repeats 5]

Both do the prompt and `made` tokens after it, greedily, by turns; untraced, logits are computed for the
last token of the prompt alone, as `generate` does. A line for each text: seconds of both, and the median
of the ratios.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable

import glassgear
from glassgear.measure import random_ids

TEXTS = ((8, 16), (8, 0), (64, 0), (200, 0), (500, 0), (64, 64))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("model")
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    for threads in map(int, options.threads.split(",")):
        model = glassgear.load(options.model, threads=threads)
        for prompt, made in TEXTS:
            ids = random_ids(model.gears.vocab, prompt, 1)
            rows = [both(model, ids, made) for _ in range(options.repeats + 1)][1:]
            ratio = statistics.median(traced / plain for plain, traced in rows)
            line = {
                "threads": threads, "prompt": prompt, "made": made,
                "plain": round(statistics.median(plain for plain, _ in rows), 4),
                "traced": round(statistics.median(traced for _, traced in rows), 4),
                "ratio": round(ratio, 2),
            }  # fmt: skip
            print(json.dumps(line), flush=True)
    return 0


def both(model: glassgear.LanguageModel, ids: list[int], made: int) -> tuple[float, float]:
    """Seconds of the text untraced and traced."""
    count = max(made, 1)
    plain = seconds(lambda: list(model.generate(list(ids), max_tokens=count, temperature=0, ignore_eos=True)))
    traced = seconds(lambda: model.trace(list(ids), max_tokens=made))
    return plain, traced


def seconds(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


if __name__ == "__main__":
    sys.exit(main())
