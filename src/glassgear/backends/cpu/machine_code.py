"""Kernels as machine code: compiled by Numba when first needed, then kept on disk.

Numba's own cache loads Numba to load a kernel, and one index file serves several kernels. Here
the compiled object goes into a file of its own, and loading one takes LLVM alone: a program
whose kernels are all cached starts without importing Numba. A cache folder belongs to one
version of the kernels' sources, of Numba and llvmlite, and to one kind of processor, so nothing
in it can be out of date; files appear whole or not at all, so processes may share it.
"""

from __future__ import annotations

import ctypes
import hashlib
import importlib
import os
import platform
import re
import sys
import tempfile
import threading
import zlib
from collections.abc import Callable, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from glassgear._version import __version__
from glassgear.backends.cpu.features import Target
from glassgear.weights.cache import cache_folder

__all__ = ["Entry", "Kernel", "MachineCode", "compiling", "entry", "kernel_folder", "machine_code"]

Progress = Callable[[str], None]
MAGIC = b"glassgear kernel 1\n"
_KERNELS = Path(__file__).parent / "kernels"
_lock = threading.Lock()


class Kernel(tuple[str, ...]):
    """What to compile: `("matmul", "quant_matmul", "q4m")`: a module, a function, its choices."""

    @property
    def file_name(self) -> str:
        """A name that no other kernel has."""
        return "-".join(self) + ".o"


def kernel_folder(target: Target) -> Path | None:
    """A folder in which compiled kernels can be kept; None if there is none to write to."""
    names = [os.environ.get("GLASSGEAR_KERNEL_CACHE"), cache_folder() / "kernels"]
    names.append(Path(tempfile.gettempdir()) / f"glassgear-{_user()}")
    for name in names:
        if not name:
            continue
        folder = Path(name) / _stamp(target)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            if os.access(folder, os.W_OK) and _is_ours(folder):
                return folder
        except OSError:
            continue
    return None


def _user() -> str:
    return str(os.getuid()) if hasattr(os, "getuid") else os.environ.get("USERNAME", "user")


def _is_ours(folder: Path) -> bool:
    """Machine code is run as found: a folder that another user owns is not to be trusted."""
    return not hasattr(os, "getuid") or folder.stat().st_uid == os.getuid()


def _stamp(target: Target) -> str:
    """One name for everything that the compiled code depends on."""
    seen = hashlib.sha256()
    folder = Path(__file__).parent
    for path in sorted([*_KERNELS.glob("*.py"), folder / "fields.py", folder / "layouts.py", Path(__file__)]):
        seen.update(path.name.encode() + b"\0" + path.read_bytes())
    for name in ("numba", "llvmlite", "numpy"):
        try:
            seen.update(f"{name} {version(name)}".encode())
        except PackageNotFoundError:
            seen.update(name.encode())
    python = f"{sys.implementation.cache_tag} {platform.machine()} {sys.platform}"
    seen.update(f"{python} {target.cpu} {target.flags} {target.kernels}".encode())
    return f"{__version__}-{target.kernels}-{seen.hexdigest()[:16]}"


_made: dict[Target, MachineCode] = {}


def machine_code(target: Target) -> MachineCode:
    """The compiled kernels of this process for a target. They are never unloaded.

    A thread may still be in one of them when the model that it worked for is gone.
    """
    with _lock:
        if target not in _made:
            _made[target] = MachineCode(target)
        return _made[target]


class MachineCode:
    """Compiled kernels; see `machine_code`.

    Args:
        target: the machine, and which family of kernels to use.
    """

    def __init__(self, target: Target) -> None:
        from llvmlite import binding

        self.target = target
        self._binding = binding
        self._folder = kernel_folder(target)
        self._addresses: dict[Kernel, int] = {}
        binding.initialize_native_target()
        binding.initialize_native_asmprinter()
        self._machine = binding.Target.from_default_triple().create_target_machine(
            cpu=target.cpu, features=target.flags, opt=3, codemodel="jitdefault", jit=True
        )
        self._engine = binding.create_mcjit_compiler(binding.parse_assembly(""), self._machine)

    def addresses(self, kernels: Sequence[Kernel], progress: Progress | None = None) -> dict[Kernel, int]:
        """Where each kernel lies; those that aren't in the cache are compiled.

        Args:
            kernels: what is needed.
            progress: is told, in a line, what is being compiled.
        """
        with _lock:
            wanted = [k for k in dict.fromkeys(kernels) if k not in self._addresses]
            found = {k: self._stored(k) for k in wanted}
            missing = [k for k in wanted if found[k] is None]
            for done, kernel in enumerate(missing):
                if progress is not None:
                    progress(compiling(done, len(missing)))
                found[kernel] = self._compiled(kernel)
            for code in found.values():
                assert code is not None
                self._engine.add_object_file(self._binding.ObjectFileRef.from_data(code))
            if found:
                self._engine.finalize_object()
            for kernel in found:
                self._addresses[kernel] = self._engine.get_function_address(_symbol(kernel))
            return {k: self._addresses[k] for k in kernels}

    def missing(self, kernels: Sequence[Kernel]) -> list[Kernel]:
        """Those that the cache doesn't hold yet."""
        return [kernel for kernel in dict.fromkeys(kernels) if self._stored(kernel) is None]

    def _stored(self, kernel: Kernel) -> bytes | None:
        """A kernel's object from the cache; a file that isn't whole counts as none."""
        if self._folder is None:
            return None
        try:
            data = (self._folder / kernel.file_name).read_bytes()
        except OSError:
            return None
        head, code = data[: len(MAGIC) + 4], data[len(MAGIC) + 4 :]
        sound = head[:-4] == MAGIC and int.from_bytes(head[-4:], "little") == zlib.crc32(code)
        return code if sound else None

    def _compiled(self, kernel: Kernel) -> bytes:
        code = _emit(kernel, self.target, self._machine)
        if self._folder is not None:
            data = MAGIC + zlib.crc32(code).to_bytes(4, "little") + code
            try:
                handle, name = tempfile.mkstemp(dir=self._folder, suffix=".part")
                with os.fdopen(handle, "wb") as file:
                    file.write(data)
                os.replace(name, self._folder / kernel.file_name)
            except OSError:  # a full or vanished disk costs time, not the run
                pass
        return code


