"""What a run is told: mistakes are named before anything is made."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from glassgear.errors import FormatError, SettingError

pytest.importorskip("torch")

from glassgear.train import DataSettings, Trainer, read_settings
from glassgear.train.data import documents
from glassgear.train.model import VocabularyError
from glassgear.train.settings import check_changes, check_model
from glassgear.train.tokenizer import entries_of, train_tokenizer
from tests.train.support import settings


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model": {"dim": 30, "layers": 2, "heads": 4}}, "doesn't divide by 4 heads"),
        ({"model": {"dim": 32, "layers": 2, "heads": 4, "headz": 1}}, "did you mean `heads`"),
        ({"model": {"layers": 2, "heads": 4}}, "needs `dim`"),
        ({"model": {"dim": 1 << 63, "layers": 2, "heads": 4}}, "model.dim is too large"),
        ({"model": {"dim": 32, "layers": 2, "heads": 4, "theta": math.inf}}, "theta is inf: a finite number"),
        ({"model": {"dim": 32.5, "layers": 2, "heads": 4}}, "model.dim is 32.5: a whole number is needed"),
        ({"context": 20_000}, "give more text, or a smaller context"),
    ],
)
def test_settings_that_do_not_fit_are_refused_before_the_first_step(
    tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    with pytest.raises(SettingError, match=message):
        Trainer(settings(tmp_path, **change)).run()
    assert "model" not in change or not (tmp_path / "run").exists()


def test_a_table_smaller_than_the_tokenizer_is_refused(tmp_path: Path) -> None:
    made = settings(tmp_path, steps=1)
    small = replace(made, model=dict(made.model) | {"vocab": 300})
    with pytest.raises(SettingError, match=r"model\.vocab is 300: the tokenizer has 320"):
        Trainer(small).run()
    assert not Path(made.out).exists()
    model = Trainer(made).run().model
    assert model is not None
    given = replace(made.data, tokenizer=str(model / "tokenizer.json"))
    with pytest.raises(SettingError, match="the tokenizer has 320"):
        Trainer(replace(small, data=given, out=str(tmp_path / "other"))).run()


def test_more_layers_than_can_be_made_are_refused_at_once(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match=r"model\.layers is 1,000,000,000: the most are 10,000"):
        Trainer(replace(settings(tmp_path), model={"dim": 4, "layers": 10**9, "heads": 1}))


def test_memory_is_asked_for_where_the_training_is_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Settings alone are fine: another machine, or no training, may be what is wanted."""
    monkeypatch.setattr("glassgear.train.settings.free_memory", lambda: 1000)
    made = settings(tmp_path)
    check_model(made)
    with pytest.raises(SettingError, match="GB of memory"):
        Trainer(made)


def test_a_model_too_large_for_the_memory_is_refused_with_both_figures(tmp_path: Path) -> None:
    huge = {"dim": 1 << 20, "layers": 2, "heads": 4}
    with pytest.raises(SettingError, match=r"parameters takes [\d,.]+ GB of memory .* GB are free"):
        Trainer(replace(settings(tmp_path), model=huge, device="cpu"))


def test_a_given_tokenizer_with_more_entries_than_rows_is_noticed_before_anything_is_made(
    tmp_path: Path,
) -> None:
    train_tokenizer(documents(settings(tmp_path).data), 320, tmp_path / "tokenizer.json")
    made = settings(tmp_path)
    made = replace(made, data=replace(made.data, tokenizer=str(tmp_path / "tokenizer.json")))
    small = replace(made, model=dict(made.model) | {"vocab": 319})
    with pytest.raises(VocabularyError, match=r"vocab is 319: the tokenizer has 320 .* give at least 320"):
        Trainer(small)
    (tmp_path / "design.toml").write_text(
        'dim = 32\nvocab = 319\n[attention]\nheads = 4\n[ffn]\nkind = "gated"\n[[blocks]]\n'
    )
    with pytest.raises(VocabularyError, match=r"design\.toml has a vocabulary of 319: the tokenizer has 320"):
        Trainer(replace(made, model={"design": str(tmp_path / "design.toml")}))
    assert not Path(made.out).exists()
    check_model(replace(made, model=dict(made.model) | {"vocab": 320}))


