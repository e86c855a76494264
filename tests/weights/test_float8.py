"""Float8 values one by one, as PyTorch reads them; whole models are in `tests/families/test_deepseek.py`."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from glassgear.weights import quant, safetensors
from glassgear.weights.tensor import BlockScales, StoredTensor

EVERY = np.arange(256, dtype=np.uint8)


def test_every_byte_means_what_pytorch_says() -> None:
    torch = pytest.importorskip("torch")
    want = torch.from_numpy(EVERY).view(torch.float8_e4m3fn).float().numpy()
    np.testing.assert_array_equal(quant.decode("F8_E4M3", EVERY), want)


def test_some_values_by_hand() -> None:
    """1 sign bit, 4 of exponent with bias 7, 3 of fraction; no infinity."""
    bits = [0x00, 0x01, 0x08, 0x38, 0x3C, 0x7E, 0xB8, 0x80]
    want = np.float32([0, 2**-9, 2**-6, 1, 1.5, 448, -1, -0.0])
    found = quant.decode("F8_E4M3", np.uint8(bits))
    assert np.array_equal(found, want)
    assert np.array_equal(np.signbit(found), np.signbit(want))


@pytest.mark.parametrize("byte", [0x7F, 0xFF])
def test_the_two_bytes_that_are_no_number_are_found(byte: int) -> None:
    data = np.delete(EVERY, [0x7F, 0xFF])
    assert quant.find_non_finite("F8_E4M3", data) is None
    found = quant.find_non_finite("F8_E4M3", np.insert(data, 99, np.uint8(byte)))
    assert found is not None
    assert found.block == 99
    assert np.isnan(found.value)


def test_a_file_without_scales_is_read_as_it_stands(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    import torch
    from safetensors.torch import save_file

    values = torch.randn(5, 7).to(torch.float8_e4m3fn)
    save_file({"w": values}, tmp_path / "w.safetensors")
    tensor = safetensors.read(tmp_path / "w.safetensors")["w"]
    np.testing.assert_array_equal(tensor.float32(), values.float().numpy())


def test_it_is_no_type_of_gguf() -> None:
    assert "F8_E4M3" not in quant.TYPES
    assert quant.is_known("F8_E4M3")
    assert not quant.is_known("F8_E5M2")


def test_scales_belong_to_blocks_of_rows_and_columns() -> None:
    ones = np.full(5 * 6, 0x38, np.uint8)  # 1.0 everywhere
    scales = np.float32([[1, 2], [3, 4], [5, 6]])
    tensor = StoredTensor("w", "F8_E4M3", (5, 6), ones, "memory", blocks=BlockScales(scales, (2, 4)))
    want = np.repeat(np.repeat(scales, 2, axis=0)[:5], 4, axis=1)[:, :6]
    assert np.array_equal(tensor.float32(), want)
    assert np.array_equal(tensor.part(1, 3).float32(), want[1:4])
    assert np.array_equal(tensor.part(1, 3).reordered(np.array([2, 0, 1])).float32(), want[[3, 1, 2]])
    assert (tensor.nbytes, tensor.part(2, 2).nbytes, tensor.part(1, 2).nbytes) == (30 + 24, 12 + 8, 12 + 16)
