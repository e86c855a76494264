"""Which kernels this machine can run, and which are chosen.

The one place that asks for processor features. `GLASSGEAR_KERNELS` forces a family, for tests
and for measuring: `plain`, `avx2`, `avxvnni` or `avx512vnni`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from glassgear.errors import SettingError

__all__ = ["KERNELS", "Target", "host_features", "physical_cores", "target"]

KERNELS: dict[str, tuple[str, ...]] = {
    "avx512vnni": ("avx512f", "avx512bw", "avx512vl", "avx512dq", "avx512vnni", "fma", "f16c"),
    "avxvnni": ("avx2", "avxvnni", "fma", "f16c"),
    "avx2": ("avx2", "fma", "f16c"),
    "plain": (),
}


@dataclass(frozen=True)
class Target:
    """What to compile for.

    Attributes:
        kernels: a key of `KERNELS`.
        cpu: LLVM's name of the processor.
        flags: its features as LLVM takes them: `+avx2,-avx512f,...`.
    """

    kernels: str
    cpu: str
    flags: str


@lru_cache(maxsize=1)
def host_features() -> Mapping[str, bool]:
    """The features of this machine's processor, by LLVM's names."""
    from llvmlite import binding

    return dict(binding.get_host_cpu_features())


def target(environment: Mapping[str, str] = os.environ) -> Target:
    """The best family that this machine can run, or the one that is asked for.

    Raises:
        SettingError: `GLASSGEAR_KERNELS` names no family, or one that this machine can't run.
    """
    from llvmlite import binding

    have = host_features()
    able = [name for name, needs in KERNELS.items() if all(have.get(f, False) for f in needs)]
    chosen = environment.get("GLASSGEAR_KERNELS") or able[0]
    if chosen not in KERNELS:
        raise SettingError(f"GLASSGEAR_KERNELS is `{chosen}`; known are {', '.join(KERNELS)}")
    if chosen not in able:
        lacking = ", ".join(f for f in KERNELS[chosen] if not have.get(f, False))
        raise SettingError(f"GLASSGEAR_KERNELS is `{chosen}`, but this processor lacks {lacking}")
    wanted = dict(have)
    if chosen in ("avx2", "avxvnni"):  # as on a machine without it, so that tests here speak for one
        wanted = {
            name: on and not name.startswith(("avx512", "avx10", "evex512")) for name, on in have.items()
        }
    flags = ",".join(("+" if on else "-") + name for name, on in sorted(wanted.items()))
    cpu = binding.get_host_cpu_name()
    if chosen in ("avx2", "avxvnni"):
        cpu = "haswell"
    return Target(chosen, cpu, flags)


def physical_cores() -> int:
    """Cores that this process may use, without counting a core's second thread."""
    allowed = _allowed()
    try:
        cores = set()
        for cpu in allowed or ():
            with open(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list") as file:
                cores.add(file.read().strip())
        if cores:
            return len(cores)
    except OSError:
        pass
    return len(allowed) if allowed else os.cpu_count() or 1


def _allowed() -> set[int] | None:
    try:
        return os.sched_getaffinity(0)
    except AttributeError:  # macOS, Windows
        return None
