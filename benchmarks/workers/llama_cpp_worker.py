"""llama.cpp as a worker, through the C interface that llama-cpp-python exposes: MODEL THREADS.

Each timing is made of calls of `llama_decode` alone, with logits for the rows that are wanted, as
llama.cpp's own `llama-bench` does. Between two of them NumPy finds the likeliest id in llama.cpp's
buffer, without a copy: some 20 microseconds for 49,000 logits, where llama.cpp's own greedy sampler
first builds a table of all candidates. Everything else stands at llama.cpp's defaults.
"""

from __future__ import annotations

import ctypes
import sys
from time import perf_counter

import llama_cpp as api
import numpy as np
from protocol import Answer, random_ids, serve

AT_ONCE = 2048  # n_batch by default: most tokens in a call
FLASH_ATTENTION = {
    "auto": api.LLAMA_FLASH_ATTN_TYPE_AUTO,
    "on": api.LLAMA_FLASH_ATTN_TYPE_ENABLED,
    "off": api.LLAMA_FLASH_ATTN_TYPE_DISABLED,
}

Row = tuple[int, int, int, bool]  # id, position, sequence, whether its logits are wanted


class LlamaCpp:
    """One model, and a context for each variant."""

    def __init__(self, model: str, threads: int) -> None:
        start = perf_counter()
        self.threads = threads
        self.model = api.llama_model_load_from_file(model.encode(), api.llama_model_default_params())
        if not self.model:
            raise SystemExit(f"llama.cpp can't load {model}")
        self.vocab = api.llama_vocab_n_tokens(api.llama_model_get_vocab(self.model))
        self.contexts: dict[tuple[str, int, int], int] = {}
        self.load_seconds = perf_counter() - start
        self.batch = api.llama_batch_init(AT_ONCE, 0, 1)

    def about(self) -> Answer:
        """What runs here."""
        return {
            "name": "llama.cpp",
            "versions": {"llama-cpp-python": api.__version__},
            "notes": api.llama_print_system_info().decode(),
            "variants": ["auto", "on"],
            "load_seconds": self.load_seconds,
        }

    def prompt(self, length: int, batch: int, variant: str, seed: int) -> Answer:
        """Evaluate prompts; only the evaluation is timed."""
        context = self._context(variant, length, batch)
        rows = self._prompts(length, batch, seed)
        start = perf_counter()
        self._run(context, rows)
        return {"seconds": perf_counter() - start, "tokens": length * batch}

    def decode(self, length: int, batch: int, tokens: int, variant: str, seed: int) -> Answer:
        """Take the likeliest ids one after another; the prompts before them aren't timed."""
        context = self._context(variant, length + tokens, batch)
        self._run(context, self._prompts(length, batch, seed))
        ids = [self._likeliest(context, -1)] * batch
        start = perf_counter()
        for position in range(length, length + tokens):
            self._run(context, [(ids[k], position, k, True) for k in range(batch)])
            ids = [self._likeliest(context, k) for k in range(batch)]
        return {"seconds": perf_counter() - start, "tokens": tokens * batch}

    def logits(self, ids: list[int], chunk: int, file: str) -> Answer:
        """Logits after every id, into a file."""
        context, out = self._context("auto", len(ids), 1), []
        start = perf_counter()
        for first in range(0, len(ids), chunk or AT_ONCE):
            part = ids[first : first + (chunk or AT_ONCE)]
            self._run(context, [(token, first + i, 0, True) for i, token in enumerate(part)])
            out.extend(self._logits(context, i).copy() for i in range(len(part)))
        seconds = perf_counter() - start
        np.save(file, np.stack(out))
        return {"seconds": seconds}

    def _context(self, variant: str, length: int, batch: int) -> int:
        """An empty context for `batch` sequences of `length` tokens; those of other sizes go."""
        size = batch * (-(-length // 256) * 256)
        key = (variant, size, batch)
        for other in [k for k in self.contexts if k[1:] != key[1:]]:
            api.llama_free(self.contexts.pop(other))
        if key not in self.contexts:
            settings = api.llama_context_default_params()
            settings.n_ctx, settings.n_seq_max = size, batch
            settings.n_threads = settings.n_threads_batch = self.threads
            settings.flash_attn_type = FLASH_ATTENTION[variant]
            self.contexts[key] = api.llama_init_from_model(self.model, settings)
            if not self.contexts[key]:
                raise MemoryError("llama.cpp can't make a context")
        api.llama_memory_clear(api.llama_get_memory(self.contexts[key]), False)
        return self.contexts[key]

    def _prompts(self, length: int, batch: int, seed: int) -> list[Row]:
        return [
            (token, position, sequence, position == length - 1)
            for sequence in range(batch)
            for position, token in enumerate(random_ids(self.vocab, length, seed + sequence))
        ]

    def _run(self, context: int, rows: list[Row]) -> None:
        batch = self.batch
        for first in range(0, len(rows), AT_ONCE):
            part = rows[first : first + AT_ONCE]
            batch.n_tokens = len(part)
            for i, (token, position, sequence, wanted) in enumerate(part):
                batch.token[i], batch.pos[i], batch.logits[i] = token, position, wanted
                batch.n_seq_id[i], batch.seq_id[i][0] = 1, sequence
            if api.llama_decode(context, batch):
                raise RuntimeError("llama_decode failed")
        api.llama_synchronize(context)

    def _logits(self, context: int, row: int) -> np.ndarray:
        return np.ctypeslib.as_array(api.llama_get_logits_ith(context, row), (self.vocab,))

    def _likeliest(self, context: int, row: int) -> int:
        return int(self._logits(context, row).argmax())


if __name__ == "__main__":
    quiet = api.llama_log_callback(lambda level, text, data: None)
    api.llama_log_set(quiet, ctypes.c_void_p(0))
    api.llama_backend_init()
    worker = LlamaCpp(sys.argv[1], int(sys.argv[2]))
    serve(about=worker.about, prompt=worker.prompt, decode=worker.decode, logits=worker.logits)
