"""Compile every kernel that any model could need, ahead of time."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Sequence

from glassgear.backends.cpu import features
from glassgear.backends.cpu.layouts import FloatLayout, known_layouts
from glassgear.backends.cpu.machine_code import Kernel, MachineCode, compiling, kernel_folder, machine_code
from glassgear.backends.cpu.team import TEAM_KERNELS

__all__ = ["all_kernels", "warm_up"]

ACTIVATIONS = ("silu", "gelu", "gelu_tanh", "relu", "identity", "tanh")
ONE_FORM = (
    ("cache", "rotate"), ("columns", "copy"), ("columns", "join"), ("columns", "neighbours"),
    ("columns", "place_heads"),
    ("experts", "combine"), ("experts", "dispatch"), ("experts", "gather"), ("experts", "route"),
    ("experts", "score"), ("norms", "norm"), ("rows", "multiply"), ("rows", "quantize"),
)  # fmt: skip


def all_kernels(family: str) -> list[Kernel]:
    """The kernels of a family (a key of `features.KERNELS`), for all types, caches and activations."""
    wide = int(family == "avx512vnni")
    kernels = [*TEAM_KERNELS, *(Kernel(name) for name in ONE_FORM)]
    kernels += [Kernel(("rows", "activate", name)) for name in ACTIVATIONS]
    for half in "01":
        kernels += [Kernel(("cache", f"store_{what}", half)) for what in ("keys", "values")]
        rows = "6" if wide else "1"
        kernels.append(Kernel(("attention", "attention", half, rows)))
    if wide:
        kernels += [Kernel(("cache", f"store_{what}_codes")) for what in ("key", "value")]
        kernels.append(Kernel(("attention", "attention", "2", "6")))
    for layout in known_layouts():
        if isinstance(layout, FloatLayout):
            kernels.append(Kernel(("matmul", "float_matmul", layout.key, str(wide))))
        else:
            kernels.append(Kernel(("matmul", "quant_matmul", layout.key, family)))
    return kernels


def warm_up(progress: Callable[[str], None] | None = None) -> int:
    """Compile what isn't in the cache yet, so that no model has to wait for it later.

    Args:
        progress: is told, in a line, what is being compiled.

    Returns:
        How many kernels there are.
    """
    code = machine_code(features.target())
    kernels = all_kernels(code.target.kernels)
    if kernel_folder(code.target) is not None and sys.executable:
        _compile_beside(code, kernels, progress)
    return len(code.addresses(kernels, progress))  # and compile here what the others left


def _compile_beside(
    code: MachineCode, kernels: Sequence[Kernel], progress: Callable[[str], None] | None
) -> None:
    """Compile in a process for each core: within one, Numba compiles one thing at a time."""
    missing = left = code.missing(kernels)
    count = min(features.physical_cores(), len(missing))
    if count < 2:
        return
    shares = [["-".join(kernel) for kernel in missing[i::count]] for i in range(count)]
    workers = [_start(share) for share in shares]
    try:
        while any(worker.poll() is None for worker in workers):
            left = code.missing(left)
            if progress is not None and left:
                progress(compiling(len(missing) - len(left), len(missing)))
            time.sleep(0.1)
    finally:
        for worker in workers:
            worker.terminate()
            worker.wait()


def _start(names: list[str]) -> subprocess.Popen[bytes]:
    """A process that compiles some kernels and says nothing: what fails is compiled here again."""
    nothing = subprocess.DEVNULL
    command = [sys.executable, "-m", __name__, *names]
    return subprocess.Popen(command, stdin=nothing, stdout=nothing, stderr=nothing)


if __name__ == "__main__":
    machine_code(features.target()).addresses([Kernel(name.split("-")) for name in sys.argv[1:]])
