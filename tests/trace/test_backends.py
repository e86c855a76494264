"""Looking changes no bit: traced and untraced runs, for every tree of gears, every backend and family."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from glassgear.backends.base import Backend, Chunk, Hook, Watcher
from glassgear.backends.cpu import CPU, features
from glassgear.backends.cpu.fields import Step
from glassgear.backends.reference import Reference
from glassgear.errors import SettingError
from glassgear.sampling import Sampler, Sampling
from glassgear.trace import record
from glassgear.trace.record import Kept
from tests.backends.cpu.support import model as quantised
from tests.models import random_tensors
from tests.trees import TREES, VOCAB

IDS = np.random.default_rng(5).integers(0, VOCAB, 11).tolist()
STEPS = 4  # of decoding, after the prompt
Rows = list[np.ndarray]
Looking = Callable[[], tuple[Hook | Watcher, Callable[[int, int], None]]]


def watching() -> tuple[Watcher, Callable[[int, int], None]]:
    """What a trace hands to a backend: it reads only, and says where values go."""
    kept = Kept(("*",), None, tokens=len(IDS) + STEPS)
    return kept, kept.begin


def stopping() -> tuple[Hook, Callable[[int, int], None]]:
    """A function that every value is shown to."""
    kept = Kept(("*",), None)
    return kept.hook, kept.begin


def picking() -> tuple[Watcher, Callable[[int, int], None]]:
    """A selection: most of what passes isn't stopped at."""
    kept = Kept(("*.weights", "*_residual", "*.product"), None, tokens=len(IDS) + STEPS)
    return kept, kept.begin


def rows(backend: Backend, look: Looking | None = None) -> Rows:
    """Output of a prompt, all of it, and of steps that go on with fixed ids."""
    hook, begin = look() if look is not None else (None, lambda first, count: None)
    output = "logits" if backend.model.head is not None else "hidden"
    more = [[(7 * i + 3) % VOCAB] for i in range(STEPS)] if backend.model.causal else []
    track, out = backend.open(), []
    for ids in [IDS, *more]:
        begin(track.length, len(ids))
        out.append(backend.step([Chunk(track, ids, "all")], hook, output)[0].copy())  # type: ignore[arg-type]
    backend.close(track)
    return out


def assert_same(one: Rows, other: Rows) -> None:
    for a, b in zip(one, other, strict=True):
        assert np.array_equal(a, b)


