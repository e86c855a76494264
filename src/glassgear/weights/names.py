"""Foreign tensor names to gear paths.

In: a tree and the tensors of a file. Out: a tensor for every parameter of the tree, with its
shape checked, or an error that names what is missing, left over or misshapen.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from glassgear.errors import FormatError
from glassgear.model.gears import Model, tensors
from glassgear.weights.tensor import StoredTensor

__all__ = ["GGUF_LLAMA", "HF_LLAMA", "match"]

Names = Mapping[str, str]

_GGUF_PARTS = {
    "attn_norm": "attention_norm", "attn_q": "attention.query", "attn_k": "attention.key",
    "attn_v": "attention.value", "attn_output": "attention.output", "ffn_norm": "ffn_norm",
    "ffn_gate": "ffn.gate", "ffn_up": "ffn.up", "ffn_down": "ffn.down",
}  # fmt: skip
GGUF_LLAMA: Names = {
    "token_embd.": "embed.",
    "output_norm.": "norm.",
    "output.": "head.",
    **{f"blk.#.{theirs}.": f"blocks.#.{ours}." for theirs, ours in _GGUF_PARTS.items()},
}

_HF_PARTS = {
    "input_layernorm": "attention_norm", "self_attn.q_proj": "attention.query",
    "self_attn.k_proj": "attention.key", "self_attn.v_proj": "attention.value",
    "self_attn.o_proj": "attention.output", "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn.gate", "mlp.up_proj": "ffn.up", "mlp.down_proj": "ffn.down",
}  # fmt: skip
HF_LLAMA: Names = {
    "model.embed_tokens.": "embed.",
    "model.norm.": "norm.",
    "lm_head.": "head.",
    **{f"model.layers.#.{theirs}.": f"blocks.#.{ours}." for theirs, ours in _HF_PARTS.items()},
}


def match(
    path: str,
    model: Model,
    found: Mapping[str, StoredTensor],
    names: Names,
    *,
    ignorable: Callable[[str], bool] = lambda name: False,
) -> dict[str, StoredTensor]:
    """Give every parameter of `model` its tensor.

    Args:
        path: the file or folder, for messages.
        model: the tree.
        found: name in the file -> tensor.
        names: foreign stem -> gear stem, `#` for a layer's number.
        ignorable: names that say nothing about the model (buffers that can be computed).

    Raises:
        FormatError: a tensor is missing, has another shape, or belongs to nothing in the tree.
    """
    expected = tensors(model)
    renamed, strangers = {}, []
    for name, tensor in found.items():
        ours = _rename(name, names)
        if ours in expected:
            renamed[ours] = tensor
        elif not ignorable(name):
            strangers.append(name)
    back = {ours: theirs for theirs, ours in names.items()}
    missing = [_rename(ours, back) or ours for ours in expected if ours not in renamed]
    if missing:
        raise FormatError(
            path, f"lacks {_some(missing)}: the file is incomplete, or isn't the model it says it is"
        )
    if strangers:
        raise FormatError(path, f"holds tensors that the model it describes doesn't have: {_some(strangers)}")
    for ours, shape in expected.items():
        if renamed[ours].shape != shape:
            have = " x ".join(map(str, renamed[ours].shape))
            need = " x ".join(map(str, shape))
            raise FormatError(
                path, f"tensor `{renamed[ours].name}` is {have}; the model's sizes ask for {need}"
            )
    return {ours: renamed[ours] for ours in expected}


def _rename(name: str, names: Names) -> str | None:
    number = re.search(r"\.(\d+)\.", name)
    generic = name[: number.start(1)] + "#" + name[number.end(1) :] if number else name
    stem, _, leaf = generic.rpartition(".")
    ours = names.get(stem + ".")
    if ours is None:
        return None
    return ours.replace("#", number.group(1) if number else "#") + leaf


def _some(items: list[str]) -> str:
    shown = ", ".join(f"`{item}`" for item in items[:4])
    return shown + (f" and {len(items) - 4} more" if len(items) > 4 else "")
