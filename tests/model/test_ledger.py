"""What a tree holds and costs: by hand, and against PyTorch's own count of operations."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from math import prod
from typing import Any

import pytest

from glassgear.backends.base import PAGE, Chunk
from glassgear.backends.reference import Reference
from glassgear.model import presets
from glassgear.model.families.llama import config_from_hf, llama
from glassgear.model.gears import (
    FFN,
    Attention,
    BatchNorm,
    Block,
    Embed,
    Experts,
    GatedFFN,
    Head,
    LatentAttention,
    LayerNorm,
    LearnedPositions,
    Model,
    Residual,
    RMSNorm,
    Router,
    ScaleNorm,
    TokenTypes,
    tensors,
    walk,
)
from glassgear.model.ledger import Counts, Ledger, Reach, ledger, purposes
from glassgear.model.settings import Settings
from tests.models import random_tensors, tiny_config
from tests.trees import TREES

LLAMA_2_7B: dict[str, Any] = {
    "model_type": "llama", "hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32,
    "num_attention_heads": 32, "num_key_value_heads": 32, "vocab_size": 32000, "rms_norm_eps": 1e-5,
    "max_position_embeddings": 4096, "hidden_act": "silu", "tie_word_embeddings": False,
    "rope_scaling": None, "pretraining_tp": 1,
}  # fmt: skip
LLAMA_3_8B = LLAMA_2_7B | {
    "intermediate_size": 14336, "num_key_value_heads": 8, "vocab_size": 128256, "rope_theta": 500000.0,
    "max_position_embeddings": 8192,
}  # fmt: skip


def counted(name: str) -> Ledger:
    return ledger(presets.model(name))


def small(*steps: Residual, **more: Any) -> Model:
    """A model of one block, 8 wide, with an embedding of 10 rows and a head of its own."""
    given: dict[str, Any] = {"norm": None, "head": Head(8, 10, tied=False), "context": 16}
    return Model(Embed(10, 8), (Block(steps),), **(given | more))


# --------------------------------------------------------------------------------------------
# Parameters


def test_rows_add_up_and_name_their_gear() -> None:
    found = ledger(llama(tiny_config(layers=1)))
    assert sum(row.parameters for row in found.rows) == found.parameters
    assert {row.gear for row in found.rows} == {"Embed", "RMSNorm", "Linear", "Head"}
    assert found.nbytes == 4 * found.parameters


@pytest.mark.parametrize("name", ["deepseek-v3", "mobilebert", "bert-base", "gemma-3-270m", "glm-4-9b-0414"])
def test_counting_each_distinct_gear_once_gives_what_all_rows_add_up_to(name: str) -> None:
    found = counted(name)
    assert sum(row.parameters for row in found.rows) == found.parameters
    assert sum(row.buffers for row in found.rows) == found.buffers
    assert sum(row.nbytes for row in found.rows) == found.nbytes == 4 * found.count.values
    shapes: dict[tuple[int, ...], int] = {}
    for row in found.rows:
        shapes[row.shape] = shapes.get(row.shape, 0) + 1
    grouped: dict[tuple[int, ...], int] = {}
    for (shape, _), times in found.count.shapes.items():
        grouped[shape] = grouped.get(shape, 0) + times
    assert grouped == shapes
    assert sum(purposes(found.model).values()) == found.parameters


def test_biases_norms_tables_and_a_head_s_bias_are_counted() -> None:
    attention = Attention.build(8, 2, 1, 4, bias=True, output_bias=True)
    ffn = FFN.build(8, 32, activation="relu", bias=True)
    model = small(
        Residual(LayerNorm(8, 1e-5), attention), Residual(ScaleNorm(8, 1e-5), ffn),
        norm=RMSNorm(8, 1e-5), head=Head(8, 10, tied=True, bias=True),
        positions=LearnedPositions(16, 8), token_types=TokenTypes(2, 8),
    )  # fmt: skip
    attention_values = (8 * 8 + 8) + 2 * (4 * 8 + 4) + (8 * 8 + 8)
    ffn_values = (32 * 8 + 32) + (8 * 32 + 8)
    assert purposes(model) == {
        "embedding": 80 + 16 * 8 + 2 * 8, "attention": attention_values, "ffn": ffn_values,
        "norms": 16 + 1 + 8, "head": 10,
    }  # fmt: skip


def test_a_tied_head_costs_operations_but_no_parameters() -> None:
    tied, untied = (ledger(llama(tiny_config(tied=t))) for t in (True, False))
    assert untied.parameters - tied.parameters == 100 * 64
    assert untied.matrix_flops == tied.matrix_flops


def test_statistics_of_batchnorm_are_buffers() -> None:
    model = small(Residual(BatchNorm(8, 1e-5), FFN.build(8, 16, bias=False)))
    found = ledger(model)
    assert (found.parameters, found.buffers) == (80 + 16 + 2 * 8 * 16 + 80, 16)
    assert {row.path: (row.parameters, row.buffers) for row in found.rows if "norm" in row.path} == {
        "blocks.0.ffn_norm.weight": (8, 0), "blocks.0.ffn_norm.bias": (8, 0),
        "blocks.0.ffn_norm.mean": (0, 8), "blocks.0.ffn_norm.variance": (0, 8),
    }  # fmt: skip


def test_corrections_of_routers_are_counted_apart() -> None:
    found = counted("deepseek-v3")
    assert found.parameters == 671_026_404_352
    assert found.buffers == 58 * 256 == 14_848
    assert found.count.values == 671_026_419_200


# --------------------------------------------------------------------------------------------
# What one token meets


def test_a_token_meets_one_row_of_tables_the_experts_it_uses_and_the_whole_head() -> None:
    expert = GatedFFN.build(8, 4)  # 96 values
    experts = Experts(Router(8, count=16, used=2, correction=True), expert, GatedFFN.build(8, 12))
    model = small(Residual(RMSNorm(8, 1e-5), experts), positions=LearnedPositions(16, 8))
    found = ledger(model)
    assert found.parameters == 80 + 128 + 8 + (128 + 16 * 96 + 288) + 80
    assert found.active == 8 + 8 + 8 + (128 + 2 * 96 + 288) + 80
    assert found.matrix_flops == 2 * (128 + 2 * 96 + 288 + 80)


def test_a_tied_table_is_met_whole_once() -> None:
    tied = ledger(llama(tiny_config(layers=1, tied=True)))
    assert tied.active == tied.parameters
    untied = ledger(llama(tiny_config(layers=1, tied=False)))
    assert untied.active == untied.parameters - 100 * 64 + 64


def test_deepseek_v3_uses_some_37_billion_for_a_token() -> None:
    """The technical report says 37B; what it counts as such isn't told exactly."""
    found = counted("deepseek-v3")
    mla = 7168 * 1536 + 1536 + 1536 * 24576 + 7168 * 576 + 512 + 512 * 32768 + 16384 * 7168
    dense = 3 * 7168 * 18432
    used = 9 * 3 * 7168 * 2048 + 256 * 7168
    norms = 61 * 2 * 7168 + 7168
    assert found.active == 7168 + 61 * mla + 3 * dense + 58 * used + norms + 129280 * 7168
    assert round(found.active / 1e9) == 37


