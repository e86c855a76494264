"""What the KV cache saves, and what reading a prompt in one pass saves on top."""

from __future__ import annotations

from dataclasses import dataclass
from time import perf_counter
from typing import Any

import numpy as np

from glassgear.backends.base import Backend, Chunk
from glassgear.lab.frame import (
    READING,
    Claim,
    Column,
    Experiment,
    Figure,
    Result,
    Settings,
    Table,
    Verdict,
    option,
)
from glassgear.lab.models import model_of, random_model, title
from glassgear.language_model import LanguageModel
from glassgear.measure import random_ids
from glassgear.model.ledger import Ledger, ledger

__all__ = ["EXPERIMENT", "Lengths"]


@dataclass(frozen=True)
class Lengths(Settings):
    """How long the texts are."""

    model: str | None = option(None, "The model to time. [default: a random one of 1.6 million parameters]")
    prompt: int = option(128, "Tokens of the prompt.", small=48, least=8)
    new: int = option(64, "Tokens added to it.", small=24, least=4)
    repeats: int = option(3, "How often each way is timed; the quickest counts.", small=1, least=1)


def _with_cache(backend: Backend, prompt: list[int], new: int) -> list[float]:
    """Seconds of each new token, each run alone."""
    track = backend.open()
    try:
        logits = backend.step([Chunk(track, prompt)])[0]
        taken = []
        for _ in range(new):
            start = perf_counter()
            logits = backend.step([Chunk(track, [int(logits[-1].argmax())])])[0]
            taken.append(perf_counter() - start)
        return taken
    finally:
        backend.close(track)


def _without_cache(backend: Backend, prompt: list[int], new: int) -> tuple[list[float], list[int]]:
    """Seconds of each new token, the whole text run again each time; and the ids."""
    ids, taken = list(prompt), []
    logits = _whole(backend, ids)
    for _ in range(new):
        ids.append(int(logits[-1].argmax()))
        start = perf_counter()
        logits = _whole(backend, ids)
        taken.append(perf_counter() - start)
    return taken, ids


def _whole(backend: Backend, ids: list[int]) -> Any:
    track = backend.open()
    try:
        return backend.step([Chunk(track, ids)])[0]
    finally:
        backend.close(track)


def _prompt(backend: Backend, prompt: list[int], at_once: int) -> tuple[float, Any]:
    """Seconds for a prompt in pieces, and the last logits."""
    track = backend.open()
    try:
        start = perf_counter()
        for first in range(0, len(prompt), at_once):
            logits = backend.step([Chunk(track, prompt[first : first + at_once])])[0]
        return perf_counter() - start, logits[-1]
    finally:
        backend.close(track)


def _operations(counted: Ledger, settings: Lengths) -> tuple[int, int, int, int]:
    """With and without cache for the new tokens; the prompt at once and token by token."""
    prompt, new = settings.prompt, settings.new
    cached = sum(counted.flops_per_token(prompt + i) for i in range(new))
    again = sum(counted.prompt_flops(prompt + i + 1) for i in range(new))
    return cached, again, counted.prompt_flops(prompt), sum(counted.flops_per_token(i) for i in range(prompt))


def _model(settings: Lengths) -> LanguageModel:
    found = model_of(settings, settings.model) if settings.model is not None else None
    return found or random_model(
        {
            "name": "random model", "vocab": 512, "dim": 192, "layers": 4, "context": 4096,
            "attention": {"heads": 6, "kv_heads": 2}, "ffn": {"kind": "gated", "hidden": 512},
        },
        settings.seed,
    )  # fmt: skip


