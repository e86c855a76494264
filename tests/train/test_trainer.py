"""Runs of a few steps: resumed, interrupted, broken off, shared by processes."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from glassgear.errors import FormatError, NotFoundError, SettingError

torch = pytest.importorskip("torch")

from glassgear.train import (  # noqa: E402
    DataSettings,
    Trainer,
    TrainSettings,
    checkpoint,
    export,
    read_settings,
)
from glassgear.train.checkpoint import checkpoints, plain_name  # noqa: E402
from glassgear.train.journal import read_journal  # noqa: E402
from glassgear.train.lock import only_one  # noqa: E402
from glassgear.weights import safetensors  # noqa: E402
from tests.train.support import settings  # noqa: E402


def losses(made: TrainSettings) -> list[float]:
    return [e["loss"] for e in read_journal(Path(made.out)) if e["event"] == "step"]


def weights(made: TrainSettings) -> dict[str, np.ndarray]:
    found = safetensors.read(checkpoints(Path(made.out))[-1] / "model.safetensors")
    return {name: tensor.float32() for name, tensor in found.items()}


def test_the_loss_falls(tmp_path: Path) -> None:
    made = settings(tmp_path, steps=60, learning_rate=5e-3, save_every=60)
    outcome = Trainer(made).run()
    assert outcome.reason == "done" and outcome.step == 60
    assert losses(made)[-1] < 0.6 * losses(made)[0]
    assert outcome.validation is not None and outcome.validation < losses(made)[0]


def test_a_resumed_run_repeats_the_unbroken_one_bit_by_bit(tmp_path: Path) -> None:
    whole, broken = settings(tmp_path / "a"), settings(tmp_path / "b")
    Trainer(whole).run()
    trainer = Trainer(broken, lambda event: _stop(trainer, event, 5))
    assert trainer.run().reason == "interrupted"
    assert [p.name for p in checkpoints(Path(broken.out))][-1] == "step-00000005"
    assert Trainer(broken).run().reason == "done"
    assert losses(broken) == losses(whole)
    ours, theirs = weights(broken), weights(whole)
    assert all(np.array_equal(ours[name], theirs[name]) for name in theirs)


def test_a_run_that_is_interrupted_before_its_first_step_goes_on_too(tmp_path: Path) -> None:
    whole, broken = settings(tmp_path / "a"), settings(tmp_path / "b")
    Trainer(whole).run()
    trainer = Trainer(broken)
    trainer._stop = "SIGTERM"
    outcome = trainer.run()
    assert (outcome.reason, outcome.signal, outcome.step, outcome.model) == (
        "interrupted",
        "SIGTERM",
        0,
        None,
    )
    Trainer(broken).run()
    assert losses(broken) == losses(whole)


def test_a_paused_run_goes_on_as_if_it_had_not_been(tmp_path: Path) -> None:
    whole, broken = settings(tmp_path / "a"), settings(tmp_path / "b")
    Trainer(whole).run()
    outcome = Trainer(broken, until=5).run()
    assert (outcome.reason, outcome.step, outcome.model) == ("paused", 5, None)
    assert Trainer(broken, until=3).run().step == 5
    assert Trainer(broken, until=99).run().reason == "done"
    assert losses(broken) == losses(whole)


def _stop(trainer: Trainer, event: dict[str, Any], step: int) -> None:
    if event["event"] == "step" and event["step"] == step:
        trainer._stop = "SIGTERM"


def test_sigterm_saves_and_the_run_goes_on_later(tmp_path: Path) -> None:
    made = settings(tmp_path, steps=100_000, save_every=100_000)
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    journal = Path(made.out) / "metrics.jsonl"
    until = time.monotonic() + 120
    while time.monotonic() < until and (not journal.exists() or len(journal.read_text().splitlines()) < 3):
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    out, _ = process.communicate(timeout=60)
    assert out.strip() == "interrupted"
    (saved,) = checkpoints(Path(made.out))
    step = json.loads((saved / "state.json").read_text())["step"]
    assert step == read_journal(Path(made.out))[-1]["step"] >= 3


PROGRAM = """
import sys
from pathlib import Path
from glassgear.train import Trainer
from tests.train.support import settings
made = settings(Path(sys.argv[1]), steps=100_000, save_every=100_000)
print(Trainer(made).run().reason)
"""


@pytest.mark.parametrize("what", ["loss", "gradient"])
def test_steps_that_are_not_finite_are_skipped_and_three_in_a_row_stop(tmp_path: Path, what: str) -> None:
    made = settings(tmp_path, steps=20, save_every=5)
    trainer = Trainer(made)
    real, calls = trainer._loss_of, [0]

    def broken(ids: Any) -> Any:
        calls[0] += 1
        loss = real(ids)
        if calls[0] in (3, *range(15, 100)):
            return loss * float("nan") if what == "loss" else _Poisoned.apply(loss)
        return loss

    trainer._loss_of = broken  # type: ignore[method-assign]
    outcome = trainer.run()
    events = read_journal(Path(made.out))
    assert [e["step"] for e in events if e["event"] == "skipped"] == [2, 8, 9, 10]
    assert outcome.reason == "diverged" and outcome.step == 10
    assert checkpoints(Path(made.out))[-1].name == "step-00000005"
    assert all(np.isfinite(v).all() for v in weights(made).values())


class _Poisoned(torch.autograd.Function):  # type: ignore[misc]
    """A loss that is fine, with a gradient that isn't."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        return grad * float("nan")


