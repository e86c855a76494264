"""Memory that goes from one large array to the next."""

from __future__ import annotations

import gc

import numpy as np
import pytest

from glassgear import memory
from glassgear.memory import floats

COUNT = 3 << 20  # 12 MB

pytestmark = pytest.mark.skipif(not memory.ABLE, reason="this system has no such advice for memory")


@pytest.fixture(autouse=True)
def nothing_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "_given_back", [])


def test_an_array_is_writable_and_as_long_as_asked() -> None:
    for count in (0, 1, 5, COUNT, COUNT + 1):
        array = floats(count)
        array[:] = 1
        assert array.shape == (count,) and array.dtype == np.float32 and array.sum() == count


def test_memory_is_taken_over_once_no_part_of_it_is_in_use() -> None:
    whole = floats(COUNT)
    address, part = whole.ctypes.data, whole[5:7].reshape(1, 2)
    part[:] = 3
    del whole
    gc.collect()
    assert not memory._given_back
    other = floats(COUNT)
    assert other.ctypes.data != address
    other[:] = 0
    assert part.tolist() == [[3.0, 3.0]]
    del part
    gc.collect()
    assert floats(COUNT - 10).ctypes.data == address


def test_other_sizes_are_not_taken_over() -> None:
    first = floats(COUNT)
    del first
    gc.collect()
    second, third = floats(2 * COUNT), floats(COUNT // 4)
    assert len(memory._given_back) == 1 and second.size == 2 * COUNT and third.size == COUNT // 4


def test_no_more_than_a_limit_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "MOST", 20 << 20)
    arrays = [floats(COUNT) for _ in range(3)]
    arrays.clear()
    gc.collect()
    assert len(memory._given_back) == 1


def test_the_oldest_go_where_there_is_too_much(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "MOST", 40 << 20)
    for count in (COUNT, COUNT, 2 * COUNT):  # sizes that don't fit each other
        kept = [floats(count), floats(count // 4)]
        del kept
        gc.collect()
    assert [len(pages) >> 20 for pages in memory._given_back] == [12, 24]


def test_a_system_that_gives_no_such_memory_gives_the_usual_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object, **__: object) -> None:
        raise OSError(12, "no memory")

    monkeypatch.setattr(memory.mmap, "mmap", refused)
    array = floats(COUNT)
    array[:] = 1
    assert array.size == COUNT and array.flags.owndata
    del array
    gc.collect()
    assert not memory._given_back


def test_advice_that_a_system_does_not_know_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MADV_HUGEPAGE", "MADV_FREE"):
        monkeypatch.setattr(memory.mmap, name, 999)
    array = floats(COUNT)
    array[:] = 1
    address = array.ctypes.data
    del array
    gc.collect()
    assert floats(COUNT).ctypes.data == address
