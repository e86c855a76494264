"""Published configs by name: what a model is, without its weights.

Each is a `config.json` as its authors published it, shortened to the keys that say what is computed,
and read by the family's own reader: what a preset is can't drift from what a file of it would be.
Models that were published without such a file are written as one, from the paper or program named.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from glassgear.errors import NotFoundError
from glassgear.model.families import by_hf_type
from glassgear.model.families.base import Found
from glassgear.model.gears import Model
from glassgear.model.settings import Settings

__all__ = ["PRESETS", "Preset", "Reading", "model"]


class Reading(NamedTuple):
    """What is often read about a model, and what holds; a choice of its design, or else a count."""

    wrong: str
    right: str
    choice: bool = False


@dataclass(frozen=True)
class Preset:
    """One published config.

    Attributes:
        about: the model, for people.
        source: where the config comes from.
        config: as in a `config.json`.
        tensors: names by which the family's reader tells parts that the config is silent about.
        often_read: what is often read about it, and what holds.
    """

    about: str
    source: str
    config: Mapping[str, Any]
    tensors: tuple[str, ...] = ()
    often_read: tuple[Reading, ...] = ()


def model(name: str) -> Model:
    """The tree of a preset.

    Raises:
        NotFoundError: no preset has that name.
    """
    preset = PRESETS.get(name)
    if preset is None:
        raise NotFoundError(name, f"no published config has this name: {', '.join(PRESETS)}")
    family = by_hf_type()[preset.config["model_type"]]
    assert family.from_hf is not None
    shapes = dict.fromkeys(preset.tensors, ())
    return family.from_hf(Settings(preset.config, f"the published config of {name}"), Found(shapes))


def _llama(
    dim: int, hidden: int, layers: int, heads: int, kv_heads: int, vocab: int, context: int, **more: Any
) -> dict[str, Any]:
    """The sizes that every family of Llama's kind spells alike."""
    return {
        "model_type": "llama", "hidden_act": "silu", "rms_norm_eps": 1e-5, "tie_word_embeddings": False,
        "hidden_size": dim, "intermediate_size": hidden, "num_hidden_layers": layers,
        "num_attention_heads": heads, "num_key_value_heads": kv_heads, "vocab_size": vocab,
        "max_position_embeddings": context,
    } | more  # fmt: skip


def _qwen(
    dim: int, hidden: int, layers: int, heads: int, kv_heads: int, vocab: int, context: int, **more: Any
) -> dict[str, Any]:
    return _llama(
        dim, hidden, layers, heads, kv_heads, vocab, context, model_type="qwen2", rope_theta=1e6,
        use_sliding_window=False, sliding_window=context, **{"rms_norm_eps": 1e-6, **more},
    )  # fmt: skip


def _glm(kind: str, context: int, eps: float) -> dict[str, Any]:
    return _llama(
        4096, 13696, 40, 32, 2, 151552, context, model_type=kind, head_dim=128, partial_rotary_factor=0.5,
        rope_theta=10000.0, attention_bias=True, rms_norm_eps=eps,
    )  # fmt: skip


def _gemma3(dim: int, hidden: int, layers: int) -> dict[str, Any]:
    kinds = ["full_attention" if i % 6 == 5 else "sliding_attention" for i in range(layers)]
    found = _llama(
        dim, hidden, layers, 4, 1, 262144, 32768, model_type="gemma3_text", head_dim=256,
        hidden_activation="gelu_pytorch_tanh", rms_norm_eps=1e-6, tie_word_embeddings=True,
        query_pre_attn_scalar=256, rope_theta=1e6, rope_local_base_freq=10000.0, sliding_window=512,
        layer_types=kinds, attention_bias=False,
    )  # fmt: skip
    del found["hidden_act"]
    return found


def _gpt(dim: int, layers: int, heads: int, context: int) -> dict[str, Any]:
    return {
        "model_type": "gpt2", "n_embd": dim, "n_layer": layers, "n_head": heads, "n_positions": context,
        "vocab_size": 50257, "layer_norm_epsilon": 1e-5, "activation_function": "gelu_new",
    }  # fmt: skip


