"""What each thread of the team runs: the steps of a program, with a meeting after each of them.

Threads meet at a counter in memory. One that waits spins for a while, then lets others have the
processor between looks, so that a busy machine isn't made slower by our waiting.

Words of `sync`, 8 int64 (a cache line) apart: see `Sync`.
"""

from __future__ import annotations

import sys

from llvmlite import ir
from llvmlite.binding import get_process_triple
from numba import njit, types
from numba.extending import intrinsic

from glassgear.backends.cpu.fields import STEP_FIELDS, Frame, Step, Sync
from glassgear.backends.cpu.kernels.vectors import (
    I32,
    I64,
    add_atomic,
    at,
    get_i64,
    load_atomic,
    put_i64,
    store_atomic,
    swap_atomic,
)

__all__ = ["follow", "gather", "lead"]

SPINS = 4000  # looks at a word before giving way: about 50 microseconds
STEP_BYTES = 8 * STEP_FIELDS


@intrinsic
def call_kernel(typingctx, function, step, frame, thread, threads):  # type: ignore[no-untyped-def]
    """Call a kernel by its address."""

    def codegen(context, b, sig, arguments):  # type: ignore[no-untyped-def]
        address, *rest = arguments
        kind = ir.FunctionType(I64, [I64] * 4)
        return b.call(b.inttoptr(address, ir.PointerType(kind)), rest)

    return types.int64(*[types.int64] * 5), codegen


@intrinsic
def pause(typingctx):  # type: ignore[no-untyped-def]
    """Tell the processor that this is a waiting loop, where it has a word for that."""

    def codegen(context, b, sig, arguments):  # type: ignore[no-untyped-def]
        if get_process_triple().startswith(("x86_64", "i686", "amd64")):
            name = "llvm.x86.sse2.pause"
            function = b.module.globals.get(name) or ir.Function(
                b.module, ir.FunctionType(ir.VoidType(), []), name
            )
            b.call(function, [])
        return context.get_dummy_value()

    return types.void(), codegen


@intrinsic
def give_way(typingctx):  # type: ignore[no-untyped-def]
    """Let another thread have the processor, by the C library's or the system's call for it."""

    def codegen(context, b, sig, arguments):  # type: ignore[no-untyped-def]
        name = "SwitchToThread" if sys.platform == "win32" else "sched_yield"
        function = b.module.globals.get(name) or ir.Function(b.module, ir.FunctionType(I32, []), name)
        b.call(function, [])
        return context.get_dummy_value()

    return types.void(), codegen


@njit(inline="never")
def meet(sync, threads):  # type: ignore[no-untyped-def]
    """Wait for the rest of the team. Returns 1 if the work was called off."""
    generation = sync + 64 * Sync.GENERATION
    seen = load_atomic(generation)
    if add_atomic(sync + 64 * Sync.ARRIVED, 1) == threads - 1:
        store_atomic(sync + 64 * Sync.ARRIVED, 0)
        add_atomic(generation, 1)
        return 0
    looks = 0
    while load_atomic(generation) == seen:
        looks += 1
        if looks < SPINS:
            pause()
        else:
            if looks == SPINS:
                add_atomic(sync + 64 * Sync.LONG_WAITS, 1)
            if load_atomic(sync + 64 * Sync.CALLED_OFF):
                return 1
            give_way()
    return 0


@njit(inline="never")
def run(program, count, frame, sync, thread, threads):  # type: ignore[no-untyped-def]
    """All steps of a program."""
    shared_out = at(frame, Frame.SHARED_OUT)
    for i in range(count):
        step = program + i * STEP_BYTES
        call_kernel(at(step, Step.KERNEL), step, frame, thread, threads)
        barrier = at(step, Step.BARRIER)
        if threads > 1 and (barrier == 1 or (barrier == 2 and shared_out)) and meet(sync, threads):
            return 1
    if threads > 1:
        return meet(sync, threads)
    return 0


def gather(sync: int, threads: int, unused: int, none: int) -> int:
    """Say that work is about to come, so that no thread parks. Returns those to wake, as bits."""
    swap_atomic(sync + 64 * Sync.EXPECT, 1)
    asleep = 0
    for thread in range(1, threads):
        if swap_atomic(sync + 64 * (Sync.PARKED + thread), 0):
            asleep |= 1 << thread
    return asleep


def lead(program: int, count: int, frame: int, sync: int) -> int:
    """Give the team its work and do the first share. Returns 0 when all of it is done."""
    threads = get_i64(sync + 64 * Sync.THREADS)
    if threads > 1:
        put_i64(sync + 64 * Sync.PROGRAM, program)
        put_i64(sync + 64 * Sync.COUNT, count)
        put_i64(sync + 64 * Sync.FRAME, frame)
        add_atomic(sync + 64 * Sync.JOB, 1)
        store_atomic(sync + 64 * Sync.EXPECT, 0)
    return run(program, count, frame, sync, 0, threads)


def follow(sync: int, thread: int, seen: int, patience: int) -> int:
    """Wait for work after job `seen` and do it, again and again.

    Returns:
        The last job done, when nothing came for `patience` looks and this thread has marked
        itself as parked: whoever gives work next must wake it. -1 when called off.
    """
    parked = sync + 64 * (Sync.PARKED + thread)
    job = sync + 64 * Sync.JOB
    while True:
        looks = 0
        while load_atomic(job) == seen:
            if load_atomic(sync + 64 * Sync.CALLED_OFF):
                return -1
            looks += 1
            if looks < SPINS:
                pause()
            elif looks < patience:
                give_way()
            elif load_atomic(sync + 64 * Sync.EXPECT):
                looks = SPINS
            else:
                swap_atomic(parked, 1)
                # Whoever gathers the team either sees the mark, or is seen here.
                if load_atomic(sync + 64 * Sync.EXPECT) == 0 or swap_atomic(parked, 0) == 0:
                    return seen
        seen = load_atomic(job)
        threads = get_i64(sync + 64 * Sync.THREADS)
        if thread < threads:
            program, count = get_i64(sync + 64 * Sync.PROGRAM), get_i64(sync + 64 * Sync.COUNT)
            if run(program, count, get_i64(sync + 64 * Sync.FRAME), sync, thread, threads):
                return -1