def test_a_skipped_step_leaves_weights_and_moments_as_they_were(tmp_path: Path) -> None:
    trainer = Trainer(settings(tmp_path))
    trainer._prepare()
    assert trainer._step(0, 1e-3)[2]
    before = {n: p.detach().clone() for n, p in trainer.plain.named_parameters()}
    moments = [s["exp_avg"].clone() for s in trainer.optimizer.state.values()]
    real = trainer._loss_of
    trainer._loss_of = lambda ids: _Poisoned.apply(real(ids))  # type: ignore[method-assign]
    assert not trainer._step(1, 1e-3)[2]
    assert all(torch.equal(p, before[n]) for n, p in trainer.plain.named_parameters())
    assert all(
        torch.equal(s["exp_avg"], m) for s, m in zip(trainer.optimizer.state.values(), moments, strict=True)
    )


@pytest.mark.parametrize("shape", [(32, 1), (4, 8), (1, 32)])
def test_gradients_do_not_depend_on_how_a_step_is_cut(tmp_path: Path, shape: tuple[int, int]) -> None:
    gradients = []
    for i, (batch, accumulate) in enumerate(((8, 4), shape)):
        trainer = Trainer(settings(tmp_path / str(i), batch=batch, accumulate=accumulate, clip=0.0))
        trainer._prepare()
        trainer._step(0, 0.0)
        gradients.append({n: p.grad for n, p in trainer.plain.named_parameters()})
    for name, gradient in gradients[0].items():
        assert torch.allclose(gradient, gradients[1][name], atol=1e-6, rtol=1e-4), name


def test_tokens_count_alike_whatever_micro_batch_they_are_in(tmp_path: Path) -> None:
    trainer = Trainer(settings(tmp_path, batch=1, accumulate=2))
    trainer._prepare()
    ids = torch.full((1, 5), -100)
    few, more = ids.clone(), ids.clone()
    few[0, :2], more[0, :4] = 7, 7
    trainer._batch = lambda step, micro: (few, more)[micro]  # type: ignore[method-assign]
    wanted = iter([4.0, 6.0])  # sums: one token of loss 4, three of loss 2
    real = trainer._loss_of
    trainer._loss_of = lambda batch: 0 * real(batch.clamp_min(0)) + next(wanted)  # type: ignore[method-assign]
    assert trainer._step(0, 0.0)[0] == pytest.approx(2.5)


