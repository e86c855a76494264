"""The GGUF reader: equal to the `gguf` package on good files, a clear refusal of all others."""

from __future__ import annotations

import gc
import os
import time
import tracemalloc
from pathlib import Path
from typing import Any

import gguf as official
import numpy as np
import pytest

from glassgear.errors import FormatError, GlassgearError, NotFoundError
from glassgear.weights import gguf
from glassgear.weights.quant import TYPES
from tests.weights.gguf_files import (
    ARRAY,
    BOOL,
    F32,
    I32,
    STRING,
    U16,
    U32,
    U64,
    array,
    entry,
    floats,
    number,
    pair,
    save,
    text,
)
from tests.weights.gguf_files import gguf as make

# --------------------------------------------------------------------------------------------
# Against the gguf package


def same(ours: Any, theirs: Any) -> bool:
    return (ours.tolist() if isinstance(ours, np.ndarray) else ours) == theirs


def assert_equal_to_official(path: Path) -> None:
    found, reference = gguf.read(path), official.GGUFReader(path)
    fields = {key: field for key, field in reference.fields.items() if not key.startswith("GGUF.")}
    assert list(found.metadata) == list(fields)
    for key, field in fields.items():
        assert same(found.metadata[key], field.contents()), key
    assert found.data_start == reference.data_offset or not reference.tensors
    assert list(found.tensors) == [tensor.name for tensor in reference.tensors]
    for theirs in reference.tensors:
        ours = found.tensors[theirs.name]
        assert (ours.type, ours.shape) == (theirs.tensor_type.name, tuple(theirs.shape[::-1].tolist()))
        assert np.array_equal(ours.data, theirs.data.reshape(-1).view(np.uint8))


