"""Measuring: what is timed, what is counted, and what the report says."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from glassgear import measure
from glassgear.backends.base import Chunk
from glassgear.backends.reference import Reference
from glassgear.errors import GlassgearError, SettingError
from glassgear.language_model import LanguageModel
from glassgear.measure import report
from glassgear.measure.machine import MemoryReader, _compiled_sum
from glassgear.weights.checkpoint import Checkpoint
from tests.models import llama2c_file, tiny


class Watched(Reference):
    """The reference backend, and how many tokens each step had of each sequence."""

    def __init__(self, **changes: object) -> None:
        super().__init__(*tiny(**changes))
        self.steps: list[list[int]] = []
        self.ids: list[list[list[int]]] = []
        self.live = 0

    def open(self):  # type: ignore[no-untyped-def]
        self.live += 1
        return super().open()

    def close(self, track):  # type: ignore[no-untyped-def]
        self.live -= 1
        super().close(track)

    def step(self, chunks: Sequence[Chunk], hook=None):  # type: ignore[no-untyped-def]
        self.steps.append([len(chunk.ids) for chunk in chunks])
        self.ids.append([list(chunk.ids) for chunk in chunks])
        return super().step(chunks, hook)


def loaded(backend: Reference, tied: bool = False) -> LanguageModel:
    tensors = dict(tiny(tied=tied)[1])
    return LanguageModel(Checkpoint("made", "gguf", backend.model, tensors), backend, None)


def test_a_prompt_is_one_step_for_all_sequences() -> None:
    backend = Watched()
    assert measure.prompt_seconds(backend, 7, batch=3) > 0
    assert backend.steps == [[7, 7, 7]]
    assert backend.live == 0


def test_a_seed_gives_a_prompt_and_sequences_differ() -> None:
    backend = Watched()
    for seed in (1, 1, 9):
        measure.prompt_seconds(backend, 20, batch=2, seed=seed)
    first, again, other = backend.ids
    assert first == again != other
    assert first[0] != first[1]


def test_decoding_runs_the_prompt_once_and_goes_back_to_it() -> None:
    backend = Watched()
    with measure.decoding(backend, 5, batch=2) as seconds:
        seconds(3)
        seconds(3)
    assert backend.steps == [[5, 5], *[[1, 1]] * 6]
    assert backend.ids[1:4] == backend.ids[4:7], "a second timing must do the same work"
    assert backend.live == 0


def test_decoding_takes_the_likeliest_id() -> None:
    backend = Watched()
    with measure.decoding(backend, 5) as seconds:
        seconds(2)
    prompt, first, second = (ids[0] for ids in backend.ids)
    track = backend.open()
    row = Reference.step(backend, [Chunk(track, prompt)])[0]
    assert first == [int(row[0].argmax())]
    row = Reference.step(backend, [Chunk(track, first)])[0]
    assert second == [int(row[0].argmax())]


def test_tracks_are_closed_when_a_step_fails() -> None:
    backend = Watched()
    backend._weights._stored = {}
    with pytest.raises(KeyError):
        measure.prompt_seconds(backend, 3)
    with pytest.raises(KeyError), measure.decoding(backend, 3):
        pass
    assert backend.live == 0


def test_weight_bytes_count_a_tied_table_once_and_of_an_untied_one_a_row() -> None:
    tied, untied = Watched(tied=True), Watched(tied=False)
    every = sum(4 * int(np.prod(tensor.shape)) for tensor in tiny(tied=True)[1].values())
    table = 4 * 100 * 64  # vocabulary x width
    assert measure.weight_bytes(loaded(tied, tied=True)) == every
    assert measure.weight_bytes(loaded(untied)) == every + table - table + 4 * 64


def test_a_backend_can_say_itself_what_it_reads() -> None:
    backend = Watched()
    backend.weight_nbytes = 12345  # type: ignore[attr-defined]
    assert measure.weight_bytes(loaded(backend)) == 12345


def test_warming_up_runs_short_and_long_prompts_batches_and_decoding() -> None:
    backend = Watched()
    measure.warm_up(loaded(backend))
    lengths = {step[0] for step in backend.steps if len(step) == 1}
    assert min(lengths) == 1 and max(lengths) > 128
    assert any(len(step) > 1 for step in backend.steps)
    assert backend.live == 0


def test_warming_up_fits_a_short_context() -> None:
    backend = Watched(context=8)
    measure.warm_up(loaded(backend))
    assert max(sum(step) for step in backend.steps) <= 4 * 8


def test_reading_memory_gives_a_plausible_bandwidth_by_one_and_two_threads() -> None:
    for threads in (1, 2):
        reader = measure.MemoryReader(threads, 8 << 20)
        assert reader.nbytes == 8 << 20
        assert 1e8 < reader.bandwidth() < 1e13


def test_every_pass_reads_every_value() -> None:
    values = np.arange(1, 1001)
    total = _compiled_sum()
    assert total(values, 1) == values.sum()
    assert total(values, 3) == 3 * values[250:].sum() + sum((values[:250] ^ k).sum() for k in range(3))


@pytest.mark.parametrize(("threads", "nbytes"), [(0, 1 << 20), (4, 64)])
def test_reading_nothing_is_refused(threads: int, nbytes: int) -> None:
    with pytest.raises(SettingError):
        measure.MemoryReader(threads, nbytes)


def test_peak_memory_grows_by_what_a_process_takes() -> None:
    code = (
        "import numpy\nfrom glassgear.measure import peak_memory\nbefore = peak_memory()\n"
        "numpy.ones(10_000_000)\nprint(peak_memory() - before)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert 70e6 < int(done.stdout) < 120e6


def test_hardware_and_versions_can_be_written_as_json() -> None:
    machine = json.loads(json.dumps(measure.hardware()))
    assert machine["cpus"] >= 1 and machine["processor"]
    found = measure.versions("numpy", "no-such-package")
    assert found["numpy"] == np.__version__
    assert set(found) == {"glassgear", "python", "numpy"}


def test_rates_come_from_the_median_and_the_best() -> None:
    cell = measure.Cell("decode", 8, 2, 60, (3.0, 1.0, 2.0))
    assert (cell.rate, cell.best) == (30.0, 60.0)


@pytest.fixture
def small(tmp_path: Path) -> Path:
    llama2c_file(tmp_path / "small.bin")
    return tmp_path / "small.bin"


def test_a_cold_start_is_a_process_of_its_own(small: Path) -> None:
    start = measure.cold_start(str(small), backend="reference")
    assert 0 < start.first < start.load + start.first < start.total


def test_a_cold_start_that_fails_says_why(tmp_path: Path) -> None:
    with pytest.raises(GlassgearError, match=r"made no token.*nowhere"):
        measure.cold_start(str(tmp_path / "nowhere.bin"))


def test_more_sequences_than_memory_holds_are_refused(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report, "free_memory", lambda: 10**6)
    settings = measure.Settings(lengths=(4, 500), batches=(1, 100_000), tokens=3, repeats=1)
    with pytest.raises(SettingError, match=r"100,000 sequences of 7 tokens at once need .* 0\.0 GB are free"):
        measure.bench(str(small), settings, backend="reference")


def test_the_report_has_every_figure(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report, "MemoryReader", lambda threads, _=0: MemoryReader(threads, 8 << 20))
    told: list[str] = []
    settings = measure.Settings(lengths=(4, 16, 500), batches=(1, 2), tokens=3, repeats=2)
    found = measure.bench(str(small), settings, told=told.append, backend="reference")
    kinds = [(cell.kind, cell.length, cell.batch, cell.tokens) for cell in found.cells]
    assert kinds == [
        ("prompt", 4, 1, 4), ("decode", 4, 1, 3), ("prompt", 16, 1, 16), ("decode", 16, 1, 3),
        ("prompt", 4, 2, 8), ("decode", 4, 2, 6), ("prompt", 16, 2, 32), ("decode", 16, 2, 6),
    ]  # fmt: skip
    assert all(len(cell.seconds) == 2 for cell in found.cells)
    assert found.notes == ("prompts of 500 are left out: the context is 64",)
    assert found.types == {"F32": found.file_bytes}
    assert len(found.bandwidth.samples) == 3
    assert found.bandwidth.used > 0 and found.bandwidth.share > 0
    assert told
    written = json.loads(json.dumps(found.as_json()))
    assert written["cells"][1]["tokens_per_s"] == found.cells[1].rate
    assert written["backend"] == "reference"


def test_the_share_compares_timings_next_to_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that halves its speed half-way leaves the share as it is."""
    speed = iter([4.0, 2.0, 2.0])

    class Reader:
        def __init__(self, threads: int, nbytes: int = 0) -> None:
            self.nbytes = nbytes

        def bandwidth(self) -> float:
            return 1000.0 * now[0]

    now = [0.0]

    @contextmanager
    def decoding(backend: object, length: int) -> Iterator[Callable[[int], float]]:
        def seconds(steps: int) -> float:
            if steps > 1:
                now[0] = next(speed)
            return steps / (now[0] or 1)

        yield seconds

    monkeypatch.setattr(report, "MemoryReader", Reader)
    monkeypatch.setattr(report, "decoding", decoding)
    backend = Watched()
    backend.weight_nbytes = 500  # type: ignore[attr-defined]
    found = report._bandwidth(loaded(backend), measure.Settings(tokens=4, repeats=3), 1, lambda text: None)
    assert found.samples == (4000.0, 2000.0, 2000.0)
    assert found.share == 0.5
    assert found.used == 1000.0


def test_a_timing_that_takes_long_is_not_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = measure.Settings(repeats=5)
    monkeypatch.setattr(report, "CELL_SECONDS", 10.0)
    assert report._repeat(lambda: 20.0, settings) == (20.0,)
    assert report._repeat(lambda: 4.0, settings) == (4.0, 4.0)
    assert report._repeat(lambda: 0.1, settings) == (0.1,) * 5
