"""Kernels: Numba functions over addresses, compiled once and kept as machine code.

`machine_code.py` (one folder up) decides when a module here is imported: only when a kernel
isn't in the cache of compiled ones yet, since importing Numba takes longer than loading them.
Every kernel has the same signature, `(step, frame, thread, threads) -> 0`, all int64; `step`
and `frame` are addresses of int64 fields, which `fields.py` names.
"""