def test_a_tokenizer_that_was_changed_is_counted_anew(tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    for size in (320, 300):
        train_tokenizer(documents(settings(tmp_path).data), size, path)
        assert entries_of(path) == size
    path.write_text("{}")
    with pytest.raises(FormatError, match=r"no tokenizer\.json"):
        entries_of(path)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("foo", 3, r"^`foo` can't be set: no such setting; \[data\] has field, files, .*\[train\] has acc"),
        ("train.foo", 3, r"^`train\.foo` can't be set: no such setting; \[train\] has accumulate, "),
        ("model.foo", 3, r"^`model\.foo` can't be set: no such setting; \[model\] has design, dim, "),
        ("stepz", 3, "^`stepz` can't be set: did you mean `steps`"),
        ("dim", 3, r"^`dim` can't be set: did you mean `model\.dim`"),
        ("train.dim", 3, r"^`train\.dim` can't be set: did you mean `model\.dim`"),
        ("tran.steps", 3, r"^`tran\.steps` can't be set: no table is `tran`; did you mean `train`"),
        ("xyz.steps", 3, r"no table is `xyz`; there are data, model, train"),
        ("a.b.steps", 3, r"no table is `a\.b`"),
        ("model", {"dim": 3}, r"^`model` can't be set: it is a table, .* such as model\.design"),
        ("", 3, r"should be TABLE\.KEY"),
        (".steps", 3, r"should be TABLE\.KEY"),
        ("train.", 3, r"should be TABLE\.KEY"),
        ("train.data", 3, r"^`train\.data` can't be set"),
        ("steps", "x", "^`steps` is 'x'; a whole number is needed"),
        ("train.steps", "", r"^`train\.steps` is ''; a whole number is needed"),
        ("steps", 2.5, "is 2.5; a whole number"),
        ("steps", True, "is true; a whole number"),
        ("steps", [3], r"is \[3\]; a whole number"),
        ("steps", 1 << 63, "`steps` is out of range"),
        ("learning_rate", 10**400, "`learning_rate` is out of range"),
        ("learning_rate", math.nan, "`learning_rate` is nan; a finite number"),
        ("clip", math.inf, "`clip` is inf; a finite number"),
        ("compiled", 1, "`compiled` is 1; true or false"),
        ("dtype", "int4", "`dtype` is 'int4'; it can be 'float32'"),
        ("sample_prompt", 5, '`sample_prompt` is 5; a text, such as "5", is needed'),
        ("betas", 0.9, r"`betas` should be a list of numbers, such as \[0\.9, 0\.95\]; found 0\.9"),
        ("betas", ["a", "b"], "list of numbers, found 'a' in it"),
        ("data.files", "a.txt", r"`data\.files` should be a list of texts, such as .* found 'a\.txt'"),
        ("data.files", [16**5000], "found a number of thousands of digits in it"),
    ],
)
def test_a_change_that_cannot_be_is_called_what_it_was_called(name: str, value: Any, message: str) -> None:
    with pytest.raises(SettingError, match=message) as raised:
        check_changes({"train.seed": 3, name: value})
    assert "\n" not in str(raised.value) and "`out" not in str(raised.value)


def test_settings_can_be_changed_by_name(tmp_path: Path) -> None:
    path = tmp_path / "t.toml"
    path.write_text(
        "[data]\nfiles = ['a.txt']\n[model]\ndim = 8\nlayers = 1\nheads = 2\n[train]\nsteps = 3\n",
        encoding="utf-8",
    )
    made = read_settings(
        path, {"train.steps": 5, "model.dim": 16, "data.tokenizer": 300, "batch": 2, "clip": 2}
    )
    assert (made.steps, made.model["dim"], made.data.tokenizer, made.batch) == (5, 16, 300, 2)
    assert isinstance(made.clip, float) and made.clip == 2
    assert made.data.files == (str(tmp_path / "a.txt"),) and made.out == str(tmp_path / "runs" / "t")
    assert read_settings(path, {"train.out": "here"}).out == "here"
    with pytest.raises(SettingError, match=r"`tran\.steps` can't be set"):
        read_settings(path, {"tran.steps": 5})
    with pytest.raises(SettingError, match="did you mean `steps`"):
        read_settings(path, {"train.stepz": 5})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x = ", "is no TOML"),
        ("[data]\nfiles = ['a']\n[model]\n[trian]\n", "did you mean `train`"),
        ("[model]\n", "needs a table `\\[data\\]`"),
        ("[data]\n[model]\n", "lacks `data.files`"),
        ("[data]\nfiles = ['a']\n[model]\n[train]\nstepz = 3\n", "did you mean `steps`"),
        ("[data]\nfiles = ['a']\n[model]\n[train]\nfoo = 3\n", "`train.foo`, .* known are accumulate"),
        ("[data]\nfiles = ['a']\n[model]\n[train]\nsteps = 'x'\n", "a whole number is needed"),
        ("[data]\nfiles = ['a']\n[model]\n[train]\ndtype = 'int4'\n", "it can be 'float32'"),
    ],
)
def test_a_settings_file_s_mistakes_are_named(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "t.toml").write_text(text, encoding="utf-8")
    with pytest.raises(FormatError, match=message):
        read_settings(tmp_path / "t.toml")


@pytest.mark.parametrize(
    "change",
    [
        {"steps": 0}, {"learning_rate": 0.0}, {"final_rate": 2.0}, {"batch": -1}, {"seed": -1},
        {"seed": 1 << 63}, {"eps": -1.0}, {"clip": math.nan}, {"context": 1},
        {"data": DataSettings(("a.txt",), separator="")}, {"threads": 1025}, {"threads": -1},
        {"data": DataSettings(("a.txt",), tokenizer=266)},
        {"data": DataSettings(("a.txt",), tokenizer=10**9)},
    ],
)  # fmt: skip
def test_values_outside_of_what_makes_sense_are_refused(tmp_path: Path, change: dict[str, Any]) -> None:
    with pytest.raises(SettingError):
        settings(tmp_path, **change)
