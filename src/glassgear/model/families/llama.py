"""Llama and the models that share its gears: Llama 2 and 3, TinyLlama, SmolLM2, llama2.c's.

Pre-norm RMSNorm, rotary positions, grouped-query attention, SwiGLU, no biases, head tied or not.
Families that add to this read their files with `sizes_from_hf` and `sizes_from_gguf` and use `llama`.
Sources: Touvron et al. 2023 (LLaMA; Llama 2), Dubey et al. 2024 (Llama 3).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from glassgear.errors import FormatError
from glassgear.model.families.base import IGNORED, Family, Found, quotient, table
from glassgear.model.families.rope_settings import rope_from_gguf, rope_from_hf
from glassgear.model.gears import (
    Attention,
    Block,
    Embed,
    GatedFFN,
    Head,
    Model,
    Residual,
    RMSNorm,
    Rope,
)
from glassgear.model.settings import Settings

__all__ = [
    "FAMILY",
    "GGUF_NAMES",
    "HF_NAMES",
    "LlamaConfig",
    "checked",
    "headless",
    "llama",
    "sizes_from_gguf",
    "sizes_from_hf",
    "skip",
]


@dataclass(frozen=True)
class LlamaConfig:
    """The sizes that make a Llama. Lengths in tokens, widths in channels.

    Attributes:
        windows: for each layer, how many tokens a token sees; 0: all. Empty: all in every layer.
        head_norms: whether each head's query and key are normed before they turn (Qwen3).
        sandwich: whether the outputs of attention and FFN are normed, too (GLM-4-0414).
        head: whether there is one; a folder can hold a model that only gives hidden states.
        family: for people.
    """

    dim: int
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    vocab: int
    context: int
    eps: float
    rope: Rope
    tied: bool
    attention_bias: bool = False
    output_bias: bool = False
    mlp_bias: bool = False
    windows: tuple[int, ...] = ()
    head_norms: bool = False
    sandwich: bool = False
    head: bool = True
    family: str = "llama"


def llama(c: LlamaConfig) -> Model:
    """The tree of gears."""
    windows = c.windows or (0,) * c.layers
    blocks = {window: _block(c, window) for window in windows}
    return Model(
        Embed(c.vocab, c.dim),
        tuple(blocks[window] for window in windows),
        RMSNorm(c.dim, c.eps),
        Head(c.dim, c.vocab, c.tied) if c.head else None,
        context=c.context,
        family=c.family,
    )


def _block(c: LlamaConfig, window: int) -> Block:
    head_norm = RMSNorm(c.head_dim, c.eps) if c.head_norms else None
    attention = Attention.build(
        c.dim, c.heads, c.kv_heads, c.head_dim,
        rope=c.rope, bias=c.attention_bias, output_bias=c.output_bias,
        query_norm=head_norm, key_norm=head_norm, window=window,
    )  # fmt: skip
    ffn = GatedFFN.build(c.dim, c.hidden, activation="silu", bias=c.mlp_bias)
    norm = RMSNorm(c.dim, c.eps)
    post = norm if c.sandwich else None
    return Block((Residual(norm, attention, post), Residual(norm, ffn, post)))


def from_hf(s: Settings, found: Found) -> Model:
    """The model of a Hugging Face `config.json`. Every key is used, ignorable, or an error."""
    return llama(config_from_hf(s, found))


def config_from_hf(s: Settings, found: Found | None = None) -> LlamaConfig:
    """The sizes in a Hugging Face `config.json` of type `llama`."""
    s.only("rope_interleaved", False)
    s.only("use_sliding_window", False)
    s.ignore(["sliding_window", "max_window_layers"] if s.is_false("use_sliding_window") else [])
    bias = s.take("attention_bias", bool, False)
    sizes = sizes_from_hf(s, found)
    return checked(
        replace(
            sizes, attention_bias=bias, output_bias=bias, mlp_bias=s.take("mlp_bias", bool, False),
        ),
        s,
    )  # fmt: skip


RopeReader = Callable[[Settings, int, int], Rope]


def sizes_from_hf(s: Settings, found: Found | None = None, rope: RopeReader = rope_from_hf) -> LlamaConfig:
    """What all configs of this kind have in common; the family takes what else it knows.

    Args:
        s: the keys of a `config.json`.
        found: its tensors; they tell whether there is a head.
        rope: reads the rotary settings, given the width of a head and the trained length.
    """
    s.ignore(IGNORED)
    s.only("hidden_act", "silu", "swish")
    dim, heads, context = (
        s.size("hidden_size"),
        s.size("num_attention_heads"),
        s.size("max_position_embeddings", 2048),
    )
    head_dim = s.size("head_dim") if s.has("head_dim") else quotient(dim, heads, s.path)
    return LlamaConfig(
        dim=dim,
        hidden=s.size("intermediate_size"),
        layers=s.size("num_hidden_layers", most=10_000),
        heads=heads,
        kv_heads=s.size("num_key_value_heads", heads),
        head_dim=head_dim,
        vocab=s.size("vocab_size"),
        context=context,
        eps=s.epsilon("rms_norm_eps", 1e-6),
        rope=rope(s, head_dim, context),
        tied=s.take("tie_word_embeddings", bool, False),
        head=not headless(s, found),
    )


def headless(s: Settings, found: Found | None) -> bool:
    """Whether the class that was saved is the bare model, such as `LlamaModel`, and no head is there."""
    kinds = s.words("architectures") or ()
    bare = bool(kinds) and all(kind.endswith("Model") and not kind.endswith("HeadModel") for kind in kinds)
    return bare and not (found is not None and found.has("lm_head.weight"))


def from_gguf(s: Settings, found: Found) -> Model:
    """The model of GGUF metadata of architecture `llama`, which Mistral's files have as well."""
    return llama(config_from_gguf(s, found))


