"""A list of steps that grows, and the program that it becomes.

In: a kernel and the fields of `fields.py` for each step; which fields a kernel needs is decided in
`builder.py`. Out: int64 rows with the addresses of compiled kernels.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from glassgear.backends.cpu.fields import STEP_FIELDS, Step
from glassgear.backends.cpu.machine_code import Kernel
from glassgear.backends.cpu.memory import Memory
from glassgear.backends.cpu.values import Value

__all__ = ["Fields", "Steps"]

Fields = dict[Step, int]


class Steps:
    """Steps in the order in which they run.

    Args:
        memory: where inner steps are written to.
        alone: every step ends with a meeting, so that values can be seen between steps.
    """

    def __init__(self, memory: Memory, alone: bool) -> None:
        self.memory = memory
        self._alone = alone
        self._tables: list[tuple[int, Steps]] = []  # inner steps, and where they will lie
        self._copies: list[tuple[int, Value]] = []  # numbers of steps that copy, and what
        self.steps: list[Fields] = []
        self.kernels: list[Kernel] = []
        self.queues = 0
        self.wanted = False  # whether steps are for the rows alone whose output is wanted

    @property
    def needed(self) -> list[Kernel]:
        """All kernels, those of inner steps too."""
        return self.kernels + [kernel for _, inner in self._tables for kernel in inner.kernels]

    def array(self, addresses: Mapping[Kernel, int]) -> NDArray[np.int64]:
        """The finished program, [steps, STEP_FIELDS]."""
        out = np.zeros((len(self.steps), STEP_FIELDS), np.int64)
        for row, step, kernel in zip(out, self.steps, self.kernels, strict=True):
            for field, value in step.items():
                row[field] = value
            row[Step.KERNEL] = addresses[kernel]
        self._order_copies(out)
        for address, inner in self._tables:
            rows = inner.array(addresses).view(np.uint8).reshape(-1)
            self.memory.data(address, rows.size)[:] = rows
        return out

    def _order_copies(self, program: NDArray[np.int64]) -> None:
        """Note in D which copies others must wait for: where the next step writes to what is copied."""
        fields = [field for field in range(STEP_FIELDS) if field != Step.INPUT]
        copies = {number for number, _ in self._copies}
        for number, x in self._copies:
            after = next((i for i in range(number + 1, len(program)) if i not in copies), None)
            if after is not None:
                there = program[after, fields]
                program[number, Step.D] = ((there >= x.address) & (there < x.address + x.stride)).any()

    def barrier(self, kind: int = 1) -> None:
        """Let all threads meet after the last step; `kind` 2: only where rows are shared out."""
        self.steps[-1][Step.BARRIER] = max(self.steps[-1].get(Step.BARRIER, 0), kind) if kind == 2 else 1

    def _step(self, kernel: tuple[str, ...], fields: Fields) -> None:
        self.kernels.append(Kernel(kernel))
        more = {Step.BARRIER: 1} if self._alone else {}
        self.steps.append(fields | more | ({Step.WANTED: 1} if self.wanted else {}))

    def _copy(self, x: Value, kernel: tuple[str, ...], fields: Fields) -> None:
        """A step that copies `x` to a place of which nothing is known yet."""
        self._copies.append((len(self.steps), x))
        self._step(kernel, fields)

    def _table(self, inner: Steps) -> int:
        """Address of inner steps, which are written there once this program is finished."""
        address = self.memory.raw(len(inner.steps) * STEP_FIELDS * 8)
        self._tables.append((address, inner))
        return address

    def _queue(self) -> int:
        """The number of a counter that no other step has."""
        self.queues += 1
        return self.queues - 1
