"""A model as the page draws it: one node a gear, with its values, tensors, formula and definition."""

from __future__ import annotations

import inspect
from dataclasses import fields
from functools import lru_cache
from pathlib import Path
from typing import Any

from glassgear.backends.reference.machine import TABLE
from glassgear.errors import TemplateError, TokenizerError
from glassgear.model.gears import Block, Gear, Model, walk
from glassgear.model.ledger import Counts, Row
from glassgear.serve.models import Entry
from glassgear.serve.prompts import tokenizer_of
from glassgear.trace.changes import ACTIVATIONS

__all__ = ["tree"]


def tree(entry: Entry) -> dict[str, Any]:
    """The whole tree as JSON."""
    model, counted = entry.model, entry.model.ledger()
    gears = dict(walk(model.gears))
    rows: dict[str, list[Row]] = {}
    for row in counted.rows:
        rows.setdefault(row.path.rpartition(".")[0], []).append(row)
    values = _values(entry, gears)
    counts, firsts = Counts(), _firsts(gears)
    nodes = [
        {
            **_described(path, gear),
            "parts": [_below(path, name) for name in gear.parts],
            "values": values.get(path, []),
            "tensors": [_tensor(row) for row in rows.get(path, [])],
            "parameters": counts.of(gear).parameters,
            "share": counts.of(gear).parameters / max(1, counted.parameters),
            **({"alike": firsts[path]} if path in firsts else {}),
        }
        for path, gear in gears.items()
    ]
    tokenizer = tokenizer_of(model)
    return {
        "model": entry.name,
        "family": model.gears.family,
        "context": model.context,
        "dim": model.gears.dim,
        "vocab": model.gears.vocab,
        "parameters": counted.parameters,
        "bytes": counted.nbytes,
        "layers": len(model.gears.blocks),
        "causal": model.gears.causal,
        "backend": model.backend.name,
        "kernels": getattr(model.backend, "kernels", None),
        "nodes": nodes,
        "sources": _sources(model.gears),
        "activations": list(ACTIVATIONS),
        "notices": [*model.checkpoint.notices, *(tokenizer.warnings if tokenizer else ())],
        "tokenizer": tokenizer is not None,
        "template": _has_template(entry),
        "sampling": dict(model.checkpoint.sampling),
    }


def _has_template(entry: Entry) -> bool:
    try:
        return entry.model.chat_template is not None
    except (TemplateError, TokenizerError):
        return False


def _below(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _described(path: str, gear: Gear) -> dict[str, Any]:
    return {
        "path": path,
        "name": path.rpartition(".")[2] or "model",
        "kind": type(gear).__name__,
        "facts": _facts(gear),
        "formula": inspect.cleandoc(type(gear).__doc__ or "").split("\n\n")[0].replace("\n", " "),
        "source": _source(type(gear))[0],
    }


def _facts(gear: Gear) -> dict[str, Any]:
    """What a gear is set to: its plain fields."""
    found = {f.name: getattr(gear, f.name) for f in fields(gear)}
    return {k: v for k, v in found.items() if isinstance(v, bool | int | float | str)}


def _tensor(row: Row) -> dict[str, Any]:
    return {
        "path": row.path,
        "shape": list(row.shape),
        "type": row.type,
        "parameters": row.parameters,
        "bytes": row.nbytes,
    }


def _values(entry: Entry, gears: dict[str, Gear]) -> dict[str, list[str]]:
    """Gear -> the values that it shows, in order: those under its own path and under no part's."""
    found: dict[str, list[str]] = {}
    for path in entry.paths:
        owner = path
        while owner and owner not in gears:
            owner = owner.rpartition(".")[0]
        found.setdefault(owner, []).append(path)
    return found


def _firsts(gears: dict[str, Gear]) -> dict[str, str]:
    """Path of each block -> path of the first one with the same form."""
    first: dict[Gear, str] = {}
    return {path: first.setdefault(gear, path) for path, gear in gears.items() if isinstance(gear, Block)}


def _source(kind: type[Gear]) -> tuple[str | None, dict[str, str]]:
    """Where the gear's definition stands: a key, and the file with the function's text."""
    return _definition(TABLE.get(kind))


@lru_cache(maxsize=64)
def _definition(function: Any) -> tuple[str | None, dict[str, str]]:
    if function is None:
        return None, {}
    name = Path(inspect.getsourcefile(function) or "").name
    text = {"file": f"glassgear/backends/reference/{name}", "text": inspect.getsource(function)}
    return f"{name}:{function.__name__}", text


def _sources(model: Model) -> dict[str, dict[str, str]]:
    found = (_source(kind) for kind in {type(gear) for _, gear in walk(model)})
    return {key: text for key, text in found if key is not None}
