"""The values of a run as a file: JSON to read, safetensors to open again."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glassgear.errors import SettingError
from glassgear.serve.errors import TooMuch, unknown_path
from glassgear.serve.runs import Run
from glassgear.trace.trace import Trace, matches

__all__ = ["as_json", "as_safetensors", "selected"]

MOST_NUMBERS = 1 << 21  # in a JSON file


def selected(run: Run, select: Sequence[str]) -> Trace:
    """The values that fit a pattern, as a trace.

    Raises:
        UnknownName: none does.
        TooMuch: more than the values of all runs may take.
    """
    if not select:
        raise SettingError("nothing is selected: `*` is everything")
    paths = [path for path in run.entry.paths if matches(path, select)]
    if not paths:
        raise unknown_path(select[0], list(run.entry.paths), "there is no value called")
    size = run.entry.size(run.tokens_run, paths)
    if size > run.limits.nbytes:
        raise TooMuch(
            f"that would be {size / 1e6:,.0f} MB: select less, such as blocks.0.*, or use `glassgear trace`"
        )
    found = run.find(paths)
    return run.trace({path: found[path] for path in paths if path in found})


def as_json(run: Run, select: Sequence[str]) -> bytes:
    """The text, the settings, and values as lists of numbers; what is no number is null.

    Raises:
        TooMuch: too many numbers for a text file.
    """
    trace = selected(run, select)
    count = sum(value.array.size for value in trace.values())
    if count > MOST_NUMBERS:
        raise TooMuch(
            f"that would be {count:,} numbers, and JSON takes up to {MOST_NUMBERS:,}: select less, such as "
            "blocks.0.ffn.down, or take safetensors"
        )
    about: dict[str, Any] = {
        "model": trace.model, "family": trace.family, "backend": trace.backend, "ids": trace.ids,
        "texts": trace.texts, "prompt": trace.prompt, "settings": dict(trace.settings),
        "changes": [vars(change) for change in run.changes],
    }  # fmt: skip
    about["values"] = {
        path: {
            "axes": value.axes,
            "shape": value.array.shape,
            "positions": value.positions.tolist(),
            "numbers": _plain(value.array),
        }
        for path, value in trace.items()
    }
    return json.dumps(about, ensure_ascii=False).encode("utf-8", "replace")


def _plain(array: NDArray[np.float32]) -> Any:
    """Nested lists; None for what isn't finite, which JSON has no word for."""
    if np.isfinite(array).all():
        return array.tolist()
    numbers = array.astype(object)
    numbers[~np.isfinite(array)] = None
    return numbers.tolist()


def as_safetensors(run: Run, select: Sequence[str]) -> str:
    """Path of a new file, which `glassgear trace --open` reads; whoever asked removes it."""
    trace = selected(run, select)
    handle, path = tempfile.mkstemp(suffix=".safetensors", prefix="glassgear-")
    os.close(handle)
    try:
        trace.save(path)
    except BaseException:
        os.unlink(path)
        raise
    return path
