"""MobileBERT as transformers writes it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from glassgear.errors import FormatError, UnsupportedError
from glassgear.model.families import mobilebert
from glassgear.model.ledger import ledger
from glassgear.weights.open import open_checkpoint
from tests.families.encoders import check_outputs
from tests.families.support import BACKENDS, Case, config_of, each_case, edit, made, model_of, save

SIZES: dict[str, Any] = {
    "hidden_size": 64, "embedding_size": 24, "intra_bottleneck_size": 32, "true_hidden_size": 32,
    "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48, "vocab_size": 100,
    "max_position_embeddings": 64, "initializer_range": 0.1, "layer_norm_eps": 2.0**-17,
}  # fmt: skip
CLASSES = ("MobileBertModel", "MobileBertForMaskedLM", "MobileBertForPreTraining")
VARIANTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "two networks": {"num_feedforward_networks": 2},
    "one network": {"num_feedforward_networks": 1},
    "gelu": {"hidden_act": "gelu"},
    "layer norm": {"normalization_type": "layer_norm"},
}


def make(model_class: str = "MobileBertForMaskedLM", **changes: Any) -> Any:
    return made(model_class, config_of("MobileBertConfig", **(SIZES | changes)))


def _write(folder: Path) -> tuple[Path, Any]:
    model = make()
    return save(model, folder), model


CASES = [Case("mobilebert", "masked words", "folder", _write)]


@each_case(CASES)
def test_rows_are_those_of_transformers(case: Case, backend: str, tmp_path: Path) -> None:
    case.check(tmp_path, backend)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("variant", VARIANTS)
def test_everything_with_token_types_is_that_of_transformers(
    variant: str, backend: str, tmp_path: Path
) -> None:
    for model_class in CLASSES if variant == "plain" else CLASSES[1:2]:
        model = make(model_class, **VARIANTS[variant])
        check_outputs(save(model, tmp_path / model_class), model, backend)


def test_published_sizes_have_their_parameters() -> None:
    assert ledger(mobilebert.mobilebert(mobilebert.MobileBertConfig())).parameters == 24_581_888


@pytest.mark.parametrize("model_class", CLASSES[:2])
def test_transformers_counts_the_same(model_class: str) -> None:
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    from glassgear.model.families.base import Found

    config = transformers.MobileBertConfig()
    with torch.device("meta"):
        theirs = getattr(transformers, model_class)(config)
    shapes = {name.removeprefix("mobilebert."): tuple(v.shape) for name, v in theirs.state_dict().items()}
    ours = model_of(mobilebert.from_hf, config.to_dict(), Found(shapes))
    assert ledger(ours).parameters == theirs.num_parameters()


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"num_attention_heads": 5}, FormatError, "width 32 doesn't divide by 5 heads"),
        ({"use_bottleneck": False}, UnsupportedError, "`use_bottleneck` is False"),
        ({"trigram_input": False}, UnsupportedError, "`trigram_input` is False"),
        ({"key_query_shared_bottleneck": False}, UnsupportedError, "`key_query_shared_bottleneck`"),
        ({"normalization_type": "rms"}, UnsupportedError, "`normalization_type` is 'rms'"),
        ({"true_hidden_size": 64}, UnsupportedError, "`true_hidden_size` is 64"),
        ({"embedding_size": 64}, FormatError, "`embedding_size` is 64"),
        ({"num_feedforward_networks": 3}, FormatError, r"doesn't have: .*layer\.0\.ffn\.2"),
        ({"num_feedforward_networks": 5}, FormatError, "lacks"),
    ],
)
def test_a_config_that_does_not_fit_is_refused(
    tmp_path: Path, changes: dict[str, Any], error: type[Exception], message: str
) -> None:
    edit(save(make(), tmp_path), **changes)
    with pytest.raises(error, match=message):
        open_checkpoint(tmp_path)
