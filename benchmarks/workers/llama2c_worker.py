"""llama2.c's program as a worker: BINARY MODEL TOKENIZER THREADS.

It starts from one token and prints its speed itself, loading and the first step left out. Its clock
counts milliseconds, so that a short text is made several times for one timing. Prompts it evaluates
token by token: there is nothing to measure about them.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys

from protocol import Answer, serve

LEAST_SECONDS = 0.3  # of work in a timing


class Llama2C:
    """The program, and the files it needs."""

    def __init__(self, binary: str, model: str, tokenizer: str, threads: int) -> None:
        self.command = [binary, model, "-z", tokenizer, "-t", "0"]
        self.environment = os.environ | {"OMP_NUM_THREADS": str(threads)}  # used if it was built so

    def about(self) -> Answer:
        """What runs here."""
        return {"name": "llama2.c", "versions": {}, "notes": "", "variants": ["default"]}

    def decode(self, length: int, batch: int, tokens: int, variant: str, seed: int) -> Answer:
        """Take the likeliest ids one after another; the prompts before them aren't timed."""
        if batch != 1 or length != 1:
            return {"error": "llama2.c runs one sequence, from one token: tgN@1"}
        seconds = total = 0.0
        while seconds < LEAST_SECONDS:
            seconds += tokens / self._speed(tokens)
            total += tokens
        return {"seconds": seconds, "tokens": total}

    def _speed(self, tokens: int) -> float:
        done = subprocess.run(
            [*self.command, "-n", str(tokens + 1)],
            env=self.environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, check=False,
        )  # fmt: skip
        found = re.search(rb"achieved tok/s: ([\d.]+)", done.stderr)
        if found is None:
            raise RuntimeError(f"llama2.c printed no speed: {done.stderr[-200:]!r}")
        return float(found[1])


if __name__ == "__main__":
    worker = Llama2C(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]))
    serve(about=worker.about, decode=worker.decode)
