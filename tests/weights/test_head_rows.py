"""Matrices that files hold in several tensors, head by head."""

from __future__ import annotations

import numpy as np
import pytest

from glassgear.weights.tensor import StoredTensor, head_rows

HEADS, KEYS, VALUES, COLUMNS = 3, 32, 5, 64


def arrays() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The whole matrix by head; keys, turned; values."""
    whole = np.random.default_rng(0).standard_normal((HEADS, KEYS + VALUES, COLUMNS)).astype(np.float32)
    return whole, np.ascontiguousarray(whole[:, :KEYS].swapaxes(1, 2)), np.ascontiguousarray(whole[:, KEYS:])


def tensor(name: str, values: np.ndarray, kind: str = "F32") -> StoredTensor:
    return StoredTensor(name, kind, values.shape, values.reshape(-1).view(np.uint8), "memory")


@pytest.mark.parametrize(("kind", "dtype"), [("F32", "<f4"), ("F16", "<f2")])
def test_the_type_stays_where_values_lie_one_by_one(kind: str, dtype: str) -> None:
    whole, keys, values = (array.astype(dtype) for array in arrays())
    joined = head_rows([tensor("k", keys, kind), tensor("v", values, kind)], [True, False])
    assert joined is not None
    assert (joined.type, joined.shape, joined.name) == (kind, (HEADS * (KEYS + VALUES), COLUMNS), "k and v")
    assert np.array_equal(joined.data.view(dtype).reshape(whole.shape), whole)


def test_blocks_are_decoded() -> None:
    """They lie along the columns of the turned keys, which are rows of the matrix."""
    quants = pytest.importorskip("gguf").quants
    kinds = pytest.importorskip("gguf").GGMLQuantizationType
    whole, keys, values = arrays()
    packed = quants.quantize(keys, kinds.Q8_0)
    want = whole.copy()
    want[:, :KEYS] = quants.dequantize(packed, kinds.Q8_0).swapaxes(1, 2)
    coded = StoredTensor("k", "Q8_0", keys.shape, packed.reshape(-1), "memory")
    joined = head_rows([coded, tensor("v", values)], [True, False])
    assert joined is not None
    assert joined.type == "F32"
    assert np.array_equal(joined.float32(), want.reshape(-1, COLUMNS))
    assert not np.array_equal(want, whole)


@pytest.mark.parametrize("cut", [(slice(2), slice(None), slice(None)), (slice(None), slice(None), slice(60))])
def test_parts_of_other_heads_or_columns_do_not_go_together(cut: tuple[slice, ...]) -> None:
    _, keys, values = arrays()
    other = np.ascontiguousarray(values[cut])
    assert head_rows([tensor("k", keys), tensor("v", other)], [True, False]) is None