def test_clipping_looks_at_the_true_gradient(tmp_path: Path) -> None:
    trainer = Trainer(settings(tmp_path, clip=1.0))
    trainer._prepare()
    for scale in (1.0, 65536.0):
        trainer.optimizer.zero_grad()
        trainer.scaler = torch.amp.GradScaler("cpu", enabled=scale != 1, init_scale=scale)
        first = next(trainer.plain.parameters())
        gradient = torch.zeros_like(first)
        gradient.view(-1)[0] = 10.0
        trainer.scaler.scale((first * gradient).sum()).backward()
        assert trainer._clipped() == pytest.approx(10.0)
        assert float(first.grad.norm()) == pytest.approx(1.0, rel=1e-3)


def shared_run(folder: Path, **changes: Any) -> TrainSettings:
    """A run by two processes over gloo, which leave a file each about what they did."""
    if not torch.distributed.is_available():
        pytest.skip("this build of PyTorch has no torch.distributed")
    made = settings(folder, steps=6, **changes)
    program = folder / "program.py"
    program.write_text(SHARED, encoding="utf-8")
    torchrun = ["-m", "torch.distributed.run", "--nproc-per-node=2", "--master-port=0", "--standalone"]
    done = subprocess.run(
        [sys.executable, *torchrun, str(program), str(folder), json.dumps(changes)],
        capture_output=True, text=True, timeout=300, check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.getcwd()},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return made


SHARED = """
import hashlib, json, os, sys
from pathlib import Path
from glassgear.train import Trainer
from glassgear.train.ranks import whole
from tests.train.support import settings

folder = Path(sys.argv[1])
trainer = Trainer(settings(folder, steps=6, **json.loads(sys.argv[2])))
prepare, starts = trainer._prepare, []

def prepared():
    prepare()
    values = b"".join(whole(p.detach()).numpy().tobytes() for p in trainer.plain.parameters())
    trainer.first_weights = hashlib.sha256(values).hexdigest()
    read = type(trainer.windows).__getitem__
    type(trainer.windows).__getitem__ = lambda self, n: (starts.append(n), read(self, n))[1]

trainer._prepare = prepared
trainer.run()
about = {"weights": trainer.first_weights, "windows": starts}
(folder / f"rank{os.environ['RANK']}.json").write_text(json.dumps(about))
os._exit(0)  # gloo's threads now and then abort a process that is taken down in order
"""


@pytest.mark.parametrize("strategy", ["ddp", "fsdp"])
def test_two_processes_give_the_losses_of_one(tmp_path: Path, strategy: str) -> None:
    alone = settings(tmp_path / "a", steps=6)
    Trainer(alone).run()
    shared = shared_run(tmp_path / "b", strategy=strategy)
    assert losses(shared) == pytest.approx(losses(alone), abs=1e-4)
    held_out = [
        [e["loss"] for e in read_journal(Path(made.out)) if e["event"] == "validation"]
        for made in (shared, alone)
    ]
    assert held_out[0] == pytest.approx(held_out[1], abs=1e-4)
    ours, theirs = weights(shared), weights(alone)
    assert all(np.abs(ours[n] - theirs[n]).max() < 1e-4 for n in theirs)
    assert (Path(shared.out) / "model" / "config.json").is_file()
    ranks = [json.loads((tmp_path / "b" / f"rank{i}.json").read_text()) for i in range(2)]
    assert ranks[0]["weights"] == ranks[1]["weights"], "all begin alike"
    first, second = (set(rank["windows"]) for rank in ranks)
    assert not first & second
    assert first | second == set(range(6 * shared.batch * shared.accumulate))


@pytest.mark.parametrize("strategy", ["ddp", "fsdp"])
def test_two_processes_go_on_where_they_were(tmp_path: Path, strategy: str) -> None:
    shared = shared_run(tmp_path, strategy=strategy)
    whole, at_the_end = losses(shared), weights(shared)
    shutil.rmtree(checkpoints(Path(shared.out))[-1])
    shared_run(tmp_path, strategy=strategy)
    assert losses(shared) == whole
    ours = weights(shared)
    assert all(np.array_equal(ours[name], at_the_end[name]) for name in at_the_end)


