"""Qwen3 with experts: which layers have them, how they are chosen, stacked and fused files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from glassgear.errors import FormatError, GlassgearError, UnsupportedError
from glassgear.model.families import qwen3_moe
from glassgear.model.gears import Attention, Experts, Router, walk
from glassgear.model.ledger import ledger
from glassgear.weights.open import open_checkpoint
from tests.families.decoders import LONG, SIZES, YARN
from tests.families.mixtures import EXPERTS, mixture, to_gguf
from tests.families.support import IDS, Case, each_case, edit, model_of, save

CLASSES = ("Qwen3MoeForCausalLM", "Qwen3MoeConfig")
MIXED = SIZES | EXPERTS | {"num_experts": 8}


def folder(variant: str, ids: Sequence[int] = IDS, classes: tuple[str, str] = CLASSES, **values: Any) -> Case:
    def write(path: Path) -> tuple[Path, Any]:
        model = mixture(classes, MIXED | values)
        return save(model, path), model

    return Case("qwen3_moe", variant, "folder", write, ids)


def gguf(variant: str, fused: bool = False, keys: dict[str, Any] | None = None, **values: Any) -> Case:
    def write(path: Path) -> tuple[Path, Any]:
        model = mixture(CLASSES, MIXED | values)
        c = model.config
        about = {
            "expert_count": c.num_experts, "expert_used_count": c.num_experts_per_tok,
            "expert_feed_forward_length": c.moe_intermediate_size,
        }  # fmt: skip
        return to_gguf(path / "m.gguf", model, "qwen3moe", about | (keys or {}), fused=fused), model

    return Case("qwen3_moe", variant, "gguf", write)


CASES = [
    folder("weights not normed", norm_topk_prob=False),
    folder("weights normed", norm_topk_prob=True),
    folder("every other layer", norm_topk_prob=True, decoder_sparse_step=2, num_hidden_layers=4),
    folder("a listed layer", mlp_only_layers=[1], tie_word_embeddings=True, attention_bias=True),
    folder("window of 4", use_sliding_window=True, sliding_window=4),
    folder("window that is off", use_sliding_window=False, sliding_window=4),
    folder("one expert", num_experts_per_tok=1, num_experts=3),
    folder("without a head", classes=("Qwen3MoeModel", CLASSES[1])),
    folder("yarn to position 4,200", LONG, rope_parameters=YARN, num_hidden_layers=1),
    gguf("weights normed", norm_topk_prob=True),
    gguf("weights not normed", keys={"expert_weights_norm": False}, norm_topk_prob=False),
    gguf("gates and ups as one", fused=True, norm_topk_prob=True),
    gguf("tied", norm_topk_prob=True, tie_word_embeddings=True),
]

# Qwen/Qwen3-30B-A3B
QWEN3_30B_A3B: dict[str, Any] = {
    "architectures": ["Qwen3MoeForCausalLM"], "attention_bias": False, "attention_dropout": 0.0,
    "bos_token_id": 151643, "decoder_sparse_step": 1, "eos_token_id": 151645, "head_dim": 128,
    "hidden_act": "silu", "hidden_size": 2048, "initializer_range": 0.02, "intermediate_size": 6144,
    "max_position_embeddings": 40960, "max_window_layers": 48, "mlp_only_layers": [],
    "model_type": "qwen3_moe", "moe_intermediate_size": 768, "norm_topk_prob": True,
    "num_attention_heads": 32, "num_experts": 128, "num_experts_per_tok": 8, "num_hidden_layers": 48,
    "num_key_value_heads": 4, "output_router_logits": False, "rms_norm_eps": 1e-06, "rope_scaling": None,
    "rope_theta": 1000000.0, "router_aux_loss_coef": 0.001, "sliding_window": None,
    "tie_word_embeddings": False, "torch_dtype": "bfloat16", "transformers_version": "4.51.0",
    "use_cache": True, "use_sliding_window": False, "vocab_size": 151936,
}  # fmt: skip


@each_case(CASES)
def test_logits_are_those_of_transformers(case: Case, backend: str, tmp_path: Path) -> None:
    case.check(tmp_path, backend)


def test_the_published_config() -> None:
    model = model_of(qwen3_moe.from_hf, QWEN3_30B_A3B)
    counted = ledger(model)
    assert counted.parameters == 30_532_122_624  # the model card's 30.5 billion
    assert next(g for _, g in walk(model) if isinstance(g, Router)) == Router(2048, 128, 8)
    assert sum(isinstance(gear, Experts) for _, gear in walk(model)) == 48


def layers_with_experts(**change: Any) -> list[int]:
    model = model_of(qwen3_moe.from_hf, QWEN3_30B_A3B | {"num_hidden_layers": 6} | change)
    return [i for i, block in enumerate(model.blocks) if isinstance(block.steps[1].gear, Experts)]


def test_which_layers_have_experts() -> None:
    assert layers_with_experts() == [0, 1, 2, 3, 4, 5]
    assert layers_with_experts(decoder_sparse_step=2) == [1, 3, 5]
    assert layers_with_experts(decoder_sparse_step=3) == [2, 5]
    assert layers_with_experts(decoder_sparse_step=2, mlp_only_layers=[1, 2]) == [3, 5]


def test_the_window_counts_only_where_it_is_on() -> None:
    """Case B15."""

    def windows(**change: Any) -> set[int]:
        model = model_of(qwen3_moe.from_hf, QWEN3_30B_A3B | change)
        return {gear.window for _, gear in walk(model.blocks[0]) if isinstance(gear, Attention)}

    assert windows(sliding_window=4) == windows(use_sliding_window=True) == {0}
    assert windows(sliding_window=4, use_sliding_window=True, max_window_layers=None) == {4}
    with pytest.raises(UnsupportedError, match="`max_window_layers` is 48"):
        windows(sliding_window=4, use_sliding_window=True)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"num_experts_per_tok": 129}, FormatError, "129 of 128 experts"),
        ({"num_local_experts": 64}, UnsupportedError, "`num_experts` is 128"),
        ({"mlp_only_layers": ["all"]}, FormatError, "`mlp_only_layers` should list numbers"),
        ({"mlp_only_layers": 3}, FormatError, "`mlp_only_layers` should be a list"),
        ({"decoder_sparse_step": 0}, FormatError, "`decoder_sparse_step` is 0"),
        ({"shared_expert_intermediate_size": 8}, UnsupportedError, "`shared_expert_intermediate_size`"),
    ],
)
def test_what_cannot_be_run_is_named(
    change: dict[str, Any], error: type[GlassgearError], message: str
) -> None:
    with pytest.raises(error, match=message):
        model_of(qwen3_moe.from_hf, QWEN3_30B_A3B | change)


def test_experts_in_one_tensor_are_read_as_well(tmp_path: Path) -> None:
    from safetensors.torch import save_file

    model = mixture(CLASSES, MIXED)
    save(model, tmp_path)
    apart = {path: t.float32().copy() for path, t in open_checkpoint(tmp_path).tensors.items()}
    save_file({k: v.contiguous() for k, v in model.state_dict().items()}, tmp_path / "model.safetensors")
    together = open_checkpoint(tmp_path).tensors
    assert all(np.array_equal(apart[path], together[path].float32()) for path in apart)


def test_experts_that_are_too_few_or_too_many_are_named(tmp_path: Path) -> None:
    save(mixture(CLASSES, MIXED), tmp_path)
    edit(tmp_path, num_local_experts=9)
    with pytest.raises(FormatError, match=r"lacks `model\.layers\.0\.mlp\.experts\.8\.gate_proj\.weight`"):
        open_checkpoint(tmp_path)
    edit(tmp_path, num_local_experts=7)
    with pytest.raises(FormatError, match=r"doesn't have: .*experts\.7\."):
        open_checkpoint(tmp_path)
