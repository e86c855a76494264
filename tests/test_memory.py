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