def test_a_file_of_the_gguf_package_with_every_kind_of_value_and_tensor(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    writer = official.GGUFWriter(path, "llama")
    writer.add_uint8("u8", 200)
    writer.add_int8("i8", -100)
    writer.add_uint16("u16", 60000)
    writer.add_int16("i16", -30000)
    writer.add_uint32("u32", 4_000_000_000)
    writer.add_int32("i32", -2_000_000_000)
    writer.add_float32("f32", 0.1)
    writer.add_uint64("u64", 2**64 - 1)
    writer.add_int64("i64", -(2**63))
    writer.add_float64("f64", 0.1)
    writer.add_bool("yes", True)
    writer.add_bool("no", False)
    writer.add_string("text", "Ångström \u2581 🦙\n\0 end")
    writer.add_array("texts", ["", "a", "日本", "x" * 1000])
    writer.add_array("ints", [1, -2, 3])
    writer.add_array("floats", [0.5, -1.5])
    writer.add_array("bools", [True, False])
    rng = np.random.default_rng(0)
    for name, kind in TYPES.items():
        raw = rng.integers(0, 256, (3, 2 * kind.nbytes), np.uint8)
        writer.add_tensor(f"{name}.weight", raw, raw_dtype=official.GGMLQuantizationType[name])
    writer.add_tensor("cube", rng.standard_normal((2, 3, 4, 5)).astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    assert_equal_to_official(path)
    assert gguf.read(path).tensors["Q6_K.weight"].shape == (3, 512)


@pytest.mark.parametrize("name", ["ggml-vocab-bert-bge", "ggml-vocab-gpt-2", "ggml-vocab-llama-spm"])
def test_published_vocabularies(shared: Path, name: str) -> None:
    path = shared / "data" / "vocab" / f"{name}.gguf"
    assert_equal_to_official(path)
    assert not gguf.read(path).tensors


def test_smollm2(smollm2: Path) -> None:
    assert_equal_to_official(smollm2)


# --------------------------------------------------------------------------------------------
# What is read, and how


def test_the_least_file(tmp_path: Path) -> None:
    found = gguf.read(save(tmp_path, make()))
    assert (found.version, found.metadata, found.tensors) == (3, {}, {})


def test_version_2(tmp_path: Path) -> None:
    path = save(tmp_path, make([pair("a", U32, number(U32, 5))], start=b"GGUF\x02\0\0\0"))
    found = gguf.read(path)
    assert (found.version, found.metadata, found.path) == (2, {"a": 5}, str(path))


def test_values_are_plain_python(tmp_path: Path) -> None:
    pairs = [
        pair("int", U64, number(U64, 2**64 - 1)),
        pair("bool", BOOL, number(BOOL, 1)),
        pair("float", F32, number(F32, 1e-5)),
        pair("text", STRING, text("é")),
        pair("bools", ARRAY, array(BOOL, [b"\1", b"\0"])),
        pair("none", ARRAY, array(F32, [])),
    ]
    found = gguf.read(save(tmp_path, make(pairs))).metadata
    assert found["int"] == 2**64 - 1
    assert found["bool"] is True
    assert type(found["float"]) is float and found["float"] == float(np.float32(1e-5))
    assert found["text"] == "é"
    assert found["bools"].dtype == np.bool_ and found["bools"].tolist() == [True, False]
    assert found["none"].dtype == np.float32 and found["none"].size == 0


def test_nested_arrays(tmp_path: Path) -> None:
    inner = [array(I32, [number(I32, -1), number(I32, 2)]), array(I32, [])]
    found = gguf.read(save(tmp_path, make([pair("a", ARRAY, array(ARRAY, inner))]))).metadata["a"]
    assert [one.tolist() for one in found] == [[-1, 2], []]


def test_shapes_are_row_major(tmp_path: Path) -> None:
    found = gguf.read(save(tmp_path, make([], [entry("w", [3, 2], 0)], floats(6))))
    assert found.tensors["w"].shape == (2, 3)
    assert found.tensors["w"].float32().tolist() == [[0, 1, 2], [3, 4, 5]]


def test_a_tensor_without_dimensions_is_one_number(tmp_path: Path) -> None:
    tensor = gguf.read(save(tmp_path, make([], [entry("w", [], 0)], floats(1, 7)))).tensors["w"]
    assert tensor.shape == ()
    assert float(tensor.float32()) == 7


def test_tensors_stay_in_the_file(tmp_path: Path) -> None:
    path = save(tmp_path, make([], [entry("w", [8], 0)], floats(8)))
    found = gguf.read(path)
    tensor = found.tensors["w"]
    assert np.shares_memory(tensor.float32(), tensor.data)
    assert not tensor.data.flags.writeable
    del found
    gc.collect()
    if os.name == "posix":  # the mapping is the tensor's own, even once the file has no name
        path.unlink()
    assert tensor.float32().tolist() == list(range(8))


def test_reading_takes_no_memory_for_tensors(tmp_path: Path) -> None:
    path = save(tmp_path, make([], [entry("w", [8_000_000], 0)], bytes(32_000_000)))
    tracemalloc.start()
    try:
        gguf.read(path)
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(("alignment", "start"), [(64, 256), (None, 224)])
def test_data_starts_where_the_alignment_says(tmp_path: Path, alignment: int | None, start: int) -> None:
    pairs = [] if alignment is None else [pair("general.alignment", U32, number(U32, alignment))]
    entries = [entry("w", [4], 0)]
    free = 200 - len(make([*pairs, pair("filler", STRING, text(""))], entries))
    header = make([*pairs, pair("filler", STRING, text("x" * free))], entries)
    assert len(header) == 200
    found = gguf.read(save(tmp_path, header + bytes(start - 200) + floats(4, 1)))
    assert found.data_start == start
    assert found.tensors["w"].float32().tolist() == [1, 2, 3, 4]


def test_order_gaps_and_trailing_bytes_are_free(tmp_path: Path) -> None:
    entries = [entry("b", [4], 0, 96), entry("a", [4], 0, 0)]
    data = floats(4) + bytes(80) + floats(4, 10) + b"trailing"
    found = gguf.read(save(tmp_path, make([], entries, data)))
    assert list(found.tensors) == ["b", "a"]
    assert found.tensors["a"].float32().tolist() == [0, 1, 2, 3]
    assert found.tensors["b"].float32().tolist() == [10, 11, 12, 13]


def test_a_large_vocabulary_is_read_quickly(tmp_path: Path) -> None:
    tokens = array(STRING, [text(f"▁token {i}") for i in range(262_144)])
    scores = array(F32, [number(F32, i) for i in range(262_144)])
    path = save(tmp_path, make([pair("tokens", ARRAY, tokens), pair("scores", ARRAY, scores)]))
    times = []
    for _ in range(3):
        start = time.perf_counter()
        found = gguf.read(path)
        times.append(time.perf_counter() - start)
    assert found.metadata["tokens"][-1] == "▁token 262143"
    assert min(times) < 0.6  # 0.1 s where nothing else runs


# --------------------------------------------------------------------------------------------
# NaN and infinity


@pytest.mark.parametrize(("bits", "value"), [(b"\0\x7e", "nan"), (b"\0\x7c", "inf")])
def test_a_broken_scale_is_found_before_it_spreads(tmp_path: Path, bits: bytes, value: str) -> None:
    block = b"\0\x3c" + bytes(32)
    data = block * 5 + bits + bytes(32) + block * 2  # block 5 of [4, 64]
    tensor = gguf.read(save(tmp_path, make([], [entry("w", [64, 4], 8)], data))).tensors["w"]
    trouble = rf"tensor 'w' \(Q8_0\) holds {value}: the scale of block 5 \(stored row 2, from column 32\)"
    with pytest.raises(FormatError, match=trouble):
        tensor.check_finite()


@pytest.mark.parametrize(("kind", "bits"), [(0, b"\0\0\xc0\x7f"), (1, b"\0\x7e"), (30, b"\xc0\x7f")])
def test_broken_values_are_found(tmp_path: Path, kind: int, bits: bytes) -> None:
    data = bytes(len(bits)) * 6 + bits + bytes(len(bits))
    tensor = gguf.read(save(tmp_path, make([], [entry("w", [4, 2], kind)], data))).tensors["w"]
    with pytest.raises(FormatError, match=r"holds nan: the value of block 6 \(stored row 1, from column 2\)"):
        tensor.check_finite()


def test_smollm2_is_finite_and_soon_known_to_be(smollm2: Path) -> None:
    tensors = gguf.read(smollm2).tensors.values()
    times = []
    for _ in range(3):
        start = time.perf_counter()
        for tensor in tensors:
            tensor.check_finite()
        times.append(time.perf_counter() - start)
    assert min(times) < 0.15


# --------------------------------------------------------------------------------------------
# Split files


def part(index: int, count: int, names: dict[str, float], total: int | None = None, **extra: int) -> bytes:
    """One file of a set, as `gguf-split` writes them: one tensor of 8 numbers for each name."""
    pairs = [
        pair("split.no", U16, number(U16, index)),
        pair("split.count", U16, number(U16, count)),
        *([] if total is None else [pair("split.tensors.count", I32, number(I32, total))]),
        *(pair(key, U32, number(U32, value)) for key, value in extra.items()),
    ]
    entries = [entry(name, [8], 0, 32 * place) for place, name in enumerate(names)]
    return make(pairs, entries, b"".join(floats(8, first) for first in names.values()))


@pytest.fixture
def parts(tmp_path: Path) -> list[Path]:
    """A model in three files; the first holds the metadata and no tensor."""
    contents = [{}, {"a": 0.0, "b": 10.0}, {"c": 20.0}]
    return [
        save(tmp_path, part(i, 3, names, 3, layers=2 - i), f"model-{i + 1:05d}-of-00003.gguf")
        for i, names in enumerate(contents)
    ]


@pytest.mark.parametrize("asked", range(3))
def test_any_part_brings_in_all(parts: list[Path], asked: int) -> None:
    found = gguf.read(parts[asked])
    assert {name: float(tensor.float32()[0]) for name, tensor in found.tensors.items()} == {
        "a": 0, "b": 10, "c": 20
    }  # fmt: skip
    assert found.metadata["layers"] == 2
    assert (found.path, found.parts) == (str(parts[asked]), tuple(map(str, parts)))
    assert found.tensors["c"].file == str(parts[2])


@pytest.mark.parametrize(("asked", "missing"), [(0, 2), (0, 1), (2, 0)])
def test_a_missing_part_is_named(parts: list[Path], asked: int, missing: int) -> None:
    parts[missing].unlink()
    with pytest.raises(NotFoundError, match=f"part {missing + 1} of 3 is missing") as caught:
        gguf.read(parts[asked])
    assert caught.value.path == str(parts[missing])


def test_a_part_under_another_name(parts: list[Path]) -> None:
    path = parts[1].rename(parts[1].with_name("model.gguf"))
    with pytest.raises(FormatError, match="is part 2 of 3, but isn't named so"):
        gguf.read(path)


def test_parts_in_each_other_s_place(parts: list[Path]) -> None:
    parts[2].write_bytes(parts[1].read_bytes())
    with pytest.raises(FormatError, match="is part 2 of 3 by its metadata, not 3 of 3"):
        gguf.read(parts[0])


def test_a_tensor_in_two_parts(parts: list[Path]) -> None:
    parts[2].write_bytes(part(2, 3, {"b": 0.0}))
    with pytest.raises(FormatError, match="tensor 'b' is in an earlier part too"):
        gguf.read(parts[0])


def test_parts_that_hold_fewer_tensors_than_promised(parts: list[Path]) -> None:
    parts[2].write_bytes(part(2, 3, {}))
    with pytest.raises(FormatError, match="hold 2 tensors, not the 3"):
        gguf.read(parts[0])


def test_a_damaged_part_is_the_one_named(parts: list[Path]) -> None:
    parts[2].write_bytes(parts[2].read_bytes()[:-1])
    with pytest.raises(FormatError, match="tensor 'c'") as caught:
        gguf.read(parts[0])
    assert caught.value.path == str(parts[2])


@pytest.mark.parametrize(
    "value", [pair("split.count", STRING, text("3")), pair("split.count", F32, bytes(4))]
)
def test_a_number_of_parts_that_is_none(tmp_path: Path, value: bytes) -> None:
    with pytest.raises(FormatError, match=r"split\.count is .*, not a whole number"):
        gguf.read(save(tmp_path, make([value])))


def test_an_impossible_number_of_parts(tmp_path: Path) -> None:
    with pytest.raises(GlassgearError, match="isn't named so"):
        gguf.read(
            save(tmp_path, make([pair("split.count", U64, number(U64, 2**64 - 1))]), "m-00001-of-99999.gguf")
        )
