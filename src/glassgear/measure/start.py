"""A fresh process up to its first token: what a person waits for."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from dataclasses import dataclass
from time import perf_counter
from typing import Any

from glassgear.errors import GlassgearError

__all__ = ["Start", "cold_start"]

# What the fresh process does. It imports what `glassgear run` would, and nothing of this package.
_PROGRAM = """
import json, sys
from time import perf_counter
start = perf_counter()
import glassgear
options = json.loads(sys.argv[2])
model = glassgear.load(sys.argv[1], **options)
loaded = perf_counter()
ids = [0] if model._tokenizer is None else model.encode("Once upon a time")
next(model.generate(ids[: model.context], max_tokens=1, temperature=0, ignore_eos=True))
print(loaded - start, perf_counter() - loaded, flush=True)
"""


@dataclass(frozen=True)
class Start:
    """A fresh process up to its first token, in seconds.

    Attributes:
        total: from the start of the process until its first token was out.
        load: of that, importing Glassgear and loading the model.
        first: of that, the prompt and the first token, text included.
    """

    total: float
    load: float
    first: float


def cold_start(path: str, **options: Any) -> Start:
    """Start Python anew, load a model there, and time its first token.

    Args:
        path: a path or name, as `glassgear.load` takes it.
        **options: its options, as far as JSON can hold them.

    Raises:
        GlassgearError: it didn't work there; the message ends with what that process said.
    """
    import json

    command = [sys.executable, "-c", _PROGRAM, path, json.dumps(options)]
    with tempfile.TemporaryFile() as errors:
        start = perf_counter()
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors) as child:
            assert child.stdout is not None
            line = child.stdout.readline()
            total = perf_counter() - start
        if not line:
            errors.seek(0)
            said = errors.read().decode(errors="replace").strip().splitlines() or ["it said nothing"]
            raise GlassgearError(f"a fresh process made no token; its last words: {said[-1]}")
    load, first = map(float, line.split())
    return Start(total, load, first)
