"""transformers on PyTorch as a worker: MODEL THREADS, a GGUF file (it needs `accelerate`) or a folder.

Prompts and decoding call the model itself, with its cache and logits for the last row alone; the
generation loop of transformers, which is slower, is left out.
"""

from __future__ import annotations

import inspect
import sys
from pathlib import Path
from time import perf_counter

import torch
import transformers
from protocol import Answer, random_ids, serve


class Transformers:
    """One model in float32."""

    def __init__(self, model: str, threads: int) -> None:
        start = perf_counter()
        torch.set_num_threads(threads)
        path = Path(model)
        where = {"gguf_file": path.name} if path.is_file() else {}
        self.model = transformers.AutoModelForCausalLM.from_pretrained(
            path.parent if path.is_file() else path, dtype=torch.float32, local_files_only=True, **where
        ).eval()
        names = inspect.signature(self.model.forward).parameters
        self.cache_name = "cache" if "cache" in names else "past_key_values"  # before 5.24
        self.load_seconds = perf_counter() - start

    def about(self) -> Answer:
        """What runs here."""
        return {
            "name": "transformers float32",
            "versions": {"transformers": transformers.__version__, "torch": torch.__version__},
            "notes": "float32",
            "variants": ["default"],
            "load_seconds": self.load_seconds,
        }

    def prompt(self, length: int, batch: int, variant: str, seed: int) -> Answer:
        """Evaluate prompts; only the evaluation is timed."""
        ids = self._prompts(length, batch, seed)
        start = perf_counter()
        self._step(ids, transformers.DynamicCache())
        return {"seconds": perf_counter() - start, "tokens": length * batch}

    def decode(self, length: int, batch: int, tokens: int, variant: str, seed: int) -> Answer:
        """Take the likeliest ids one after another; the prompts before them aren't timed."""
        cache = transformers.DynamicCache()
        ids = self._step(self._prompts(length, batch, seed), cache)
        start = perf_counter()
        for _ in range(tokens):
            ids = self._step(ids, cache)
        return {"seconds": perf_counter() - start, "tokens": tokens * batch}

    def _prompts(self, length: int, batch: int, seed: int) -> torch.Tensor:
        vocab = self.model.config.vocab_size
        return torch.tensor([random_ids(vocab, length, seed + k) for k in range(batch)])

    def _step(self, ids: torch.Tensor, cache: transformers.Cache) -> torch.Tensor:
        with torch.inference_mode():
            out = self.model(ids, use_cache=True, logits_to_keep=1, **{self.cache_name: cache})
            return out.logits.argmax(-1)


if __name__ == "__main__":
    worker = Transformers(sys.argv[1], int(sys.argv[2]))
    serve(about=worker.about, prompt=worker.prompt, decode=worker.decode)
