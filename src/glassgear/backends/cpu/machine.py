"""The CPU backend: batch steps from ids to logits, run as programs by a team of threads."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from glassgear.backends.base import PAGE, Chunk, Hook, PageTable, Track
from glassgear.backends.cpu import features
from glassgear.backends.cpu.builder import FEW, Builder, Memory
from glassgear.backends.cpu.cache import PagedCache
from glassgear.backends.cpu.fields import QUERY_ROWS, ROWS, SEGMENT, SPARE_ROWS, TILE, Frame
from glassgear.backends.cpu.layouts import PANEL
from glassgear.backends.cpu.machine_code import machine_code
from glassgear.backends.cpu.parts import Parts
from glassgear.backends.cpu.program import Buffers, Mark, Weights, flatten, linears
from glassgear.backends.cpu.rotation import Rotations
from glassgear.backends.cpu.seeing import show
from glassgear.backends.cpu.team import TEAM_KERNELS, Team
from glassgear.errors import SettingError
from glassgear.model.gears import Attention, Linear, Model, RMSNorm, Rope, walk
from glassgear.weights.tensor import StoredTensor

__all__ = ["CPU"]

SMALL = 8 << 20  # bytes of weights below which one thread is faster than two that meet
FLOATS = ("F32", "F16", "BF16")
SHORT = 8  # rows up to which a step counts as short
WORDS = 1 << 16  # pages that one pass may see


@dataclass(frozen=True, eq=False)
class Span:
    """Rows of one chunk in a pass: `rows` of them from `row` on, `wanted` of which give logits."""

    chunk: int
    first: int
    row: int
    rows: int
    wanted: int


class CPU:
    """Runs a model at the speed of the machine. Implements `backends.base.Backend`.

    Calls from several threads wait for each other. A step answers Ctrl-C when the pass that is
    running, at most 512 rows, is done.

    Args:
        model: the tree of gears.
        tensors: gear path -> stored tensor.
        cache_type: dtype of cached keys and values: float32 or float16; by default float16 for
            quantised models.
        threads: by default one for small models, else one per physical core.
        on_compile: is told, in a line, when kernels have to be compiled first.
    """

    name = "cpu"

    def __init__(
        self,
        model: Model,
        tensors: Mapping[str, StoredTensor],
        *,
        cache_type: DTypeLike | None = None,
        threads: int | None = None,
        on_compile: Callable[[str], None] | None = None,
    ) -> None:
        self.model = model
        self._embed = tensors["embed.weight"]
        plain = self._embed.type == "F32" and self._embed.row_order is None
        self._table = self._embed.float32() if plain else None  # a view of the file
        self._lock = threading.RLock()
        self._pages = PageTable()
        matrices = {path: tensors[_source(model, path)] for path in linears(model)}
        size = sum(t.nbytes for t in matrices.values())
        if threads is not None and threads < 1:
            raise SettingError(f"threads is {threads}; at least 1 is needed")
        self.threads = threads or (1 if size < SMALL else features.physical_cores())
        half = _half(cache_type, matrices.values())
        attention = [g for _, g in walk(model) if isinstance(g, Attention)]
        self._parts = Parts(attention)
        self._cache = PagedCache([(g.kv_heads, g.head_dim) for g in attention], half)
        self._memory = Memory(self.threads)
        self._weights = self._pack(matrices, tensors)
        self._ropes: list[Rope] = []
        self._code, self._on_compile = machine_code(features.target()), on_compile
        self._buffers = Buffers(model, self._memory)
        self._make_frame()
        self._program, _ = self._flatten(seeing=False)
        self._program_at, self._frame_at = int(self._program.ctypes.data), int(self._frame.ctypes.data)
        self._seeing: tuple[NDArray[np.int64], list[Mark]] | None = None
        self._rotations = Rotations(self._ropes)
        self._team = Team(self.threads, self._code.addresses(TEAM_KERNELS, on_compile))

    @property
    def kernels(self) -> str:
        """The family of kernels that was chosen."""
        return self._code.target.kernels

    @property
    def weight_nbytes(self) -> int:
        """Bytes of packed weights: about what a decoded token reads."""
        return self._memory.weight_bytes

    @property
    def cache_nbytes(self) -> int:
        """Bytes of the KV cache now."""
        return self._cache.nbytes

    def open(self) -> Track:
        """A new, empty sequence."""
        return Track()

    def truncate(self, track: Track, length: int) -> None:
        """Forget all but the first `length` tokens of a sequence."""
        with self._lock:
            self._pages.truncate(track, length)

    def close(self, track: Track) -> None:
        """End a sequence."""
        with self._lock:
            self._pages.close(track)

    def step(self, chunks: Sequence[Chunk], hook: Hook | None = None) -> list[NDArray[np.float32]]:
        """Run new tokens through the model; see `backends.base.Backend.step`."""
        with self._lock:
            before = [chunk.track.length for chunk in chunks]
            out: list[list[NDArray[np.float32]]] = [[] for _ in chunks]
            try:
                for spans in _passes(chunks):
                    logits = self._pass(chunks, spans, hook)
                    row = 0
                    for span in spans:
                        out[span.chunk].append(logits[row : row + span.wanted])
                        row += span.wanted
            except BaseException:
                for chunk, length in zip(chunks, before, strict=True):
                    self._pages.truncate(chunk.track, min(length, chunk.track.length))
                raise
        return [_joined(rows) for rows in out]

    # --- building ---------------------------------------------------------------------------

    def _pack(self, matrices: Mapping[str, StoredTensor], tensors: Mapping[str, StoredTensor]) -> Weights:
        packed = dict(zip(matrices, self._memory.matrices(list(matrices.values())), strict=True))
        vectors = {}
        for path, gear in walk(self.model):
            if isinstance(gear, RMSNorm):
                vectors[f"{path}.weight"] = self._memory.vector(tensors[f"{path}.weight"].float32())
            elif isinstance(gear, Linear) and gear.bias:
                vectors[f"{path}.bias"] = self._memory.vector(tensors[f"{path}.bias"].float32())
        return Weights(packed, vectors)

    def _flatten(self, seeing: bool) -> tuple[NDArray[np.int64], list[Mark]]:
        builder = Builder(self._memory, self._code.target.kernels, alone=seeing)
        marks = flatten(
            self.model, builder, self._weights, self._buffers, self._cache.layers, self._cache.half,
            self._ropes, seeing,
        )  # fmt: skip
        return builder.array(self._code.addresses(builder.kernels, self._on_compile)), marks

    def _make_frame(self) -> None:
        rows = ROWS + TILE
        self._positions, self._page_of_row, self._wanted_rows = (np.zeros(rows, np.int64) for _ in range(3))
        self._spans = np.zeros((ROWS, 4), np.int64)
        self._page_list = np.zeros(WORDS, np.int64)
        self._counters = np.zeros(max(1, len(self._cache.layers)), np.int64)
        widest = max((layer.channels for layer in self._cache.layers), default=16)
        scratch = (QUERY_ROWS + SPARE_ROWS) * (3 * 4 * widest + 4 * PAGE + 2 * 128 + 8) + 64
        frame = self._frame = np.zeros(len(Frame), np.int64)
        frame[Frame.SCRATCH] = self._memory.raw(self.threads * scratch)
        frame[Frame.SCRATCH_BYTES] = scratch
        for name, array in (
            (Frame.POSITIONS, self._positions), (Frame.PAGE_OF_ROW, self._page_of_row),
            (Frame.WANTED_ROWS, self._wanted_rows), (Frame.SPANS, self._spans),
            (Frame.PAGES, self._page_list), (Frame.COUNTERS, self._counters),
        ):  # fmt: skip
            frame[name] = array.ctypes.data
        self._x = self._memory.array(self._buffers.x, rows)

    # --- running ----------------------------------------------------------------------------

    def _pass(self, chunks: Sequence[Chunk], spans: Sequence[Span], hook: Hook | None) -> NDArray[np.float32]:
        """Logits [wanted, vocab] of one pass; lengths of tracks grow."""
        last = spans[-1]
        rows, wanted = last.row + last.rows, sum(span.wanted for span in spans)
        ids = [i for s in spans for i in chunks[s.chunk].ids[s.first : s.first + s.rows]]
        self._x[:rows] = self._embedded(np.array(ids, np.int64))
        self._fill_frame(chunks, spans, rows, wanted, shared_out=rows > FEW or hook is not None)
        head = self._weights.matrices["head"]
        # Tiles may write a few rows more than are asked for.
        room = wanted if wanted < 2 else -(-wanted // TILE) * TILE
        logits = np.empty((room, head.panels * PANEL), np.float32)
        self._frame[Frame.LOGITS], self._frame[Frame.LOGITS_STRIDE] = (
            logits.ctypes.data,
            4 * head.panels * PANEL,
        )
        logits = logits[:wanted, : head.rows]
        if hook is None:
            self._team.run(
                int(self._program.ctypes.data),
                len(self._program),
                int(self._frame.ctypes.data),
                rows <= SHORT,
            )
        else:
            self._run_seen(hook, chunks, spans, logits)
        for span in spans:
            chunks[span.chunk].track.length += span.rows
        return logits

    def _embedded(self, ids: NDArray[np.int64]) -> NDArray[np.float32]:
        return self._embed.rows(ids) if self._table is None else self._table[ids]

    def _fill_frame(
        self, chunks: Sequence[Chunk], spans: Sequence[Span], rows: int, wanted: int, shared_out: bool
    ) -> None:
        tracks = [chunks[span.chunk].track for span in spans]
        stops = [track.length + span.rows for track, span in zip(tracks, spans, strict=True)]
        for track, stop in zip(tracks, stops, strict=True):
            self._pages.reserve(track, stop)
        self._cache.grow(self._pages.count)
        addresses = self._cache.addresses
        held = [
            addresses[p] for t, stop in zip(tracks, stops, strict=True) for p in t.pages[: -(-stop // PAGE)]
        ]
        if len(held) > len(self._page_list):
            self._page_list = np.zeros(2 * len(held), np.int64)
            self._frame[Frame.PAGES] = self._page_list.ctypes.data
        self._page_list[: len(held)] = held
        page, want = 0, 0
        for i, (span, stop) in enumerate(zip(spans, stops, strict=True)):
            self._spans[i] = (span.row, span.rows, page, 0)
            here, end = slice(span.row, span.row + span.rows), page - (-stop // PAGE)
            if span.rows == 1:
                self._positions[span.row], self._page_of_row[span.row] = stop - 1, held[end - 1]
            else:
                positions = np.arange(stop - span.rows, stop)
                self._positions[here] = positions
                self._page_of_row[here] = self._page_list[page:end][positions // PAGE]
            if span.wanted:
                self._wanted_rows[want : want + span.wanted] = range(here.stop - span.wanted, here.stop)
            page, want = end, want + span.wanted
        self._counters.fill(0)
        frame = self._frame
        frame[Frame.ROWS], frame[Frame.WANTED], frame[Frame.SPAN_COUNT] = rows, wanted, len(spans)
        frame[Frame.SHARED_OUT] = int(shared_out)
        frame[Frame.ROTATIONS] = self._rotations.upto(max(stops))
        # The few rows of a long context would be too few pieces of work to share out evenly.
        split = rows <= SHORT and max(stops) > SEGMENT and self.threads > 1
        frame[Frame.PARTS], frame[Frame.PART_BYTES] = (
            self._parts.place([span.rows for span in spans], stops) if split else (0, 0)
        )

    def _run_seen(
        self, hook: Hook, chunks: Sequence[Chunk], spans: Sequence[Span], logits: NDArray[np.float32]
    ) -> None:
        if self._seeing is None:
            self._seeing = self._flatten(seeing=True)
        program, marks = self._seeing
        show(self, program, marks, hook, chunks, spans, logits)


def _passes(chunks: Sequence[Chunk]) -> list[list[Span]]:
    """Chunks in passes of at most ROWS rows; a long chunk goes through several."""
    passes: list[list[Span]] = [[]]
    row = 0
    for i, chunk in enumerate(chunks):
        first, count = 0, len(chunk.ids)
        assert count > 0
        while first < count:
            if row == ROWS:
                passes.append([])
                row = 0
            rows = min(count - first, ROWS - row)
            done = first + rows == count
            wanted = {"none": 0, "last": int(done), "all": rows}[chunk.logits]
            passes[-1].append(Span(i, first, row, rows, wanted))
            first, row = first + rows, row + rows
    return [spans for spans in passes if spans]


def _joined(parts: list[NDArray[np.float32]]) -> NDArray[np.float32]:
    full = [part for part in parts if len(part)] or parts[:1]
    return full[0] if len(full) == 1 else np.concatenate(full)


def _source(model: Model, path: str) -> str:
    return "embed.weight" if path == "head" and model.head.tied else f"{path}.weight"


def _half(cache_type: DTypeLike | None, matrices: Any) -> bool:
    if cache_type is None:
        return any(tensor.type not in FLOATS for tensor in matrices)
    kind = np.dtype(cache_type)
    if kind not in (np.dtype(np.float32), np.dtype(np.float16)):
        raise SettingError(f"the KV cache can be float32 or float16, not {kind}")
    return bool(kind == np.dtype(np.float16))
