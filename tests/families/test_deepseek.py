"""DeepSeek-V2 and V3: latent attention, grouped routing, YaRN on the scores, both GGUF forms, FP8."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from glassgear.backends.base import PAGE, Chunk
from glassgear.backends.reference import Reference
from glassgear.errors import FormatError, GlassgearError, UnsupportedError
from glassgear.model.families import deepseek
from glassgear.model.gears import Experts, LatentAttention, Model, Router, tensors, walk
from glassgear.model.ledger import ledger
from glassgear.model.rope import attention_factor
from glassgear.weights.open import open_checkpoint
from tests.families.decoders import LONG
from tests.families.mixtures import LATENT, latent_keys, mixture, to_gguf
from tests.families.support import BACKENDS, IDS, Case, check_parity, each_case, edit, model_of, save

V2, V3 = ("DeepseekV2ForCausalLM", "DeepseekV2Config"), ("DeepseekV3ForCausalLM", "DeepseekV3Config")
YARN: dict[str, Any] = {
    "rope_type": "yarn", "factor": 40.0, "mscale": 0.707, "mscale_all_dim": 0.707, "beta_fast": 32.0,
    "beta_slow": 1.0, "original_max_position_embeddings": 128, "rope_theta": 10000.0,
}  # fmt: skip
GROUPED = {"topk_method": "group_limited_greedy", "routed_scaling_factor": 16.0, "n_shared_experts": 2}
DIRECT = {"q_lora_rank": None}
SMALL = {"num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 2}


def folder(variant: str, classes: tuple[str, str], ids: Sequence[int] = IDS, **values: Any) -> Case:
    def write(path: Path) -> tuple[Path, Any]:
        model = mixture(classes, LATENT | values)
        return save(model, path), model

    return Case("deepseek", f"{classes[0][8:10]} {variant}", "folder", write, ids)


def gguf(
    variant: str,
    classes: tuple[str, str],
    keys: Callable[[Any], Mapping[str, Any]] = lambda c: {},
    *,
    split_heads: bool,
    **values: Any,
) -> Case:
    def write(path: Path) -> tuple[Path, Any]:
        # One epsilon for all norms, as GGUF has it.
        model = mixture(classes, LATENT | {"rms_norm_eps": 1e-6} | values)
        written = latent_keys(model.config, split_heads=split_heads, sigmoid=classes is V3)
        more = {**written, "attention.layer_norm_rms_epsilon": 1e-6, **keys(model.config)}
        return to_gguf(path / "m.gguf", model, "deepseek2", more, split_heads=split_heads), model

    form = "one matrix a head" if split_heads else "one matrix"
    return Case("deepseek", f"{classes[0][8:10]} {variant}, {form}", "gguf", write)


def groups(c: Any) -> dict[str, Any]:
    return {"expert_group_count": c.n_group, "expert_group_used_count": c.topk_group}


def yarn(c: Any) -> dict[str, Any]:
    rope = c.rope_parameters
    return groups(c) | {
        "rope.scaling.type": "yarn", "rope.scaling.factor": rope["factor"],
        "rope.scaling.original_context_length": rope["original_max_position_embeddings"],
        "rope.scaling.yarn_log_multiplier": 0.1 * rope["mscale_all_dim"],
    }  # fmt: skip


CASES = [
    folder("as published", V3),
    folder("queries in one step, no groups", V3, **DIRECT, n_group=1, topk_group=1),
    folder("weights not normed, tied, biases", V3, norm_topk_prob=False, tie_word_embeddings=True,
           attention_bias=True),
    folder("halves turn", V3, rope_interleave=False),
    folder("one expert a token", V3, num_experts_per_tok=1),
    folder("dense", V3, first_k_dense_replace=3),
    folder("yarn to position 4,200", V3, LONG, rope_parameters=YARN, **SMALL),
    folder("yarn with two magnitudes", V3, LONG[:700], rope_parameters=YARN | {"mscale": 1.0}, **SMALL),
    folder("without a head", ("DeepseekV3Model", "DeepseekV3Config")),
    folder("greedy", V2),
    folder("greedy, queries in one step", V2, **DIRECT, routed_scaling_factor=2.0),
    folder("groups", V2, **GROUPED),
    folder("yarn", V2, LONG[:700], rope_parameters=YARN, attention_bias=True, **SMALL),
    gguf("groups", V3, groups, split_heads=False),
    gguf("groups", V3, groups, split_heads=True),
    gguf("no groups, queries in one step", V3, split_heads=True, **DIRECT, n_group=1, topk_group=1),
    gguf("yarn", V3, yarn, split_heads=False, rope_parameters=YARN),
    gguf("yarn", V3, yarn, split_heads=True, rope_parameters=YARN),
    gguf("greedy", V2, split_heads=False, **DIRECT, n_group=1, topk_group=1),
    gguf("groups", V2, groups, split_heads=True, **GROUPED),
]  # fmt: skip

# deepseek-ai/DeepSeek-V3
DEEPSEEK_V3: dict[str, Any] = {
    "architectures": ["DeepseekV3ForCausalLM"], "attention_bias": False, "attention_dropout": 0.0,
    "auto_map": {"AutoConfig": "configuration_deepseek.DeepseekV3Config"}, "bos_token_id": 0,
    "eos_token_id": 1, "ep_size": 1, "first_k_dense_replace": 3, "hidden_act": "silu", "hidden_size": 7168,
    "initializer_range": 0.02, "intermediate_size": 18432, "kv_lora_rank": 512,
    "max_position_embeddings": 163840, "model_type": "deepseek_v3", "moe_intermediate_size": 2048,
    "moe_layer_freq": 1, "n_group": 8, "n_routed_experts": 256, "n_shared_experts": 1,
    "norm_topk_prob": True, "num_attention_heads": 128, "num_experts_per_tok": 8, "num_hidden_layers": 61,
    "num_key_value_heads": 128, "num_nextn_predict_layers": 1, "q_lora_rank": 1536,
    "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "rms_norm_eps": 1e-06,
    "rope_scaling": {
        "beta_fast": 32, "beta_slow": 1, "factor": 40, "mscale": 1.0, "mscale_all_dim": 1.0,
        "original_max_position_embeddings": 4096, "type": "yarn",
    },
    "rope_theta": 10000, "routed_scaling_factor": 2.5, "scoring_func": "sigmoid",
    "tie_word_embeddings": False, "topk_group": 4, "topk_method": "noaux_tc", "torch_dtype": "bfloat16",
    "transformers_version": "4.33.1", "use_cache": True, "v_head_dim": 128, "vocab_size": 129280,
}  # fmt: skip
# deepseek-ai/DeepSeek-V2-Lite
DEEPSEEK_V2_LITE = DEEPSEEK_V3 | {
    "model_type": "deepseek_v2", "aux_loss_alpha": 0.001, "seq_aux": True, "first_k_dense_replace": 1,
    "hidden_size": 2048, "intermediate_size": 10944, "moe_intermediate_size": 1408, "n_group": 1,
    "n_routed_experts": 64, "n_shared_experts": 2, "norm_topk_prob": False, "num_attention_heads": 16,
    "num_experts_per_tok": 6, "num_hidden_layers": 27, "num_key_value_heads": 16, "q_lora_rank": None,
    "rope_scaling": DEEPSEEK_V3["rope_scaling"] | {"mscale": 0.707, "mscale_all_dim": 0.707},
    "routed_scaling_factor": 1.0, "scoring_func": "softmax", "topk_group": 1, "topk_method": "greedy",
    "vocab_size": 102400, "num_nextn_predict_layers": None,
}  # fmt: skip


@each_case(CASES)
def test_logits_are_those_of_transformers(case: Case, backend: str, tmp_path: Path) -> None:
    case.check(tmp_path, backend)


def attention_of(model: Model) -> LatentAttention:
    return next(gear for _, gear in walk(model) if isinstance(gear, LatentAttention))


def router_of(model: Model) -> Router:
    return next(gear for _, gear in walk(model) if isinstance(gear, Router))


class TestPublished:
    def test_totals_and_how_long_they_take(self) -> None:
        """The authors' 671 billion: all weights, and the corrections of routing, which aren't trained."""
        started = time.perf_counter()
        counted = ledger(model_of(deepseek.from_hf, DEEPSEEK_V3))
        taken = time.perf_counter() - started
        shapes = tensors(model_of(deepseek.from_hf, DEEPSEEK_V3))
        corrections = sum(math.prod(shape) for path, shape in shapes.items() if path.endswith(".correction"))
        assert counted.parameters == 671_026_404_352
        assert counted.buffers == corrections == 58 * 256 == 14_848
        assert sum(math.prod(shape) for shape in shapes.values()) == 671_026_419_200
        assert len(shapes) == 1 + 3 * 12 + 58 * (9 + 2 + 3 * 257) + 2
        assert taken < 1

    def test_deepseek_v2_lite(self) -> None:
        model = model_of(deepseek.from_hf, DEEPSEEK_V2_LITE)
        assert ledger(model).parameters == 15_706_484_224  # as its model card has it: 15.7 billion
        assert router_of(model) == Router(2048, 64, 6, group_score="max", normalize=False)

    def test_a_token_takes_576_values_a_layer(self) -> None:
        model = model_of(deepseek.from_hf, DEEPSEEK_V3)
        assert attention_of(model).cache_dim == 512 + 64 == 576
        assert ledger(model, cache_bytes=2).kv_bytes_per_token == 61 * 576 * 2

    def test_the_router(self) -> None:
        assert router_of(model_of(deepseek.from_hf, DEEPSEEK_V3)) == Router(
            7168, 256, 8, "sigmoid", True, 8, 4, "top2", True, 2.5
        )

    @pytest.mark.parametrize(
        ("keys", "rotation", "scale"),
        [
            ({"mscale": 1.0, "mscale_all_dim": 1.0}, 1.0, 0.1352338),
            ({"mscale": 0.707, "mscale_all_dim": 0.707}, 1.0, 0.1147214),
            ({"factor": 16}, 1.2772589, 0.0721688),
            ({"factor": 16, "attention_factor": 1.0}, 1.0, 0.0721688),
        ],
    )
    def test_yarn_acts_on_rotation_and_scores(
        self, keys: dict[str, float], rotation: float, scale: float
    ) -> None:
        """Case B12."""
        rope = {
            "type": "yarn", "factor": 40, "original_max_position_embeddings": 4096, "beta_fast": 32,
            "beta_slow": 1,
        } | keys  # fmt: skip
        gear = attention_of(model_of(deepseek.from_hf, DEEPSEEK_V3 | {"rope_scaling": rope}))
        assert attention_factor(gear.rope) == pytest.approx(rotation, abs=1e-7)
        assert gear.scale == pytest.approx(scale, abs=1e-7)

    def test_v2_divides_weights_or_multiplies_them(self) -> None:
        """Its published `MoEGate.forward`; transformers has the multiplication alone."""
        config = DEEPSEEK_V2_LITE | {"routed_scaling_factor": 16.0}
        assert (router_of(model_of(deepseek.from_hf, config)).normalize) is False
        assert (router_of(model_of(deepseek.from_hf, config)).scale) == 16
        both = router_of(model_of(deepseek.from_hf, config | {"norm_topk_prob": True}))
        assert (both.normalize, both.scale) == (True, 1.0)
        single = config | {"norm_topk_prob": True, "num_experts_per_tok": 1}
        alone = router_of(model_of(deepseek.from_hf, single))
        assert (alone.normalize, alone.scale) == (False, 16.0)

    @pytest.mark.parametrize(
        ("change", "error", "message"),
        [
            ({"scoring_func": "softmax"}, UnsupportedError, "`scoring_func` is 'softmax'"),
            ({"topk_method": "greedy"}, UnsupportedError, "`topk_method` is 'greedy'"),
            ({"moe_layer_freq": 2}, UnsupportedError, "`moe_layer_freq` is 2"),
            ({"num_key_value_heads": 8}, UnsupportedError, "`num_key_value_heads` is 8"),
            ({"n_group": 7}, FormatError, "256 experts can't be chosen from 4 of 7 groups"),
            ({"topk_group": 9}, FormatError, "9 of 8 groups"),
            ({"num_experts_per_tok": 257}, FormatError, "257 of 256 experts"),
            ({"n_routed_experts": 2**30}, FormatError, "`n_routed_experts` is 1073741824"),
            ({"index_topk": 2048}, UnsupportedError, "`index_topk`"),
        ],
    )
    def test_what_cannot_be_run_is_named(
        self, change: dict[str, Any], error: type[GlassgearError], message: str
    ) -> None:
        with pytest.raises(error, match=message):
            model_of(deepseek.from_hf, DEEPSEEK_V3 | change)

    def test_another_way_of_choosing_is_named(self) -> None:
        with pytest.raises(UnsupportedError, match="`topk_method` is 'noaux_tc'; only 'greedy' or"):
            model_of(deepseek.from_hf, DEEPSEEK_V2_LITE | {"topk_method": "noaux_tc"})


def test_the_cache_holds_latents_alone(tmp_path: Path) -> None:
    save(mixture(V3, LATENT), tmp_path)
    checkpoint = open_checkpoint(tmp_path)
    backend = Reference(checkpoint.model, checkpoint.tensors)
    backend.step([Chunk(backend.open(), [1, 2, 3])])
    values = 3 * (LATENT["kv_lora_rank"] + LATENT["qk_rope_head_dim"])
    assert backend.cache_nbytes == PAGE * values * 4
    assert ledger(checkpoint.model).cache_values == values


class TestFurtherLayers:
    """Published files end with a layer that predicts one token more."""

    def write(self, path: Path, number: int) -> Path:
        from safetensors.torch import load_file, save_file

        model = mixture(V3, LATENT)
        save(model, path)
        weights = load_file(path / "model.safetensors")
        extra = {
            name.replace("layers.2.", f"layers.{number}."): value.clone()
            for name, value in weights.items()
            if "layers.2." in name
        }
        for part in ("embed_tokens", "enorm", "hnorm", "eh_proj", "shared_head.norm", "shared_head.head"):
            import torch

            extra[f"model.layers.{number}.{part}.weight"] = torch.ones(3)
        save_file(weights | extra, path / "model.safetensors")
        self.model = model
        return path

    def test_are_left_out_with_one_notice(self, tmp_path: Path) -> None:
        checkpoint = open_checkpoint(self.write(tmp_path, 3))
        assert len(checkpoint.notices) == 1
        assert "multi-token prediction" in checkpoint.notices[0]
        check_parity(tmp_path, self.model, backends=("reference",))

    def test_are_refused_where_the_config_has_none(self, tmp_path: Path) -> None:
        edit(self.write(tmp_path, 3), num_nextn_predict_layers=0)
        with pytest.raises(FormatError, match="3 layers and 0 that look further ahead, but there is layer 3"):
            open_checkpoint(tmp_path)

    def test_are_refused_past_those_it_has(self, tmp_path: Path) -> None:
        with pytest.raises(FormatError, match="there is layer 4"):
            open_checkpoint(self.write(tmp_path, 4))


def test_experts_in_one_tensor_are_read_as_well(tmp_path: Path) -> None:
    """As transformers holds them in memory, and as some tools write them."""
    from safetensors.torch import save_file

    model = mixture(V3, LATENT)
    save(model, tmp_path)
    apart = open_checkpoint(tmp_path).tensors
    apart = {path: tensor.float32().copy() for path, tensor in apart.items()}
    save_file({k: v.contiguous() for k, v in model.state_dict().items()}, tmp_path / "model.safetensors")
    together = open_checkpoint(tmp_path).tensors
    assert all(np.array_equal(apart[path], together[path].float32()) for path in apart)
    assert "gate_up_proj" in together["blocks.2.ffn.experts.7.up.weight"].name


def test_a_missing_expert_is_called_by_its_published_name(tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    save(mixture(V3, LATENT), tmp_path)
    weights = load_file(tmp_path / "model.safetensors")
    del weights["model.layers.1.mlp.experts.5.up_proj.weight"]
    save_file(weights, tmp_path / "model.safetensors")
    with pytest.raises(FormatError, match=r"lacks `model\.layers\.1\.mlp\.experts\.5\.up_proj\.weight`"):
        open_checkpoint(tmp_path)


class TestGguf:
    def write(self, path: Path, split_heads: bool = True, **extra: Any) -> Path:
        model = mixture(V3, LATENT)
        keys = latent_keys(model.config, split_heads=split_heads, sigmoid=True, **extra)
        return to_gguf(path, model, "deepseek2", keys, split_heads=split_heads)

    def test_both_forms_hold_the_same_matrix(self, tmp_path: Path) -> None:
        one, other = (open_checkpoint(self.write(tmp_path / f"{s}.gguf", s)) for s in (False, True))
        assert one.model == other.model
        for path in one.tensors:
            assert np.array_equal(one.tensors[path].float32(), other.tensors[path].float32()), path
        joined = other.tensors["blocks.1.attention.kv_up.weight"]
        assert joined.name == "blk.1.attn_k_b.weight and blk.1.attn_v_b.weight"

    def test_layers_that_look_further_ahead_are_left_out(self, tmp_path: Path) -> None:
        """Where a file has them, `block_count` counts them, too."""
        from dataclasses import replace as changed

        from glassgear.weights import gguf, gguf_write

        file = gguf.read(self.write(tmp_path / "m.gguf"))
        more = [
            changed(tensor, name=name.replace("blk.2.", "blk.3."))
            for name, tensor in file.tensors.items()
            if name.startswith("blk.2.")
        ]
        keys = {"deepseek2.block_count": 4, "deepseek2.nextn_predict_layers": 1}
        tensors = [*file.tensors.values(), *more, changed(more[0], name="blk.3.nextn.eh_proj.weight")]
        gguf_write.write(tmp_path / "more.gguf", dict(file.metadata) | keys, tensors)
        checkpoint = open_checkpoint(tmp_path / "more.gguf")
        assert len(checkpoint.model.blocks) == 3
        assert len(checkpoint.notices) == 1
        gguf_write.write(tmp_path / "more.gguf", file.metadata, tensors)
        with pytest.raises(FormatError, match="there is layer 3"):
            open_checkpoint(tmp_path / "more.gguf")

    def test_half_of_a_split_matrix_is_refused(self, tmp_path: Path) -> None:
        from glassgear.weights import gguf, gguf_write

        file = gguf.read(self.write(tmp_path / "m.gguf"))
        for name in ("blk.1.attn_k_b.weight", "blk.1.attn_v_b.weight"):
            left = [tensor for tensor in file.tensors.values() if tensor.name != name]
            gguf_write.write(tmp_path / "half.gguf", file.metadata, left)
            with pytest.raises(FormatError, match=r"holds `blk\.1\.attn_._b\.weight`, but not all of the 2"):
                open_checkpoint(tmp_path / "half.gguf")

    @pytest.mark.parametrize(
        ("extra", "error", "message"),
        [
            ({"expert_gating_func": 4}, UnsupportedError, "`deepseek2.expert_gating_func` is 4"),
            (
                {"attention.temperature_scale": 0.1},
                UnsupportedError,
                "`deepseek2.attention.temperature_scale`",
            ),
            ({"attention.key_length": 99}, UnsupportedError, "key_length` is 99"),
            ({"attention.key_length_mla": 8}, FormatError, "heads of 8 channels, of which 8 turn"),
            ({"expert_used_count": 9}, FormatError, "9 of 8 experts"),
            ({"rope.scaling.attn_factor": 2.0}, UnsupportedError, "attn_factor` is 2"),
        ],
    )
    def test_what_cannot_be_run_is_named(
        self, tmp_path: Path, extra: dict[str, Any], error: type[GlassgearError], message: str
    ) -> None:
        with pytest.raises(error, match=message):
            open_checkpoint(self.write(tmp_path / "m.gguf", **extra))


class TestFloat8:
    """Weights as DeepSeek-V3 publishes them: float8 in blocks, each with its scale."""

    BLOCK = (16, 32)  # neither divides all sizes
    CONFIG: Mapping[str, Any] = {
        "activation_scheme": "dynamic", "fmt": "e4m3", "quant_method": "fp8", "weight_block_size": [16, 32],
    }  # fmt: skip

    def write(self, path: Path) -> Any:
        """Save a model in float8; returns it with the weights that the files mean, as PyTorch reads them."""
        import torch
        from safetensors.torch import load_file, save_file

        model = mixture(V3, LATENT)
        save(model, path)
        weights = load_file(path / "model.safetensors")
        for name in [n for n in weights if n.endswith("proj.weight") or "_proj_with_mqa" in n]:
            value = weights[name]
            down, across = self.BLOCK
            rows, columns = -(-value.shape[0] // down), -(-value.shape[1] // across)
            scales = 0.001 + 0.004 * torch.rand(rows, columns)
            spread = scales.repeat_interleave(down, 0).repeat_interleave(across, 1)
            spread = spread[: value.shape[0], : value.shape[1]]
            weights[name] = (value / spread).clamp(-448, 448).to(torch.float8_e4m3fn)
            weights[f"{name}_scale_inv"] = scales
        save_file(weights, path / "model.safetensors")
        edit(path, quantization_config=self.CONFIG)
        means = {n: v for n, v in weights.items() if not n.endswith("_scale_inv")}
        for name, value in means.items():
            if value.dtype == torch.float8_e4m3fn:
                scales = weights[f"{name}_scale_inv"].repeat_interleave(16, 0).repeat_interleave(32, 1)
                means[name] = value.float() * scales[: value.shape[0], : value.shape[1]]
        self.load(model, means)
        return model

    @staticmethod
    def load(model: Any, weights: Mapping[str, Any]) -> None:
        import torch

        state = model.state_dict()
        for name in state:
            if name.endswith(("gate_up_proj", "down_proj")):
                stem, part = name.rsplit(".", 1)
                each = [
                    torch.cat([weights[f"{stem}.{i}.{p}.weight"] for p in parts])
                    for i in range(len(state[name]))
                    for parts in [("gate_proj", "up_proj") if part == "gate_up_proj" else ("down_proj",)]
                ]
                state[name] = torch.stack(each)
            else:
                state[name] = weights[name]
        model.load_state_dict(state)

    @pytest.mark.parametrize("backend", BACKENDS)
    def test_logits_are_those_of_the_decoded_weights(self, tmp_path: Path, backend: str) -> None:
        model = self.write(tmp_path)
        check_parity(tmp_path, model, backends=(backend,))

    def test_values_are_pytorch_s_bit_for_bit(self, tmp_path: Path) -> None:
        model = self.write(tmp_path)
        checkpoint = open_checkpoint(tmp_path)
        tensor = checkpoint.tensors["blocks.0.attention.kv_down.weight"]
        want = model.state_dict()["model.layers.0.self_attn.kv_a_proj_with_mqa.weight"].numpy()
        assert tensor.type == "F8_E4M3"
        assert np.array_equal(tensor.float32(), want)
        assert np.array_equal(tensor.rows(np.array([5, 0, 23])), want[[5, 0, 23]])
        assert np.array_equal(tensor.part(5, 14).float32(), want[5:19])
        assert np.array_equal(tensor.part(5, 14).part(3, 9).float32(), want[8:17])
        assert np.array_equal(tensor.reordered(np.arange(23, -1, -1)).float32(), want[::-1])
        assert tensor.nbytes == 24 * 48 + 2 * 2 * 4

    def broken(self, path: Path, change: Callable[[dict[str, Any]], None], **config: Any) -> Path:
        from safetensors.torch import load_file, save_file

        self.write(path)
        weights = load_file(path / "model.safetensors")
        change(weights)
        save_file(weights, path / "model.safetensors")
        return edit(path, quantization_config={**self.CONFIG, **config})

    NAME = "model.layers.0.self_attn.q_a_proj.weight"

    def test_scales_that_lack(self, tmp_path: Path) -> None:
        self.broken(tmp_path, lambda weights: weights.pop(f"{self.NAME}_scale_inv"))
        with pytest.raises(
            FormatError, match=f"holds `{self.NAME}` in F8_E4M3, but no `{self.NAME}_scale_inv`"
        ):
            open_checkpoint(tmp_path)

    def test_scales_of_nothing(self, tmp_path: Path) -> None:
        self.broken(tmp_path, lambda weights: weights.pop(self.NAME))
        with pytest.raises(FormatError, match=f"holds `{self.NAME}_scale_inv`, but no `{self.NAME}`"):
            open_checkpoint(tmp_path)

    def test_scales_of_other_blocks(self, tmp_path: Path) -> None:
        self.broken(tmp_path, lambda weights: None, weight_block_size=[128, 128])
        with pytest.raises(FormatError, match="blocks of 128 x 128 of its matrix ask for 1 x 1"):
            open_checkpoint(tmp_path)

    @pytest.mark.parametrize("place", ["value", "scale"])
    def test_what_is_not_finite_is_refused_at_load(self, tmp_path: Path, place: str) -> None:
        import glassgear

        def change(weights: dict[str, Any]) -> None:
            if place == "value":
                weights[self.NAME].view(dtype=__import__("torch").uint8)[5, 7] = 0x7F
            else:
                weights[f"{self.NAME}_scale_inv"][1, 0] = float("inf")

        self.broken(tmp_path, change)
        with pytest.raises(FormatError, match=r"q_a_proj\.weight"):
            glassgear.load(tmp_path, backend="reference")

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"quant_method": "awq"}, "quantised by 'awq'"),
            ({"fmt": "e5m2"}, "`quantization_config.fmt` is 'e5m2'"),
            ({"activation_scheme": "static"}, "activation_scheme` is 'static'"),
            ({"weight_block_size": None}, r"weight_block_size` is \[\]"),
            ({"bits": 4}, "`quantization_config.bits`"),
        ],
    )
    def test_other_ways_are_refused_by_name(
        self, tmp_path: Path, change: dict[str, Any], message: str
    ) -> None:
        save(mixture(V3, LATENT), tmp_path)
        edit(tmp_path, quantization_config={**self.CONFIG, **change})
        with pytest.raises(UnsupportedError, match=message):
            open_checkpoint(tmp_path)


def test_walk_meets_every_expert_once() -> None:
    model = model_of(deepseek.from_hf, DEEPSEEK_V3)
    paths = [path for path, _ in walk(model)]
    assert len(set(paths)) == len(paths) == 60_488
    assert sum(isinstance(gear, Experts) for _, gear in walk(model)) == 58
    assert paths.index("blocks.3.ffn.router") < paths.index("blocks.3.ffn.experts.0")
    assert paths.index("blocks.3.ffn.experts.255.down") < paths.index("blocks.3.ffn.shared")