def _stories(
    dim: int, hidden: int, layers: int, heads: int, kv_heads: int, vocab: int, context: int
) -> dict[str, Any]:
    return _llama(dim, hidden, layers, heads, kv_heads, vocab, context, tie_word_embeddings=True)


DEEPSEEK_V3 = _llama(
    7168, 18432, 61, 128, 128, 129280, 163840,
    model_type="deepseek_v3", rms_norm_eps=1e-6, rope_theta=10000.0, attention_bias=False,
    q_lora_rank=1536, kv_lora_rank=512, qk_nope_head_dim=128, qk_rope_head_dim=64, v_head_dim=128,
    n_routed_experts=256, n_shared_experts=1, num_experts_per_tok=8, moe_intermediate_size=2048,
    first_k_dense_replace=3, moe_layer_freq=1, n_group=8, topk_group=4, topk_method="noaux_tc",
    scoring_func="sigmoid", norm_topk_prob=True, routed_scaling_factor=2.5, num_nextn_predict_layers=1,
    rope_scaling={
        "type": "yarn", "factor": 40, "original_max_position_embeddings": 4096, "beta_fast": 32,
        "beta_slow": 1, "mscale": 1.0, "mscale_all_dim": 1.0,
    },
)  # fmt: skip
BERT_BASE = {
    "model_type": "bert", "hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12,
    "intermediate_size": 3072, "vocab_size": 30522, "max_position_embeddings": 512, "type_vocab_size": 2,
    "layer_norm_eps": 1e-12, "hidden_act": "gelu", "position_embedding_type": "absolute",
}  # fmt: skip
MOBILEBERT = {
    "model_type": "mobilebert", "hidden_size": 512, "embedding_size": 128, "num_hidden_layers": 24,
    "num_attention_heads": 4, "intermediate_size": 512, "intra_bottleneck_size": 128,
    "true_hidden_size": 128, "num_feedforward_networks": 4, "vocab_size": 30522, "type_vocab_size": 2,
    "max_position_embeddings": 512, "layer_norm_eps": 1e-12, "hidden_act": "relu",
    "normalization_type": "no_norm", "trigram_input": True, "use_bottleneck": True,
    "use_bottleneck_attention": False, "key_query_shared_bottleneck": True,
}  # fmt: skip

LLAMA_3_OFTEN_READ = (
    Reading("a vocabulary of 129,280, and an embedding of 530 million",
            "128,256 entries, 525,336,576 parameters; 129,280 is DeepSeek-V3's"),
    Reading("W_Q, W_K and W_V are of one size",
            "W_Q is 4096 x 4096, 32 heads of 128; W_K and W_V are 1024 x 4096, 8 heads"),
    Reading("norms hold 16 thousand a layer",
            "8,192: RMSNorm has one vector of 4,096, and a layer two norms"),
    Reading("the feed-forward network holds 8 times what attention does",
            "4.2 times: 176,160,768 to 41,943,040 in a layer"),
    Reading("8.04 billion in all", "8.03 billion: 8,030,261,248"),
)  # fmt: skip
GLM_OFTEN_READ = (Reading("an FFN width of 14,336", "13,696, by the published config", choice=True),)
GPT_3_OFTEN_READ = (Reading("RMSNorm", "LayerNorm, as in GPT-2 (Brown et al. 2020)", choice=True),)
BERT_OFTEN_READ = (Reading("pre-norm", "post-norm: each sum is normed (Devlin et al. 2018)", choice=True),)
MOBILEBERT_OFTEN_READ = (
    Reading("ScaleNorm and pre-norm",
            "an affine, channel by channel, where BERT has its norm (Sun et al. 2020)", choice=True),
)  # fmt: skip

