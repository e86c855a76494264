"""Packed weights: exact codes, padded rows, and no more memory than needed."""

from __future__ import annotations

import mmap
from pathlib import Path

import numpy as np
import pytest

from glassgear.backends.cpu import pack
from glassgear.backends.cpu.codes import READERS
from glassgear.backends.cpu.layouts import (
    BLOCK,
    IQ4_VALUES,
    QuantLayout,
    known_layouts,
    layout_of,
    quant_layout,
)
from glassgear.backends.cpu.release import release
from glassgear.weights.quant import TYPES

from .support import QUANTISED, stored


@pytest.mark.parametrize("type_name", QUANTISED)
def test_codes_and_scales_give_the_stored_values(type_name: str) -> None:
    tensor = stored(np.random.default_rng(0), type_name, 8, 512)
    codes, scales, minima = READERS[type_name](tensor.data.view(TYPES[type_name].layout))
    layout = layout_of(type_name, 512)
    assert isinstance(layout, QuantLayout)
    levels = codes.astype(np.float32) - layout.offset
    if layout.table:
        levels = np.array(IQ4_VALUES, np.float32)[codes]
    values = levels.reshape(*scales.shape, -1) * scales[..., None]
    if minima is not None:
        values = values + minima[..., None]
    np.testing.assert_allclose(values.reshape(8, 512), tensor.float32(), rtol=1e-6, atol=1e-6)


def test_keys_name_layouts() -> None:
    for layout in known_layouts():
        if isinstance(layout, QuantLayout):
            assert quant_layout(layout.key) == layout
            assert layout.block_bytes % 16 == 0


def test_rows_that_fill_up_a_panel_are_zeros() -> None:
    tensor = stored(np.random.default_rng(1), "F32", 17, 5)
    plan = pack.plan(tensor)
    out = np.full(plan.nbytes, 255, np.uint8)
    pack.fill(plan, out)
    panels = out.view(np.float32).reshape(2, 5, 16)
    assert np.array_equal(panels[0].T, tensor.float32()[:16])
    assert np.array_equal(panels[1, :, 0], tensor.float32()[16])
    assert not panels[1, :, 1:].any()


@pytest.mark.parametrize("type_name", ["Q4_0", "Q8_0"])
def test_rows_that_fill_no_blocks_become_floats(type_name: str) -> None:
    assert layout_of(type_name, BLOCK + 16).key == "f32"
    assert layout_of(type_name, 2 * BLOCK).key != "f32"


def test_scales_too_large_for_sixteen_bits_are_kept_wide() -> None:
    tensor = stored(np.random.default_rng(2), "Q4_K", 16, 256)
    blocks = tensor.data.view(TYPES["Q4_K"].layout)
    assert not pack.plan(tensor).layout.key.endswith("w")
    blocks["scale"] = 30000
    plan = pack.plan(tensor)
    assert plan.layout.key == "q4mw"
    out = np.zeros(plan.nbytes, np.uint8)
    pack.fill(plan, out)
    scales = out.reshape(-1, plan.layout.panel_bytes(BLOCK))[:, 256:320].view(np.float32)
    assert scales.max() > 65504


@pytest.mark.skipif(not hasattr(mmap, "MADV_DONTNEED"), reason="this system has no such advice")
def test_released_files_can_still_be_read(tmp_path: Path) -> None:
    path = tmp_path / "weights"
    path.write_bytes(bytes(range(256)) * 256)
    with open(path, "rb") as file:
        data = np.frombuffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), np.uint8)
    release(data[100:])
    assert np.array_equal(data, np.tile(np.arange(256, dtype=np.uint8), 256))


def test_memory_that_is_no_file_is_left_alone() -> None:
    anonymous = mmap.mmap(-1, 1 << 16)
    anonymous[:3] = b"abc"
    release(np.frombuffer(anonymous, np.uint8))
    data = np.ones(1 << 16, np.uint8)
    release(data)
    assert anonymous[:3] == b"abc"
    assert data.all()


@pytest.mark.parametrize("type_name", ["Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "IQ4_XS"])
def test_products_of_tiny_scales_lose_nothing_in_16_bits(type_name: str) -> None:
    kind, rng = TYPES[type_name], np.random.default_rng(1)
    blocks = rng.integers(0, 256, 4096 * kind.nbytes, dtype=np.uint8).view(kind.layout).copy()
    for name in {"scale", "minimum"} & set(kind.layout.names or ()):
        blocks[name] = (2.0 ** rng.uniform(-24, -16, 4096)).astype(np.float16)
    _, scales, minima = READERS[type_name](blocks)
    for values in (scales, minima):
        if values is not None:
            small = values[(np.abs(values) < 2.0**-14) & (values != 0)]
            assert small.size > 1000
            assert np.array_equal(small.astype(np.float16).astype(np.float32), small)
