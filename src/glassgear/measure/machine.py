"""The machine: what it is, how much memory a process took, how fast its memory is read."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glassgear._version import __version__
from glassgear.errors import SettingError

__all__ = ["MemoryReader", "free_memory", "hardware", "peak_memory", "versions"]

READ_BYTES = 256 << 20  # read for one figure, and the usual size of the array: past any cache of a core
PASSES = 3  # at least so often through the array, so that starting the threads weighs nothing


def hardware() -> dict[str, Any]:
    """Processor, cores, memory and system, as far as they can be told without help."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else None
    return {
        "processor": _processor(),
        "cpus": allowed,
        "memory_bytes": _memory(),
        "system": platform.platform(),
        "load_average": load,
    }


def _processor() -> str:
    with suppress(OSError), open("/proc/cpuinfo", encoding="utf-8", errors="replace") as lines:
        for line in lines:
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    if sys.platform == "darwin":
        asked = ["sysctl", "-n", "machdep.cpu.brand_string"]
        with suppress(OSError):
            return subprocess.run(asked, capture_output=True, text=True, check=False).stdout.strip()
    return platform.processor() or platform.machine()


def _memory() -> int | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):  # Windows has no sysconf
        return None


def free_memory() -> int | None:
    """Bytes that a process can still take, as the system estimates; else all there are; None: not known."""
    with suppress(OSError), open("/proc/meminfo", encoding="utf-8") as lines:
        for line in lines:
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    return _memory()


def versions(*packages: str) -> dict[str, str]:
    """Versions of Glassgear, of Python, and of the named packages that are installed."""
    found = {"glassgear": __version__, "python": platform.python_version()}
    for name in packages:
        with suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    return found


def peak_memory() -> int | None:
    """Most bytes of memory that this process ever held, mapped files included; None: not known."""
    if sys.platform == "win32":
        return _windows_peak()
    with suppress(OSError), open("/proc/self/status", encoding="utf-8") as lines:
        # Unlike getrusage, this doesn't start at the size of the process that started this one.
        for line in lines:
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def _windows_peak() -> int | None:
    import ctypes

    class Counters(ctypes.Structure):  # PROCESS_MEMORY_COUNTERS of psapi.h
        _fields_ = [("cb", ctypes.c_uint32), ("faults", ctypes.c_uint32), ("peak", ctypes.c_size_t)] + [
            (f"unused_{i}", ctypes.c_size_t) for i in range(7)
        ]

    counters = Counters(cb=ctypes.sizeof(Counters))
    kernel32 = ctypes.WinDLL("kernel32")  # type: ignore[attr-defined]
    kernel32.GetCurrentProcess.restype = ctypes.c_void_p
    ask = kernel32.K32GetProcessMemoryInfo
    ask.argtypes = [ctypes.c_void_p, ctypes.POINTER(Counters), ctypes.c_uint32]
    return counters.peak if ask(kernel32.GetCurrentProcess(), counters, counters.cb) else None


class MemoryReader:
    """Reads a large array with several threads, as fast as the machine can.

    Each thread sums its own part in a compiled loop that LLVM vectorises. It reads four places at
    a time, which is a tenth faster than one where a core is alone; prefetching adds nothing.

    Args:
        threads: how many threads read.
        nbytes: size of the array. A small one is partly served from caches.
    """

    def __init__(self, threads: int, nbytes: int = READ_BYTES) -> None:
        if threads < 1 or nbytes < 32 * threads:
            raise SettingError(f"{threads} threads can't read {nbytes} bytes")
        self.nbytes = nbytes // 8 * 8
        self._passes = max(PASSES, READ_BYTES // nbytes)
        # Ones: pages that were never written would all be the same page of zeros.
        values = np.ones(nbytes // 8, np.int64)
        self._parts = np.array_split(values, threads)
        self._total = _compiled_sum()
        self._total(values[:8], 1)

    def bandwidth(self) -> float:
        """Bytes read in a second, measured now."""
        others = [threading.Thread(target=self._total, args=(part, self._passes)) for part in self._parts[1:]]
        start = perf_counter()
        for thread in others:
            thread.start()
        self._total(self._parts[0], self._passes)
        for thread in others:
            thread.join()
        return self._passes * self.nbytes / (perf_counter() - start)


def _compiled_sum() -> Callable[[NDArray[np.int64], int], int]:
    from numba import njit

    def total(values: NDArray[np.int64], passes: int) -> int:
        # Unsigned indices: the check for negative ones costs more than the memory.
        quarter = np.uintp(len(values) // 4)
        a = b = c = d = np.int64(0)
        for k in range(passes):
            for i in range(quarter):
                a += values[i] ^ k  # another sum each time, or one pass would do for all of them
                b += values[i + quarter]
                c += values[i + 2 * quarter]
                d += values[i + 3 * quarter]
        return int(a + b + c + d)

    made: Callable[[NDArray[np.int64], int], int] = njit(nogil=True)(total)
    return made
