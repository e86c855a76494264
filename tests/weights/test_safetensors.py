"""The safetensors reader against the reference library, and against files that lie."""

from __future__ import annotations

import gc
import json
import os
import random
import time
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy
from hypothesis import given
from hypothesis import strategies as st

from glassgear.errors import FileError, FormatError, NotFoundError, SettingError, UnsupportedError
from glassgear.weights import safetensors as ours
from glassgear.weights.tensor import StoredTensor

FUZZ = int(os.environ.get("GLASSGEAR_FUZZ", "2000"))


def raw(header: object, data: bytes = b"", length: int | None = None) -> bytes:
    """A file from its parts; `header` may be bytes, to write what JSON's writer wouldn't."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return (len(text) if length is None else length).to_bytes(8, "little") + text + data


def entry(dtype: object = "F32", shape: object = (2,), offsets: object = (0, 8)) -> dict[str, object]:
    return {"dtype": dtype, "shape": shape, "data_offsets": offsets}


def message(path: Path, content: bytes, kind: type[FileError] = FormatError) -> str:
    """The trouble that reading such a file raises, without the file's name."""
    path.write_bytes(content)
    started = time.perf_counter()
    with pytest.raises(FileError) as caught:
        ours.read(path)
    assert time.perf_counter() - started < 1
    assert type(caught.value) is kind
    assert caught.value.path == str(path)
    return caught.value.trouble


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "model.safetensors"


class TestWhatTheLibraryWrites:
    def test_float32_and_float16_values_and_order_of_axes(self, file: Path) -> None:
        rng = np.random.default_rng(1)
        arrays = {
            "wide": rng.standard_normal((3, 5), np.float32),
            "half": rng.standard_normal((2, 2, 3)).astype(np.float16),
            "single": np.array(7.5, np.float32),
            "none": np.zeros((0, 4), np.float32),
        }
        safetensors.numpy.save_file(arrays, file)
        found = ours.read(file)
        assert found.keys() == arrays.keys()
        for name, array in arrays.items():
            assert found[name].shape == array.shape
            assert found[name].nbytes == array.nbytes
            if array.size:
                np.testing.assert_array_equal(found[name].float32(), array.astype(np.float32))

    def test_bfloat16_as_torch_writes_it(self, file: Path) -> None:
        torch = pytest.importorskip("torch")
        from safetensors.torch import save_file

        values = torch.linspace(-3, 3, 24).reshape(4, 6).to(torch.bfloat16)
        save_file({"w": values}, file)
        found = ours.read(file)["w"]
        assert found.type == "BF16"
        np.testing.assert_array_equal(found.float32(), values.float().numpy())
        np.testing.assert_array_equal(found.rows(np.array([3, 1])), values.float().numpy()[[3, 1]])

    def test_every_type_of_torch_is_listed_with_its_shape(self, file: Path) -> None:
        torch = pytest.importorskip("torch")
        from safetensors.torch import save_file

        names = [
            "float64",
            "float32",
            "float16",
            "bfloat16",
            "int64",
            "int32",
            "int16",
            "int8",
            "uint8",
            "uint16",
            "uint32",
            "uint64",
            "bool",
            "float8_e4m3fn",
            "float8_e5m2",
            "complex64",
        ]
        save_file({name: torch.zeros(2, 3).to(getattr(torch, name)) for name in names}, file)
        found = ours.read(file)
        assert {name: t.shape for name, t in found.items()} == dict.fromkeys(names, (2, 3))
        assert found["float8_e4m3fn"].type == "F8_E4M3"

    def test_metadata_says_nothing_about_tensors(self, file: Path) -> None:
        safetensors.numpy.save_file({"w": np.ones(2, np.float32)}, file, metadata={"format": "pt"})
        assert list(ours.read(file)) == ["w"]
        assert ours.read_metadata(file) == {"format": "pt"}

    def test_metadata_of_any_form_is_passed_over(self, file: Path) -> None:
        file.write_bytes(raw({"__metadata__": [1, {"dtype": 2}], "w": entry()}, bytes(8)))
        assert list(ours.read(file)) == ["w"]
        assert ours.read_metadata(file) == {}