def config_from_gguf(s: Settings, found: Found) -> LlamaConfig:
    """The sizes in GGUF metadata of architecture `llama`, and in which tensors there are."""
    sizes = sizes_from_gguf(s, found)
    window = s.size("attention.sliding_window", 0, least=0)
    # Files of this architecture interleave the halves of each head; that is undone when they are
    # opened, except where only part of a head turns: those rows stay as they are.
    whole = sizes.rope.dim == sizes.head_dim
    rope = sizes.rope if whole else replace(sizes.rope, pairing="interleaved")
    return checked(replace(sizes, rope=rope, windows=(window,) * sizes.layers if window else ()), s)


def sizes_from_gguf(s: Settings, found: Found, *, experts: bool = False) -> LlamaConfig:
    """What all metadata of this kind has in common; the rope turns halves, and a family may change it.

    Args:
        s: the keys under the architecture's name.
        found: the tensors; they tell of biases and of a head of its own.
        experts: whether the family reads the keys about experts itself.
    """
    vocab = found.rows("token_embd.weight", s.path)
    dim, heads, context = s.size("embedding_length"), s.size("attention.head_count"), s.size("context_length")
    explicit = s.has("attention.key_length")
    head_dim = s.size("attention.key_length") if explicit else quotient(dim, heads, s.path)
    s.only("attention.value_length", head_dim)
    s.only("attention.causal", True)
    s.only("vocab_size", vocab)
    if not experts:
        s.only("expert_count", 0)
        s.ignore(["expert_used_count"])
    s.ignore(["tensor_data_layout", "attention.layer_norm_epsilon"])
    return LlamaConfig(
        dim=dim,
        hidden=s.size("feed_forward_length"),
        layers=s.size("block_count", most=10_000),
        heads=heads,
        kv_heads=s.size("attention.head_count_kv", heads),
        head_dim=head_dim,
        vocab=vocab,
        context=context,
        eps=s.epsilon("attention.layer_norm_rms_epsilon", 1e-5),
        rope=rope_from_gguf(s, head_dim, context, found.rope_factors),
        tied=not found.has("output.weight"),
        attention_bias=found.has("blk.0.attn_q.bias") or found.has("blk.0.attn_qkv.bias"),
        output_bias=found.has("blk.0.attn_output.bias"),
        mlp_bias=found.has("blk.0.ffn_up.bias"),
    )


def checked(made: LlamaConfig, s: Settings) -> LlamaConfig:
    """Refuse keys that nobody took, and sizes that don't fit together, with the file they came from."""
    s.finish()
    if made.heads % made.kv_heads:
        raise FormatError(
            s.path, f"{made.heads} query heads can't share {made.kv_heads} key/value heads evenly"
        )
    if made.rope.dim > made.head_dim:
        raise FormatError(s.path, f"the rotary width {made.rope.dim} is more than a head's {made.head_dim}")
    return made


def skip(name: str, model: Model) -> str | None:
    """Tables that follow from the config, and the copy of a tied head."""
    tied = model.head is not None and model.head.tied
    return "" if name.endswith("rotary_emb.inv_freq") or (tied and name == "lm_head.weight") else None


GGUF_NAMES = table(
    "blk.#.",
    {
        "attn_norm": "attention_norm", "attn_q": "attention.query", "attn_k": "attention.key",
        "attn_v": "attention.value", "attn_output": "attention.output", "ffn_norm": "ffn_norm",
        "ffn_gate": "ffn.gate", "ffn_up": "ffn.up", "ffn_down": "ffn.down",
    },
    {"token_embd.": "embed.", "output_norm.": "norm.", "output.": "head."},
)  # fmt: skip
HF_NAMES = table(
    "layers.#.",
    {
        "input_layernorm": "attention_norm", "self_attn.q_proj": "attention.query",
        "self_attn.k_proj": "attention.key", "self_attn.v_proj": "attention.value",
        "self_attn.o_proj": "attention.output", "post_attention_layernorm": "ffn_norm",
        "mlp.gate_proj": "ffn.gate", "mlp.up_proj": "ffn.up", "mlp.down_proj": "ffn.down",
    },
    {"embed_tokens.": "embed.", "norm.": "norm.", "lm_head.": "head."},
)  # fmt: skip

FAMILY = Family(
    "llama",
    hf_types=("llama",),
    from_hf=from_hf,
    hf_names=HF_NAMES,
    gguf_types=("llama",),
    from_gguf=from_gguf,
    gguf_names=GGUF_NAMES,
    gguf_interleaved=True,
    skip=skip,
)
