"""Measure one model from all sides: the figures behind `glassgear bench`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING, Any, Literal

from glassgear.errors import SettingError
from glassgear.measure.machine import MemoryReader, free_memory, hardware, peak_memory, versions
from glassgear.measure.start import Start, cold_start
from glassgear.measure.timing import decoding, prompt_seconds, weight_bytes

if TYPE_CHECKING:
    from glassgear.language_model import LanguageModel

__all__ = ["Bandwidth", "Cell", "Report", "Settings", "bench"]

Kind = Literal["prompt", "decode"]
Told = Callable[[str], None]

CELL_SECONDS = 15.0  # a cell that has taken so long is not repeated further


@dataclass(frozen=True)
class Cell:
    """One kind of work, timed several times.

    Attributes:
        kind: `prompt`: all tokens in one step; `decode`: one token a step.
        length: tokens of each prompt; when decoding, what the cache holds before.
        batch: sequences that run together.
        tokens: tokens computed in one timing, over all sequences.
        seconds: the timings, in the order in which they were taken.
    """

    kind: Kind
    length: int
    batch: int
    tokens: int
    seconds: tuple[float, ...]

    @property
    def rate(self) -> float:
        """Tokens a second, by the median timing."""
        return self.tokens / median(self.seconds)

    @property
    def best(self) -> float:
        """Tokens a second, by the shortest timing."""
        return self.tokens / min(self.seconds)


@dataclass(frozen=True)
class Settings:
    """What to measure.

    Attributes:
        lengths: tokens of the prompts.
        batches: sequences that run together.
        tokens: tokens that are decoded of each sequence, a timing.
        repeats: timings of each cell, after one that isn't counted.
    """

    lengths: Sequence[int] = (16, 128, 512)
    batches: Sequence[int] = (1, 8)
    tokens: int = 32
    repeats: int = 5


@dataclass(frozen=True)
class Bandwidth:
    """What the memory gives, what decoding takes of it. Bytes and bytes a second, medians.

    Attributes:
        read: of the memory, by as many threads as the model runs on.
        read_same_size: over an array as large as the weights of one token, which caches may serve
            in part as they may serve the weights.
        used: weight bytes per token times tokens a second, one sequence.
        share: weight bytes in parts of what was read in the same time, for timings next to each other;
            caches that hold a part of a small model bring it above 1.
        samples: every measured `read`.
    """

    read: float
    read_same_size: float
    used: float
    share: float
    samples: tuple[float, ...]


@dataclass(frozen=True)
class Report:
    """Everything that `glassgear bench` says; sizes in bytes, times in seconds."""

    model: str
    parameters: int
    types: dict[str, int]  # name of a tensor type -> bytes in it
    backend: str
    kernels: str
    threads: int
    load: float
    start: Start
    weight_bytes_per_token: int
    file_bytes: int
    cache_bytes: int | None
    peak_memory: int | None
    cells: tuple[Cell, ...]
    bandwidth: Bandwidth
    hardware: dict[str, Any] = field(default_factory=hardware)
    versions: dict[str, str] = field(default_factory=lambda: versions("numpy", "numba"))
    notes: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """The report as one JSON object, with a rate beside the timings of each cell."""
        out = asdict(self)
        for cell, row in zip(self.cells, out["cells"], strict=True):
            row |= {"tokens_per_s": cell.rate, "best_tokens_per_s": cell.best}
        return out


def bench(
    path: str, settings: Settings | None = None, *, told: Told = lambda text: None, **options: Any
) -> Report:
    """Load a model and measure it.

    Args:
        path: a path or name, as `glassgear.load` takes it.
        settings: what to measure.
        told: called with a line about what is being done now, compiling kernels included.
        **options: options of `glassgear.load`.
    """
    from glassgear.loading import load

    settings = settings or Settings()
    told(f"loading {path}")
    begin = perf_counter()
    model = load(path, on_compile=told, **options)
    model.require_causal()
    loaded = perf_counter() - begin
    _check_memory(model, settings)
    threads = getattr(model.backend, "threads", None) or options.get("threads") or hardware()["cpus"] or 1
    cells, notes = _cells(model, settings, told)
    peak, cache = peak_memory(), getattr(model.backend, "cache_nbytes", None)
    bandwidth = _bandwidth(model, settings, threads, told)
    told("measuring a fresh process up to its first token")
    starts = [cold_start(path, **options) for _ in range(max(3, settings.repeats))]
    types: dict[str, int] = {}
    for tensor in model.checkpoint.tensors.values():
        types[tensor.type] = types.get(tensor.type, 0) + tensor.nbytes
    return Report(
        model=model.checkpoint.path,
        parameters=model.ledger().parameters,
        types=types,
        backend=model.backend.name,
        kernels=str(getattr(model.backend, "kernels", "numpy")),
        threads=threads,
        load=loaded,
        start=sorted(starts, key=lambda one: one.total)[len(starts) // 2],
        weight_bytes_per_token=weight_bytes(model),
        file_bytes=sum(types.values()),
        cache_bytes=cache,
        peak_memory=peak,
        cells=tuple(cells),
        bandwidth=bandwidth,
        notes=tuple(notes),
    )


def _check_memory(model: LanguageModel, settings: Settings) -> None:
    """Refuse a batch whose caches and logits alone don't fit, before hours are spent on filling memory."""
    lengths = [length for length in settings.lengths if length <= model.context]
    free = free_memory()
    if not lengths or free is None:
        return
    batch = max(settings.batches)
    tokens = min(max(lengths) + settings.tokens, model.context)
    needed = batch * (tokens * model.ledger().kv_bytes_per_token + 4 * model.gears.vocab)
    if needed > free:
        raise SettingError(
            f"{batch:,} sequences of {tokens:,} tokens at once need {needed / 1e9:,.1f} GB of memory, and "
            f"{free / 1e9:,.1f} GB are free: measure fewer or shorter ones"
        )


