"""A run's folder: of another run, with files that were damaged, or no folder at all."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from glassgear.errors import NotFoundError, SettingError

pytest.importorskip("torch")

from glassgear.train import Trainer, export
from tests.train.support import damage, settings


def test_a_checkpoint_of_another_run_is_refused(tmp_path: Path) -> None:
    made = settings(tmp_path, steps=2)
    Trainer(made).run()
    with pytest.raises(
        SettingError, match=r"model\.layers 2 \(now 3\) and model\.kv_heads 2 \(now not given\)"
    ):
        Trainer(replace(made, model={"dim": 32, "layers": 3, "heads": 4})).run()
    with pytest.raises(SettingError, match=r"with seed 1 \(now 9\): give"):
        Trainer(replace(made, seed=9, steps=3)).run()
    text = Path(made.data.files[0])
    text.write_text(text.read_text() + "<|endoftext|>One more.")
    before = {path.name: path.read_bytes() for path in (Path(made.out) / "data").iterdir()}
    with pytest.raises(SettingError, match="the same settings but other text"):
        Trainer(made).run()
    with pytest.raises(SettingError, match=r"data\.validation 0\.1 \(now 0\.2\)"):
        Trainer(replace(made, data=replace(made.data, validation=0.2))).run()
    assert before == {path.name: path.read_bytes() for path in (Path(made.out) / "data").iterdir()}
    (Path(made.out) / "settings.json").unlink()
    with pytest.raises(SettingError, match="another model, other text"):
        Trainer(made).run()


def test_a_tokenizer_that_is_damaged_is_made_anew(tmp_path: Path) -> None:
    made = settings(tmp_path, steps=2)
    Trainer(made).run()
    tokenizer = Path(made.out) / "data" / "tokenizer.json"
    before = tokenizer.read_bytes()
    damage(tokenizer, "cut")
    with pytest.raises(NotFoundError, match="not all of it as it was written"):
        export(made)
    assert Trainer(replace(made, steps=4)).run().step == 4
    assert tokenizer.read_bytes() == before


def test_ids_that_were_changed_on_the_disk_are_made_anew(tmp_path: Path) -> None:
    made = settings(tmp_path, steps=2)
    Trainer(made).run()
    ids = Path(made.out) / "data" / "train.ids"
    before = ids.read_bytes()
    ids.write_bytes(before[:400] + b"\xff\xff" + before[402:])
    assert Trainer(replace(made, steps=3)).run().step == 3
    assert ids.read_bytes() == before


def test_damaged_ids_are_told_as_an_event(tmp_path: Path) -> None:
    made = settings(tmp_path, steps=2)
    Trainer(made).run()
    ids = Path(made.out) / "data" / "train.ids"
    damage(ids, "cut")
    events: list[dict[str, Any]] = []
    Trainer(replace(made, steps=3), events.append).run()
    (event,) = [event for event in events if event["event"] == "remade"]
    assert event["path"] == str(ids.parent) and event["why"].startswith(f"{ids} has ")


def test_damage_doesn_t_let_other_text_in(tmp_path: Path) -> None:
    made = settings(tmp_path, steps=2)
    Trainer(made).run()
    ids = Path(made.out) / "data" / "train.ids"
    damage(ids, "cut")
    half, text = ids.read_bytes(), Path(made.data.files[0])
    text.write_text(text.read_text() + "<|endoftext|>One more.")
    with pytest.raises(SettingError, match="the same settings but other text"):
        Trainer(made).run()
    assert ids.read_bytes() == half


def test_fewer_steps_than_are_done_change_nothing(tmp_path: Path) -> None:
    made = settings(tmp_path, steps=6)
    Trainer(made).run()
    files = [path for path in Path(made.out).rglob("*") if path.is_file()]
    before = {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in files}
    events: list[dict[str, Any]] = []
    outcome = Trainer(replace(made, steps=5), events.append).run()
    assert (outcome.reason, outcome.step, outcome.model) == ("past", 6, None)
    assert events[-1] == {"event": "end", "reason": "past", "step": 6}
    files = [path for path in Path(made.out).rglob("*") if path.is_file()]
    assert {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in files} == before
    assert Trainer(made).run().model is not None


def test_an_output_that_is_a_file_is_said(tmp_path: Path) -> None:
    (tmp_path / "there").write_text("x")
    with pytest.raises(SettingError, match="which is a file"):
        Trainer(replace(settings(tmp_path), out=str(tmp_path / "there"))).run()
