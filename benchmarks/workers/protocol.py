"""A worker: a program that loads a model once and does timed work when it is told to.

A request is a line of JSON on stdin, `{"do": "prompt", "length": 512, ...}`; the answer is a line
of JSON on stdout, or `{"error": "..."}`. What kinds of work there are:

    about   -> name, versions, notes, load_seconds, and `variants`: settings of which the best counts
    prompt  (length, batch, variant, seed) -> seconds, tokens: `batch` prompts evaluated, with the
            logits of the last token of each
    decode  (length, batch, tokens, variant, seed) -> seconds, tokens: after such prompts, the
            likeliest id taken `tokens` times for each
    logits  (ids, chunk, file) -> seconds: float32 [ids, vocab] into a .npy file
    memory  -> peak: most bytes that the process held

Seconds are those of the work alone, taken by the worker itself. Only the standard library is used
here: a worker runs in the Python of the program that it measures.
"""

from __future__ import annotations

import json
import os
import random
import sys
from collections.abc import Callable
from typing import Any

__all__ = ["Answer", "random_ids", "serve"]

Answer = dict[str, Any]


def random_ids(vocab: int, count: int, seed: int) -> list[int]:
    """Ids that stand for a text; control tokens, which lie at the start, are left out."""
    low = min(100, vocab // 2)
    return random.Random(seed).choices(range(low, vocab), k=count)


def serve(**kinds: Callable[..., Answer]) -> None:
    """Answer requests until stdin ends; each kind of work is a function."""
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8", buffering=1)
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # C libraries print where they like
    kinds = {"memory": _memory} | kinds
    for line in sys.stdin:
        request: dict[str, Any] = json.loads(line)
        try:
            answer = kinds[request.pop("do")](**request)
        except KeyError as kind:
            answer = {"error": f"can't do {kind}"}
        except Exception as trouble:  # whatever goes wrong here is a cell without a figure there
            answer = {"error": f"{type(trouble).__name__}: {trouble}"}
        print(json.dumps(answer), file=answers)


def _memory() -> Answer:
    try:
        with open("/proc/self/status", encoding="utf-8") as lines:
            peak = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:"))
    except (OSError, StopIteration):
        return {"error": "this system doesn't tell"}
    return {"peak": peak}