def test_a_run_by_two_processes_goes_on_in_one(tmp_path: Path) -> None:
    alone = settings(tmp_path / "a", steps=10)
    Trainer(alone).run()
    shared = shared_run(tmp_path / "b", strategy="fsdp")
    Trainer(replace(shared, steps=10)).run()
    # The rate of the first six steps fell faster, since they were to be all.
    assert losses(shared)[:2] == pytest.approx(losses(alone)[:2], abs=1e-3)
    assert len(losses(shared)) == 10 and losses(shared)[-1] < losses(shared)[0]


def test_processes_that_see_different_checkpoints_are_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = settings(tmp_path, steps=4)
    Trainer(made).run()
    monkeypatch.setattr("glassgear.train.ranks.Ranks.total", lambda self, *values: [v * 1.5 for v in values])
    with pytest.raises(SettingError, match="see the same checkpoints"):
        Trainer(made).run()


def test_ranks_share_every_window_of_an_epoch_without_overlap(tmp_path: Path) -> None:
    made = settings(tmp_path, batch=5, accumulate=2, context=16)
    trainer = Trainer(made)
    trainer._prepare()
    steps, seen = trainer.windows.epoch // 10, []
    for rank in (0, 1, 0):
        trainer.ranks = replace(trainer.ranks, rank=rank, world=2)
        seen.append([trainer._batch(step, i) for step in range(steps) for i in trainer._mine()])
    firsts = [{tuple(row.tolist()[:8]) for batch in batches for row in batch} for batches in seen]
    rows = [row for batch in [*seen[0], *seen[1]] for row in batch.tolist()]
    every = [trainer.windows[i].tolist() for i in range(10 * steps)]
    assert sorted(rows) == sorted(every) and firsts[0] != firsts[1]
    assert all(torch.equal(a, b) for a, b in zip(seen[0], seen[2], strict=True)), "the same on a rerun"


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


def _damage(path: Path, how: str) -> None:
    data = path.read_bytes()
    middle = len(data) // 2
    flipped = data[:middle] + bytes([data[middle] ^ 4]) + data[middle + 1 :]
    if how == "missing":
        path.unlink()
    else:
        path.write_bytes({"cut": data[:middle], "flipped": flipped, "empty": b""}[how])


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
    _damage(checkpoints(Path(made.out))[-1] / name, how)
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
        _damage(path / "model.safetensors", "cut")
    with pytest.raises(FormatError, match="no checkpoint that is whole"):
        Trainer(made).run()
    assert checkpoints(Path(made.out)) == found


def test_each_checkpoint_is_written_once(tmp_path: Path) -> None:
    made = settings(tmp_path, steps=12)
    events: list[dict[str, Any]] = []
    Trainer(made, events.append).run()
    assert [e["step"] for e in events if e["event"] == "saved"] == [4, 8, 12]
    events.clear()
    Trainer(made, events.append).run()
    assert not [e for e in events if e["event"] == "saved"], "a run that is done is left as it is"


def test_float16_goes_on_with_the_scale_it_had(tmp_path: Path) -> None:
    whole, broken = (settings(tmp_path / n, dtype="float16", steps=6, save_every=3) for n in "ab")
    Trainer(whole).run()
    trainer = Trainer(broken, lambda event: _stop(trainer, event, 3))
    assert trainer.run().reason == "interrupted"
    assert trainer.state.scaler["scale"] > 0
    Trainer(broken).run()
    assert losses(broken) == losses(whole)


def test_an_all_zero_gradient_and_a_step_without_targets_leave_no_nan(tmp_path: Path) -> None:
    trainer = Trainer(settings(tmp_path))
    trainer._prepare()
    real = trainer._loss_of
    trainer._loss_of = lambda ids: 0 * real(ids)  # type: ignore[method-assign]
    assert trainer._step(0, 1e-3)[2]
    before = [p.detach().clone() for p in trainer.plain.parameters()]
    assert all(torch.isfinite(p).all() for p in before)
    trainer._loss_of = lambda ids: 0 * real(ids.clamp_min(0))  # type: ignore[method-assign]
    trainer._batch = lambda step, micro: torch.full((2, 9), -100)  # type: ignore[method-assign]
    assert not trainer._step(1, 1e-3)[2]
    assert all(torch.equal(a, b) for a, b in zip(before, trainer.plain.parameters(), strict=True))


