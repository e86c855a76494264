"""Float8 weights of a model folder and the scales beside them, put together.

In: a config and the tensors of its files. Out: the config without what is settled here, and tensors
that decode to the true weights. The form is DeepSeek-V3's (section 3.3 of its paper): a matrix
`X.weight` of float8_e4m3fn, and `X.weight_scale_inv` with a factor for each block of it. How the
program that trained it rounds activations is left out: they stay float32 here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from glassgear.errors import FormatError, UnsupportedError
from glassgear.model.settings import Settings
from glassgear.weights.tensor import BlockScales, StoredTensor

__all__ = ["with_scales"]

CONFIG_KEY, SUFFIX, TYPE = "quantization_config", "_scale_inv", "F8_E4M3"


def with_scales(
    path: str, config: Mapping[str, Any], tensors: Mapping[str, StoredTensor]
) -> tuple[dict[str, Any], dict[str, StoredTensor]]:
    """Settle `quantization_config`, if there is one.

    Args:
        path: the config, for messages.
        config: its keys.
        tensors: name -> tensor.

    Raises:
        UnsupportedError: weights quantised in another way.
        FormatError: a matrix without its scales, scales without a matrix, or sizes that don't fit.
    """
    left = dict(config)
    if left.pop(CONFIG_KEY, None) is None:
        return left, dict(tensors)
    size = _block_size(Settings(config, path))
    out = {name: tensor for name, tensor in tensors.items() if not name.endswith(SUFFIX)}
    for name, scales in tensors.items():
        if name.endswith(SUFFIX):
            matrix = name.removesuffix(SUFFIX)
            if matrix not in out:
                raise FormatError(scales.file, f"holds `{name}`, but no `{matrix}`")
            out[matrix] = _scaled(out[matrix], scales, size)
    for name, tensor in out.items():
        if tensor.type == TYPE and tensor.blocks is None:
            raise FormatError(tensor.file, f"holds `{name}` in {TYPE}, but no `{name}{SUFFIX}`")
    return left, out


def _block_size(s: Settings) -> tuple[int, int]:
    """Rows and columns of a block."""
    found = s.mapping(CONFIG_KEY) or {}
    q = Settings(found, s.path, f"{CONFIG_KEY}.")
    method = q.take("quant_method", str, "")
    if method != "fp8":
        raise UnsupportedError(
            s.path,
            f"says that the weights are quantised by {method or 'no named method'!r:.60}; of folders, plain "
            "weights and `fp8` in blocks can be read. Take the original weights, or a GGUF of the model",
        )
    q.only("fmt", "e4m3")
    q.only("activation_scheme", "dynamic")
    q.ignore(["modules_to_not_convert", "scale_fmt", "dequantize"])
    size = q.items("weight_block_size")
    q.finish()
    if len(size) != 2 or not all(type(n) is int and 0 < n < 2**31 for n in size):
        raise UnsupportedError(
            s.path,
            f"`{CONFIG_KEY}.weight_block_size` is {size!r:.60}; only two sizes, as [128, 128], can be read",
        )
    return size[0], size[1]


def _scaled(tensor: StoredTensor, scales: StoredTensor, size: tuple[int, int]) -> StoredTensor:
    """The matrix with its scales."""
    if tensor.type != TYPE or len(tensor.shape) != 2:
        raise UnsupportedError(
            tensor.file, f"`{tensor.name}` has scales, but is no matrix of {TYPE}: it is {tensor.type}"
        )
    want = tuple(-(-length // each) for length, each in zip(tensor.shape, size, strict=True))
    if scales.shape != want:
        found, asked, block = (" x ".join(map(str, shape)) for shape in (scales.shape, want, size))
        raise FormatError(
            scales.file, f"`{scales.name}` is {found}; blocks of {block} of its matrix ask for {asked}"
        )
    return replace(tensor, blocks=BlockScales(scales.float32(), size))
