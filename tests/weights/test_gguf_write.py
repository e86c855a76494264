"""The GGUF writer: what it writes, our reader and the `gguf` package read back equal."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf as official
import numpy as np
import pytest

from glassgear.errors import FileError, SettingError
from glassgear.weights import gguf
from glassgear.weights.gguf_write import write
from glassgear.weights.quant import TYPES
from glassgear.weights.tensor import StoredTensor

METADATA: dict[str, Any] = {
    "general.architecture": "llama",
    "text": "Ångström 🦙\n",
    "yes": True,
    "small": 7,
    "negative": -7,
    "large": 2**64 - 1,
    "large negative": -(2**40),
    "float": 0.1,
    "double": np.float64(0.1),
    "byte": np.uint8(200),
    "tokens": ["<s>", "", "日本"],
    "ids": [1, -2, 3],
    "long ids": [2**40, -1],
    "scores": [0.5, 2],
    "flags": [True, False],
    "halves": np.arange(3, dtype=np.int16),
    "none": [],
}


def stored(name: str, kind: str, rows: int, blocks: int, seed: int = 0) -> StoredTensor:
    """Random bytes as a tensor of `rows` rows."""
    data = np.random.default_rng(seed).integers(0, 256, rows * blocks * TYPES[kind].nbytes, np.uint8)
    return StoredTensor(name, kind, (rows, blocks * TYPES[kind].values), data, "made in memory")


def assert_equal(found: Any, expected: Any) -> None:
    if isinstance(expected, float):
        expected = float(np.float32(expected)) if type(expected) is float else float(expected)
    assert np.array_equal(found, expected) if isinstance(found, np.ndarray) else found == expected


def test_everything_comes_back(tmp_path: Path) -> None:
    tensors = [stored(f"{kind}.weight", kind, 3, 2) for kind in TYPES]
    tensors.append(StoredTensor("cube", "F32", (2, 1, 3, 4), np.zeros(96, np.uint8), ""))
    path = tmp_path / "model.gguf"
    write(path, METADATA, tensors)
    found = gguf.read(path)
    assert list(found.metadata) == list(METADATA)
    for key, value in METADATA.items():
        assert_equal(found.metadata[key], value)
    assert list(found.tensors) == [tensor.name for tensor in tensors]
    for tensor in tensors:
        other = found.tensors[tensor.name]
        assert (other.type, other.shape) == (tensor.type, tensor.shape)
        assert np.array_equal(other.data, tensor.data)
    assert list(tmp_path.iterdir()) == [path]


def test_the_gguf_package_reads_it(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    tensors = [stored("a", "Q4_K", 3, 2), stored("b", "F16", 5, 7)]
    write(path, METADATA, tensors)
    reader = official.GGUFReader(path)
    kinds = {key: reader.fields[key].types[-1].name for key in METADATA if key != "none"}
    assert kinds == {
        "general.architecture": "STRING", "text": "STRING", "yes": "BOOL", "small": "UINT32",
        "negative": "INT32", "large": "UINT64", "large negative": "INT64", "float": "FLOAT32",
        "double": "FLOAT64", "byte": "UINT8", "tokens": "STRING", "ids": "INT32", "long ids": "INT64",
        "scores": "FLOAT32", "flags": "BOOL", "halves": "INT16",
    }  # fmt: skip
    for key, value in METADATA.items():
        found = reader.fields[key].contents()
        assert_equal(np.array(found) if isinstance(value, np.ndarray) else found, value)
    for ours, theirs in zip(tensors, reader.tensors, strict=True):
        assert tuple(theirs.shape[::-1].tolist()) == ours.shape
        assert np.array_equal(theirs.data.reshape(-1).view(np.uint8), ours.data)


def test_nested_lists(tmp_path: Path) -> None:
    write(tmp_path / "m.gguf", {"a": [[1, 2], []], "b": np.ones((2, 2), np.float32)}, [])
    found = gguf.read(tmp_path / "m.gguf").metadata
    assert [one.tolist() for one in found["a"]] == [[1, 2], []]
    assert [one.tolist() for one in found["b"]] == [[1, 1], [1, 1]]


def test_the_alignment_is_obeyed(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    write(path, {"general.alignment": 256}, [stored("a", "Q8_0", 1, 1), stored("b", "Q8_0", 1, 1, 1)])
    found = gguf.read(path)
    assert (found.alignment, found.data_start % 256) == (256, 0)
    assert np.array_equal(found.tensors["b"].data, stored("b", "Q8_0", 1, 1, 1).data)


def test_rows_are_written_in_logical_order(tmp_path: Path) -> None:
    tensor = stored("a", "Q4_0", 4, 2).reordered(np.array([2, 0, 3, 1]))
    write(tmp_path / "m.gguf", {}, [tensor])
    found = gguf.read(tmp_path / "m.gguf").tensors["a"]
    assert found.row_order is None
    assert np.array_equal(found.float32(), tensor.float32(), equal_nan=True)


@pytest.mark.parametrize(
    "value",
    [
        None,
        1j,
        {"a": 1},
        2**64,
        -(2**63) - 1,
        [1, "a"],
        [2**63, -1],
        [None],
        [[1], 2],
        np.float16(1),
        "\ud800",
    ],
    ids=repr,
)
def test_values_that_gguf_has_no_type_for(tmp_path: Path, value: Any) -> None:
    with pytest.raises(SettingError):
        write(tmp_path / "m.gguf", {"key": value}, [])
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("alignment", [0, 4, 48])
def test_alignments_that_the_reader_refuses(tmp_path: Path, alignment: int) -> None:
    with pytest.raises(SettingError, match=r"general\.alignment is"):
        write(tmp_path / "m.gguf", {"general.alignment": alignment}, [])


def test_tensors_that_gguf_has_no_type_for(tmp_path: Path) -> None:
    tensor = StoredTensor("w", "INT8_GROUPS", (4,), np.zeros(4, np.uint8), "", scales=np.ones(1, np.float32))
    with pytest.raises(SettingError, match="'w' is of type INT8_GROUPS"):
        write(tmp_path / "m.gguf", {}, [tensor])


def test_two_tensors_of_one_name(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="same name"):
        write(tmp_path / "m.gguf", {}, [stored("a", "F32", 1, 1)] * 2)


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="can't be written"):
        write(tmp_path / "none" / "m.gguf", {}, [])


def test_what_fails_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    write(path, {"version": 1}, [])
    wrong_order = stored("a", "F32", 2, 4).reordered(np.array([0, 9]))
    with pytest.raises(IndexError):
        write(path, {"version": 2}, [wrong_order])
    assert gguf.read(path).metadata == {"version": 1}
    assert list(tmp_path.iterdir()) == [path]
