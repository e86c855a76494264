"""GPT-2 as transformers and llama.cpp's converter write it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from glassgear.errors import FormatError, UnsupportedError
from glassgear.model.families import gpt2
from glassgear.model.ledger import ledger
from glassgear.weights.open import open_checkpoint
from tests.families.support import EPS, Case, config_of, each_case, edit, made, model_of, save, write_gguf

SIZES: dict[str, Any] = {
    "n_embd": 48, "n_layer": 3, "n_head": 4, "vocab_size": 100, "n_positions": 64,
    "initializer_range": 0.2, "layer_norm_epsilon": EPS, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
VARIANTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "narrow ffn": {"n_inner": 56},
    "exact gelu": {"activation_function": "gelu"},
    "relu": {"activation_function": "relu"},
    "untied": {"tie_word_embeddings": False},
    "scores scaled by layer": {"scale_attn_by_inverse_layer_idx": True, "reorder_and_upcast_attn": True},
}
HF_TO_GGUF = {
    "transformer.h.": "blk.", "transformer.": "", "attn.c_attn": "attn_qkv", "attn.c_proj": "attn_output",
    "ln_1": "attn_norm", "ln_2": "ffn_norm", "mlp.c_fc": "ffn_up", "mlp.c_proj": "ffn_down",
    "wte": "token_embd", "wpe": "position_embd", "ln_f": "output_norm", "lm_head": "output",
}  # fmt: skip


def make(variant: str) -> Any:
    return made("GPT2LMHeadModel", config_of("GPT2Config", **(SIZES | VARIANTS[variant])))


def metadata(c: Any) -> dict[str, Any]:
    return {
        "general.architecture": "gpt2", "gpt2.block_count": c.n_layer, "gpt2.context_length": c.n_positions,
        "gpt2.embedding_length": c.n_embd, "gpt2.feed_forward_length": c.n_inner or 4 * c.n_embd,
        "gpt2.attention.head_count": c.n_head, "gpt2.attention.layer_norm_epsilon": c.layer_norm_epsilon,
    }  # fmt: skip


def turned(name: str, values: np.ndarray) -> np.ndarray:
    """The converter stores what Conv1D multiplies with as everybody else does."""
    return values.T if name.endswith(("c_attn.weight", "c_proj.weight", "c_fc.weight")) else values


def as_folder(variant: str) -> Any:
    def write(folder: Path) -> tuple[Path, Any]:
        model = make(variant)
        return save(model, folder), model

    return write


def as_gguf(head: bool) -> Any:
    def write(folder: Path) -> tuple[Path, Any]:
        model = make("plain")

        def change(name: str, values: np.ndarray) -> np.ndarray | None:
            return None if name == "lm_head.weight" and not head else turned(name, values)

        path = write_gguf(folder / "m.gguf", model, HF_TO_GGUF, metadata(model.config), change)
        return path, model

    return write


CASES = [Case("gpt2", variant, "folder", as_folder(variant)) for variant in VARIANTS]
CASES += [
    Case("gpt2", "tied", "gguf", as_gguf(head=False)),
    Case("gpt2", "head written out", "gguf", as_gguf(head=True)),
]


@each_case(CASES)
def test_logits_are_those_of_transformers(case: Case, backend: str, tmp_path: Path) -> None:
    case.check(tmp_path, backend)


def test_a_folder_without_the_class_s_prefix(tmp_path: Path) -> None:
    """As OpenAI's files on the hub are: names without `transformer.`, masks among the weights."""
    torch = pytest.importorskip("torch")
    from safetensors.torch import load_file, save_file

    model = make("plain")
    save(model, tmp_path)
    weights = load_file(tmp_path / "model.safetensors")
    weights = {name.removeprefix("transformer."): value for name, value in weights.items()}
    weights["h.0.attn.bias"] = torch.ones(1, 1, 64, 64).tril()
    weights["h.0.attn.masked_bias"] = torch.tensor(-1e4)
    save_file(weights, tmp_path / "model.safetensors")
    edit(tmp_path, n_ctx=64, task_specific_params={"text-generation": {"do_sample": True}})
    Case("gpt2", "bare", "folder", lambda folder: (folder, model)).check(tmp_path, "reference")


@pytest.mark.parametrize(
    ("config", "parameters"),
    [
        (gpt2.GPT2Config(768, 12, 12), 124_439_808),
        (gpt2.GPT2Config(1600, 48, 25), 1_557_611_200),
        (gpt2.GPT2Config(12288, 96, 96, context=2048), 174_604_259_328),
    ],
    ids=["GPT-2", "GPT-2 XL", "GPT-3"],
)
def test_published_sizes_have_their_parameters(config: gpt2.GPT2Config, parameters: int) -> None:
    assert ledger(gpt2.gpt2(config)).parameters == parameters


def test_transformers_counts_the_same() -> None:
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    config = transformers.GPT2Config()
    with torch.device("meta"):
        theirs = transformers.GPT2LMHeadModel(config).num_parameters()
    model = model_of(gpt2.from_hf, config.to_dict())
    assert ledger(model).parameters == theirs == 124_439_808
    assert model == gpt2.gpt2(gpt2.GPT2Config(768, 12, 12))


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"n_head": 5}, FormatError, "width 48 doesn't divide by 5 heads"),
        ({"activation_function": "mish"}, UnsupportedError, "`activation_function` is 'mish'; only gelu, "),
        ({"add_cross_attention": True}, UnsupportedError, "`add_cross_attention`"),
        ({"scale_attn_weights": False}, UnsupportedError, "`scale_attn_weights`"),
        ({"n_ctx": 32}, UnsupportedError, "`n_ctx` is 32"),
        ({"n_layer": 4}, FormatError, r"lacks `transformer\.h\.3\.ln_1\.weight`"),
        ({"n_inner": 80}, FormatError, r"c_fc\.weight` is 192 x 48; the model's sizes ask for 80 x 48"),
        ({"n_embd": 52}, FormatError, r"`transformer\.h\.0\.attn\.c_attn\.bias` is 144; .* 52 \+ 52 \+ 52"),
        ({"rotary": True}, UnsupportedError, "`rotary`"),
    ],
)
def test_a_config_that_does_not_fit_is_refused(
    tmp_path: Path, changes: dict[str, Any], error: type[Exception], message: str
) -> None:
    edit(save(make("plain"), tmp_path), **changes)
    with pytest.raises(error, match=message):
        open_checkpoint(tmp_path)


def test_more_tokens_than_positions_are_refused(tmp_path: Path) -> None:
    import glassgear

    save(make("plain"), tmp_path)
    model = glassgear.load(tmp_path, backend="reference")
    assert model.context == 64
    with pytest.raises(glassgear.ContextFullError, match="65 tokens"):
        model.logits([5] * 65)
    assert model.logits([5] * 64).shape == (64, 100)
    config = json.loads((tmp_path / "config.json").read_text())
    assert config["n_positions"] == 64
