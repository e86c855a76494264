"""What notebooks show: pictures that a PNG reader agrees with, and escaped text."""

from __future__ import annotations

import re
import struct
import zlib

import numpy as np
import pytest

from glassgear.backends.reference import Reference
from glassgear.sampling import Sampler, Sampling
from glassgear.trace import Trace, Value, record
from glassgear.trace.display import heatmap, png, trace_html, value_html
from tests.models import random_tensors, tiny
from tests.trees import TREES


def unpacked(data: bytes) -> np.ndarray:
    """Pixels of a PNG without filters, every checksum tested."""
    assert data.startswith(b"\x89PNG\r\n\x1a\n")
    at, found = 8, {}
    while at < len(data):
        (size,) = struct.unpack(">I", data[at : at + 4])
        kind, body = data[at + 4 : at + 8], data[at + 8 : at + 8 + size]
        assert struct.unpack(">I", data[at + 8 + size : at + 12 + size])[0] == zlib.crc32(kind + body)
        found[kind], at = body, at + 12 + size
    width, height, depth, colours = struct.unpack(">IIBB", found[b"IHDR"][:10])
    assert (depth, colours) == (8, 2) and b"IEND" in found
    lines = np.frombuffer(zlib.decompress(found[b"IDAT"]), np.uint8).reshape(height, 1 + 3 * width)
    assert not lines[:, 0].any()
    return lines[:, 1:].reshape(height, width, 3)


def test_a_png_holds_its_pixels() -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (5, 7, 3), dtype=np.uint8)
    assert np.array_equal(unpacked(png(pixels)), pixels)


def test_other_programs_read_the_png() -> None:
    image = pytest.importorskip("PIL.Image")
    from io import BytesIO

    pixels = np.random.default_rng(1).integers(0, 256, (3, 4, 3), dtype=np.uint8)
    assert np.array_equal(np.asarray(image.open(BytesIO(png(pixels))).convert("RGB")), pixels)


def test_colours_say_sign_and_size() -> None:
    made = heatmap(np.array([[0, 2, -2, np.nan, 1]], np.float32))[0].tolist()
    assert made[0] == [255, 255, 255] and made[3] == [0, 0, 0]
    assert made[1] == [178, 24, 43] and made[2] == [33, 102, 172]
    assert made[4] == [round((255 + c) / 2) for c in made[1]]
    assert heatmap(np.zeros((2, 2), np.float32)).min() == 255


def test_a_value_has_its_figures_and_a_picture() -> None:
    array = np.random.default_rng(2).standard_normal((3, 2000)).astype(np.float32)
    array[1, 1234] = np.nan
    told = value_html(Value("a<b", ("token", "channel"), array, np.arange(3)))
    assert "a&lt;b" in told and "3 tokens x 2000 channels" in told and "1 NaN" in told
    (data,) = re.findall(r"base64,([^']+)'", told)
    import base64

    pixels = unpacked(base64.b64decode(data))
    assert pixels.shape == (3, 512, 3) and (pixels[1].sum(axis=1) == 0).any()  # NaN isn't lost


@pytest.mark.parametrize("name", ["llama", "encoder", "experts by softmax", "latent attention"])
def test_every_value_can_be_shown(name: str) -> None:
    model = TREES[name]()
    trace = record(Reference(model, random_tensors(model)), [1, 2, 3, 4])
    for value in trace.values():
        assert "<img" in value._repr_html_()
    assert trace_html(trace).count("<tr>") == 1 + len({re.sub(r"\d+", "*", path) for path in trace})
    assert "Model" in model._repr_html_()


def test_a_trace_has_its_text_and_a_row_for_each_kind() -> None:
    model, weights = tiny()
    about = {"model": "<m>", "texts": lambda ids: [f"<{i}>" for i in ids]}
    trace: Trace = record(
        Reference(model, weights), [1, 2], sampler=Sampler(Sampling(temperature=0)), max_tokens=2, about=about
    )
    told = trace._repr_html_()
    assert "&lt;m&gt;" in told and "&lt;1&gt;" in told and "<1>" not in told
    assert "blocks.*.ffn.down" in told and "\u00d72" in told


def test_gears_are_drawn_once_where_they_are_alike() -> None:
    model, _ = tiny(layers=3)
    told = model._repr_html_()
    assert told.count("<b>attention</b>") == 1 and "blocks.0, blocks.1, blocks.2" in told
    assert "gate, up" in told and "[96, 64]" in told
