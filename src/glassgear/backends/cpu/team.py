"""A small team of threads that runs programs.

The caller is the first of them; the others wait in compiled code for a moment after each job,
because the next token comes soon, and then sleep. They are made when first needed, anew after a
fork, and go when the team does.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from glassgear.backends.cpu.fields import STEP_FIELDS, Sync
from glassgear.backends.cpu.machine_code import Entry, Kernel, entry

__all__ = ["TEAM_KERNELS", "Team"]

LEAD, FOLLOW, GATHER = (Kernel(("team", name)) for name in ("lead", "follow", "gather"))
TEAM_KERNELS = (LEAD, FOLLOW, GATHER)
PATIENCE = 6000  # looks before a thread sleeps, most of them after giving way: some milliseconds
BUSY = 3  # long waits in a short run that say that the machine is busy
RARE = 150  # steps to a long wait that say that it isn't: programs for traces have a thousand steps
SHORTEST, LONGEST = 4, 64  # runs without the others before they are tried again, half as a start
PIECES = 16  # of a run in which the others are tried again
STEP_BYTES = 8 * STEP_FIELDS
WORD = 8  # int64 from word to word: a cache line


class Team:
    """Threads 0 (the caller) to `size` - 1.

    Args:
        size: how many, at least 1.
        addresses: where the kernels of `TEAM_KERNELS` are.
    """

    def __init__(self, size: int, addresses: Mapping[Kernel, int]) -> None:
        self.size = size
        self._lead, self._gather = entry(addresses[LEAD]), entry(addresses[GATHER])
        self._follow = entry(addresses[FOLLOW])
        self._process = 0
        self._ready: _Ready | None = None
        self._alone = _words(1)
        self._alone_at = int(self._alone.ctypes.data)
        self._solo = 0  # short runs still to be done by the caller alone
        self._pause = SHORTEST

    def run(self, program: int, count: int, frame: int, short: bool = False) -> None:
        """Run the first `count` steps at address `program` for the frame at `frame`.

        Args:
            program: address.
            count: steps.
            frame: address.
            short: the steps take microseconds. On a busy machine, where threads lose the
                processor between two meetings, such work is done by the caller alone.
        """
        if self.size == 1 or (short and self._solo > 0):
            self._solo -= 1
            self._lead(program, count, frame, self._alone_at)
            return
        if self._ready is None or self._process != os.getpid() or self._ready.broken:
            self._make()
        ready = self._ready
        assert ready is not None
        ready.words[WORD * Sync.LONG_WAITS] = 0
        # After a busy time the team is tried out step by step: dozens of long waits are too dear.
        piece = count if not short or self._pause == SHORTEST else -(-count // PIECES)
        for first in range(0, count, piece):
            at, rest = program + first * STEP_BYTES, count - first
            if first and ready.words[WORD * Sync.LONG_WAITS] >= BUSY:
                self._lead(at, rest, frame, self._alone_at)
                break
            self._together(ready, at, min(piece, rest), frame)
        if short:
            busy = ready.words[WORD * Sync.LONG_WAITS] >= max(BUSY, count // RARE)
            self._solo = self._pause = min(2 * self._pause, LONGEST) if busy else 0
            if not busy:
                self._pause = SHORTEST

    def _together(self, ready: _Ready, program: int, count: int, frame: int) -> None:
        # An interrupt may come between any two lines but not inside `lead`. A thread that `gather`
        # took for woken would then sleep on, and the next job would wait for it for ever: so a
        # team that was interrupted anywhere in here is given up, and another is made.
        ready.broken = True
        try:
            ready.words[WORD * Sync.THREADS] = self.size
            asleep = self._gather(ready.address, self.size, 0, 0)
            for thread in range(1, self.size):
                if asleep >> thread & 1:
                    ready.locks[thread].release()
            self._lead(program, count, frame, ready.address)
            ready.broken = False
        finally:
            ready.words[WORD * Sync.EXPECT] = 0

    def _make(self) -> None:
        if self._ready is not None and self._process == os.getpid():
            self._ready.dismiss()
        self._process = os.getpid()
        ready = self._ready = _Ready(self.size)  # broken until all of its threads are there
        weakref.finalize(self, ready.dismiss)
        for thread in range(1, self.size):
            threading.Thread(
                target=_work,
                args=(self._follow, ready.words, thread, ready.locks[thread]),
                name=f"glassgear-{thread}",
                daemon=True,
            ).start()
        ready.broken = False


class _Ready:
    """What the threads of one team share."""

    def __init__(self, size: int) -> None:
        self.words = _words(size)
        self.address = int(self.words.ctypes.data)
        self.locks = [threading.Lock() for _ in range(size)]
        self.broken = True
        for thread, lock in enumerate(self.locks):
            lock.acquire()
            self.words[WORD * (Sync.PARKED + thread)] = 1

    def dismiss(self) -> None:
        """Let the threads end."""
        self.words[WORD * Sync.CALLED_OFF] = 1
        for lock in self.locks:
            if lock.locked():
                lock.release()


def _words(size: int) -> NDArray[np.int64]:
    """Zeroed words, the first on a cache line of its own."""
    raw = np.zeros(WORD * (Sync.PARKED + size + 1), np.int64)
    skip = -raw.ctypes.data % 64 // 8
    words = raw[skip:]
    words[WORD * Sync.THREADS] = 1
    return words


def _work(follow: Entry, words: NDArray[np.int64], thread: int, lock: threading.Lock) -> None:
    """The life of a thread: sleep, do all work that comes, sleep."""
    done = 0
    while True:
        lock.acquire()
        done = follow(int(words.ctypes.data), thread, done, PATIENCE)
        if done < 0 or words[WORD * Sync.CALLED_OFF]:
            return
