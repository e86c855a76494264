"""Plan a llama2.c `.bin`, with its tokenizer.bin beside it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from glassgear.convert.plan import repaired
from glassgear.convert.targets import Plan, content_of, refuse_differences
from glassgear.convert.tokenizer_files import llama2c_tokenizer
from glassgear.convert.values import Made, Progress, streamed
from glassgear.convert.vocabularies import check_same_ids
from glassgear.errors import SettingError, UnsupportedError
from glassgear.model.gears import Attention, GatedFFN, Model, walk
from glassgear.text.spm import SentencePieceTokenizer
from glassgear.text.spm_files import read_llama2c
from glassgear.weights import llama2c_write
from glassgear.weights.atomic import replacing
from glassgear.weights.checkpoint import Checkpoint
from glassgear.weights.llama2c import Header, file_order, tree
from glassgear.weights.tensor import StoredTensor

__all__ = ["plan_llama2c"]

_TOKENIZER = "tokenizer.bin"


def plan_llama2c(
    checkpoint: Checkpoint, target: Path, version: int, progress: Progress, *, replace: bool
) -> Plan:
    """See the module.

    Raises:
        UnsupportedError: another model than such a file can hold; the message says in what.
        SettingError: another tokenizer.bin lies beside the target.
    """
    header = _header(checkpoint, version)
    model = tree(header)
    refuse_differences(checkpoint.path, checkpoint.model, model, "a llama2.c .bin")
    tensors = repaired(checkpoint.model, model, checkpoint.tensors)
    tokenizer = _tokenizer(checkpoint)
    beside = target.parent / _TOKENIZER
    if tokenizer is not None and beside.exists() and beside.read_bytes() != tokenizer and not replace:
        raise SettingError(
            f"{beside} is the tokenizer of another model: write into another folder, or --force to replace it"
        )

    def write() -> None:
        llama2c_write.write(target, header, lambda path: _values(path, tensors, progress))
        if tokenizer is not None and not (beside.exists() and beside.read_bytes() == tokenizer):
            with replacing(beside) as file:
                file.write(tokenizer)

    notices = () if tokenizer else ("the model came without a tokenizer, so no tokenizer.bin is written",)
    kind = "INT8_GROUPS" if version == 2 else "F32"
    types = {path: kind if len(shape) > 1 else "F32" for path, shape in file_order(header) if path}
    return Plan(llama2c_write.nbytes(header), types, write, notices)


def _header(checkpoint: Checkpoint, version: int) -> Header:
    model = checkpoint.model
    attention, ffn = _gear(model, Attention), _gear(model, GatedFFN)
    if not isinstance(attention, Attention) or not isinstance(ffn, GatedFFN) or model.head is None:
        raise UnsupportedError(
            checkpoint.path,
            f"has other gears than a llama2.c .bin can hold: it is of the family {model.family}",
        )
    if attention.head_dim * attention.heads != model.dim:
        raise UnsupportedError(
            checkpoint.path,
            f"has {attention.heads} heads of {attention.head_dim} channels for a width of {model.dim}; in a "
            "llama2.c .bin heads x channels is the width",
        )
    group = llama2c_write.group_size(model.dim, ffn.up.outputs) if version == 2 else 0
    return Header(
        version, model.dim, ffn.up.outputs, len(model.blocks), attention.heads, attention.kv_heads,
        model.vocab, model.context, model.head.tied, group,
    )  # fmt: skip


def _gear(model: Model, kind: type) -> object:
    return next((gear for _, gear in walk(model.blocks[0]) if isinstance(gear, kind)), None)


def _values(
    path: str, tensors: Mapping[str, StoredTensor], progress: Progress
) -> Iterator[NDArray[np.float32]]:
    tensor = tensors[path]
    for piece in streamed(Made(path, tensor.shape, (tensor,)), "F32", progress).pieces():
        yield piece.reshape(-1).view(np.float32)


def _tokenizer(checkpoint: Checkpoint) -> bytes | None:
    content = content_of(checkpoint)
    if content is None:
        return None
    data = llama2c_tokenizer(content, checkpoint.model.vocab)
    theirs = SentencePieceTokenizer(read_llama2c(Path(checkpoint.path), data), space=" ")
    check_same_ids(content.tokenizer, theirs, checkpoint.path)
    return data