def run(settings: Lengths) -> Result:
    """Time the same text with and without the cache, and the prompt both ways."""
    model = _model(settings)
    model.require_causal()
    model.check_length(settings.prompt + settings.new)
    backend = model.backend
    prompt = random_ids(model.gears.vocab, settings.prompt, settings.seed)
    _prompt(backend, prompt, settings.prompt)  # whatever is compiled on first use
    cached = _best([_with_cache(backend, prompt, settings.new) for _ in range(settings.repeats)])
    again_all = [_without_cache(backend, prompt, settings.new) for _ in range(settings.repeats)]
    again = _best([taken for taken, _ in again_all])
    whole = [_prompt(backend, prompt, settings.prompt) for _ in range(settings.repeats)]
    single = [_prompt(backend, prompt, 1) for _ in range(settings.repeats)]
    at_once, one_by_one = min(s for s, _ in whole), min(s for s, _ in single)
    apart = float(np.abs(whole[0][1] - single[0][1]).max())
    counts = _operations(ledger(model.gears), settings)
    rows = (
        (f"{settings.new} new tokens, with cache", counts[0] / 1e6, 1e3 * sum(cached), 1.0),
        (f"{settings.new} new tokens, without", counts[1] / 1e6, 1e3 * sum(again), sum(again) / sum(cached)),
        (f"prompt of {settings.prompt} in one pass", counts[2] / 1e6, 1e3 * at_once, 1.0),
        (f"prompt of {settings.prompt}, token by token", counts[3] / 1e6, 1e3 * one_by_one,
         one_by_one / at_once),
    )  # fmt: skip
    cache_gain, prompt_gain = sum(again) / sum(cached), one_by_one / at_once
    fewer = counts[1] / counts[0]
    good = cache_gain > 1.5 and prompt_gain > 1.2 and fewer > settings.prompt / 2
    columns = (
        Column("what"), Column("million operations", ",.0f"), Column("ms", ",.2f"), Column("times", ".1f")
    )  # fmt: skip
    return Result(
        Verdict(
            "confirmed" if good else "depends",
            f"with the cache, {settings.new} tokens behind a prompt of {settings.prompt} take 1/{fewer:.0f} "
            f"of the operations and 1/{cache_gain:.0f} of the time; reading the prompt in one pass is "
            f"{prompt_gain:.1f} times as fast as token by token, for nearly the same operations.",
            f"在 {settings.prompt} 个词元的提示之后生成 {settings.new} 个词元，有缓存时运算量是没有缓存时的 "
            f"1/{fewer:.0f}，时间是 1/{cache_gain:.0f}；提示一次读完的速度是逐个词元的 {prompt_gain:.1f} 倍，"
            "而运算量几乎相同。",
        ),
        (Table(f"{title(model)}, backend {backend.name}", columns, rows),),
        (Figure("seconds", lambda canvas: _draw(canvas, cached, again, settings)),),
        {
            "operations_ratio": fewer, "time_ratio": cache_gain, "prompt_ratio": prompt_gain,
            "prompt_operations_ratio": counts[3] / counts[2], "logits_apart": apart,
        },
        (
            f"Both ways of reading the prompt end in the same logits, {_bits(apart)}.",
            "In one pass each weight is fetched once for all tokens, and only the last token needs the head. "
            "llama2.c reads prompts token by token.",
        ),
    )  # fmt: skip


def _bits(apart: float) -> str:
    return f"to {apart:.1g}" if apart else "bit for bit"


def _best(runs: list[list[float]]) -> list[float]:
    """The smallest of several timings, token by token."""
    return [min(times) for times in zip(*runs, strict=True)]


def _draw(canvas: Any, cached: list[float], again: list[float], settings: Lengths) -> None:
    axes = canvas.subplots()
    where = range(settings.prompt + 1, settings.prompt + settings.new + 1)
    axes.semilogy(where, [1e3 * s for s in again], label="without cache")
    axes.semilogy(where, [1e3 * s for s in cached], label="with cache")
    axes.set(xlabel="tokens so far", ylabel="ms a token", title="The next token")
    axes.legend()


EXPERIMENT = Experiment(
    "kv-cache",
    "What does the KV cache save, and a prompt that is read in one pass?",
    Claim(
        "keys and values are cached since each position needs all of them; llama2.c lacks reading a prompt "
        "in parallel, which could be saved",
        READING,
    ),
    Lengths,
    run,
)
