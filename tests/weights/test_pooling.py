"""What files say about turning texts into vectors, and files that can't be right."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from glassgear.errors import FileError, FormatError, UnsupportedError
from glassgear.weights.checkpoint import Checkpoint
from glassgear.weights.pooling import PoolingSettings, pooling_settings
from tests.families.encoders import write_modules
from tests.models import tiny

MEAN = {"pooling_mode_mean_tokens": True, "pooling_mode_cls_token": False}


def said(path: Path, metadata: dict[str, Any] | None = None) -> PoolingSettings:
    model, tensors = tiny()
    return pooling_settings(Checkpoint(str(path), "folder", model, tensors, metadata or path))


def test_a_silent_folder(tmp_path: Path) -> None:
    assert said(tmp_path) == PoolingSettings()


@pytest.mark.parametrize(
    ("config", "pooling"),
    [
        (MEAN, "mean"),
        ({"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}, "cls"),
        ({"pooling_mode_lasttoken": True, "include_prompt": False}, "last"),
        ({"embedding_dimension": 8, "pooling_mode": "mean"}, "mean"),
        ({"pooling_mode": ["lasttoken"]}, "last"),
    ],
)
def test_poolings_old_and_new(tmp_path: Path, config: dict[str, Any], pooling: str) -> None:
    write_modules(tmp_path, "Transformer", "Pooling", pooling=config)
    assert said(tmp_path) == PoolingSettings(pooling, normalize=False)  # type: ignore[arg-type]


def test_everything_at_once(tmp_path: Path) -> None:
    write_modules(
        tmp_path, "Transformer", "Pooling", "Normalize", pooling=MEAN,
        sentence_bert_config={"max_seq_length": 256, "do_lower_case": True},
        config_sentence_transformers={"prompts": {"query": "query: "}, "default_prompt_name": "query"},
    )  # fmt: skip
    assert said(tmp_path) == PoolingSettings("mean", True, 256, True, "query: ")


@pytest.mark.parametrize(
    "config", [{"prompts": {"query": "query: "}, "default_prompt_name": None}, {"prompts": {}}, {}]
)
def test_a_prompt_counts_only_if_it_is_the_default(tmp_path: Path, config: dict[str, Any]) -> None:
    write_modules(tmp_path, "Transformer", "Pooling", pooling=MEAN, config_sentence_transformers=config)
    assert said(tmp_path).prompt == ""


@pytest.mark.parametrize(
    ("config", "more", "trouble"),
    [
        ({"pooling_mode_max_tokens": True}, (), "`pooling_mode_max_tokens`"),
        ({"pooling_mode": "weightedmean"}, (), "`weightedmean`"),
        ({"pooling_mode": ["cls", "mean"]}, (), "joined of cls and mean"),
        (MEAN, ("Dense",), "a module `Dense` behind it"),
        (MEAN, ("LSTM",), "a module `LSTM` behind it"),
    ],
)
def test_what_isn_t_run_is_kept_as_trouble(tmp_path: Path, config: Any, more: Any, trouble: str) -> None:
    write_modules(tmp_path, "Transformer", "Pooling", *more, pooling=config)
    assert trouble in said(tmp_path).trouble


def test_a_prompt_that_vectors_leave_out(tmp_path: Path) -> None:
    prompts = {"prompts": {"q": "query: "}, "default_prompt_name": "q"}
    config = MEAN | {"include_prompt": False}
    write_modules(tmp_path, "Transformer", "Pooling", pooling=config, config_sentence_transformers=prompts)
    assert "leave out" in said(tmp_path).trouble


@pytest.mark.parametrize("place", ["..", "../outside", "/etc", "a/b", "", "..\\x", "C:x"])
def test_a_module_s_folder_lies_beside_the_file(tmp_path: Path, place: str) -> None:
    modules = [{"type": "sentence_transformers.models.Pooling", "path": place}]
    (tmp_path / "modules.json").write_text(json.dumps(modules))
    with pytest.raises(FormatError, match="should be the name of a folder beside it"):
        said(tmp_path)


@pytest.mark.parametrize(
    ("modules", "message"),
    [
        ({"a": 1}, "should be a JSON array"),
        ([3], "a `type` and a `path`, found 3"),
        ([{"type": "x.Pooling"}], "a `type` and a `path`"),
        ([{"type": "x.Pooling", "path": "gone"}], "there is no such file"),
    ],
)
def test_damaged_lists_of_modules(tmp_path: Path, modules: Any, message: str) -> None:
    (tmp_path / "modules.json").write_text(json.dumps(modules))
    with pytest.raises(FileError, match=message):
        said(tmp_path)


@pytest.mark.parametrize(
    ("name", "config", "message"),
    [
        ("sentence_bert_config", {"max_seq_length": "long"}, "`max_seq_length`"),
        ("sentence_bert_config", {"max_seq_length": 0}, "`max_seq_length`"),
        ("config_sentence_transformers", {"default_prompt_name": "q", "prompts": {}}, "no such prompt"),
    ],
)
def test_settings_that_can_t_be(tmp_path: Path, name: str, config: Any, message: str) -> None:
    write_modules(tmp_path, "Transformer", "Pooling", pooling=MEAN, **{name: config})
    with pytest.raises(FormatError, match=message):
        said(tmp_path)


@pytest.mark.parametrize(("kind", "pooling"), [(None, None), (0, None), (1, "mean"), (2, "cls"), (3, "last")])
def test_types_of_a_gguf(tmp_path: Path, kind: int | None, pooling: str | None) -> None:
    metadata: dict[str, Any] = {"general.architecture": "qwen3"}
    if kind is not None:
        metadata["qwen3.pooling_type"] = kind
    assert said(tmp_path, metadata) == PoolingSettings(pooling)  # type: ignore[arg-type]


def test_types_of_a_gguf_that_aren_t_run(tmp_path: Path) -> None:
    assert "reranker" in said(tmp_path, {"general.architecture": "bert", "bert.pooling_type": 4}).trouble
    with pytest.raises(UnsupportedError, match=r"`bert\.pooling_type` is 9"):
        said(tmp_path, {"general.architecture": "bert", "bert.pooling_type": 9})


def test_a_folder_written_anew_keeps_what_it_says(tmp_path: Path) -> None:
    from glassgear.weights.pooling import pooling_files

    write_modules(tmp_path, "Transformer", "Pooling", pooling=MEAN, sentence_bert_config={})
    (tmp_path / "config.json").write_text("{}")
    found = [path.relative_to(tmp_path).as_posix() for path in pooling_files(tmp_path)]
    assert found == ["1_Pooling/config.json", "modules.json", "sentence_bert_config.json"]
