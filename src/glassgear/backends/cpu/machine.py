"""The CPU backend: batch steps from ids to logits, run as programs by a team of threads."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from glassgear.backends.base import PAGE, Chunk, Hook, Output, PageTable, Track, check_chunks
from glassgear.backends.cpu import features
from glassgear.backends.cpu.builder import Builder
from glassgear.backends.cpu.cache import PagedCache, scratch_bytes
from glassgear.backends.cpu.fields import COPIES, PRODUCT_SCRATCH, ROWS, SEGMENT, TILE, Frame
from glassgear.backends.cpu.layouts import PANEL
from glassgear.backends.cpu.machine_code import machine_code
from glassgear.backends.cpu.memory import FEW, Memory
from glassgear.backends.cpu.parts import Parts
from glassgear.backends.cpu.program import (
    Buffers,
    Mark,
    Walk,
    cache_shapes,
    check_known,
    flatten,
    matrices_of,
    weights_of,
)
from glassgear.backends.cpu.rotation import Rotations
from glassgear.backends.cpu.seeing import SHORT, show
from glassgear.backends.cpu.team import TEAM_KERNELS, Team
from glassgear.backends.cpu.values import Value
from glassgear.errors import SettingError
from glassgear.memory import floats
from glassgear.model.gears import LearnedPositions, Model, Rope, Router, TokenTypes, walk
from glassgear.weights.tensor import StoredTensor

__all__ = ["CPU"]

SMALL = 8 << 20  # bytes of weights below which one thread is faster than two that meet
FLOATS = ("F32", "F16", "BF16")
WORDS = 1 << 16  # pages that one pass may see


@dataclass(frozen=True, eq=False)
class Span:
    """Rows of one chunk in a pass: `rows` of them from `row` on.

    `wanted` of them give output, the first of these being number `skip` of the span.
    """

    chunk: int
    first: int
    row: int
    rows: int
    skip: int
    wanted: int


@dataclass(frozen=True, eq=False)
class Program:
    """Steps, what can be seen between them, and where the output is then (None: logits)."""

    steps: NDArray[np.int64]
    marks: list[Mark]
    result: Value | None

    @cached_property
    def address(self) -> int:
        """Of the steps."""
        return int(self.steps.ctypes.data)


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
        check_known(model)
        if threads is not None and threads < 1:
            raise SettingError(f"threads is {threads}; at least 1 is needed")
        self.model = model
        self._embed = tensors["embed.weight"]
        plain = self._embed.type == "F32" and self._embed.row_order is None
        self._table = self._embed.float32() if plain else None  # a view of the file
        self._scale = np.float32(model.embed.scale)
        self._listed: list[int] | None = None  # pages of the one token that the frame is made for
        self._lock = threading.RLock()
        self._pages = PageTable()
        matrices = matrices_of(model, tensors).values()
        size = sum(t.nbytes for t in matrices)
        self.threads = threads or (1 if size < SMALL else features.physical_cores())
        layers = cache_shapes(model)
        self._parts = Parts(layers)
        codes = features.target().kernels == "avx512vnni"
        self._cache = PagedCache([shape for _, shape in layers], _half(cache_type, matrices), codes)
        self._memory = Memory(self.threads)
        self._weights = weights_of(model, tensors, self._memory)
        self._ropes: list[Rope] = []
        self._code, self._on_compile = machine_code(features.target()), on_compile
        self._buffers = Buffers(model, self._memory)
        self._frame = np.zeros(len(Frame), np.int64)
        self._frame_at = int(self._frame.ctypes.data)
        self._counters = np.zeros(1, np.int64)
        self._make_frame()
        self._added = self._tables_of(tensors)
        self._programs: dict[tuple[Output, bool, bool], Program] = {}
        self._program("hidden" if model.head is None else "logits", seeing=False)
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

    @property
    def cache_form(self) -> str:
        """How keys and values are kept: `float32`, `float16` or `codes` (int16; latents as float16)."""
        return "codes" if self._cache.codes else "float16" if self._cache.half else "float32"

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

    def step(
        self, chunks: Sequence[Chunk], hook: Hook | None = None, output: Output = "logits"
    ) -> list[NDArray[np.float32]]:
        """Run new tokens through the model; see `backends.base.Backend.step`.

        Raises:
            SettingError: also for more tokens than one pass takes, where each sees all others.
        """
        with self._lock:
            if len(chunks) == 1 and hook is None and output == "logits" and self._is_plain(chunks[0]):
                return [self._continued(chunks[0].track, chunks[0].ids[0])]
            check_chunks(self.model, chunks, output)
            before = [chunk.track.length for chunk in chunks]
            out: list[list[NDArray[np.float32]]] = [[] for _ in chunks]
            try:
                for spans in _passes(chunks, whole=not self.model.causal):
                    rows_out = self._pass(chunks, spans, hook, output)
                    row = 0
                    for span in spans:
                        out[span.chunk].append(rows_out[row : row + span.wanted])
                        row += span.wanted
            except BaseException:
                for chunk, length in zip(chunks, before, strict=True):
                    self._pages.truncate(chunk.track, min(length, chunk.track.length))
                raise
        return [_joined(rows) for rows in out]

    # --- building ---------------------------------------------------------------------------

    def _program(self, output: Output, seeing: bool, reads_only: bool = False) -> Program:
        """The program for an output, made when first asked for; for hooks, or for those that only read."""
        key = (output, seeing, reads_only)
        if key not in self._programs:
            builder = Builder(self._memory, self._code.target.kernels, alone=seeing)
            at = Walk(
                self.model, builder, self._weights, self._buffers, self._cache.layers, self._cache.half,
                self._ropes, seeing, reads_only, self._finished,
            )  # fmt: skip
            result = flatten(at, output)
            self._programs[key] = Program(self._finished(builder), at.marks, result)
        return self._programs[key]

    def _finished(self, builder: Builder) -> NDArray[np.int64]:
        if builder.queues > len(self._counters):
            self._counters = np.zeros(builder.queues, np.int64)
            self._frame[Frame.COUNTERS] = self._counters.ctypes.data
        return builder.array(self._code.addresses(builder.needed, self._on_compile))

    def _tables_of(
        self, tensors: Mapping[str, StoredTensor]
    ) -> dict[str, tuple[NDArray[np.float32], NDArray[np.float32]]]:
        """Tables whose rows are added to embeddings, and the buffers that take these."""
        gears: dict[str, LearnedPositions | TokenTypes | None] = {
            "positions": self.model.positions, "token_types": self.model.token_types,
        }  # fmt: skip
        return {
            name: (
                tensors[f"{name}.weight"].float32(),
                self._memory.array(self._buffers.rows(name, gear.dim), ROWS),
            )
            for name, gear in gears.items()
            if gear is not None
        }

    def _make_frame(self) -> None:
        rows = ROWS + TILE
        self._positions, self._page_of_row, self._wanted_rows = (np.zeros(rows, np.int64) for _ in range(3))
        self._spans = np.zeros((ROWS, 4), np.int64)
        self._page_list = np.zeros(WORDS, np.int64)
        experts = max((gear.count for _, gear in walk(self.model) if isinstance(gear, Router)), default=0)
        scratch = max(scratch_bytes(self._cache.layers), 1024 + 16 * experts, COPIES + PRODUCT_SCRATCH)
        scratch = -(-scratch // 64) * 64
        frame = self._frame
        frame[Frame.SCRATCH] = self._memory.raw(self.threads * scratch)
        frame[Frame.SCRATCH_BYTES] = scratch
        for name, array in (
            (Frame.POSITIONS, self._positions), (Frame.PAGE_OF_ROW, self._page_of_row),
            (Frame.WANTED_ROWS, self._wanted_rows), (Frame.SPANS, self._spans),
            (Frame.PAGES, self._page_list), (Frame.COUNTERS, self._counters),
        ):  # fmt: skip
            frame[name] = array.ctypes.data
        self._x = self._memory.array(self._buffers.embedded, rows)

    # --- running ----------------------------------------------------------------------------

    def _pass(
        self, chunks: Sequence[Chunk], spans: Sequence[Span], hook: Hook | None, output: Output
    ) -> NDArray[np.float32]:
        """Output of the wanted rows of one pass, [wanted, vocab or dim]; lengths of tracks grow."""
        program = self._program(output, hook is not None, bool(getattr(hook, "reads_only", False)))
        last = spans[-1]
        rows, wanted = last.row + last.rows, sum(span.wanted for span in spans)
        self._look_up(chunks, spans, rows)
        self._fill_frame(chunks, spans, rows, wanted, shared_out=rows > FEW or hook is not None)
        out = self._logits(wanted) if program.result is None else None
        if hook is None:
            self._team.run(program.address, len(program.steps), self._frame_at, rows <= SHORT)
        else:
            show(self, program.steps, program.marks, hook, chunks, spans, out)
        if out is None:
            assert program.result is not None
            out = self._memory.array(program.result, wanted).copy()
        for span in spans:
            chunks[span.chunk].track.length += span.rows
        return out

    def _is_plain(self, chunk: Chunk) -> bool:
        """Whether it is one token of a text, of a model that looks up nothing but embeddings."""
        return (
            len(chunk.ids) == 1
            and chunk.logits == "last"
            and not self._added
            and self.model.causal
            and self.model.head is not None
        )

    def _continued(self, track: Track, token: int) -> NDArray[np.float32]:
        """Logits [1, vocab] after one more token: `_pass` where there is next to nothing to arrange.

        In a tiny model that is most of a step's time.
        """
        program, stop = self._program("logits", seeing=False), track.length + 1
        assert not track.closed
        if stop > len(track.pages) * PAGE or track.pages != self._listed:
            self._fill_frame([Chunk(track, [0])], [Span(0, 0, 0, 1, 0, 1)], 1, 1, shared_out=False)
            self._listed = track.pages.copy()
        self._positions[0], self._page_of_row[0] = stop - 1, self._page_list[(stop - 1) // PAGE]
        if self._table is None:
            self._look_up_ids(np.array([token], np.int64), 1)
        else:
            self._x[0] = self._table[token] * self._scale
        frame = self._frame
        frame[Frame.ROTATIONS] = self._rotations.upto(stop)
        split = stop > SEGMENT and self.threads > 1
        frame[Frame.PARTS], frame[Frame.PART_BYTES] = self._parts.place([1], [stop]) if split else (0, 0)
        self._counters.fill(0)
        logits = self._logits(1)
        self._team.run(program.address, len(program.steps), self._frame_at, True)
        track.length = stop
        return logits

    def _logits(self, wanted: int) -> NDArray[np.float32]:
        """A new array for logits, [wanted, vocab]."""
        head = self._weights.matrices["head"]
        # Tiles may write a few rows more than are asked for.
        room = wanted if wanted < 2 else -(-wanted // TILE) * TILE
        logits = floats(room * head.panels * PANEL).reshape(room, head.panels * PANEL)
        self._frame[Frame.LOGITS], self._frame[Frame.LOGITS_STRIDE] = (
            logits.ctypes.data,
            4 * head.panels * PANEL,
        )
        return logits[:wanted, : head.rows]

    def _look_up(self, chunks: Sequence[Chunk], spans: Sequence[Span], rows: int) -> None:
        """Rows of the tables, for ids, positions and token types, into the first buffers."""
        ids = [i for s in spans for i in chunks[s.chunk].ids[s.first : s.first + s.rows]]
        self._look_up_ids(np.array(ids, np.int64), rows)
        for name, (table, buffer) in self._added.items():
            index_of = self._positions_of if name == "positions" else _types_of
            buffer[:rows] = table[np.concatenate([index_of(chunks[s.chunk], s) for s in spans])]

    def _look_up_ids(self, ids: NDArray[np.int64], rows: int) -> None:
        embedded = self._embed.rows(ids) if self._table is None else self._table[ids]
        self._x[:rows] = embedded if self._scale == 1 else embedded * self._scale

    def _positions_of(self, chunk: Chunk, span: Span) -> NDArray[np.int64]:
        """Rows of the table of positions for a span; its track has grown by what passes came before."""
        assert self.model.positions is not None
        first = chunk.track.length + self.model.positions.offset
        return np.arange(first, first + span.rows)

    def _fill_frame(
        self, chunks: Sequence[Chunk], spans: Sequence[Span], rows: int, wanted: int, shared_out: bool
    ) -> None:
        self._listed = None
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
                wanted_from = span.row + span.skip
                self._wanted_rows[want : want + span.wanted] = range(wanted_from, wanted_from + span.wanted)
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


def _types_of(chunk: Chunk, span: Span) -> NDArray[np.int64]:
    if chunk.types is None:
        return np.zeros(span.rows, np.int64)
    return np.asarray(chunk.types[span.first : span.first + span.rows], np.int64)


def _passes(chunks: Sequence[Chunk], whole: bool) -> list[list[Span]]:
    """Chunks in passes of at most ROWS rows; a long chunk goes through several, unless `whole`.

    Raises:
        SettingError: a chunk that must be whole is too long for a pass.
    """
    passes: list[list[Span]] = [[]]
    row = 0
    for i, chunk in enumerate(chunks):
        first, count = 0, len(chunk.ids)
        assert count > 0
        if whole and count > ROWS:
            raise SettingError(
                f"{count:,} tokens that all see each other: the CPU backend takes at most {ROWS} at once"
            )
        while first < count:
            if row == ROWS or (whole and row + count > ROWS):
                passes.append([])
                row = 0
            rows = min(count - first, ROWS - row)
            skip, wanted = _wanted(chunk, first, rows)
            passes[-1].append(Span(i, first, row, rows, skip, wanted))
            first, row = first + rows, row + rows
    return [spans for spans in passes if spans]


def _wanted(chunk: Chunk, first: int, rows: int) -> tuple[int, int]:
    """Of `rows` rows of a chunk from `first` on: how many come before the wanted ones, and these."""
    return {
        "none": (0, 0),
        "first": (0, int(first == 0)),
        "last": (rows - 1, int(first + rows == len(chunk.ids))),
        "all": (0, rows),
    }[chunk.logits]


def _joined(parts: list[NDArray[np.float32]]) -> NDArray[np.float32]:
    full = [part for part in parts if len(part)] or parts[:1]
    return full[0] if len(full) == 1 else np.concatenate(full)


def _half(cache_type: DTypeLike | None, matrices: Any) -> bool:
    if cache_type is None:
        return any(tensor.type not in FLOATS for tensor in matrices)
    kind = np.dtype(cache_type)
    if kind not in (np.dtype(np.float32), np.dtype(np.float16)):
        raise SettingError(f"the KV cache can be float32 or float16, not {kind}")
    return bool(kind == np.dtype(np.float16))