@pytest.fixture(params=list(features.KERNELS))
def family(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Each family of kernels that this machine can run."""
    monkeypatch.setenv("GLASSGEAR_KERNELS", request.param)
    try:
        features.target()
    except SettingError as trouble:
        pytest.skip(str(trouble))
    return str(request.param)


LOOKS = pytest.mark.parametrize("look", [watching, stopping, picking])


@LOOKS
@pytest.mark.parametrize("name", TREES)
def test_no_bit_changes_on_the_reference(name: str, look: Looking) -> None:
    model = TREES[name]()
    backend = Reference(model, random_tensors(model))
    assert_same(rows(backend), rows(backend, look))


@pytest.mark.parametrize("name", TREES)
def test_no_bit_changes_on_the_cpu(family: str, name: str) -> None:
    model = TREES[name]()
    backend = CPU(model, random_tensors(model), threads=2)
    assert backend.kernels == family
    plain = rows(backend)
    for look in (watching, stopping, picking):
        assert_same(plain, rows(backend, look))
    assert_same(plain, rows(backend))  # and nothing stays behind


@pytest.mark.parametrize("type_name", ["Q4_1", "Q8_0", "Q6_K", "F16"])
def test_no_bit_changes_with_quantised_weights(family: str, type_name: str) -> None:
    dim = 256 if type_name == "Q6_K" else 64
    made = quantised(
        dim=dim, hidden=dim, heads=4, kv_heads=2, head_dim=dim // 4, vocab=VOCAB, type_name=type_name
    )
    backend = CPU(*made, threads=2)
    assert backend.kernels == family
    plain = rows(backend)
    for look in (watching, stopping, picking):
        assert_same(plain, rows(backend, look))


@pytest.mark.parametrize("name", TREES)
def test_both_ways_of_looking_see_the_same(name: str) -> None:
    model = TREES[name]()
    backend = CPU(model, random_tensors(model), threads=2)
    first, second = Kept(("*",), None, tokens=len(IDS) + STEPS), Kept(("*",), None)
    rows(backend, lambda: (first, first.begin))
    rows(backend, lambda: (second.hook, second.begin))
    one, other = first.values(), second.values()
    assert set(one) == set(other)
    for path, value in one.items():
        assert value.axes == other[path].axes
        assert np.array_equal(value.positions, other[path].positions), path
        assert np.array_equal(value.array, other[path].array), path


@pytest.mark.parametrize("name", ["llama", "experts by softmax", "latent attention"])
def test_backends_give_their_values_in_the_same_order(name: str) -> None:
    model = TREES[name]()
    tensors = random_tensors(model)
    sampler = [Sampler(Sampling(temperature=0)) for _ in range(2)]
    traces = [
        record(backend, IDS, sampler=sampler[i], max_tokens=1)
        for i, backend in enumerate((CPU(model, tensors, threads=2), Reference(model, tensors)))
    ]
    assert list(traces[0]) == list(traces[1])


def test_a_text_that_ends_earlier_has_values_of_what_was_run() -> None:
    model = TREES["llama"]()
    backend = CPU(model, random_tensors(model), threads=2)
    whole = record(backend, IDS, sampler=Sampler(Sampling(temperature=0)), max_tokens=6)
    ends = frozenset(whole.ids[len(IDS) + 1 : len(IDS) + 2])
    short = record(backend, IDS, sampler=Sampler(Sampling(temperature=0)), max_tokens=6, end_ids=ends)
    assert short.tokens < whole.tokens
    for path, value in short.items():
        axis = value.axes.index("token")
        assert value.array.shape[axis] == len(value.positions) == short.tokens, path
        cut = whole[path].array.take(range(short.tokens), axis)
        if value.axes[-1] == "seen":
            assert value.array.shape[2] == short.tokens
            cut = cut[:, :, : short.tokens]
        assert np.array_equal(value.array, cut), path


class Noting:
    """A watcher that keeps copies of what it is called with, and names places that must stay as they are."""

    reads_only = True

    def __init__(self) -> None:
        self.plans: dict[object, object] = {}
        self.shown: list[tuple[str, np.ndarray]] = []
        self.place_of: dict[str, np.ndarray] = {}

    def wants(self, path: str) -> bool:
        return True

    def place(self, path: str, shape: tuple[int, ...]) -> tuple[int, int] | None:
        room = self.place_of[path] = np.zeros((8, *shape), np.float32)
        return int(room.ctypes.data), room.strides[0]

    def same(self, path: str, other: str) -> None:
        self.place_of[path] = self.place_of[other]

    def take(self, path: str, value: np.ndarray) -> bool:
        return False

    def seen(self, path: str, shape: tuple[int, int, int]) -> None:
        return None

    def __call__(self, path: str, value: np.ndarray) -> None:
        self.shown.append((path, value.copy()))


class Wanting(Noting):
    """A watcher of some values alone, none of which has a place."""

    def __init__(self, *paths: str) -> None:
        super().__init__()
        self.paths = paths

    def wants(self, path: str) -> bool:
        return path in self.paths

    def place(self, path: str, shape: tuple[int, ...]) -> None:  # type: ignore[override]
        return None


@pytest.mark.parametrize("name", ["scores", "weights"])
def test_a_watcher_is_shown_what_it_wants_and_nothing_else(name: str) -> None:
    model = TREES["llama"]()
    backend, wanted = CPU(model, random_tensors(model), threads=2), f"blocks.1.attention.{name}"
    hook, track = Wanting(wanted), backend.open()
    backend.step([Chunk(track, IDS[:4], "all")], hook)
    backend.close(track)
    assert [path for path, _ in hook.shown] == [wanted]


@pytest.mark.parametrize("watching", [False, True])
def test_a_hook_that_fails_leaves_nothing_behind_in_the_program(watching: bool) -> None:
    """Scores must not go to the memory of a run that was broken off."""

    def fail(path: str, value: np.ndarray) -> None:
        if path.endswith(".scores"):
            raise KeyboardInterrupt

    class Failing(Noting):
        def __call__(self, path: str, value: np.ndarray) -> None:
            fail(path, value)

    model = TREES["llama"]()
    backend = CPU(model, random_tensors(model), threads=2)
    for sequences in (1, 2):
        tracks = [backend.open() for _ in range(sequences)]
        with pytest.raises(KeyboardInterrupt):
            backend.step([Chunk(track, IDS[:3]) for track in tracks], Failing() if watching else fail)
        for track in tracks:
            backend.close(track)
        for program in backend._programs.values():
            for mark in program.marks:
                assert mark.kind != "scores" or program.steps[mark.steps - 1, Step.G] == 0


def test_rows_of_several_sequences_are_shown_not_copied() -> None:
    """A watcher's places are those of one sequence."""
    model = TREES["llama"]()
    backend = CPU(model, random_tensors(model), threads=2)
    noting, plain = Noting(), Noting()
    for hook in (noting, plain.__call__):
        tracks = [backend.open(), backend.open()]
        backend.step([Chunk(tracks[0], IDS[:1], "all"), Chunk(tracks[1], IDS[1:3], "all")], hook)
        for track in tracks:
            backend.close(track)
    assert not noting.place_of and len(noting.shown) == len(plain.shown)
    for (path, one), (name, other) in zip(noting.shown, plain.shown, strict=True):
        assert path == name and np.array_equal(one, other)


def test_a_sequence_s_rows_go_where_the_watcher_says() -> None:
    model = TREES["llama"]()
    backend = CPU(model, random_tensors(model), threads=2)
    noting, plain = Noting(), Noting()
    for hook in (noting, plain.__call__):
        track = backend.open()
        backend.step([Chunk(track, IDS[:4], "all")])
        backend.step([Chunk(track, IDS[4:6], "all")], hook)
        backend.close(track)
    shown = dict(plain.shown)
    assert set(noting.place_of) | {path for path, _ in noting.shown} == set(shown)
    assert "blocks.0.ffn.down" in noting.place_of and "head" not in noting.place_of
    for path, room in noting.place_of.items():
        assert np.array_equal(room[4:6], shown[path]) and not room[:4].any() and not room[6:].any(), path


def test_a_prompt_of_several_passes_is_copied_where_it_belongs() -> None:
    model, tensors = quantised(dim=32, hidden=32, heads=2, kv_heads=1, head_dim=16, vocab=VOCAB, layers=1)
    backend = CPU(model, tensors, threads=2)
    ids = np.random.default_rng(6).integers(0, VOCAB, 540).tolist()
    trace = record(backend, ids, select=["*.key", "*_residual", "head"])
    track = backend.open()
    head = backend.step([Chunk(track, ids, "all")])[0]
    backend.close(track)
    assert np.array_equal(trace["head"].array, head)
    plain = Kept(("*.key",), None)
    track = backend.open()
    for first in (0, 512):
        plain.begin(first, min(512, len(ids) - first))
        backend.step([Chunk(track, ids[first : first + 512], "none")], plain.hook)
    backend.close(track)
    path = "blocks.0.attention.key"
    assert np.array_equal(trace[path].array, plain.values()[path].array)
