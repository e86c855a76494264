"""Tensors that are made while they are written, in both kinds of files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from glassgear.errors import SettingError
from glassgear.weights import gguf, gguf_write, safetensors
from glassgear.weights.streamed import StreamedTensor
from tests.models import stored

VALUES = np.arange(35, dtype=np.float32).reshape(5, 7)


def rows() -> Iterator[NDArray[np.float32]]:
    yield VALUES[:3]
    yield VALUES[3:]


def test_pieces_follow_each_other_in_a_gguf(tmp_path: Path) -> None:
    tensors = [StreamedTensor("a", "F32", (5, 7), rows), stored("b", VALUES + 1)]
    gguf_write.write(tmp_path / "m.gguf", {}, tensors)
    found = gguf.read(tmp_path / "m.gguf").tensors
    assert np.array_equal(found["a"].float32(), VALUES)
    assert np.array_equal(found["b"].float32(), VALUES + 1)


def test_pieces_follow_each_other_in_a_safetensors_file(tmp_path: Path) -> None:
    tensors = {"a": StreamedTensor("a", "F32", (5, 7), rows), "b": VALUES + 1}
    safetensors.write(tmp_path / "m.safetensors", tensors)
    found = safetensors.read(tmp_path / "m.safetensors")
    assert np.array_equal(found["a"].float32(), VALUES)
    assert np.array_equal(found["b"].float32(), VALUES + 1)


def test_fewer_bytes_than_promised_leave_no_file(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="28 bytes are missing"):
        gguf_write.write(tmp_path / "m.gguf", {}, [StreamedTensor("a", "F32", (6, 7), rows)])
    assert not list(tmp_path.iterdir())


def test_a_type_that_safetensors_lacks_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="is of type Q8_0"):
        safetensors.write(tmp_path / "m", {"a": StreamedTensor("a", "Q8_0", (1, 32), rows)})