PRESETS: Mapping[str, Preset] = {
    "llama-2-7b": Preset(
        "Llama 2 7B", "meta-llama/Llama-2-7b-hf", _llama(4096, 11008, 32, 32, 32, 32000, 4096)),
    "llama-2-13b": Preset(
        "Llama 2 13B", "meta-llama/Llama-2-13b-hf", _llama(5120, 13824, 40, 40, 40, 32000, 4096)),
    "llama-2-70b": Preset(
        "Llama 2 70B", "meta-llama/Llama-2-70b-hf", _llama(8192, 28672, 80, 64, 8, 32000, 4096)),
    "llama-3-8b": Preset(
        "Llama 3 8B", "meta-llama/Meta-Llama-3-8B",
        _llama(4096, 14336, 32, 32, 8, 128256, 8192, rope_theta=500000.0), often_read=LLAMA_3_OFTEN_READ),
    "llama-3-70b": Preset(
        "Llama 3 70B", "meta-llama/Meta-Llama-3-70B",
        _llama(8192, 28672, 80, 64, 8, 128256, 8192, rope_theta=500000.0)),
    "mistral-7b": Preset(
        "Mistral 7B v0.1", "mistralai/Mistral-7B-v0.1",
        _llama(4096, 14336, 32, 32, 8, 32000, 32768, model_type="mistral", rope_theta=10000.0,
               sliding_window=4096)),
    "qwen2.5-0.5b": Preset(
        "Qwen2.5 0.5B", "Qwen/Qwen2.5-0.5B",
        _qwen(896, 4864, 24, 14, 2, 151936, 32768, tie_word_embeddings=True, max_window_layers=24)),
    "qwen2.5-7b": Preset(
        "Qwen2.5 7B", "Qwen/Qwen2.5-7B", _qwen(3584, 18944, 28, 28, 4, 152064, 131072, max_window_layers=28)),
    "qwen2.5-72b": Preset(
        "Qwen2.5 72B", "Qwen/Qwen2.5-72B",
        _qwen(8192, 29568, 80, 64, 8, 152064, 131072, max_window_layers=80, rms_norm_eps=1e-5)),
    "glm-4-9b": Preset(
        "GLM-4 9B", "THUDM/glm-4-9b-hf", _glm("glm", 8192, 1.5625e-07), often_read=GLM_OFTEN_READ),
    "glm-4-9b-0414": Preset("GLM-4 9B 0414", "THUDM/GLM-4-9B-0414", _glm("glm4", 32768, 1e-5)),
    "deepseek-v3": Preset("DeepSeek-V3", "deepseek-ai/DeepSeek-V3", DEEPSEEK_V3),
    "gemma-3-270m": Preset("Gemma 3 270M", "google/gemma-3-270m", _gemma3(640, 2048, 18)),
    "gemma-3-1b": Preset("Gemma 3 1B", "google/gemma-3-1b-pt", _gemma3(1152, 6912, 26)),
    "gpt2": Preset("GPT-2 small", "openai-community/gpt2", _gpt(768, 12, 12, 1024)),
    "gpt-3-175b": Preset(
        "GPT-3 175B, its sparse layers counted as dense", "Brown et al. 2020, table 2.1",
        _gpt(12288, 96, 96, 2048), often_read=GPT_3_OFTEN_READ),
    "bert-base": Preset(
        "BERT base, uncased, with pooler", "google-bert/bert-base-uncased", BERT_BASE,
        ("pooler.dense.weight",), BERT_OFTEN_READ),
    "mobilebert": Preset(
        "MobileBERT, uncased", "google/mobilebert-uncased", MOBILEBERT, often_read=MOBILEBERT_OFTEN_READ),
    "stories260k": Preset(
        "TinyStories 260K of llama2.c", "karpathy/tinyllamas", _stories(64, 172, 5, 8, 4, 512, 512)),
    "stories15m": Preset(
        "TinyStories 15M of llama2.c", "karpathy/tinyllamas", _stories(288, 768, 6, 6, 6, 32000, 256)),
    "stories42m": Preset(
        "TinyStories 42M of llama2.c", "karpathy/tinyllamas", _stories(512, 1376, 8, 8, 8, 32000, 1024)),
    "stories110m": Preset(
        "TinyStories 110M of llama2.c", "karpathy/tinyllamas", _stories(768, 2048, 12, 12, 12, 32000, 1024)),
    "smollm2-135m": Preset(
        "SmolLM2 135M", "HuggingFaceTB/SmolLM2-135M",
        _llama(576, 1536, 30, 9, 3, 49152, 8192, rope_theta=100000.0, tie_word_embeddings=True)),
}  # fmt: skip
"""Name -> config, in the order in which they are listed."""
