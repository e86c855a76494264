"""Small GGUF files, damaged at random: each loads or is refused, fast, with the file's name.

`GLASSGEAR_FUZZ=20000` sets the number of damaged files; the default suits every test run.
"""

from __future__ import annotations

import os
import random
import struct
import time
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from glassgear.errors import GlassgearError
from glassgear.weights import gguf
from glassgear.weights.gguf_write import write
from glassgear.weights.quant import TYPES
from glassgear.weights.tensor import StoredTensor
from tests.weights.gguf_files import (
    ARRAY,
    I32,
    STRING,
    U16,
    U32,
    array,
    entry,
    floats,
    number,
    pair,
    text,
)
from tests.weights.gguf_files import gguf as make

COUNT = int(os.environ.get("GLASSGEAR_FUZZ", "2000"))
SECONDS, BYTES = 1.0, 50_000_000

# Numbers at which arithmetic goes wrong.
NUMBERS = [0, 1, 2, 3, 4, 5, 7, 8, 9, 12, 31, 32, 33, 64, 99, 255, 256, 2**15, 2**16, 2**24, 2**31 - 1, 2**31,
           2**32 - 1, 2**32, 2**40, 2**62, 2**63 - 1, 2**63, 2**64 - 32, 2**64 - 1]  # fmt: skip


def valid_files(folder: Path) -> list[bytes]:
    """One file for every part of the format."""
    path = folder / "valid.gguf"
    rng = np.random.default_rng(0)
    tensors = [
        StoredTensor(
            f"{name}.weight", name, (2, 256), rng.integers(0, 60, 512 // t.values * t.nbytes, np.uint8), ""
        )
        for name, t in TYPES.items()
    ]
    metadata = {
        "general.architecture": "llama", "a.flag": True, "a.count": 3, "a.float": 0.5, "a.long": -(2**40),
        "tokenizer.ggml.tokens": [f"token {i}" for i in range(40)], "tokenizer.ggml.scores": [0.5] * 40,
        "tokenizer.ggml.token_type": [1] * 40, "a.flags": [True, False] * 4,
    }  # fmt: skip
    write(path, metadata, tensors)
    files = [path.read_bytes()]
    write(
        path,
        {"general.alignment": 64, "short": "x"},
        [StoredTensor("w", "F32", (4, 8), np.zeros(128, np.uint8), "")],
    )
    files.append(path.read_bytes())
    write(path, {"tokens": ["a", "b" * 300, "é"] * 20, "merges": ["a b"] * 20}, [])
    files.append(path.read_bytes())
    inner = array(ARRAY, [array(I32, [number(I32, 1)] * 3), array(STRING, [text("x")])])
    nested = [pair("nested", ARRAY, array(ARRAY, [inner, inner])), pair("n", U32, number(U32, 1))]
    files.append(
        make(nested, [entry("w", [8], 0), entry("v", [4, 2], 0, 32)], floats(16), start=b"GGUF\2\0\0\0")
    )
    split = [pair("split.no", U16, number(U16, 0)), pair("split.count", U16, number(U16, 1))]
    files.append(make(split, [entry("w", [], 0)], floats(1)))
    return files


def fields(data: bytes) -> list[int]:
    """Where small integers of four or eight bytes seem to be: lengths, counts, sizes, types."""
    return [i for i in range(4, min(len(data), 3000) - 8) if data[i] and data[i + 1 : i + 4] == b"\0\0\0"]


def damage(data: bytes, places: list[int], rng: random.Random) -> bytes:
    """One to three changes of a kind that downloads, disks and attackers make."""
    out = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        at = rng.choice(places) if rng.random() < 0.7 else rng.randrange(len(data))
        kind = rng.randrange(8)
        if kind <= 2:  # another number in a field
            layout, value = rng.choice((("<I", rng.choice(NUMBERS)), ("<Q", rng.choice(NUMBERS))))
            raw = struct.pack(layout, value % 2 ** (8 * struct.calcsize(layout)))
            out[at : at + len(raw)] = raw
        elif kind == 3 and at < len(out):  # one more or less
            out[at] = (out[at] + rng.choice((-1, 1))) % 256
        elif kind == 4:  # random bytes
            out[at : at + rng.randrange(1, 9)] = rng.randbytes(rng.randrange(1, 9))
        elif kind == 5:  # cut
            del out[rng.randrange(len(out) + 1) :]
        elif kind == 6:  # bytes lost
            del out[at : at + rng.choice((1, 4, 8, 40))]
        else:  # bytes doubled
            out[at:at] = out[at : at + rng.choice((1, 4, 8, 40))]
    return bytes(out)


def outcome(path: Path) -> str:
    """Read everything that a loader would; `loaded` or `refused`."""
    try:
        found = gguf.read(path)
    except GlassgearError as error:
        assert str(path) in str(error)
        return "refused"
    for tensor in found.tensors.values():
        try:
            tensor.check_finite()
        except GlassgearError as error:
            assert str(path) in str(error)
        assert tensor.float32().shape == tensor.shape
    return "loaded"


@pytest.fixture
def traced() -> object:
    tracemalloc.start()
    yield
    tracemalloc.stop()


@pytest.mark.usefixtures("traced")
def test_damaged_files_load_or_are_refused_with_their_name(tmp_path: Path) -> None:
    rng = random.Random(0)
    files = [(data, fields(data)) for data in valid_files(tmp_path)]
    path = tmp_path / "damaged.gguf"
    seen = {"loaded": 0, "refused": 0}
    for index in range(COUNT):
        path.write_bytes(damaged := damage(*files[index % len(files)], rng))
        tracemalloc.reset_peak()
        before, start = tracemalloc.get_traced_memory()[0], time.perf_counter()
        try:
            seen[outcome(path)] += 1
        except BaseException:
            (tmp_path / "failure.gguf").write_bytes(damaged)
            raise
        assert time.perf_counter() - start < SECONDS, f"file {index}"
        assert tracemalloc.get_traced_memory()[1] - before < BYTES, f"file {index}"
    assert min(seen.values()) > COUNT / 20, seen  # the damage is neither too mild nor too rough


def test_the_files_are_valid_before_they_are_damaged(tmp_path: Path) -> None:
    for data in valid_files(tmp_path):
        path = tmp_path / "whole.gguf"
        path.write_bytes(data)
        assert outcome(path) == "loaded"


def test_every_cut_is_refused(tmp_path: Path) -> None:
    # Files without tensors may lose their padding; these end with a tensor's last byte.
    for index in (1, 3, 4):
        data = valid_files(tmp_path)[index]
        path = tmp_path / "cut.gguf"
        for size in range(len(data)):
            path.write_bytes(data[:size])
            assert outcome(path) == "refused", size