@pytest.mark.parametrize(
    "name", ["w", "module.w", "_orig_mod.w", "module._orig_mod.w", "_orig_mod.module._orig_mod.w"]
)
def test_names_of_wrappers_are_taken_off_in_any_order(name: str) -> None:
    assert plain_name(name) == "w"


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
    _damage(tokenizer, "cut")
    with pytest.raises(NotFoundError, match="not all of it as it was written"):
        export(made)
    assert Trainer(replace(made, steps=4)).run().step == 4
    assert tokenizer.read_bytes() == before


def test_two_trainers_in_one_folder_are_one_too_many(tmp_path: Path) -> None:
    made = settings(tmp_path, steps=2)
    Path(made.out).mkdir()
    with only_one(Path(made.out)):
        with pytest.raises(SettingError, match=f"process {os.getpid()} is training"):
            Trainer(made).run()
        assert (Path(made.out) / "running.pid").read_text() == str(os.getpid())
    assert not (Path(made.out) / "running.pid").exists()


@pytest.mark.parametrize("left", ["own", "1", "999999999", "", "no number"])
def test_what_a_process_left_that_is_gone_holds_nobody_up(tmp_path: Path, left: str) -> None:
    made = settings(tmp_path, steps=2)
    Path(made.out).mkdir()
    (Path(made.out) / "running.pid").write_text(str(os.getpid()) if left == "own" else left)
    assert Trainer(made).run().reason == "done"
    assert not (Path(made.out) / "running.pid").exists()


def test_ids_that_were_changed_on_the_disk_are_made_anew(tmp_path: Path) -> None:
    made = settings(tmp_path, steps=2)
    Trainer(made).run()
    ids = Path(made.out) / "data" / "train.ids"
    before = ids.read_bytes()
    ids.write_bytes(before[:400] + b"\xff\xff" + before[402:])
    assert Trainer(replace(made, steps=3)).run().step == 3
    assert ids.read_bytes() == before


def test_a_model_too_large_for_the_memory_is_refused_with_both_figures(tmp_path: Path) -> None:
    huge = {"dim": 1 << 20, "layers": 2, "heads": 4}
    with pytest.raises(SettingError, match=r"parameters takes [\d,.]+ GB of memory .* GB are free"):
        Trainer(replace(settings(tmp_path), model=huge, device="cpu"))


def test_an_output_that_is_a_file_is_said(tmp_path: Path) -> None:
    (tmp_path / "there").write_text("x")
    with pytest.raises(SettingError, match="which is a file"):
        Trainer(replace(settings(tmp_path), out=str(tmp_path / "there"))).run()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model": {"dim": 30, "layers": 2, "heads": 4}}, "doesn't divide by 4 heads"),
        ({"model": {"dim": 32, "layers": 2, "heads": 4, "headz": 1}}, "did you mean `heads`"),
        ({"model": {"layers": 2, "heads": 4}}, "needs `dim`"),
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


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x = ", "is no TOML"),
        ("[data]\nfiles = ['a']\n[model]\n[trian]\n", "did you mean `train`"),
        ("[model]\n", "needs a table `\\[data\\]`"),
        ("[data]\n[model]\n", "lacks `data.files`"),
        ("[data]\nfiles = ['a']\n[model]\n[train]\nstepz = 3\n", "did you mean `steps`"),
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
        {"seed": 1 << 63}, {"context": 1}, {"data": DataSettings(("a.txt",), separator="")},
    ],
)  # fmt: skip
def test_values_outside_of_what_makes_sense_are_refused(tmp_path: Path, change: dict[str, Any]) -> None:
    with pytest.raises(SettingError):
        settings(tmp_path, **change)
