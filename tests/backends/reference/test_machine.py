"""One model, many ways to feed it: the logits must not care."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from glassgear.backends.base import PAGE, Chunk, PageTable, Track
from glassgear.backends.reference import Reference
from glassgear.backends.reference import machine as reference_machine
from tests.models import tiny

IDS = [3, 14, 15, 92, 65, 35, 89, 79, 32, 38, 46, 26]


@pytest.fixture
def backend() -> Reference:
    return Reference(*tiny())


def in_chunks(backend: Reference, ids: Sequence[int], sizes: Sequence[int]) -> np.ndarray:
    track, out, start = backend.open(), [], 0
    for size in sizes:
        out.append(backend.step([Chunk(track, ids[start : start + size], "all")])[0])
        start += size
    backend.close(track)
    return np.concatenate(out)


@pytest.mark.parametrize("sizes", [(5, 7), (1,) * 12, (11, 1), (1, 10, 1)], ids=str)
def test_a_prompt_in_any_chunks_gives_the_same_logits(backend: Reference, sizes: Sequence[int]) -> None:
    whole = in_chunks(backend, IDS, [12])
    assert np.abs(in_chunks(backend, IDS, sizes) - whole).max() < 1e-5


def test_chunks_across_page_borders_give_the_same_logits(backend: Reference) -> None:
    ids = np.random.default_rng(5).integers(0, 100, 3 * PAGE + 7).tolist()
    whole = in_chunks(backend, ids, [len(ids)])
    for sizes in ([PAGE, PAGE, PAGE, 7], [PAGE - 1, 2, PAGE, PAGE + 6], [PAGE + 1, 2 * PAGE + 6]):
        assert np.abs(in_chunks(backend, ids, sizes) - whole).max() < 2e-5


def test_long_prompts_run_in_passes_with_the_same_result(
    backend: Reference, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = in_chunks(backend, IDS, [12])
    monkeypatch.setattr(reference_machine, "AT_ONCE", 5)
    assert np.abs(in_chunks(backend, IDS, [12]) - whole).max() < 1e-5
    track = backend.open()
    assert np.abs(backend.step([Chunk(track, IDS)])[0] - whole[-1:]).max() < 1e-5
    assert track.length == 12


def test_sequences_in_a_batch_do_not_see_each_other(backend: Reference) -> None:
    prompts = [IDS, IDS[3:8], [7], list(range(70))]
    alone = [in_chunks(backend, ids, [len(ids)]) for ids in prompts]
    tracks = [backend.open() for _ in prompts]
    together = backend.step([Chunk(t, ids, "all") for t, ids in zip(tracks, prompts, strict=True)])
    for a, b in zip(alone, together, strict=True):
        assert np.abs(a - b).max() < 1e-5
    after = backend.step([Chunk(t, [9]) for t in tracks])
    for ids, row in zip(prompts, after, strict=True):
        assert np.abs(in_chunks(backend, [*ids, 9], [len(ids) + 1])[-1] - row[0]).max() < 1e-5


def test_only_wanted_rows_come_back(backend: Reference) -> None:
    tracks = [backend.open() for _ in range(3)]
    rows = backend.step(
        [Chunk(tracks[0], IDS, "none"), Chunk(tracks[1], IDS, "last"), Chunk(tracks[2], IDS, "all")]
    )
    assert [r.shape for r in rows] == [(0, 100), (1, 100), (12, 100)]
    assert np.array_equal(rows[1][0], rows[2][-1])


@pytest.mark.parametrize("rows", ["first", "last", "none", "all"])
def test_a_long_text_gives_the_rows_that_are_asked_for_whatever_the_passes(
    backend: Reference, rows: Any
) -> None:
    ids = np.random.default_rng(5).integers(0, 90, 2 * reference_machine.AT_ONCE + 7).tolist()
    whole = backend.step([Chunk(backend.open(), ids, "all")])[0]
    want = {"first": whole[:1], "last": whole[-1:], "none": whole[:0], "all": whole}[rows]
    got = backend.step([Chunk(backend.open(), ids, rows)])[0]
    assert got.shape == want.shape and np.abs(got - want).max(initial=0) < 1e-5


def test_a_truncated_sequence_continues_as_if_new(backend: Reference) -> None:
    track = backend.open()
    backend.step([Chunk(track, list(range(PAGE + 20)))])
    backend.truncate(track, 5)
    assert track.length == 5 and len(track.pages) == 1
    again = backend.step([Chunk(track, [50, 51], "all")])[0]
    assert np.abs(again - in_chunks(backend, [0, 1, 2, 3, 4, 50, 51], [7])[5:]).max() < 1e-5


def test_pages_of_closed_sequences_are_used_again(backend: Reference) -> None:
    for _ in range(5):
        in_chunks(backend, list(range(90)), [90])
    assert backend._pages.count == 2


def test_a_step_that_fails_leaves_the_sequence_as_it_was(backend: Reference) -> None:
    track = backend.open()
    backend.step([Chunk(track, IDS)])
    pages = list(track.pages)

    def break_down(path: str, value: np.ndarray) -> None:
        if path == "blocks.1.ffn":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        backend.step([Chunk(track, [1] * 100)], break_down)
    assert track.length == 12 and track.pages == pages
    assert (
        np.array_equal(
            backend.step([Chunk(track, [9])])[0],
            Reference(*tiny()).step([Chunk(Track(), [*IDS, 9])])[0],
        )
        or track.length == 13
    )


def test_a_hook_sees_every_value_by_path_and_changes_nothing(backend: Reference) -> None:
    seen: dict[str, tuple[int, ...]] = {}
    plain = in_chunks(backend, IDS, [12])
    track = backend.open()
    watched = backend.step([Chunk(track, IDS, "all")], lambda path, value: seen.update({path: value.shape}))
    assert np.array_equal(plain, watched[0])
    assert seen["embed"] == seen["blocks.0.attention_norm"] == seen["blocks.1.ffn_residual"] == (12, 64)
    assert seen["blocks.0.attention.query"] == (12, 64) and seen["blocks.0.attention.key"] == (12, 16)
    assert seen["blocks.0.attention.query_rotated"] == (12, 8, 8)
    assert seen["blocks.1.attention.scores"] == seen["blocks.1.attention.weights"] == (8, 12, 12)
    assert seen["blocks.1.ffn.product"] == (12, 96) and seen["head"] == (12, 100)


def test_a_hook_may_put_another_value_in_place(backend: Reference) -> None:
    def silence(path: str, value: np.ndarray) -> np.ndarray | None:
        return np.zeros_like(value) if path in ("blocks.0.attention", "blocks.0.ffn") else None

    def skip(path: str, value: np.ndarray) -> np.ndarray | None:
        if path == "embed":
            skip.embed = value  # type: ignore[attr-defined]
        return skip.embed if path == "blocks.0" else None  # type: ignore[attr-defined]

    silenced = backend.step([Chunk(backend.open(), IDS)], silence)[0]
    skipped = backend.step([Chunk(backend.open(), IDS)], skip)[0]
    assert np.array_equal(silenced, skipped)
    assert not np.array_equal(silenced, backend.step([Chunk(backend.open(), IDS)])[0])


def test_a_half_precision_cache_stays_close() -> None:
    parts = tiny()
    exact, half = Reference(*parts), Reference(*parts, cache_type=np.float16)
    a, b = in_chunks(exact, IDS, [12]), in_chunks(half, IDS, [12])
    assert 0 < np.abs(a - b).max() < 0.05
    assert half.cache_nbytes * 2 == exact.cache_nbytes


def test_weights_too_many_to_keep_are_decoded_again(monkeypatch: pytest.MonkeyPatch) -> None:
    from glassgear.backends.reference import scope

    parts = tiny()
    kept = in_chunks(Reference(*parts), IDS, [12])
    monkeypatch.setattr(scope, "KEEP", 1000)
    assert np.array_equal(in_chunks(Reference(*parts), IDS, [12]), kept)


def test_huge_queries_and_keys_stay_finite() -> None:
    model, weights = tiny()
    for name in ("query", "key"):
        path = f"blocks.0.attention.{name}.weight"
        values = weights[path].float32() * 3000
        weights[path] = type(weights[path])(path, "F32", values.shape, values.view(np.uint8).reshape(-1), "m")
    assert np.isfinite(in_chunks(Reference(model, weights), IDS, [12])).all()


def test_tables_of_pages_never_hand_one_out_twice() -> None:
    table, a, b = PageTable(), Track(), Track()
    for length in (1, PAGE, PAGE + 1, 3 * PAGE):
        for track in (a, b):
            table.reserve(track, length)
            track.length = length
    assert not set(a.pages) & set(b.pages) and len(a.pages) == 3
    table.truncate(a, PAGE)
    table.reserve(b, 5 * PAGE)
    assert table.count == 6 and not set(a.pages) & set(b.pages)
