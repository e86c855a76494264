"""Compile every kernel that any model could need, ahead of time."""

from __future__ import annotations

from collections.abc import Callable

from glassgear.backends.cpu import features
from glassgear.backends.cpu.layouts import FloatLayout, known_layouts
from glassgear.backends.cpu.machine_code import Kernel, machine_code
from glassgear.backends.cpu.team import TEAM_KERNELS

__all__ = ["all_kernels", "warm_up"]

ACTIVATIONS = ("silu", "gelu", "gelu_tanh", "relu", "identity")


def all_kernels(family: str) -> list[Kernel]:
    """The kernels of a family (a key of `features.KERNELS`), for all types, caches and activations."""
    wide = int(family == "avx512vnni")
    kernels = [*TEAM_KERNELS, Kernel(("cache", "rotate"))]
    kernels += [Kernel(("rows", name)) for name in ("rms_norm", "quantize", "multiply", "add_rows", "bias")]
    kernels += [Kernel(("rows", "activate", name)) for name in ACTIVATIONS]
    for half in "01":
        kernels += [Kernel(("cache", f"store_{what}", half)) for what in ("keys", "values")]
        kernels.append(Kernel(("attention", "attention", half, "6" if wide else "1")))
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
    return len(code.addresses(all_kernels(code.target.kernels), progress))
