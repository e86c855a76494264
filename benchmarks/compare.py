"""Glassgear beside other programs: the same work, by turns, in one run.

    python benchmarks/compare.py MODEL --peers /path/to/venv/bin/python --threads 2

Each program runs in a process of its own that loads the model once. They take turns, one timing
each, so that whatever else the machine does disturbs all of them alike; while one works, the
others wait for a line on stdin. See README.md beside this file.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from worker_process import FOLDER, PEERS, WorkerProcess, find_peers, glassgear_worker, peer_worker

from glassgear.measure import hardware, versions

PAUSE = 0.2  # seconds between turns: threads of some programs spin a while after their work


@dataclass(frozen=True)
class Workload:
    """One kind of work: `pp512`, `tg64`, `tg64@256` (after 256 tokens), `tg64x8` (8 sequences)."""

    name: str
    kind: str
    length: int
    batch: int
    tokens: int

    @classmethod
    def parse(cls, name: str) -> Workload:
        """The workload of that name."""
        found = re.fullmatch(r"(pp|tg)(\d+)(?:x(\d+))?(?:@(\d+))?", name)
        if found is None or (found[1] == "pp" and found[4]):
            raise argparse.ArgumentTypeError(f"{name!r} is no workload such as pp512, tg64, tg64x8, tg64@256")
        count, batch = int(found[2]), int(found[3] or 1)
        if found[1] == "pp":
            return cls(name, "prompt", count, batch, 0)
        return cls(name, "decode", int(found[4] or 8), batch, count)

    def request(self, variant: str, seed: int) -> dict[str, Any]:
        """What a worker is sent."""
        asked = {"length": self.length, "batch": self.batch, "variant": variant, "seed": seed}
        return asked if self.kind == "prompt" else asked | {"tokens": self.tokens}


@dataclass
class Cell:
    """The timings of one program, in one of its variants, on one workload."""

    seconds: list[float] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)
    error: str = ""

    @property
    def rates(self) -> list[float]:
        """Tokens a second of each timing."""
        return [tokens / seconds for tokens, seconds in zip(self.tokens, self.seconds, strict=True)]

    @property
    def rate(self) -> float:
        """Their median; 0 without any."""
        return median(self.rates) if self.seconds else 0.0

    def add(self, answer: dict[str, Any]) -> None:
        """Keep an answer of a worker."""
        if "error" in answer:
            self.error = answer["error"]
        else:
            self.seconds.append(answer["seconds"])
            self.tokens.append(answer["tokens"])

    def as_json(self) -> dict[str, Any]:
        """Figures, or the error."""
        if not self.seconds:
            return {"error": self.error}
        rates = self.rates
        return {"tokens_per_s": self.rate, "least": min(rates), "most": max(rates), "seconds": self.seconds}


Cells = dict[str, dict[str, Cell]]  # program -> variant -> cell


@dataclass
class Memory:
    """The read bandwidth, again and again: of the memory, and over as many bytes as the weights have.

    Caches serve a part of the latter, as they serve a part of the weights. `samples` are bytes a
    second: workload -> which of the two -> a figure for each turn.
    """

    worker: WorkerProcess
    weights: int
    samples: dict[str, dict[str, list[float]]] = field(default_factory=dict)

    def read(self, work: str) -> None:
        """Measure both now."""
        kinds = self.samples.setdefault(work, {"memory": [], "as_many_bytes": []})
        for kind, nbytes in (("memory", 0), ("as_many_bytes", self.weights)):
            kinds[kind].append(self.worker.ask("read", nbytes=nbytes)["bandwidth"])


def run_workload(
    work: Workload,
    workers: Sequence[WorkerProcess],
    variants: dict[str, list[str]],
    memory: Memory,
    repeats: int,
) -> Cells:
    """One uncounted turn of each program, then `repeats` counted ones, by turns.

    The memory is read at the end of each counted turn.
    """
    cells: Cells = {w.name: {v: Cell() for v in variants[w.name]} for w in workers}
    for turn in range(-1, repeats):
        for worker in workers:
            for variant, cell in cells[worker.name].items():
                if cell.error:
                    continue
                answer = worker.ask(work.kind, **work.request(variant, seed=turn + 1))
                if turn >= 0 or "error" in answer:
                    cell.add(answer)
                time.sleep(PAUSE)
        if turn >= 0:
            memory.read(work.name)
    return cells


def best_variant(cells: dict[str, Cell]) -> str:
    """The variant with the highest median."""
    return max(cells, key=lambda variant: cells[variant].rate)


def summary(cells: Cells, ours: str) -> dict[str, Any]:
    """The best variant of each program, and how many times as fast as it ours is.

    `ratio` is that of the medians; `ratio_of_pairs` the median over turns of the ratio of two
    timings next to each other, which slow drift of the machine doesn't touch.
    """
    best = {name: found[best_variant(found)] for name, found in cells.items()}
    out: dict[str, Any] = {}
    for name, cell in best.items():
        out[name] = cell.as_json() | {"variant": best_variant(cells[name])}
        out[name]["variants"] = (
            {v: c.as_json() for v, c in cells[name].items()} if len(cells[name]) > 1 else {}
        )
        if name != ours and cell.rate and best[ours].rate:
            pairs = [a / b for a, b in zip(best[ours].rates, cell.rates, strict=False)]
            out[name] |= {"ratio": best[ours].rate / cell.rate, "ratio_of_pairs": median(pairs)}
    return out


def measure_all(
    works: Sequence[Workload], workers: Sequence[WorkerProcess], memory: WorkerProcess, repeats: int
) -> dict[str, Any]:
    """Everything but the description of the machine, as one JSON-able object."""
    about = {worker.name: worker.ask("about") for worker in workers}
    live = [worker for worker in workers if "error" not in about[worker.name]]
    for name in about.keys() - {worker.name for worker in live}:
        print(f"{name}: left out: {about[name]['error']}", file=sys.stderr)
    if not live or live[0] is not workers[0]:
        raise SystemExit("Glassgear itself can't be measured")
    variants = {worker.name: about[worker.name]["variants"] for worker in live}
    bandwidth = Memory(memory, about[live[0].name]["weight_bytes_per_token"])
    results = {}
    for work in works:
        print(f"{work.name} ...", file=sys.stderr, flush=True)
        results[work.name] = summary(run_workload(work, live, variants, bandwidth, repeats), live[0].name)
    return {
        "programs": about,
        "results": results,
        "read_bandwidth": bandwidth.samples,
        "peak_memory": {worker.name: worker.ask("memory").get("peak") for worker in live},
    }


def print_report(report: dict[str, Any]) -> None:
    """The report for people."""
    from rich.console import Console
    from rich.table import Table

    console = Console(width=None if sys.stdout.isatty() else 150, highlight=False, markup=False)
    for line in (*_machine_lines(report), *_program_lines(report)):
        console.print(line, soft_wrap=True)
    names = list(next(iter(report["results"].values())))
    table = Table("tokens/s, median (least-most)", *names)
    for work, cells in report["results"].items():
        table.add_row(work, *(_cell(cells[name]) for name in names))
    console.print(table)
    for line in _bandwidth_lines(report, names[0]):
        console.print(line)


def _machine_lines(report: dict[str, Any]) -> list[str]:
    machine, after = report["hardware"], report["load_average_after"]
    lines = [
        f"{machine['processor']}, {machine['cpus']} CPUs, {machine['system']}; {report['date']}",
        f"{report['model']}, {report['threads']} threads",
    ]
    if after is not None:
        lines.append(f"load average {machine['load_average']:.1f} before, {after:.1f} after")
    return lines


def _program_lines(report: dict[str, Any]) -> list[str]:
    lines = []
    for name, about in report["programs"].items():
        parts = [", ".join(f"{k} {v}" for k, v in about.get("versions", {}).items())]
        if "load_seconds" in about:
            parts.append(f"loaded in {about['load_seconds']:.2f} s")
        if report["peak_memory"].get(name):
            parts.append(f"at most {report['peak_memory'][name] / 1e6:,.0f} MB")
        parts += [about.get("notes", ""), about.get("error", "")]
        lines.append(f"{name}: {'; '.join(filter(None, parts))}")
    return lines


def _bandwidth_lines(report: dict[str, Any], ours: str) -> list[str]:
    """What decoding one sequence reads, beside what the memory gave in the same minute."""
    lines = []
    weights = report["programs"][ours]["weight_bytes_per_token"]
    for name, samples in report["read_bandwidth"].items():
        memory, as_many = median(samples["memory"]), median(samples["as_many_bytes"])
        line, work = f"{name}: read bandwidth {memory / 1e9:.1f} GB/s", Workload.parse(name)
        rate = report["results"][name][ours].get("tokens_per_s")
        if rate and work.kind == "decode" and work.batch == 1:
            used = weights * rate
            line += (
                f", {as_many / 1e9:.1f} over {weights / 1e6:,.1f} MB; {ours} reads {used / 1e9:.1f} GB/s "
                f"of weights, {used / memory:.0%} and {used / as_many:.0%}"
            )
        lines.append(line)
    return lines


def _cell(found: dict[str, Any]) -> str:
    if "tokens_per_s" not in found:
        return f"- ({found['error']:.60})"
    text = f"{found['tokens_per_s']:,.1f} ({found['least']:,.1f}-{found['most']:,.1f})"
    if found["variants"]:
        text += f" [{found['variant']}]"
    return text + (f"  {found['ratio']:.2f}x" if "ratio" in found else "")


def _pair(text: str) -> tuple[str, str]:
    name, _, path = text.partition("=")
    if name not in (*PEERS, "llama2c") or not path:
        known = ", ".join((*PEERS, "llama2c"))
        raise argparse.ArgumentTypeError(f"{text!r} isn't NAME=PATH with a NAME of {known}")
    return name, path


def arguments(given: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("model", help="a model that all of them can read")
    add("--peers", action="append", default=[], metavar="PYTHON", help="a Python with other programs in it")
    add("--peer", action="append", default=[], type=_pair, metavar="NAME=PATH",
        help=f"one of {', '.join(PEERS)} and the Python that has it, or llama2c and its program")  # fmt: skip
    add("--peer-model", action="append", default=[], type=_pair, metavar="NAME=PATH",
        help="another file or folder for one of them")  # fmt: skip
    add("--llama2c-tokenizer", default="tokenizer.bin", metavar="PATH", help="the file llama2c needs")
    add("--backend", action="append", default=[], help="of Glassgear; the first is the one compared")
    add("--threads", type=int, default=os.cpu_count() or 1, help="of every program")
    add("--repeats", type=int, default=5, help="counted turns")
    add("--workloads", type=lambda text: [Workload.parse(one) for one in text.split(",")],
        default="pp512,tg64,tg64x8,pp4096", help="default: %(default)s")  # fmt: skip
    return parser.parse_args(given)


def main(given: Sequence[str] | None = None) -> None:
    options = arguments(given)
    peers: dict[str, str] = {}
    for python in options.peers:
        peers |= find_peers(python)
    peers |= dict(options.peer)
    models = dict(options.peer_model)
    before = hardware()
    with ExitStack() as stack:
        start = stack.enter_context
        chosen = [{"backend": name} for name in options.backend] or [{}]
        workers = [start(glassgear_worker(options.model, options.threads, **one)) for one in chosen]
        for name, where in peers.items():
            model = models.get(name, options.model)
            workers.append(start(peer_worker(name, where, model, options.threads, options.llama2c_tokenizer)))
        script = str(FOLDER / "memory_worker.py")
        memory = start(WorkerProcess("memory", [sys.executable, script, str(options.threads)]))
        report = measure_all(options.workloads, workers, memory, options.repeats)
    report = {"model": options.model, "threads": options.threads, "hardware": before, "versions": versions(),
              "peer_models": models, "date": time.strftime("%Y-%m-%d %H:%M"),
              "load_average_after": hardware()["load_average"]} | report  # fmt: skip
    print_report(report)
    print(json.dumps(report))


if __name__ == "__main__":
    main()
