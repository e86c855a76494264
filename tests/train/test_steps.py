"""One step: how it is cut into micro-batches, clipped, and skipped where it isn't finite."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from glassgear.train import Trainer  # noqa: E402
from glassgear.train.checkpoint import checkpoints  # noqa: E402
from glassgear.train.journal import read_journal  # noqa: E402
from tests.train.support import losses, settings, weights  # noqa: E402


class _Poisoned(torch.autograd.Function):  # type: ignore[misc]
    """A loss that is fine, with a gradient that isn't."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        return grad * float("nan")


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


def test_a_skipped_step_leaves_weights_and_moments_as_they_were(tmp_path: Path) -> None:
    trainer = Trainer(settings(tmp_path))
    trainer._prepare()
    assert trainer._step(0, 1e-3)[2]
    before = {n: p.detach().clone() for n, p in trainer.plain.named_parameters()}
    held = list(trainer.optimizer.state.values())
    moments = [{name: value.clone() for name, value in one.items()} for one in held]
    assert all({"step", "exp_avg", "exp_avg_sq"} <= one.keys() for one in moments)
    real = trainer._loss_of
    trainer._loss_of = lambda ids: _Poisoned.apply(real(ids))  # type: ignore[method-assign]
    assert not trainer._step(1, 1e-3)[2]
    assert all(torch.equal(p, before[n]) for n, p in trainer.plain.named_parameters())
    for one, was in zip(trainer.optimizer.state.values(), moments, strict=True):
        assert all(torch.equal(one[name], value) for name, value in was.items())


def test_a_run_that_skipped_a_step_goes_on_bit_by_bit(tmp_path: Path) -> None:
    def poisoned(trainer: Trainer) -> Trainer:
        real, step = trainer._step, trainer._loss_of
        trainer._step = lambda number, rate: (numbers.append(number), real(number, rate))[1]  # type: ignore[method-assign]
        trainer._loss_of = lambda ids: (  # type: ignore[method-assign]
            _Poisoned.apply(step(ids)) if numbers[-1] == 1 else step(ids)
        )
        return trainer

    numbers: list[int] = []
    whole, broken = (settings(tmp_path / name, steps=6) for name in "ab")
    first = poisoned(Trainer(whole))
    first.run()
    assert poisoned(Trainer(broken, until=3)).run().step == 3
    second = poisoned(Trainer(broken))
    second.run()
    assert first.state.skipped == second.state.skipped == 1
    assert numbers == [*range(6), *range(6)]
    assert losses(broken) == losses(whole)
    ours, theirs = weights(broken), weights(whole)
    assert all(np.array_equal(ours[name], theirs[name]) for name in theirs)


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
