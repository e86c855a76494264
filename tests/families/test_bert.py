"""BERT as transformers, the first files of Google's models and llama.cpp's converter write it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from glassgear.errors import FormatError, SettingError, UnsupportedError
from glassgear.model.families import bert
from glassgear.model.ledger import ledger
from glassgear.weights.open import open_checkpoint
from tests.families.encoders import check_outputs
from tests.families.support import (
    BACKENDS,
    EPS,
    Case,
    config_of,
    each_case,
    edit,
    made,
    model_of,
    save,
    write_gguf,
)

SIZES: dict[str, Any] = {
    "hidden_size": 48, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 112,
    "vocab_size": 100, "max_position_embeddings": 64, "initializer_range": 0.2, "layer_norm_eps": EPS,
}  # fmt: skip
CLASSES = ("BertModel", "BertForMaskedLM", "BertForPreTraining")
VARIANTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "tanh gelu": {"hidden_act": "gelu_new"},
    "tiny epsilon": {"layer_norm_eps": 1e-12},
}
HF_TO_GGUF = {
    "encoder.layer.": "blk.", "embeddings.word_embeddings": "token_embd",
    "embeddings.position_embeddings": "position_embd", "embeddings.token_type_embeddings": "token_types",
    "embeddings.LayerNorm": "token_embd_norm", "attention.self.query": "attn_q",
    "attention.self.key": "attn_k", "attention.self.value": "attn_v",
    "attention.output.dense": "attn_output", "attention.output.LayerNorm": "attn_output_norm",
    "intermediate.dense": "ffn_up", "output.dense": "ffn_down", "output.LayerNorm": "layer_output_norm",
}  # fmt: skip


def make(model_class: str = "BertForMaskedLM", **changes: Any) -> Any:
    return made(model_class, config_of("BertConfig", **(SIZES | changes)))


def metadata(c: Any) -> dict[str, Any]:
    return {
        "general.architecture": "bert", "bert.block_count": c.num_hidden_layers,
        "bert.context_length": c.max_position_embeddings, "bert.embedding_length": c.hidden_size,
        "bert.feed_forward_length": c.intermediate_size, "bert.attention.head_count": c.num_attention_heads,
        "bert.attention.layer_norm_epsilon": c.layer_norm_eps, "bert.attention.causal": False,
        "bert.pooling_type": 1, "general.file_type": 0,
    }  # fmt: skip


def as_gguf(folder: Path, model: Any, **more: Any) -> Path:
    def change(name: str, values: np.ndarray) -> np.ndarray | None:
        return None if name.startswith("pooler") else values

    return write_gguf(folder / "m.gguf", model, HF_TO_GGUF, metadata(model.config) | more, change)


def _folder(model_class: str, **changes: Any) -> Any:
    def write(folder: Path) -> tuple[Path, Any]:
        model = make(model_class, **changes)
        return save(model, folder), model

    return write


def _gguf(folder: Path) -> tuple[Path, Any]:
    model = make("BertModel")
    return as_gguf(folder, model), model


CASES = [
    Case("bert", "masked words", "folder", _folder("BertForMaskedLM")),
    Case("bert", "hidden states", "folder", _folder("BertModel")),
    Case("bert", "hidden states", "gguf", _gguf),
]


@each_case(CASES)
def test_rows_are_those_of_transformers(case: Case, backend: str, tmp_path: Path) -> None:
    case.check(tmp_path, backend)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("model_class", CLASSES)
@pytest.mark.parametrize("variant", VARIANTS)
def test_everything_with_token_types_is_that_of_transformers(
    model_class: str, variant: str, backend: str, tmp_path: Path
) -> None:
    model = make(model_class, **VARIANTS[variant])
    check_outputs(save(model, tmp_path), model, backend)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_gguf_gives_the_hidden_states_of_its_origin(tmp_path: Path, backend: str) -> None:
    model = made("BertModel", config_of("BertConfig", **SIZES))
    check_outputs(as_gguf(tmp_path, model), _without_pooler(model), backend)


def _without_pooler(model: Any) -> Any:
    model.pooler = None
    return model


def test_a_gguf_with_fused_projections(tmp_path: Path) -> None:
    """As some converters write them: query, key and value below each other."""
    model = _without_pooler(make("BertModel"))
    weights = {name: value.numpy() for name, value in model.state_dict().items()}

    def change(name: str, values: np.ndarray) -> np.ndarray | None:
        if ".self.key." in name or ".self.value." in name:
            return None
        parts = [weights[name.replace("query", part)] for part in ("query", "key", "value")]
        return np.concatenate(parts) if ".self.query." in name else values

    names = HF_TO_GGUF | {"attention.self.query": "attn_qkv"}
    path = write_gguf(tmp_path / "m.gguf", model, names, metadata(model.config), change)
    check_outputs(path, model, "reference")


def test_the_first_files_call_a_norm_s_weights_gamma_and_beta(tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    model = make("BertForPreTraining")
    save(model, tmp_path)
    weights = load_file(tmp_path / "model.safetensors")
    renamed = {
        name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): value
        for name, value in weights.items()
    }
    assert sum(name.endswith("gamma") for name in renamed) == 8
    renamed["cls.predictions.decoder.weight"] = weights["bert.embeddings.word_embeddings.weight"].clone()
    save_file(renamed, tmp_path / "model.safetensors")
    check_outputs(tmp_path, model, "reference")


def test_the_head_for_another_task_is_left_out_and_said(tmp_path: Path) -> None:
    assert "seq_relationship" in open_checkpoint(save(make("BertForPreTraining"), tmp_path / "a")).notices[0]
    found = open_checkpoint(save(make("BertForSequenceClassification"), tmp_path / "b"))
    assert "classifier" in found.notices[0] and len(found.notices) == 1
    assert found.model.head is None and found.model.pooler is not None


@pytest.mark.parametrize(
    ("config", "parameters"),
    [
        (bert.BertConfig(768, 12, 12, 3072, 30522), 109_482_240),
        (bert.BertConfig(768, 12, 12, 3072, 30522, pooler=False, head=True), 109_514_298),
        (bert.BertConfig(1024, 24, 16, 4096, 30522), 335_141_888),
    ],
    ids=["base with pooler", "base with head", "large with pooler"],
)
def test_published_sizes_have_their_parameters(config: bert.BertConfig, parameters: int) -> None:
    assert ledger(bert.bert(config)).parameters == parameters


@pytest.mark.parametrize("model_class", ["BertModel", "BertForMaskedLM"])
def test_transformers_counts_the_same(model_class: str) -> None:
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    from glassgear.model.families.base import Found

    config = transformers.BertConfig()
    with torch.device("meta"):
        theirs = getattr(transformers, model_class)(config)
    shapes = {name.removeprefix("bert."): tuple(v.shape) for name, v in theirs.state_dict().items()}
    ours = model_of(bert.from_hf, config.to_dict(), Found(shapes))
    assert ledger(ours).parameters == theirs.num_parameters()


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"num_attention_heads": 5}, FormatError, "width 48 doesn't divide by 5 heads"),
        ({"hidden_act": "mish"}, UnsupportedError, "`hidden_act` is 'mish'; only gelu, "),
        ({"is_decoder": True}, UnsupportedError, "`is_decoder`"),
        ({"position_embedding_type": "relative_key"}, UnsupportedError, "`position_embedding_type`"),
        ({"max_position_embeddings": 65}, FormatError, r"position_embeddings\.weight` is 64 x 48"),
        ({"type_vocab_size": 3}, FormatError, r"token_type_embeddings\.weight` is 2 x 48"),
        ({"num_hidden_layers": 4}, FormatError, r"lacks `bert\.encoder\.layer\.3\.attention\.self\.query"),
        ({"tie_word_embeddings": False}, UnsupportedError, "`tie_word_embeddings`"),
        ({"rotary_value": False}, UnsupportedError, "`rotary_value`"),
    ],
)
def test_a_config_that_does_not_fit_is_refused(
    tmp_path: Path, changes: dict[str, Any], error: type[Exception], message: str
) -> None:
    edit(save(make(), tmp_path), **changes)
    with pytest.raises(error, match=message):
        open_checkpoint(tmp_path)


def test_a_causal_gguf_of_this_architecture_is_refused(tmp_path: Path) -> None:
    path = as_gguf(tmp_path, make("BertModel"), **{"bert.attention.causal": True})
    with pytest.raises(UnsupportedError, match=r"`bert\.attention\.causal` is True"):
        open_checkpoint(path)


def test_a_folder_without_a_tokenizer_gives_logits_and_hidden_states(tmp_path: Path) -> None:
    import glassgear

    save(make(), tmp_path)
    model = glassgear.load(tmp_path, backend="reference")
    assert model.logits([5, 6, 7]).shape == (3, 100)
    plain = model.hidden([5, 6, 7])
    assert plain.shape == (3, 48)
    assert np.array_equal(plain, model.hidden([5, 6, 7], types=[0, 0, 0]))
    assert np.abs(plain - model.hidden([5, 6, 7], types=[0, 1, 1])).max() > 0.01
    assert not np.array_equal(model.logits([5, 6, 7]), model.logits([5, 6, 7], types=[0, 1, 1]))
    for types, message in (([0, 1], "2 token types for 3 ids"), ([0, 1, 2], "token type 2 is outside")):
        with pytest.raises(SettingError, match=message):
            model.hidden([5, 6, 7], types=types)
    with pytest.raises(glassgear.ContextFullError):
        model.hidden([5] * 65)


def test_a_model_without_a_head_says_so(tmp_path: Path) -> None:
    import glassgear

    save(make("BertModel"), tmp_path)
    model = glassgear.load(tmp_path, backend="reference")
    with pytest.raises(SettingError, match="no head"):
        model.logits([5])
    assert model.hidden([5]).shape == (1, 48)