# --------------------------------------------------------------------------------------------
# Cache and operations


def test_cache_holds_a_key_and_a_value_for_each_shared_head() -> None:
    found = ledger(llama(config_from_hf(Settings(LLAMA_3_8B, "config.json"))), cache_bytes=2)
    assert found.kv_bytes_per_token == 2 * 32 * 8 * 128 * 2  # 131,072 bytes: 128 KiB a token


def test_cache_of_latent_attention_holds_the_latent_and_the_shared_key() -> None:
    assert counted("deepseek-v3").cache_values == 61 * (512 + 64)


def test_an_encoder_needs_no_cache() -> None:
    assert counted("bert-base").cache_values == 0


def test_operations_are_two_a_weight_and_grow_with_position() -> None:
    found = ledger(llama(tiny_config(layers=1, tied=True)))
    matrices = 2 * 64 * 64 + 2 * 64 * 16 + 3 * 64 * 96 + 64 * 100
    assert found.flops_per_token(0) == 2 * matrices + 4 * 64
    assert found.flops_per_token(9) - found.flops_per_token(0) == 9 * 4 * 64


def test_a_prompt_costs_what_its_tokens_cost_but_for_the_heads_that_aren_t_needed() -> None:
    found = ledger(llama(tiny_config()))
    one_by_one = sum(found.flops_per_token(position) for position in range(20))
    assert found.prompt_flops(20) == one_by_one - 19 * found.head_flops
    assert found.prompt_flops(1) == found.flops_per_token(0)


@pytest.mark.parametrize("window", [1, 3, 20, 100])
def test_a_window_bounds_what_is_seen(window: int) -> None:
    reach = Reach(window, True, 1, 1, 1)
    assert reach.seen_in_all(20) == sum(len(range(max(0, i - window + 1), i + 1)) for i in range(20))
    assert [reach.seen(i) for i in (0, 50)] == [1, min(51, window)]


def test_latent_attention_works_on_latents_when_it_goes_token_by_token() -> None:
    found = counted("deepseek-v3")
    ((reach, times),) = found.count.reaches.items()
    assert times == 61
    assert reach.prompt == 2 * 128 * (192 + 128)  # scores and sums of heads
    assert reach.decode == 2 * 128 * (512 + 64 + 512)  # both over the latent


@contextmanager
def torch_flops() -> Iterator[Any]:
    torch = pytest.importorskip("torch", reason="PyTorch isn't installed")
    from torch.utils.flop_counter import FlopCounterMode

    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        yield counter