def _cells(model: LanguageModel, settings: Settings, told: Told) -> tuple[list[Cell], list[str]]:
    cells, notes = [], []
    for batch in settings.batches:
        for length in settings.lengths:
            if length > model.context:
                notes.append(f"prompts of {length:,} are left out: the context is {model.context:,}")
                continue
            told(f"measuring a prompt of {length:,}, {batch} at once")
            times = _repeat(partial(prompt_seconds, model.backend, length, batch=batch), settings)
            cells.append(Cell("prompt", length, batch, length * batch, times))
            steps = min(settings.tokens, model.context - length)
            if steps < 1:
                notes.append(f"no token fits after {length:,}: the context is {model.context:,}")
                continue
            told(f"measuring decoding after {length:,}, {batch} at once")
            with decoding(model.backend, length, batch=batch) as seconds:
                times = _repeat(partial(seconds, steps), settings)
            cells.append(Cell("decode", length, batch, steps * batch, times))
    return cells, list(dict.fromkeys(notes))


def _repeat(run: Callable[[], float], settings: Settings) -> tuple[float, ...]:
    """`repeats` timings after one that isn't counted, or fewer where one takes very long."""
    spent = run()
    times: list[float] = []
    while len(times) < settings.repeats and (not times or spent < CELL_SECONDS):
        times.append(run())
        spent += times[-1]
    return tuple(times)


def _bandwidth(model: LanguageModel, settings: Settings, threads: int, told: Told) -> Bandwidth:
    """Decode, read, decode, read: what else the machine does then disturbs both alike."""
    told("measuring the read bandwidth of the memory")
    needed = weight_bytes(model)
    large, same = MemoryReader(threads), MemoryReader(threads, max(needed, 32 * threads))
    length = min(8, max(1, model.context // 2))
    steps = max(1, min(settings.tokens, model.context - length))
    reads, reads_same, rates = [], [], []
    with decoding(model.backend, length) as seconds:
        seconds(1)
        for _ in range(max(3, settings.repeats)):
            rates.append(steps / seconds(steps))
            reads.append(large.bandwidth())
            reads_same.append(same.bandwidth())
    share = median(needed * rate / read for rate, read in zip(rates, reads, strict=True))
    return Bandwidth(median(reads), median(reads_same), needed * median(rates), share, tuple(reads))
