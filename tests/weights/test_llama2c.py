"""llama2.c checkpoints: three versions, two signs, two layouts, and what is none of them."""

from __future__ import annotations

import os
import struct
from pathlib import Path

import numpy as np
import pytest

from glassgear.errors import FormatError, GlassgearError, UnsupportedError
from glassgear.model.ledger import ledger
from glassgear.weights import llama2c
from glassgear.weights.open import open_checkpoint
from tests.models import llama2c_file

NAMES = {
    "attention_norm": "attention_norm", "wq": "attention.query", "wk": "attention.key",
    "wv": "attention.value",
    "wo": "attention.output", "ffn_norm": "ffn_norm", "w1": "ffn.gate", "w2": "ffn.down", "w3": "ffn.up",
}  # fmt: skip


def by_path(arrays: dict[str, list[np.ndarray]]) -> dict[str, np.ndarray]:
    out = {f"blocks.{i}.{ours}.weight": arrays[name][i] for name, ours in NAMES.items() for i in (0, 1)}
    out |= {"embed.weight": arrays["embed"][0], "norm.weight": arrays["norm"][0]}
    return out | ({"head.weight": arrays["head"][0]} if arrays["head"] else {})


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("version", [0, 1])
def test_float_versions_give_back_every_weight(tmp_path: Path, version: int, tied: bool) -> None:
    want = by_path(llama2c_file(tmp_path / "m.bin", version, tied=tied))
    model, tensors = llama2c.read(tmp_path / "m.bin")
    assert model.head.tied is tied and model.context == 64
    assert set(tensors) == set(want)
    for path, values in want.items():
        assert np.array_equal(tensors[path].float32(), values), path


def test_float_weights_are_views_of_the_file(tmp_path: Path) -> None:
    llama2c_file(tmp_path / "m.bin", 0)
    _, tensors = llama2c.read(tmp_path / "m.bin")
    values = tensors["blocks.0.ffn.up.weight"].float32()
    assert np.shares_memory(values, tensors["blocks.0.ffn.up.weight"].data)


@pytest.mark.parametrize("at_end", [False, True], ids=["scales behind each", "scales at the end"])
@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("group", [4, 8])
def test_int8_in_either_layout_is_within_half_a_step(
    tmp_path: Path, tied: bool, group: int, at_end: bool
) -> None:
    want = by_path(llama2c_file(tmp_path / "m.bin", 2, tied=tied, group=group, scales_at_end=at_end))
    _, tensors = llama2c.read(tmp_path / "m.bin")
    for path, values in want.items():
        got = tensors[path].float32()
        if values.ndim == 1:
            assert np.array_equal(got, values)
        else:
            step = np.abs(values.reshape(-1, group)).max(axis=1, keepdims=True) / 127
            assert (np.abs(got - values).reshape(-1, group) <= 0.501 * step).all(), path


def test_int8_codes_that_fit_no_layout_are_refused(tmp_path: Path) -> None:
    llama2c_file(tmp_path / "m.bin", 2)
    raw = bytearray((tmp_path / "m.bin").read_bytes())
    raw[-600:-400] = bytes(200)
    (tmp_path / "m.bin").write_bytes(raw)
    with pytest.raises(FormatError, match="no known order of codes and scales"):
        llama2c.read(tmp_path / "m.bin")


def test_all_zero_groups_are_fine(tmp_path: Path) -> None:
    llama2c_file(tmp_path / "m.bin", 2)
    _, tensors = llama2c.read(tmp_path / "m.bin")
    tensor = tensors["embed.weight"]
    tensor = type(tensor)(
        "embed", "INT8_GROUPS", (2, 4), np.zeros(8, np.uint8), "m", scales=np.zeros(2, np.float32)
    )
    assert np.array_equal(tensor.float32(), np.zeros((2, 4)))


@pytest.mark.parametrize("version", [0, 1, 2])
def test_the_last_byte_cut_or_one_too_many_is_refused(tmp_path: Path, version: int) -> None:
    llama2c_file(tmp_path / "m.bin", version)
    raw = (tmp_path / "m.bin").read_bytes()
    for changed in (raw[:-1], raw + b"\0"):
        (tmp_path / "m.bin").write_bytes(changed)
        with pytest.raises(FormatError, match=r"its header asks for"):
            llama2c.read(tmp_path / "m.bin")


@pytest.mark.parametrize(
    ("position", "value", "message"),
    [
        (0, 0, "dim is 0"),
        (1, -5, "hidden_dim is -5"),
        (2, 2**20, "n_layers is 1048576"),
        (3, 3, "don't fit together"),
        (4, 3, "don't fit together"),
        (5, 2**31 - 1, "vocab_size is 2147483647"),
        (5, -(2**31), "vocab_size is 2147483648"),
        (6, 0, "seq_len is 0"),
    ],
)
def test_impossible_sizes_are_named(tmp_path: Path, position: int, value: int, message: str) -> None:
    llama2c_file(tmp_path / "m.bin", 0)
    raw = bytearray((tmp_path / "m.bin").read_bytes())
    struct.pack_into("<i", raw, 4 * position, value)
    (tmp_path / "m.bin").write_bytes(raw)
    with pytest.raises(FormatError, match=message):
        llama2c.read(tmp_path / "m.bin")


def test_an_unknown_version_is_named(tmp_path: Path) -> None:
    (tmp_path / "m.bin").write_bytes(struct.pack("<Ii", 0x616B3432, 7).ljust(256, b"\0"))
    with pytest.raises(UnsupportedError, match="version 7; 0, 1 and 2"):
        llama2c.read(tmp_path / "m.bin")


@pytest.mark.parametrize("size", [0, 3, 27, 100])
def test_a_file_shorter_than_its_header_is_refused(tmp_path: Path, size: int) -> None:
    (tmp_path / "m.bin").write_bytes(struct.pack("<I", 0x616B3432).ljust(size, b"\1")[:size])
    with pytest.raises(FormatError):
        llama2c.read(tmp_path / "m.bin")


def test_published_checkpoint_counts_as_its_author_says(shared: Path) -> None:
    for name in ("stories260K.bin", "stories260K.v1.bin", "stories260K.v2-g4.bin"):
        model, _ = llama2c.read(shared / "data/llama2c" / name)
        assert ledger(model).parameters == 260_032


def test_damaged_files_load_or_are_refused_by_name(tmp_path: Path) -> None:
    rng = np.random.default_rng(260)
    path = tmp_path / "damaged.bin"
    originals = []
    for version in (0, 1, 2):
        llama2c_file(path, version)
        originals.append(path.read_bytes())
    for turn in range(int(os.environ.get("GLASSGEAR_FUZZ", "1500"))):
        raw = bytearray(originals[turn % 3])
        for _ in range(int(rng.integers(1, 4))):
            raw[int(rng.integers(0, 300 if rng.random() < 0.8 else len(raw)))] = int(rng.integers(0, 256))
        if rng.random() < 0.2:
            raw = raw[: int(rng.integers(0, len(raw)))]
        path.write_bytes(raw)
        try:
            checkpoint = open_checkpoint(path)
            sum(t.float32().size for t in checkpoint.tensors.values())
        except GlassgearError as error:
            assert "damaged.bin" in str(error)
