"""Quantise a GGUF file with llama.cpp: SOURCE TARGET TYPE [pure], the type as `Q4_K_M`.

With `pure` every matrix gets that type; otherwise llama.cpp keeps some of them in larger ones.

Run in a Python that has llama-cpp-python.
"""

from __future__ import annotations

import ctypes
import sys

import llama_cpp as api


def quantize(source: str, target: str, kind: str, pure: str = "") -> None:
    """Write `source` anew in another type; one that is quantised already is decoded first."""
    settings = api.llama_model_quantize_default_params()
    settings.ftype = getattr(api, f"LLAMA_FTYPE_MOSTLY_{kind}")
    settings.allow_requantize = True
    settings.pure = pure == "pure"
    if api.llama_model_quantize(source.encode(), target.encode(), ctypes.byref(settings)):
        raise SystemExit(f"llama.cpp can't quantise {source} to {kind}")


if __name__ == "__main__":
    quiet = api.llama_log_callback(lambda level, text, data: None)
    api.llama_log_set(quiet, ctypes.c_void_p(0))
    api.llama_backend_init()
    quantize(*sys.argv[1:5])