class TestValues:
    @pytest.mark.parametrize(
        ("data", "value"), [(b"\x80\x3f", 1.0), (b"\x00\xc0", -2.0), (b"\xc0\x7f", float("nan"))]
    )
    def test_bfloat16_bits(self, file: Path, data: bytes, value: float) -> None:
        file.write_bytes(raw({"w": entry("BF16", [1], [0, 2])}, data))
        np.testing.assert_array_equal(ours.read(file)["w"].float32(), np.float32([value]))

    def test_data_that_isnt_aligned(self, file: Path) -> None:
        values = np.float32([1.5, -2.25])
        header = {"byte": entry("U8", [1], [0, 1]), "w": entry("F32", [2], [1, 9])}
        text = json.dumps(header).encode()
        file.write_bytes(raw(text + b" " * (-len(text) % 8), b"\xff" + values.tobytes()))
        np.testing.assert_array_equal(ours.read(file)["w"].float32(), values)

    @pytest.mark.parametrize("kind", ["F8_E5M2", "I64", "BOOL", "F64", "U8"])
    def test_types_without_a_decoder_are_listed_and_refuse_their_values(self, file: Path, kind: str) -> None:
        size = ours.BITS[kind] // 8
        file.write_bytes(raw({"attn.bias": entry(kind, [3], [0, 3 * size])}, bytes(3 * size)))
        tensor = ours.read(file)["attn.bias"]
        assert (tensor.type, tensor.shape) == (kind, (3,))
        for use in (tensor.float32, tensor.check_finite):
            with pytest.raises(UnsupportedError) as caught:
                use()
            assert "`attn.bias`" in str(caught.value)
            assert kind in str(caught.value)
            assert str(file) in str(caught.value)

    def test_four_bit_floats_take_half_a_byte(self, file: Path) -> None:
        file.write_bytes(raw({"w": entry("F4", [2, 3], [0, 3])}, bytes(3)))
        assert ours.read(file)["w"].shape == (2, 3)

    def test_the_mapping_outlives_the_reader_and_the_name(self, file: Path) -> None:
        values = np.arange(20_000, dtype=np.float32)
        safetensors.numpy.save_file({"w": values}, file)
        array = ours.read(file)["w"].float32()
        gc.collect()
        if os.name == "posix":
            file.unlink()
        np.testing.assert_array_equal(array, values)

    def test_float32_is_a_view_that_cant_be_written_to(self, file: Path) -> None:
        safetensors.numpy.save_file({"w": np.ones(4, np.float32)}, file)
        tensor = ours.read(file)["w"]
        assert np.shares_memory(tensor.float32(), tensor.data)
        with pytest.raises(ValueError, match="read-only"):
            tensor.float32()[0] = 2

    def test_zero_elements_anywhere(self, file: Path) -> None:
        header = {"a": entry("F32", [0], [0, 0]), "b": entry(), "c": entry("F16", [4, 0], [8, 8])}
        file.write_bytes(raw(header, bytes(8)))
        assert {name: t.shape for name, t in ours.read(file).items()} == {"a": (0,), "b": (2,), "c": (4, 0)}

    def test_a_header_padded_with_spaces_and_no_tensors(self, file: Path) -> None:
        file.write_bytes(raw(b"{}      "))
        assert ours.read(file) == {}


