"""How far a fast backend strays from the float32 reference, beside llama.cpp on the same file.

    python benchmarks/accuracy.py MODEL --backend cpu --peer /path/to/venv/bin/python

The definition is Glassgear's reference backend: float32 on the decoded weights. For every position
of some texts (English, Chinese, code; `texts/` beside this file) the next-token distribution p of
the reference is compared with q of the other: the mean over positions of KL(p || q) in nats, and how
often both find the same id likeliest. All see the same ids, as Glassgear's tokenizer makes them.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray
from worker_process import WorkerProcess, glassgear_worker, peer_worker

from glassgear.measure import hardware, versions

TEXTS = Path(__file__).resolve().parent / "texts"
AT_ONCE = 64  # positions compared at a time, in float64

Logits = NDArray[np.float32]  # [positions, vocab]


def divergence(reference: Logits, other: Logits) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """KL(reference || other) in nats, and whether both find the same id likeliest, at each position."""
    kl, same = [], []
    for first in range(0, len(reference), AT_ONCE):
        p = _log_softmax(reference[first : first + AT_ONCE])
        q = _log_softmax(other[first : first + AT_ONCE])
        kl.append((np.exp(p) * (p - q)).sum(axis=1))
        same.append(p.argmax(axis=1) == q.argmax(axis=1))
    return np.concatenate(kl), np.concatenate(same)


def _log_softmax(logits: Logits) -> NDArray[np.float64]:
    shifted = logits.astype(np.float64) - logits.max(axis=1, keepdims=True)
    total: NDArray[np.float64] = np.exp(shifted).sum(axis=1, keepdims=True)
    out: NDArray[np.float64] = shifted - np.log(total)
    return out


def summary(kl: NDArray[np.float64], same: NDArray[np.bool_]) -> dict[str, Any]:
    """Mean with its standard error, spread, agreement."""
    return {
        "positions": len(kl),
        "mean_kl": float(kl.mean()),
        "standard_error": float(kl.std() / len(kl) ** 0.5),
        "median_kl": float(np.median(kl)),
        "p99_kl": float(np.quantile(kl, 0.99)),
        "most_kl": float(kl.max()),
        "top1_agreement": float(same.mean()),
    }


def run(
    reference: WorkerProcess, others: Sequence[WorkerProcess], texts: Sequence[Path], chunk: int
) -> dict[str, dict[str, Any]]:
    """For each of `others`: a summary of each text, and of all of them together."""
    found: dict[str, list[tuple[NDArray[np.float64], NDArray[np.bool_]]]] = {w.name: [] for w in others}
    with TemporaryDirectory() as folder:
        for text in texts:
            ids = _asked(reference, "encode", text=text.read_text(encoding="utf-8"))["ids"]
            print(f"{text.name}: {len(ids)} tokens", file=sys.stderr, flush=True)
            expected = _logits(reference, ids, 0, folder)
            for worker in others:
                found[worker.name].append(divergence(expected, _logits(worker, ids, chunk, folder)))
    out: dict[str, dict[str, Any]] = {}
    for name, pairs in found.items():
        out[name] = {text.stem: summary(*pair) for text, pair in zip(texts, pairs, strict=True)}
        out[name]["all"] = summary(*(np.concatenate(parts) for parts in zip(*pairs, strict=True)))
    return out


def _logits(worker: WorkerProcess, ids: Sequence[int], chunk: int, folder: str) -> Logits:
    file = os.path.join(folder, "logits.npy")
    _asked(worker, "logits", ids=list(ids), chunk=chunk, file=file)
    found: Logits = np.load(file)
    assert found.shape[0] == len(ids)
    return found


def _asked(worker: WorkerProcess, kind: str, **request: Any) -> dict[str, Any]:
    answer = worker.ask(kind, **request)
    if "error" in answer:
        raise SystemExit(f"{worker.name}: {answer['error']}")
    return answer


def print_table(results: dict[str, dict[str, Any]]) -> None:
    """The results for people."""
    from rich.console import Console
    from rich.table import Table

    table = Table("program", "text", "positions", "mean KL", "±", "median", "99 %", "same top 1")
    for name, rows in results.items():
        for text, row in rows.items():
            figures = (row["mean_kl"], row["standard_error"], row["median_kl"], row["p99_kl"])
            texts = (f"{value:.5f}" for value in figures)
            table.add_row(name, text, str(row["positions"]), *texts, f"{row['top1_agreement']:.1%}")
    Console(width=None if sys.stdout.isatty() else 110, highlight=False).print(table)


def main(given: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("model", help="a GGUF file, or without --peer anything that Glassgear reads")
    add("--backend", action="append", default=[], help="of Glassgear, compared with the reference")
    add("--peer", metavar="PYTHON", help="one that has llama-cpp-python")
    add("--threads", type=int, default=os.cpu_count() or 1)
    add("--chunk", type=int, default=0, help="tokens in a step: 1 as in decoding; 0: the text at once")
    add("--texts", type=Path, default=TEXTS, metavar="FOLDER", help="of .txt files")
    options = parser.parse_args(given)
    with ExitStack() as stack:
        reference = stack.enter_context(glassgear_worker(options.model, options.threads, backend="reference"))
        others = [
            stack.enter_context(glassgear_worker(options.model, options.threads, backend=name))
            for name in options.backend
        ]
        if options.peer:
            others.append(
                stack.enter_context(peer_worker("llama_cpp", options.peer, options.model, options.threads))
            )
        about = {worker.name: _asked(worker, "about") for worker in others}
        results = run(reference, others, sorted(options.texts.glob("*.txt")), options.chunk)
    print_table(results)
    machine = {"hardware": hardware(), "versions": versions("numpy", "numba"), "programs": about}
    print(json.dumps({"model": options.model, "chunk": options.chunk, "date": time.strftime("%Y-%m-%d %H:%M"),
                      "results": results} | machine))  # fmt: skip


if __name__ == "__main__":
    main()
