"""Names that wrappers have put a prefix before: torch.compile `_orig_mod.`, DDP `module.`, or both."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from glassgear.errors import FormatError
from glassgear.weights import described, safetensors
from glassgear.weights.names import plain_name
from glassgear.weights.open import open_checkpoint
from tests.weights.test_given_weights import ARRAYS, MODEL, write

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

SIZES: dict[str, Any] = {
    "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "vocab_size": 50, "max_position_embeddings": 64,
}  # fmt: skip
PREFIXES = ("_orig_mod.", "module.", "_orig_mod.module.", "module._orig_mod.", "module.module._orig_mod.")


def saved(folder: Path, rename: Callable[[str], str] = str, **changes: Any) -> Path:
    """A folder of transformers whose tensors have other names."""
    torch.manual_seed(0)
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**(SIZES | changes)))
    model.save_pretrained(folder)
    found = safetensors.read(folder / "model.safetensors")
    arrays = {rename(name): tensor.float32().copy() for name, tensor in found.items()}
    del found
    safetensors.write(folder / "model.safetensors", arrays)
    return folder


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("prefix", PREFIXES)
def test_a_folder_with_prefixed_names_is_the_same_model(tmp_path: Path, prefix: str, tied: bool) -> None:
    plain = open_checkpoint(saved(tmp_path / "plain", tie_word_embeddings=tied))
    other = open_checkpoint(saved(tmp_path / "other", lambda n: prefix + n, tie_word_embeddings=tied))
    assert other.model == plain.model and other.tensors.keys() == plain.tensors.keys()
    for path, tensor in plain.tensors.items():
        np.testing.assert_array_equal(other.tensors[path].float32(), tensor.float32())
    assert "head.weight" in plain.tensors or tied


def test_names_are_those_that_pytorch_s_wrappers_give() -> None:
    compiled, parallel = torch.compile, torch.nn.DataParallel
    for wrap in (compiled, parallel, lambda m: compiled(parallel(m)), lambda m: parallel(compiled(m))):
        names = list(wrap(torch.nn.Linear(2, 2)).state_dict())
        assert names != ["weight", "bias"] and [plain_name(name) for name in names] == ["weight", "bias"]


@pytest.mark.parametrize("prefix", PREFIXES)
def test_the_weights_beside_a_model_file_too(tmp_path: Path, prefix: str) -> None:
    safetensors.write(tmp_path / "w.safetensors", {prefix + name: a for name, a in ARRAYS.items()})
    found = described.open_named(write(tmp_path, 'weights = "w.safetensors"\n' + MODEL))
    for path, array in ARRAYS.items():
        np.testing.assert_array_equal(found.tensors[path].float32(), array)


@pytest.mark.parametrize(
    ("prefix", "named"),
    [("base.", "base."), ("module.base.", "base."), ("base.module.", "base.module."), ("x.y.", "x.y.")],
)
def test_another_prefix_is_refused_and_named(tmp_path: Path, prefix: str, named: str) -> None:
    with pytest.raises(FormatError, match="lacks `embed_tokens") as caught:
        open_checkpoint(saved(tmp_path, lambda name: prefix + name))
    assert f"its names begin with `{named}`, as in `{prefix}model.embed_tokens.weight`" in str(caught.value)


def test_another_prefix_beside_a_model_file_is_named(tmp_path: Path) -> None:
    safetensors.write(tmp_path / "w.safetensors", {f"net.{name}": a for name, a in ARRAYS.items()})
    with pytest.raises(FormatError, match=r"its names begin with `net\.`, as in `net\.embed\.weight`"):
        described.open_named(write(tmp_path, 'weights = "w.safetensors"\n' + MODEL))


def test_names_that_match_nothing_are_refused_without_a_prefix(tmp_path: Path) -> None:
    names: dict[str, str] = {}
    with pytest.raises(FormatError, match="the file is incomplete") as caught:
        open_checkpoint(saved(tmp_path, lambda name: names.setdefault(name, f"t{len(names)}")))
    assert "begin with" not in str(caught.value)


@pytest.mark.parametrize("prefix", ["module.", "model."])
def test_a_tensor_that_is_there_under_both_names_is_refused(tmp_path: Path, prefix: str) -> None:
    folder = saved(tmp_path)
    found = safetensors.read(folder / "model.safetensors")
    arrays = {name: tensor.float32().copy() for name, tensor in found.items()}
    del found
    twin = f"{prefix}model.norm.weight" if prefix == "module." else "norm.weight"
    safetensors.write(folder / "model.safetensors", arrays | {twin: arrays["model.norm.weight"]})
    with pytest.raises(FormatError, match="which are one"):
        open_checkpoint(folder)
