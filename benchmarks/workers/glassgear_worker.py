"""Glassgear as a worker: MODEL THREADS OPTIONS, the options a JSON object for `glassgear.load`."""

from __future__ import annotations

import json
import sys
from time import perf_counter

import numpy as np
from protocol import Answer, serve

from glassgear import load, measure
from glassgear.backends.base import Chunk


class Glassgear:
    """One model on one backend."""

    def __init__(self, model: str, threads: int, options: dict[str, str]) -> None:
        start = perf_counter()
        self.model = load(model, threads=threads, **options)
        self.load_seconds = perf_counter() - start
        self.backend = self.model.backend

    def about(self) -> Answer:
        """What runs here."""
        return {
            "name": f"Glassgear {self.backend.name}",
            "versions": measure.versions("numpy", "numba"),
            "notes": f"kernels {getattr(self.backend, 'kernels', 'numpy')}",
            "variants": ["default"],
            "load_seconds": self.load_seconds,
            "weight_bytes_per_token": measure.weight_bytes(self.model),
        }

    def prompt(self, length: int, batch: int, variant: str, seed: int) -> Answer:
        """Evaluate prompts; only the evaluation is timed."""
        seconds = measure.prompt_seconds(self.backend, length, batch=batch, seed=seed)
        return {"seconds": seconds, "tokens": length * batch}

    def decode(self, length: int, batch: int, tokens: int, variant: str, seed: int) -> Answer:
        """Take the likeliest ids one after another; the prompts before them aren't timed."""
        with measure.decoding(self.backend, length, batch=batch, seed=seed) as run:
            return {"seconds": run(tokens), "tokens": tokens * batch}

    def encode(self, text: str) -> Answer:
        """Ids of a text, as this model's tokenizer makes them."""
        return {"ids": self.model.tokenizer.encode(text, add_special=True)}

    def logits(self, ids: list[int], chunk: int, file: str) -> Answer:
        """Logits after every id, into a file."""
        track, rows = self.backend.open(), []
        start = perf_counter()
        for first in range(0, len(ids), chunk or len(ids)):
            part = ids[first : first + chunk] if chunk else ids
            rows.append(self.backend.step([Chunk(track, part, "all")])[0].copy())
        seconds = perf_counter() - start
        self.backend.close(track)
        np.save(file, np.concatenate(rows))
        return {"seconds": seconds}


if __name__ == "__main__":
    worker = Glassgear(sys.argv[1], int(sys.argv[2]), json.loads(sys.argv[3]))
    serve(
        about=worker.about,
        prompt=worker.prompt,
        decode=worker.decode,
        encode=worker.encode,
        logits=worker.logits,
    )
