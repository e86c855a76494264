"""Every way in which a GGUF file can lie ends in one clear sentence, soon and in little memory."""

from __future__ import annotations

import os
import time
import tracemalloc
from pathlib import Path

import gguf as official
import pytest

from glassgear.errors import FormatError, NotFoundError, UnsupportedError
from glassgear.weights import gguf
from glassgear.weights.gguf_format import OTHER_TYPES
from glassgear.weights.quant import TYPES
from tests.weights.gguf_files import (
    ARRAY,
    BOOL,
    F32,
    I32,
    STRING,
    U8,
    U32,
    U64,
    array,
    entry,
    number,
    pair,
    save,
    text,
)
from tests.weights.gguf_files import gguf as make

DAMAGED = {
    "empty file": (b"", "is empty"),
    "three bytes": (b"GGU", "isn't a GGUF file"),
    "only the magic": (b"GGUF", "ends inside the header"),
    "no counts": (b"GGUF\x03\0\0\0", "ends inside the number of tensors"),
    "impossible number of tensors": (make(tensor_count=2**63 - 1), r"9,223,372,036,854,775,807 tensors"),
    "impossible number of keys": (make(pair_count=2**40), r"1,099,511,627,776 metadata keys"),
    "more keys than there are": (make([pair("a", STRING, text("x" * 40))], pair_count=2), "metadata key 1"),
    "endless key": (make([text("a", 2**63) + bytes(40)]), "ends inside metadata key 0"),
    "endless string": (make([pair("a", STRING, text("b", 2**64 - 1))]), "ends inside metadata 'a'"),
    "endless string in an array": (
        make([pair("a", ARRAY, array(STRING, [text("b"), text("c", 2**63)]))]),
        "ends inside metadata 'a', entry 1",
    ),
    "array of too many strings": (
        make([pair("a", ARRAY, array(STRING, [], 2**40))]),
        "entries of metadata 'a'",
    ),
    "array of too many numbers": (make([pair("a", ARRAY, array(U8, [], 2**62))]), "entries of metadata 'a'"),
    "string array cut at a length": (
        make([pair("a", ARRAY, array(STRING, [text("x" * 20), b"\1\0\0"], 2))]),
        "ends inside metadata 'a', entry 1",
    ),
    "nested without end": (
        make([pair("a", ARRAY, array(ARRAY, [], 1) * 2000 + array(U8, [b"\0"]))]),
        "nests arrays deeper than 4",
    ),
    "unknown value type": (make([pair("a", 99, bytes(16))]), "metadata 'a' has the unknown value type 99"),
    "unknown type in an array": (make([pair("a", ARRAY, array(99, [bytes(8)]))]), "unknown value type 99"),
    "truth value of 2": (make([pair("a", BOOL, b"\2")]), "metadata 'a' is a truth value of 2"),
    "truth values of 255": (make([pair("a", ARRAY, array(BOOL, [b"\0", b"\xff"]))]), "truth value of 255"),
    "empty key": (make([pair("", U32, bytes(4))]), "metadata key 0 is empty"),
    "overlong key": (make([pair("k" * 70_000, U32, bytes(4))]), "is 70,000 characters long"),
    "key that isn't UTF-8": (
        make([pair(b"a\xff", U32, bytes(4))]),
        r"metadata key 0 isn't valid UTF-8: b'a\\xff'",
    ),
    "value that isn't UTF-8": (
        make([pair("a", ARRAY, array(STRING, [text("ok"), text(b"\xc3")]))]),
        r"metadata 'a', entry 1 isn't valid UTF-8: b'\\xc3'",
    ),
    "key twice": (make([pair("a.b", U32, bytes(4))] * 2), "holds the metadata key 'a.b' twice"),
    "name that isn't UTF-8": (
        make([], [entry(b"\x80", [1], 0)], bytes(4)),
        "the entry of tensor 0 isn't valid",
    ),
    "tensor without a name": (make([], [entry("", [1], 0)], bytes(4)), "the entry of tensor 0 has no name"),
    "tensor twice": (
        make([], [entry("w", [8], 0), entry("w", [8], 0, 32)], bytes(64)),
        "holds two tensors named 'w'",
    ),
    "2^32 - 1 dimensions": (
        make([], [entry("w", [1], 0, n_dims=2**32 - 1)], bytes(4)),
        "4,294,967,295 dimensions",
    ),
    "five dimensions": (make([], [entry("w", [1] * 5, 0)], bytes(4)), "tensor 'w' has 5 dimensions"),
    "dimension of zero": (make([], [entry("w", [4, 0], 0)], bytes(4)), r"a dimension of size 0: \[0, 4\]"),
    "product of 2^64": (
        make([], [entry("w", [2**32, 2**32], 0)], bytes(64)),
        "tensor 'w' of shape .* should end",
    ),
    "product of 2^64, twice 2^63": (
        make([], [entry("w", [2**63, 2], 0)], bytes(64)),
        "tensor 'w' .* should end",
    ),
    "product of 2^256": (make([], [entry("w", [2**64 - 1] * 4, 0)], bytes(64)), "tensor 'w' .* should end"),
    "row of 33 in Q8_0": (
        make([], [entry("w", [33, 2], 8)], bytes(200)),
        "tensor 'w' has rows of 33 values, not a multiple of the 32 in a block of Q8_0",
    ),
    "rows of 64 in Q6_K": (
        make([], [entry("w", [64, 8], 14)], bytes(2000)),
        "tensor 'w' has rows of 64 values, not a multiple of the 256 in a block of Q6_K",
    ),
    "offset off the alignment": (
        make([], [entry("w", [1], 0, 4)], bytes(64)),
        "tensor 'w' starts at 4, not a multi",
    ),
    "overlapping tensors": (
        make([], [entry("a", [16], 0), entry("b", [8], 0, 32)], bytes(128)),
        "tensor 'b' overlaps tensor 'a'",
    ),
    "one place for two tensors": (
        make([], [entry("a", [8], 0), entry("b", [8], 0)], bytes(128)),
        "tensor 'b' overlaps tensor 'a'",
    ),
    "offset past the end": (
        make([], [entry("w", [8], 0, 2**40)], bytes(64)),
        "tensor 'w' .* should end at byte",
    ),
    "last offset of all": (make([], [entry("w", [8], 0, 2**64 - 32)], bytes(64)), "tensor 'w' .* should end"),
    "last byte cut": (
        make([], [entry("a", [8], 0), entry("b", [8], 0, 32)], bytes(63)),
        "tensor 'b' of shape .* cut off or damaged: fetch it again",
    ),
    "no data at all": (make([], [entry("w", [8], 0)]), "tensor 'w' of shape .* should end"),
    "table of tensors cut": (make([], [entry("w" * 40, [8], 0)[:-3]]), "ends inside tensor 'www"),
}


