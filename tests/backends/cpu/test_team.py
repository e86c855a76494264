"""Several threads, several models, forks and interrupts."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
import time
from typing import Any

import numpy as np
import pytest

from glassgear.backends.base import Chunk
from glassgear.backends.cpu import CPU
from glassgear.backends.cpu.fields import Sync

from .support import model
from .test_machine import all_logits, ids_for


def test_threads_that_share_a_machine_wait_for_each_other() -> None:
    machine = CPU(*model(), threads=2)
    wanted = {seed: all_logits(machine, ids_for(machine, 60, seed), [60]) for seed in range(4)}
    got: dict[int, np.ndarray] = {}

    def work(seed: int) -> None:
        got[seed] = all_logits(machine, ids_for(machine, 60, seed), [20] + [1] * 40)

    workers = [threading.Thread(target=work, args=(seed,)) for seed in wanted]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
    assert all(np.array_equal(got[seed], wanted[seed]) for seed in wanted)


def test_several_models_work_side_by_side() -> None:
    machines = [CPU(*model(seed), threads=2) for seed in range(3)]
    wanted = [all_logits(CPU(*model(seed), threads=1), ids_for(machines[0], 40), [40]) for seed in range(3)]
    for _ in range(3):
        for machine, want in zip(machines, wanted, strict=True):
            assert np.array_equal(all_logits(machine, ids_for(machine, 40), [1] * 40), want)


def test_threads_go_when_the_machine_does() -> None:
    before = set(threading.enumerate())
    machine = CPU(*model(), threads=3)
    all_logits(machine, [1, 2, 3], [3])
    own = set(threading.enumerate()) - before
    assert len(own) == 2
    del machine
    for thread in own:
        thread.join(20)
    assert not any(thread.is_alive() for thread in own)


def test_threads_sleep_when_nothing_comes() -> None:
    machine = CPU(*model(), threads=2)
    all_logits(machine, [1, 2, 3], [3])
    time.sleep(0.5)
    start = time.process_time()
    time.sleep(0.5)
    assert time.process_time() - start < 0.1
    assert np.isfinite(all_logits(machine, [1, 2, 3], [1, 1, 1])).all()


@pytest.mark.parametrize("waits", [0, 100])
def test_a_run_that_is_ended_alone_gives_the_same_bits(waits: int) -> None:
    made = model(dim=96, head_dim=64, heads=6, kv_heads=3, hidden=256)
    machine, want = CPU(*made, threads=2), all_logits(CPU(*made, threads=1), list(range(40)), [40])
    team = machine._team
    all_logits(machine, [1], [1])
    together = team._together

    def slow(ready: Any, *work: int) -> None:
        together(ready, *work)
        pieces.append(work[1])
        ready.words[8 * Sync.LONG_WAITS] = waits

    team._together = slow  # type: ignore[method-assign]
    pieces: list[int] = []
    for count in (1, 3, 8):
        team._solo, team._pause = 0, 8
        assert np.array_equal(
            all_logits(machine, list(range(40)), [32, count, 8 - count][: 2 + (count < 8)]), want
        )
        team._solo, team._pause = 0, 8
    # The long prompt is done in one; of a short run, one piece if it is slow, else all.
    steps = machine._program("logits", seeing=False).steps
    assert (max(pieces) == len(steps)) and (min(pieces) < max(pieces))
    assert (len(pieces) > 3 * 8) == (waits == 0)


def _child(machine: CPU, want: np.ndarray, queue: multiprocessing.Queue) -> None:  # type: ignore[type-arg]
    queue.put(bool(np.array_equal(all_logits(machine, ids_for(machine, 30), [10] + [1] * 20), want)))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_forked_child_makes_a_team_of_its_own() -> None:
    machine = CPU(*model(), threads=2)
    want = all_logits(machine, ids_for(machine, 30), [30])
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    child = context.Process(target=_child, args=(machine, want, queue))
    child.start()
    assert queue.get(timeout=60)
    child.join(60)
    assert np.array_equal(all_logits(machine, ids_for(machine, 30), [30]), want)


@pytest.mark.skipif(sys.platform == "win32", reason="sends a signal")
def test_an_interrupt_is_answered_and_does_no_harm() -> None:
    machine = CPU(*model(), threads=2)
    ids = ids_for(machine, 30)
    want = all_logits(machine, ids, [30])
    for delay in (0.01, 0.03, 0.05):
        track = machine.open()
        timer = threading.Timer(delay, os.kill, (os.getpid(), signal.SIGINT))
        timer.start()
        started = time.monotonic()
        with pytest.raises(KeyboardInterrupt):
            while time.monotonic() < started + 20:
                machine.step([Chunk(track, [1])])
                machine.truncate(track, 0)
        timer.join()
        assert time.monotonic() < started + 5
        assert np.array_equal(all_logits(machine, ids, [10] + [1] * 20), want)


def test_an_interrupt_before_sleepers_are_woken_leaves_none_of_them_asleep() -> None:
    """Between marking a thread as woken and waking it: the next job must not wait for it for ever."""
    machine = CPU(*model(), threads=2)
    ids = ids_for(machine, 30)
    want = all_logits(machine, ids, [30])
    team = machine._team
    ready = team._ready
    assert ready is not None
    deadline = time.monotonic() + 20
    while not ready.words[8 * (Sync.PARKED + 1)] and time.monotonic() < deadline:
        time.sleep(0.01)
    gather = team._gather

    def interrupted(*given: int) -> int:
        gather(*given)
        raise KeyboardInterrupt

    team._gather = interrupted  # type: ignore[assignment]
    with pytest.raises(KeyboardInterrupt):
        all_logits(machine, ids, [30])
    team._gather = gather
    assert np.array_equal(all_logits(machine, ids, [30]), want)
