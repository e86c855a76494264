"""Tiny decoders of Llama's kind, with sizes that expose mistakes: as folders, and as GGUF."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tests.families.support import EPS, IDS, Case, Theirs, config_of, logits_of, made, save, write_gguf

# Heads are wider than width / heads, and fewer keys than queries.
SIZES: dict[str, Any] = {
    "hidden_size": 48, "intermediate_size": 88, "num_hidden_layers": 3, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 20, "vocab_size": 100, "max_position_embeddings": 512,
    "initializer_range": 0.2, "rms_norm_eps": EPS, "tie_word_embeddings": False, "bos_token_id": 1,
    "eos_token_id": 2, "pad_token_id": 0,
}  # fmt: skip
HF_TO_GGUF = {
    "model.layers.": "blk.", "model.embed_tokens": "token_embd", "model.norm": "output_norm",
    "lm_head": "output", "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output", "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm",
    "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
}  # fmt: skip
YARN = {"rope_type": "yarn", "factor": 16.0, "original_max_position_embeddings": 256, "rope_theta": 1e6}
LONG = np.random.default_rng(0).integers(3, 100, 4200).tolist()  # ends past position 4,096
# One layer, and smaller weights: over thousands of keys float32 itself is not exact to 1e-4 with larger ones.
SHORT_MODEL = {
    "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1, "initializer_range": 0.1,
}  # fmt: skip

Change = Callable[[str, np.ndarray], np.ndarray | None]


def metadata(architecture: str, c: Any, **extra: Any) -> dict[str, Any]:
    """The keys that the converter writes of every decoder; `extra` ones under the architecture's name."""
    keys = {
        "embedding_length": c.hidden_size, "block_count": c.num_hidden_layers,
        "feed_forward_length": c.intermediate_size, "attention.head_count": c.num_attention_heads,
        "attention.head_count_kv": c.num_key_value_heads, "context_length": c.max_position_embeddings,
        "attention.layer_norm_rms_epsilon": c.rms_norm_eps, "attention.key_length": c.head_dim,
        "attention.value_length": c.head_dim,
    }  # fmt: skip
    if "rope_theta" in (c.rope_parameters or {}):
        keys["rope.freq_base"] = c.rope_parameters["rope_theta"]
    named = {f"{architecture}.{key}": value for key, value in (keys | extra).items() if value is not None}
    return {"general.architecture": architecture} | named


def unchanged(name: str, values: np.ndarray) -> np.ndarray | None:
    """Every tensor as it is."""
    return values


def folder_case(
    family: str,
    variant: str,
    classes: tuple[str, str],
    values: Mapping[str, Any],
    ids: Sequence[int] = IDS,
    theirs: Theirs = logits_of,
) -> Case:
    """A folder, as the two classes (model, config) of transformers save it."""

    def write(folder: Path) -> tuple[Path, Any]:
        model = made(classes[0], config_of(classes[1], **(SIZES | dict(values))))
        return save(model, folder), model

    return Case(family, variant, "folder", write, ids, theirs)


def gguf_case(
    family: str,
    variant: str,
    classes: tuple[str, str],
    values: Mapping[str, Any],
    architecture: str,
    *,
    names: Mapping[str, str] = HF_TO_GGUF,
    change: Callable[[Any], Change] = lambda config: unchanged,
    keys: Callable[[Any], Mapping[str, Any]] = lambda config: {},
    ids: Sequence[int] = IDS,
) -> Case:
    """A GGUF.

    Args:
        family: of the case; so `variant`.
        variant: see there.
        classes: of the model and its config in transformers.
        values: of the config.
        architecture: llama.cpp's name.
        names: part of a name in transformers -> in the GGUF.
        change: what the converter does to weights, given the config.
        keys: metadata beside `metadata`'s, given the config; None takes one away.
        ids: what is run.
    """

    def write(folder: Path) -> tuple[Path, Any]:
        model = made(classes[0], config_of(classes[1], **(SIZES | dict(values))))
        c, inner = model.config, change(model.config)

        def kept(name: str, weights: np.ndarray) -> np.ndarray | None:
            return None if name == "lm_head.weight" and c.tie_word_embeddings else inner(name, weights)

        return write_gguf(folder / "m.gguf", model, names, metadata(architecture, c, **keys(c)), kept), model

    return Case(family, variant, "gguf", write, ids)


def interleaved(config: Any) -> Change:
    """What the converter does for architecture `llama`: the two halves of each head, row by row in turn."""

    def change(name: str, values: np.ndarray) -> np.ndarray:
        for part, heads in (("q_proj", config.num_attention_heads), ("k_proj", config.num_key_value_heads)):
            if part in name:
                halves = values.reshape(heads, 2, len(values) // heads // 2, *values.shape[1:])
                return halves.swapaxes(1, 2).reshape(values.shape)
        return values

    return change