@pytest.mark.parametrize(("data", "trouble"), DAMAGED.values(), ids=DAMAGED.keys())
def test_damaged_files_are_refused_quickly(tmp_path: Path, data: bytes, trouble: str) -> None:
    path = save(tmp_path, data)
    tracemalloc.start()
    start = time.perf_counter()
    try:
        with pytest.raises(FormatError, match=trouble) as caught:
            gguf.read(path)
        assert tracemalloc.get_traced_memory()[1] < 10_000_000
    finally:
        tracemalloc.stop()
    assert time.perf_counter() - start < 1
    assert str(caught.value).startswith(f"{path}: ")


@pytest.mark.parametrize(
    ("kind", "value"),
    [(U32, 0), (U32, 3), (U32, 4), (U32, 2**31), (U32, 48), (U64, 2**63), (I32, -32), (F32, 32.0), (BOOL, 1)],
)
def test_alignments_that_make_no_sense(tmp_path: Path, kind: int, value: float) -> None:
    path = save(tmp_path, make([pair("general.alignment", kind, number(kind, value))]))
    with pytest.raises(FormatError, match=r"general\.alignment is .*, not a power of two"):
        gguf.read(path)


def test_an_alignment_in_words(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="alignment is 'thirty-two'"):
        gguf.read(save(tmp_path, make([pair("general.alignment", STRING, text("thirty-two"))])))