def compiling(done: int, of: int) -> str:
    """The line that says so."""
    return f"compiling kernels for this processor, once: {done + 1} of {of}"


def _symbol(kernel: Kernel) -> str:
    return "glassgear_" + "_".join(kernel)


def _emit(kernel: Kernel, target: Target, machine: Any) -> bytes:
    """Compile one kernel with Numba, and take its object code."""
    module, name, *choices = kernel
    function = getattr(importlib.import_module(f"glassgear.backends.cpu.kernels.{module}"), name)
    if choices:
        function = function(*(int(c) if c.isdigit() else c for c in choices))
    text, wrapper = _lowered(function)
    return _object(text, wrapper, _symbol(kernel), machine)


def _lowered(function: Any) -> tuple[str, str]:
    """LLVM code of a kernel with all that it calls, and the name of Numba's wrapper.

    Numba would optimise each function, and again with every one that calls it. All of it is
    optimised once instead, in `_object`.
    """
    from numba import cfunc
    from numba.core import config

    before = config.OPT
    config.OPT = config._OptLevel(0)
    try:
        compiled = cfunc("int64(int64,int64,int64,int64)", nopython=True, error_model="numpy")(function)
        return compiled.inspect_llvm(), compiled.native_name
    finally:
        config.OPT = before


_WRAPPER = """
define i64 @{symbol}(i64 %a, i64 %b, i64 %c, i64 %d) {{
  %result = alloca i64
  %error = alloca i8*
  %status = call i32 @{inner}(i64* %result, i8** %error, i64 %a, i64 %b, i64 %c, i64 %d)
  %value = load i64, i64* %result
  ret i64 %value
}}
"""


def _object(text: str, wrapper: str, symbol: str, machine: Any) -> bytes:
    """Object code of Numba's LLVM code, without its own wrapper, which needs Numba and Python.

    Kernels raise nothing, so all that a call takes is room for the result.
    """
    from llvmlite import binding

    inner = wrapper.removeprefix("cfunc.")
    shell = _WRAPPER.format(symbol=symbol, inner=inner)
    if binding.llvm_version_info[0] >= 17:  # pointers have no types any more
        shell = re.sub(r"i\d+\*+", "ptr", shell)
    text = re.sub(r'define [^\n]*@"?cfunc\.[^\n]*\{\n.*?\n\}\n', "", text, flags=re.DOTALL)
    made = binding.parse_assembly(text + shell)
    for function in made.functions:
        if function.name != symbol and not function.is_declaration:
            function.linkage = binding.Linkage.internal
    needed = {
        f.name for f in made.functions if f.is_declaration and re.search(rf"call [^\n]*@{f.name}\\b", text)
    }
    assert {name for name in needed if not name.startswith("llvm.")} <= _AVAILABLE, needed
    made.verify()
    options = binding.create_pipeline_tuning_options(speed_level=3)
    options.loop_vectorization = options.loop_unrolling = True
    passes = binding.create_pass_builder(machine, options)
    passes.getModulePassManager().run(made, passes)
    return bytes(machine.emit_object(made))


# What a kernel may call: the C library's, which every process has.
_AVAILABLE = {"sched_yield", "SwitchToThread", "memset", "memcpy", "sqrtf"}


Entry = Callable[[int, int, int, int], int]


def entry(address: int) -> Entry:
    """A kernel as a Python function; others may run Python while it works."""
    return ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_int64] * 4)(address)
