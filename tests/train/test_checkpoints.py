"""Checkpoints on the disk: what they hold, damaged ones, and a disk that is full."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from glassgear.errors import FormatError

torch = pytest.importorskip("torch")

from glassgear.train import Trainer, checkpoint  # noqa: E402
from glassgear.train.checkpoint import checkpoints, plain_name  # noqa: E402
from glassgear.weights import safetensors  # noqa: E402
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
        ("optimizer.safetensors", "missing"), ("state.json", "empty"),
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