class TestHeaderThatLies:
    @pytest.mark.parametrize("length", [2**63, 2**64 - 1, 100_000_001])
    def test_length_beyond_the_limit(self, file: Path, length: int) -> None:
        trouble = message(file, raw({"w": entry()}, bytes(8), length))
        assert f"{length:,}" in trouble
        assert "100,000,000" in trouble

    def test_a_header_over_the_limit_is_refused_unread(self, file: Path) -> None:
        with file.open("wb") as out:  # a sparse file: nothing of this size is written
            out.write(raw(b"{", length=100_000_001))
            out.truncate(100_000_100)
        tracemalloc.start()
        with pytest.raises(FormatError, match="100,000,001"):
            ours.read(file)
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
        tracemalloc.stop()

    def test_length_larger_than_the_file(self, file: Path) -> None:
        assert "only 10 follow" in message(file, raw(b"{}", bytes(8), 11))

    @pytest.mark.parametrize("content", [raw(b"", b"{}"), raw(b"{", b"}"), raw(b" {}"), raw(b"[]")])
    def test_no_object_where_the_header_should_be(self, file: Path, content: bytes) -> None:
        assert "header" in message(file, content)

    @pytest.mark.parametrize("size", range(1, 10))
    def test_cut_within_the_first_bytes(self, file: Path, size: int) -> None:
        assert message(file, raw({"w": entry()}, bytes(8))[:size])

    def test_empty(self, file: Path) -> None:
        assert "empty" in message(file, b"")

    @pytest.mark.parametrize(
        ("header", "says"),
        [
            (b'{"w": }', "JSON"),
            (b'{"w": "\xff"}', "UTF-8"),
            (b'{"w": NaN}', "NaN"),
            (b'{"w": 1e999}', "1e999"),
            (b'{"w": ' + b"9" * 5000 + b"}", "digits"),
            (b'{"w": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", "levels"),
            (b'{"w": ' + b'{"a":' * 40 + b"1" + b"}" * 41, "levels"),
            (b'{"\\ud800": {}}', "surrogate"),
        ],
    )
    def test_text_that_isnt_sound_json(self, file: Path, header: bytes, says: str) -> None:
        trouble = message(file, raw(header))
        assert "header" in trouble
        assert says in trouble

    def test_duplicate_name(self, file: Path) -> None:
        one = json.dumps(entry())
        trouble = message(file, raw(f'{{"w": {one}, "w": {one}}}'.encode(), bytes(8)))
        assert "`w` twice" in trouble


class TestTensorThatLies:
    @pytest.mark.parametrize(
        ("value", "says"),
        [
            (entry(offsets=[8, 0]), "begin at most end"),
            (entry(offsets=[-8, 0]), "begin at most end"),
            (entry(offsets=[0, 8.0]), "begin at most end"),
            (entry(offsets=[0]), "begin at most end"),
            (entry(offsets=[False, 8]), "begin at most end"),
            (entry(offsets="08"), "begin at most end"),
            (entry(shape=[4], offsets=[0, 16]), "file holds 8"),
            (entry(shape=[3]), "needs 12 bytes, but its data_offsets span 8"),
            (entry(shape=[], offsets=[0, 8]), "a single value"),
            (entry(shape=[1]), "needs 4 bytes"),
            (entry(shape=[-2]), "whole numbers"),
            (entry(shape=[2.0]), "whole numbers"),
            (entry(shape=[True, 2]), "whole numbers"),
            (entry(shape=2), "whole numbers"),
            (entry(shape=[2**64]), "whole numbers"),
            (entry(shape=[2**32, 2**32], offsets=[0, 0]), "any memory"),
            (entry(shape=[0, 2**62, 2**62], offsets=[0, 0]), "any memory"),
            (entry(shape=[1] * 33, offsets=[0, 4]), "33 dimensions"),
            (entry("F4", [3], [0, 1]), "needs 1.5 bytes"),
            (entry(dtype=3), "dtype is a number"),
            ({"dtype": "F32", "shape": [2]}, "lacks `data_offsets`"),
            ({}, "lacks `dtype`, `shape`, `data_offsets`"),
            ([1, 2], "a list"),
            (None, "null"),
            (7, "a number"),
        ],
    )
    def test_is_named(self, file: Path, value: object, says: str) -> None:
        trouble = message(file, raw({"model.w": value}, bytes(8)))
        assert "`model.w`" in trouble
        assert says in trouble

    @pytest.mark.parametrize("kind", ["F128", "f32", "", "Q4_0"])
    def test_unknown_type(self, file: Path, kind: str) -> None:
        trouble = message(file, raw({"model.w": entry(kind)}, bytes(8)), UnsupportedError)
        assert "`model.w`" in trouble
        assert f"`{kind}`" in trouble

    def test_overlap(self, file: Path) -> None:
        header = {"a": entry(), "b": entry(offsets=[4, 12])}
        trouble = message(file, raw(header, bytes(12)))
        assert "`a`" in trouble
        assert "`b`" in trouble

    def test_same_bytes_twice(self, file: Path) -> None:
        assert "share" in message(file, raw({"a": entry(), "b": entry()}, bytes(8)))

    def test_hole(self, file: Path) -> None:
        header = {"a": entry(), "b": entry(offsets=[12, 20])}
        trouble = message(file, raw(header, bytes(20)))
        assert "4 bytes" in trouble
        assert "`b`" in trouble

    def test_hole_at_the_start(self, file: Path) -> None:
        assert "`a`" in message(file, raw({"a": entry(offsets=[4, 12])}, bytes(12)))

    def test_bytes_after_the_last(self, file: Path) -> None:
        trouble = message(file, raw({"a": entry()}, bytes(11)))
        assert "3 bytes" in trouble
        assert "`a`" in trouble
        assert "lists no tensor" in message(file, raw({}, bytes(11)))

    def test_a_name_made_to_spoil_the_message(self, file: Path) -> None:
        trouble = message(file, raw({"\x1b[2J\n" + "x" * 100_000: 1}, bytes(8)))
        assert "\x1b" not in trouble
        assert "\n" not in trouble
        assert len(trouble) < 400


class TestOtherThings:
    def test_missing(self, tmp_path: Path) -> None:
        with pytest.raises(NotFoundError):
            ours.read(tmp_path / "none.safetensors")

    def test_folder(self, tmp_path: Path) -> None:
        with pytest.raises(FormatError, match="folder"):
            ours.read(tmp_path)

    @pytest.mark.parametrize(
        ("content", "says"),
        [
            (b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 12\n", "LFS"),
            (b"<!DOCTYPE html><html><title>404</title></html>", "web page"),
            (b"\x80\x02}q\x00." + bytes(20), "pickle"),
            (b"PK\x03\x04" + bytes(26) + b"archive/data.pkl" + bytes(20), "pickle"),
            (b"GGUF\x03\x00\x00\x00" + bytes(40), "GGUF"),
        ],
    )
    def test_is_told_what_it_is(self, file: Path, content: bytes, says: str) -> None:
        assert says in message(file, content)

    @pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes on this system")
    def test_a_pipe_doesnt_hang(self, file: Path) -> None:
        os.mkfifo(file)
        with pytest.raises(FormatError, match="regular"):
            ours.read(file)


class TestWriting:
    arrays = st.dictionaries(
        st.text(st.characters(exclude_categories=["Cs"]), max_size=8).filter(lambda s: s != "__metadata__"),
        st.tuples(
            st.sampled_from(
                ["f8", "f4", ">f4", "f2", "i8", "i4", "i2", "i1", "u8", "u4", "u2", "u1", "b1", "c8"]
            ),
            st.lists(st.integers(0, 3), max_size=3),
        ),
        max_size=5,
    )

    @given(arrays)
    def test_the_library_reads_what_is_written(
        self, tmp_path_factory: pytest.TempPathFactory, made: dict[str, tuple[str, list[int]]]
    ) -> None:
        path = tmp_path_factory.mktemp("written") / "w.safetensors"
        arrays = {
            name: np.arange(int(np.prod(shape))).reshape(shape).astype(kind)
            for name, (kind, shape) in made.items()
        }
        ours.write(path, arrays, {"format": "np"})
        theirs = safetensors.numpy.load_file(path)
        assert theirs.keys() == arrays.keys()
        for name, array in arrays.items():
            np.testing.assert_array_equal(theirs[name], array)
            assert theirs[name].dtype == array.dtype.newbyteorder("=")
        assert {name: t.shape for name, t in ours.read(path).items()} == {
            n: a.shape for n, a in arrays.items()
        }

    def test_stored_tensors_are_copied_bit_for_bit(self, tmp_path: Path) -> None:
        first, second = tmp_path / "a.safetensors", tmp_path / "b.safetensors"
        first.write_bytes(raw({"w": entry("BF16", [2], [0, 4])}, b"\x80\x3f\xc0\x7f"))
        ours.write(second, ours.read(first))
        assert ours.read(second)["w"].data.tobytes() == b"\x80\x3f\xc0\x7f"

    def test_arrays_that_arent_contiguous(self, file: Path) -> None:
        values = np.arange(12, dtype=np.float32).reshape(3, 4)
        ours.write(file, {"w": values.T, "v": values[:, ::2]})
        np.testing.assert_array_equal(ours.read(file)["w"].float32(), values.T)
        np.testing.assert_array_equal(ours.read(file)["v"].float32(), values[:, ::2])

    def test_what_the_format_lacks_is_refused_and_leaves_the_old_file(self, file: Path) -> None:
        ours.write(file, {"w": np.ones(1, np.float32)})
        before = file.read_bytes()
        quantised = StoredTensor("w", "Q4_0", (32,), np.zeros(18, np.uint8), "x.gguf")
        bad: list[dict[str, Any]] = [
            {"w": np.array(["text"])},
            {"__metadata__": np.ones(1, np.float32)},
            {"w": quantised},
            {"w": ours.read(file)["w"].reordered(np.array([0]))},
        ]
        for tensors in bad:
            with pytest.raises(SettingError):
                ours.write(file, tensors)
        assert file.read_bytes() == before
        assert os.listdir(file.parent) == [file.name]


def mutations(rng: random.Random, seed: bytes) -> bytes:
    """One damaged copy: bytes flipped or cut, numbers and words of the header exchanged."""
    header_end = 8 + int.from_bytes(seed[:8], "little")
    data = bytearray(seed)
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(min(len(data), header_end + 8) or 1)
        match rng.randrange(7):
            case 0:
                data[at : at + 1] = bytes([rng.randrange(256)])
            case 1:
                del data[at : at + rng.choice([1, 2, 8, 100])]
            case 2:
                data[at:at] = rng.choice([b"0", b"-", b"9" * 30, b"[", b"{", b'"', b",", b"\\u0000", b"1e9"])
            case 3:
                data = data[: rng.randrange(len(data) + 1)]
            case 4:
                data[:8] = rng.choice([0, 1, header_end, 2**31, 2**63, 2**64 - 1, len(data)]).to_bytes(
                    8, "little"
                )
            case 5:
                words = [b"F32", b"BF16", b"dtype", b"shape", b"data_offsets", b"[", b"]", b"1", b"8", b"0"]
                data = bytearray(data.replace(rng.choice(words), rng.choice(words), rng.choice([1, -1])))
            case _:
                data[at:at] = data[at : at + rng.randint(1, 40)]
        if not data:
            break
    return bytes(data)


def test_damaged_files_end_in_an_error_that_names_the_file(tmp_path: Path) -> None:
    path = tmp_path / "damaged.safetensors"
    rng = random.Random(20)
    names = ["model.layers.0.w", "model.embed", "b", "mask"]
    shapes = [(4, 8), (2, 3, 4), (8,), (1, 2)]
    arrays = {
        name: np.ones(shape, np.int64 if name == "mask" else np.float32)
        for name, shape in zip(names, shapes, strict=True)
    }
    ours.write(path, arrays, {"format": "pt"})
    seed = path.read_bytes()
    read = refused = 0
    tracemalloc.start()
    for _ in range(FUZZ):
        path.write_bytes(mutations(rng, seed))
        started = time.perf_counter()
        try:
            for tensor in ours.read(path).values():
                if tensor.type in ("F32", "BF16", "F16") and tensor.data.size:
                    tensor.float32()
            read += 1
        except FileError as error:
            refused += 1
            assert error.path == str(path)
            assert 10 < len(str(error)) < len(str(path)) + 600
        assert time.perf_counter() - started < 1
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 50_000_000
    assert refused > FUZZ // 2  # the damage is real
    assert read + refused == FUZZ
