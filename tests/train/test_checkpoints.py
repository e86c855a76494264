"""Checkpoints on the disk: what they hold, damaged ones, and a disk that is full."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from glassgear.errors import FormatError

torch = pytest.importorskip("torch")

from glassgear.train import Trainer, TrainSettings, checkpoint  # noqa: E402
from glassgear.train.checkpoint import checkpoints, newest_whole, thin_out  # noqa: E402
from glassgear.weights import safetensors  # noqa: E402
from glassgear.weights.names import plain_name  # noqa: E402
from tests.train.support import damage, losses, settings, weights  # noqa: E402


def test_a_tied_head_is_stored_once_and_stays_tied(tmp_path: Path) -> None:
    made = settings(tmp_path, steps=2, save_every=2)
    first = Trainer(made)
    first.run()
    found = weights(made)
    assert "head.weight" not in found
    trainer = Trainer(made)
    trainer._prepare()
    trainer._taken_up()
    assert sum(v.size for v in found.values()) == trainer.parameters
    size = (checkpoints(Path(made.out))[-1] / "model.safetensors").stat().st_size
    assert 4 * trainer.parameters < size < 4 * trainer.parameters + 8192
    ids = torch.arange(20)[None]
    with torch.no_grad():
        before = trainer.plain.eval()(ids)
        assert torch.equal(before, first.plain.eval()(ids)), "bit for bit what was saved"
        trainer.plain.embed.weight[300] += 1.0
        assert not torch.equal(trainer.plain(ids)[..., 300], before[..., 300]), "one matrix at both ends"


class _Wrapped(torch.nn.Module):
    """A module under a name, as torch.compile and DDP put it."""

    def __init__(self, name: str, inner: torch.nn.Module) -> None:
        super().__init__()
        self.add_module(name, inner)


@pytest.mark.parametrize(
    "names", [("module",), ("_orig_mod",), ("module", "_orig_mod"), ("_orig_mod", "module")]
)
def test_a_wrapped_module_is_filled_from_a_plain_checkpoint(tmp_path: Path, names: tuple[str, ...]) -> None:
    made = settings(tmp_path, steps=2)
    trainer = Trainer(made)
    trainer.run()
    fresh = Trainer(made)
    fresh._prepare()
    wrapped: torch.nn.Module = fresh.plain
    for name in names:
        wrapped = _Wrapped(name, wrapped)
    checkpoint.load(checkpoints(Path(made.out))[-1], wrapped, fresh.optimizer, fresh._fingerprint())
    for (_, a), (_, b) in zip(fresh.plain.named_parameters(), trainer.plain.named_parameters(), strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize(
    "name", ["w", "module.w", "_orig_mod.w", "module._orig_mod.w", "_orig_mod.module._orig_mod.w"]
)
def test_names_of_wrappers_are_taken_off_in_any_order(name: str) -> None:
    assert plain_name(name) == "w"


def test_keys_that_match_nothing_are_an_error(tmp_path: Path) -> None:
    made = settings(tmp_path, steps=2)
    Trainer(made).run()
    (path,) = checkpoints(Path(made.out))
    state = json.loads((path / "state.json").read_text())
    (path / "state.json").write_text(json.dumps({**state, "sums": {}}))
    safetensors.write(path / "model.safetensors", {f"x.{n}": v for n, v in weights(made).items()})
    trainer = Trainer(made)
    trainer._prepare()
    before = [p.detach().clone() for p in trainer.plain.parameters()]
    with pytest.raises(FormatError, match="doesn't hold this model"):
        checkpoint.load(path, trainer.plain, trainer.optimizer, trainer._fingerprint())
    assert all(torch.equal(a, b) for a, b in zip(before, trainer.plain.parameters(), strict=True))


def test_each_checkpoint_is_written_once(tmp_path: Path) -> None:
    made = settings(tmp_path, steps=12)
    events: list[dict[str, Any]] = []
    Trainer(made, events.append).run()
    assert [e["step"] for e in events if e["event"] == "saved"] == [4, 8, 12]
    events.clear()
    Trainer(made, events.append).run()
    assert not [e for e in events if e["event"] == "saved"], "a run that is done is left as it is"


@pytest.mark.parametrize(
    ("name", "how"),
    [
        ("model.safetensors", "flipped"), ("model.safetensors", "cut"), ("optimizer.safetensors", "flipped"),
        ("optimizer.safetensors", "missing"), ("state.json", "empty"), ("state.json", "missing"),
    ],
)  # fmt: skip
def test_a_damaged_checkpoint_is_said_and_the_one_before_taken(tmp_path: Path, name: str, how: str) -> None:
    made = settings(tmp_path, steps=8)
    Trainer(made).run()
    whole = losses(made)
    damage(checkpoints(Path(made.out))[-1] / name, how)
    events: list[dict[str, Any]] = []
    assert Trainer(made, events.append).run().reason == "done"
    assert [e["path"][-8:] for e in events if e["event"] == "damaged"] == ["00000008"]
    assert [e["step"] for e in events if e["event"] == "resumed"] == [4]
    assert losses(made) == whole


def steps_in(made: TrainSettings) -> list[int]:
    return [int(path.name[5:]) for path in checkpoints(Path(made.out))]


def test_a_damaged_checkpoint_never_takes_the_place_of_a_whole_one(tmp_path: Path) -> None:
    made = settings(tmp_path, steps=40, save_every=4, evaluate_every=40)
    Trainer(made, until=9).run()
    assert steps_in(made) == [8, 9]
    damage(checkpoints(Path(made.out))[-1] / "model.safetensors", "cut")
    events: list[dict[str, Any]] = []
    # Not past the damaged one yet: it stays, and counts for nothing.
    Trainer(replace(made, save_every=100), until=8).run()
    assert steps_in(made) == [8, 9]
    Trainer(made, events.append, until=10).run()
    assert steps_in(made) == [8, 10]
    dropped = [(Path(e["path"]).name, Path(e["whole"]).name) for e in events if e["event"] == "dropped"]
    assert dropped == [("step-00000009", "step-00000010")]
    damage(checkpoints(Path(made.out))[-1] / "optimizer.safetensors", "flipped")
    events.clear()
    assert Trainer(made, events.append, until=11).run().step == 11
    assert [e["step"] for e in events if e["event"] == "resumed"] == [8]
    assert steps_in(made) == [8, 11] and newest_whole(Path(made.out)) == checkpoints(Path(made.out))[-1]


def test_a_damaged_checkpoint_stays_until_a_newer_one_is_whole(tmp_path: Path) -> None:
    made = settings(tmp_path, steps=40, save_every=2, keep=3, evaluate_every=40)
    Trainer(made, until=9).run()
    assert steps_in(made) == [6, 8, 9]
    found = checkpoints(Path(made.out))
    damage(found[0] / "state.json", "cut")
    damage(found[2] / "model.safetensors", "missing")
    assert thin_out(Path(made.out), 3) == [found[0]] and steps_in(made) == [8, 9]
    assert thin_out(Path(made.out), 3) == [] and steps_in(made) == [8, 9]
    damage(found[1] / "model.safetensors", "flipped")
    assert thin_out(Path(made.out), 1) == [] and steps_in(made) == [8, 9], "none is whole: none goes"
    assert newest_whole(Path(made.out)) is None


def test_what_cannot_be_read_now_may_be_whole_and_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = settings(tmp_path, steps=9, save_every=3, keep=3)
    Trainer(made).run()
    first, second, third = checkpoints(Path(made.out))
    real = checkpoint._crc_of

    def refused(path: Path, *rest: Any) -> int:
        if path.parent == second:
            raise PermissionError(13, "Permission denied")
        return real(path, *rest)

    monkeypatch.setattr(checkpoint, "_crc_of", refused)
    assert thin_out(Path(made.out), 2) == []
    assert checkpoints(Path(made.out)) == [first, second, third]
    assert thin_out(Path(made.out), 1) == [] and checkpoints(Path(made.out)) == [third]


@pytest.mark.parametrize("text", ['{"step": 5}', '{"step": 4, "sums": 3}', "[]", '{"steps": 4}'])
def test_a_state_that_is_another_one_s_or_none_is_damage(tmp_path: Path, text: str) -> None:
    made = settings(tmp_path, steps=4)
    Trainer(made).run()
    (path,) = checkpoints(Path(made.out))
    (path / "state.json").write_text(text)
    assert newest_whole(Path(made.out)) is None
    with pytest.raises(FormatError, match="no checkpoint that is whole"):
        Trainer(made).run()


@pytest.mark.parametrize("prefix", ["module.", "_orig_mod.", "module._orig_mod.", "_orig_mod.module."])
def test_a_checkpoint_with_prefixed_names_loads_the_same(tmp_path: Path, prefix: str) -> None:
    made = settings(tmp_path, steps=2)
    trainer = Trainer(made)
    trainer.run()
    (path,) = checkpoints(Path(made.out))
    for name in ("model.safetensors", "optimizer.safetensors"):
        found = {prefix + n: t.float32().copy() for n, t in safetensors.read(path / name).items()}
        safetensors.write(path / name, found)
    state = json.loads((path / "state.json").read_text())
    (path / "state.json").write_text(json.dumps({**state, "sums": {}}))
    fresh = Trainer(made)
    fresh._prepare()
    checkpoint.load(path, fresh.plain, fresh.optimizer, fresh._fingerprint())
    for a, b in zip(fresh.plain.parameters(), trainer.plain.parameters(), strict=True):
        assert torch.equal(a, b)
        assert torch.equal(fresh.optimizer.state[a]["exp_avg"], trainer.optimizer.state[b]["exp_avg"])


def test_where_no_checkpoint_is_whole_nothing_is_begun_anew(tmp_path: Path) -> None:
    made = settings(tmp_path, steps=8)
    Trainer(made).run()
    found = checkpoints(Path(made.out))
    for path in found:
        damage(path / "model.safetensors", "cut")
    with pytest.raises(FormatError, match="no checkpoint that is whole"):
        Trainer(made).run()
    assert checkpoints(Path(made.out)) == found


def test_a_broken_write_leaves_the_old_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = settings(tmp_path, steps=8, save_every=4)
    real, calls = safetensors.write, [0]

    def full(path: Any, *rest: Any, **more: Any) -> None:
        calls[0] += 1
        if calls[0] == 4:
            raise OSError(28, "No space left on device")
        real(path, *rest, **more)

    monkeypatch.setattr(safetensors, "write", full)
    with pytest.raises(OSError, match="No space"):
        Trainer(made).run()
    assert [p.name for p in checkpoints(Path(made.out))] == ["step-00000004"]
    assert not list(Path(made.out).glob(".step*"))
    monkeypatch.undo()
    assert Trainer(made).run().reason == "done"
