"""OpenVINO GenAI as a worker: MODEL THREADS, a GGUF file or a converted folder.

Prompts are given as ids. A prompt's time is the time to the first token that the pipeline itself
reports; decoding lasts from the first token to the last by its own clock.
"""

from __future__ import annotations

import sys
from time import perf_counter

import numpy as np
import openvino
import openvino_genai
from protocol import Answer, random_ids, serve


class OpenVINO:
    """One pipeline on the CPU."""

    def __init__(self, model: str, threads: int) -> None:
        start = perf_counter()
        settings = {"INFERENCE_NUM_THREADS": threads}
        self.pipeline = openvino_genai.LLMPipeline(model, "CPU", **settings)
        self.load_seconds = perf_counter() - start
        self.vocab = len(self.pipeline.get_tokenizer().get_vocab())

    def about(self) -> Answer:
        """What runs here."""
        return {
            "name": "OpenVINO GenAI",
            "versions": {"openvino-genai": openvino_genai.get_version()},
            "notes": "",
            "variants": ["default"],
            "load_seconds": self.load_seconds,
        }

    def prompt(self, length: int, batch: int, variant: str, seed: int) -> Answer:
        """Evaluate prompts; only the evaluation is timed."""
        metrics = self._generate(length, batch, 1, seed)
        return {"seconds": metrics.get_ttft().mean / 1000, "tokens": length * batch}

    def decode(self, length: int, batch: int, tokens: int, variant: str, seed: int) -> Answer:
        """Take the likeliest ids one after another; the prompts before them aren't timed."""
        raw = self._generate(length, batch, tokens + 1, seed).raw_metrics
        times = list(raw.m_new_token_times)
        assert len(times) == tokens + 1, len(times)
        return {"seconds": (times[-1] - times[0]) / 1000, "tokens": tokens * batch}

    def _generate(self, length: int, batch: int, tokens: int, seed: int) -> openvino_genai.PerfMetrics:
        ids = np.array([random_ids(self.vocab, length, seed + k) for k in range(batch)], np.int64)
        inputs = openvino_genai.TokenizedInputs(openvino.Tensor(ids), openvino.Tensor(np.ones_like(ids)))
        settings = openvino_genai.GenerationConfig()
        settings.max_new_tokens, settings.ignore_eos, settings.do_sample = tokens, True, False
        return self.pipeline.generate(inputs, settings).perf_metrics


if __name__ == "__main__":
    worker = OpenVINO(sys.argv[1], int(sys.argv[2]))
    serve(about=worker.about, prompt=worker.prompt, decode=worker.decode)
