"""Runs that begin with the weights of a model that is there."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("torch")

from glassgear.convert import convert
from glassgear.errors import GlassgearError, SettingError
from glassgear.train.compared import check_tokenizer
from glassgear.train.settings import TrainSettings, read_settings
from glassgear.train.trainer import Trainer
from tests.train.support import settings


def after(first: TrainSettings, model: Path, folder: Path) -> TrainSettings:
    """A run on the same text that begins with what another one made."""
    data = replace(first.data, tokenizer=str(model / "tokenizer.json"))
    return replace(first, out=str(folder / "second"), start=str(model), data=data, steps=2, warmup=0)


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> tuple[TrainSettings, Path]:
    chosen = settings(tmp_path_factory.mktemp("first"), steps=40, learning_rate=5e-3)
    model = Trainer(chosen).run().model
    assert model is not None
    return chosen, model


def losses(chosen: TrainSettings) -> list[float]:
    found: list[float] = []
    Trainer(chosen, lambda event: found.append(event["loss"]) if event["event"] == "step" else None).run()
    return found


def test_a_run_begins_where_the_model_stands(first: tuple[TrainSettings, Path], tmp_path: Path) -> None:
    chosen, model = first
    second = after(chosen, model, tmp_path)
    fresh = replace(second, start="", out=str(tmp_path / "fresh"))
    begun, anew = losses(second)[0], losses(fresh)[0]
    last = losses(replace(chosen, out=str(tmp_path / "again")))[-1]
    assert begun < anew - 1
    assert begun == pytest.approx(last, abs=0.3)


def test_it_may_be_in_longer_sequences(first: tuple[TrainSettings, Path], tmp_path: Path) -> None:
    chosen, model = first
    assert losses(replace(after(chosen, model, tmp_path), context=48))[0] < 5


def test_it_goes_on_from_its_own_checkpoints(first: tuple[TrainSettings, Path], tmp_path: Path) -> None:
    chosen, model = first
    whole = losses(replace(after(chosen, model, tmp_path), steps=6, save_every=3))
    halves = replace(after(chosen, model, tmp_path), out=str(tmp_path / "halves"), steps=6, save_every=3)
    broken: list[float] = []

    class Broken(Exception):
        pass

    def stop(event: dict[str, object]) -> None:
        if event["event"] == "step":
            broken.append(float(str(event["loss"])))
            if len(broken) == 5:
                raise Broken

    with pytest.raises(Broken):
        Trainer(halves, stop).run()
    assert broken[:3] + losses(halves) == whole


def test_another_model_or_none_is_refused(first: tuple[TrainSettings, Path], tmp_path: Path) -> None:
    chosen, model = first
    other = replace(after(chosen, model, tmp_path), model=dict(chosen.model) | {"dim": 64})
    with pytest.raises(GlassgearError, match=r"\[320, 32\].*\[320, 64\]"):
        Trainer(other).run()
    deeper = replace(after(chosen, model, tmp_path), model=dict(chosen.model) | {"layers": 3})
    with pytest.raises(GlassgearError, match="2 layers there, 3 here"):
        Trainer(deeper).run()
    with pytest.raises(GlassgearError, match="nothing-like-it"):
        Trainer(replace(after(chosen, model, tmp_path), start="nothing-like-it")).run()
    assert not list((tmp_path / "second").glob("step-*"))


def test_another_tokenizer_of_the_same_size_is_refused(
    first: tuple[TrainSettings, Path], tmp_path: Path
) -> None:
    chosen, model = first
    text = tmp_path / "other.txt"
    text.write_text(Path(chosen.data.files[0]).read_text().replace("happy", "sad").replace("day", "night"))
    other = after(chosen, model, tmp_path)
    other = replace(other, data=replace(other.data, files=(str(text),)))
    own = replace(other, data=replace(other.data, tokenizer=320), out=str(tmp_path / "own"))
    with pytest.raises(SettingError, match=r"another tokenizer .* token \d+ is .* own tokenizer.json"):
        Trainer(own).run()
    assert not list((tmp_path / "own").glob("step-*"))
    assert Trainer(other).run().reason == "done"


def test_the_tokenizer_of_another_format_is_the_same_one(
    first: tuple[TrainSettings, Path], tmp_path: Path
) -> None:
    _, model = first
    for name in ("model.gguf", "model.bin"):
        convert(model, tmp_path / name)
        check_tokenizer(str(tmp_path / name), model / "tokenizer.json")


def test_a_model_without_a_tokenizer_is_taken_as_it_is(
    first: tuple[TrainSettings, Path], tmp_path: Path
) -> None:
    chosen, model = first
    bare = tmp_path / "bare"
    bare.mkdir()
    for name in ("config.json", "model.safetensors"):
        shutil.copy(model / name, bare / name)
    assert losses(replace(after(chosen, model, tmp_path), start=str(bare)))


def test_its_path_is_taken_from_the_settings_folder(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    text = '[data]\nfiles = ["a.txt"]\n[model]\ndim = 8\nlayers = 1\nheads = 1\n[train]\nstart = "{}"\n'
    (tmp_path / "run.toml").write_text(text.format("model"))
    assert read_settings(tmp_path / "run.toml").start == str(tmp_path / "model")
    (tmp_path / "run.toml").write_text(text.format("tiny-stories"))
    assert read_settings(tmp_path / "run.toml").start == "tiny-stories"