@pytest.mark.parametrize(
    ("start", "trouble"),
    [
        (b"GGUF\0\0\0\x03", "version as 50331648, which is 3 in big-endian byte order"),
        (b"GGUF\x01\0\0\0", "is GGUF version 1; versions 2 and 3 can be read"),
        (b"GGUF\0\0\0\0", "is GGUF version 0"),
        (b"GGUF\x04\0\0\0", "is GGUF version 4"),
        (b"GGUF\xff\xff\xff\xff", "is GGUF version 4294967295"),
    ],
)
def test_other_versions_and_byte_orders(tmp_path: Path, start: bytes, trouble: str) -> None:
    with pytest.raises(UnsupportedError, match=trouble):
        gguf.read(save(tmp_path, make(start=start)))


@pytest.mark.parametrize(
    ("number", "name"),
    [(99, "unknown"), (16, "IQ2_XXS"), (34, "TQ1_0"), (39, "MXFP4"), (26, "I32"), (2**32 - 1, "unknown")],
)
def test_tensor_types_without_a_decoder(tmp_path: Path, number: int, name: str) -> None:
    path = save(tmp_path, make([], [entry("blk.0.w", [256], number)], bytes(4096)))
    expected = rf"tensor 'blk\.0\.w' is of type {number} \({name}\); supported are F32, F16, .*IQ4_XS"
    with pytest.raises(UnsupportedError, match=expected):
        gguf.read(path)


def test_types_named_as_unsupported_are_those_of_ggml() -> None:
    for kind in official.GGMLQuantizationType:
        assert kind.name in TYPES or OTHER_TYPES[kind.value] == kind.name


IMPOSTORS = {
    "web page": (b"<!DOCTYPE html>\n<html><body>404</body></html>", r"is a web page \(HTML\)"),
    "Git LFS pointer": (
        b"version https://git-lfs.github.com/spec/v1\noid sha256:00\n",
        "is a Git LFS pointer",
    ),
    "old pickle": (b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19.", "is a Python pickle"),
    "PyTorch zip": (b"PK\x03\x04" + bytes(26) + b"archive/data.pkl", "is a PyTorch file"),
    "byte order of the magic": (b"FUGG\0\0\0\x03" + bytes(16), "big-endian byte order"),
    "GGML of old": (b"tjgg\x03\0\0\0" + bytes(40), "is a GGML file from before GGUF"),
    "safetensors": (b"\x40\0\0\0\0\0\0\0{" + b" " * 63, "is a safetensors file"),
    "zeros": (bytes(4096), "nothing but zero bytes"),
    "anything": (b"once upon a time", "isn't a GGUF file: it starts with b'once'"),
}


@pytest.mark.parametrize(("data", "trouble"), IMPOSTORS.values(), ids=IMPOSTORS.keys())
def test_other_files_are_called_what_they_are(tmp_path: Path, data: bytes, trouble: str) -> None:
    with pytest.raises(FormatError, match=trouble):
        gguf.read(save(tmp_path, data))


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="there is no such file"):
        gguf.read(tmp_path / "none.gguf")


def test_a_folder(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="is a folder"):
        gguf.read(tmp_path)


def test_a_path_with_a_zero_byte() -> None:
    with pytest.raises(NotFoundError, match="is not a path"):
        gguf.read("a\0b.gguf")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.gguf")
    with pytest.raises(FormatError, match="isn't a regular file"):
        gguf.read(tmp_path / "pipe.gguf")


def test_names_are_safe_to_print(tmp_path: Path) -> None:
    path = save(tmp_path, make([], [entry("\x1b[2J" + "x" * 5000, [8], 0)]))
    with pytest.raises(FormatError) as caught:
        gguf.read(path)
    assert "\x1b" not in str(caught.value)
    assert len(str(caught.value)) < 400 + len(str(path))