@pytest.mark.parametrize(
    ("kind", "sizes"),
    [
        ("llama", {"num_key_value_heads": 2, "head_dim": 8}),
        ("bert", {"type_vocab_size": 2}),
        ("gpt2", {"n_embd": 32, "n_layer": 3, "n_head": 4, "n_positions": 64}),
        ("deepseek_v3", {
            "num_key_value_heads": 4, "q_lora_rank": 12, "kv_lora_rank": 16, "qk_nope_head_dim": 6,
            "qk_rope_head_dim": 4, "v_head_dim": 5, "n_routed_experts": 8, "num_experts_per_tok": 3,
            "n_shared_experts": 1, "moe_intermediate_size": 20, "first_k_dense_replace": 1, "n_group": 2,
            "topk_group": 2, "rope_interleave": True,
            "experts_implementation": "eager",  # the counter doesn't know grouped products
        }),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_operations_agree_with_what_torch_counts_in_transformers_models(
    kind: str, sizes: dict[str, Any]
) -> None:
    """Eager attention computes the scores that causal masks hide: so many are added to ours."""
    torch = pytest.importorskip("torch", reason="PyTorch isn't installed")
    transformers = pytest.importorskip("transformers", reason="transformers isn't installed")
    usual = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 3, "num_attention_heads": 4}
    config = transformers.AutoConfig.for_model(
        kind, vocab_size=70, attn_implementation="eager",
        **((usual if kind != "gpt2" else {}) | sizes),
    )  # fmt: skip
    auto = transformers.AutoModel if kind == "bert" else transformers.AutoModelForCausalLM
    theirs = auto.from_config(config).eval()
    tokens = 11
    with torch_flops() as counter:
        theirs(torch.arange(tokens)[None])
    model = _read(config, theirs)
    found = ledger(model)
    assert found.parameters == sum(p.numel() for p in theirs.parameters())
    expected = found.prompt_flops(tokens)
    if model.causal:
        hidden = sum(r.prompt * n for r, n in found.count.reaches.items()) * tokens * (tokens - 1) // 2
        expected += hidden + (tokens - 1) * found.head_flops
    assert counter.get_total_flops() == expected


def _read(config: Any, theirs: Any) -> Model:
    from glassgear.model.families import by_hf_type
    from glassgear.model.families.base import Found

    family = by_hf_type()[config.model_type]
    assert family.from_hf is not None
    shapes = {name: tuple(value.shape) for name, value in theirs.named_parameters()}
    known = {k: v for k, v in config.to_dict().items() if not k.endswith("_implementation")}
    return family.from_hf(Settings(known, "config.json"), Found(shapes))


@pytest.mark.parametrize("name", TREES)
def test_every_gear_is_counted_in_every_way_of_putting_gears_together(name: str) -> None:
    """A gear with a matrix costs operations; one that keeps something of a token, cache."""
    model = TREES[name]()
    found = ledger(model)
    values = sum(prod(shape) for shape in tensors(model).values())
    assert (
        found.parameters + found.buffers == values == sum(row.parameters + row.buffers for row in found.rows)
    )
    assert sum(purposes(model).values()) == found.parameters
    counts = Counts()
    for path, gear in walk(model):
        matrices = [shape for shape in gear.tensors.values() if len(shape) == 2]
        if matrices and not isinstance(gear, Embed | LearnedPositions | TokenTypes):
            assert counts.of(gear).flops > 0, path
    caches = [g for _, g in walk(model) if isinstance(g, Attention | LatentAttention)]
    assert sum(found.count.reaches.values()) == len(caches)


@pytest.mark.parametrize("name", TREES)
def test_the_cache_that_is_counted_is_the_one_that_backends_keep(name: str) -> None:
    model = TREES[name]()
    if not model.causal:
        assert ledger(model).cache_values == 0
        return
    backend = Reference(model, random_tensors(model))
    backend.step([Chunk(backend.open(), [1, 2, 3])])
    pages = -(-backend.cache_nbytes // max(1, PAGE * ledger(model).kv_bytes_per_token))
    assert backend.cache_nbytes == pages * PAGE * ledger(model).kv_bytes_per_token


# --------------------------------------------------------------------------------------------
# Time


def test_deepseek_v3_takes_less_than_a_second_the_start_of_the_process_included() -> None:
    """Of processor time: others may be using the machine, too."""
    command = [sys.executable, "-m", "glassgear", "params", "deepseek-v3", "--json"]
    subprocess.run(command, check=True, capture_output=True)  # once to compile the modules
    before = _seconds_of_children()
    done = subprocess.run(command, check=True, capture_output=True)
    assert _seconds_of_children() - before < 1
    assert json.loads(done.stdout)["parameters"] == 671_026_404_352


def _seconds_of_children() -> float:
    times = os.times()
    return times.children_user + times.children_system
