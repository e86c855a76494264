"""Whether a trace is of a model: names in a file prove nothing, so paths and sizes are compared."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePath

from glassgear.backends.base import Backend
from glassgear.errors import SettingError
from glassgear.trace.shown import Shown, shown_by
from glassgear.trace.trace import Trace, Value

__all__ = ["check_model"]


def check_model(trace: Trace, backend: Backend, name: str) -> None:
    """Refuse a trace that another model made.

    Args:
        trace: of any model.
        backend: what runs the model that it should be of.
        name: of that model, or its path.

    Raises:
        SettingError: a path, a size or an id that this model doesn't have; the message names both models.
    """
    for found in _differences(trace, backend):
        ours, theirs = PurePath(name).name or name, PurePath(trace.model).name or "another model"
        raise SettingError(f"this trace is of {theirs} ({trace.family}), not of {ours}: {found}")


def _differences(trace: Trace, backend: Backend) -> Iterator[str]:
    shown, model = shown_by(backend), backend.model
    for path, value in trace.items():
        if path not in shown:
            yield f"it holds {path}, which that model doesn't have"
            continue
        have, need = _numbers(value), shown[path].nbytes // 4
        if len(value.positions) and (have != need or value.axes != shown[path].axes):
            yield f"{path} has {have:,} {_unit(shown[path])} here, {need:,} there"
    strange = max(trace.ids, default=0)
    if strange >= model.vocab:
        yield f"it holds the id {strange:,}, and that model's end at {model.vocab - 1:,}"


def _numbers(value: Value) -> int:
    """How many a token has; of scores and weights, how many for each token that it sees: heads."""
    shape: dict[str, int] = dict(zip(value.axes, value.array.shape, strict=True))
    if value.axes[-1] == "seen":
        return shape["head"]
    return int(value.array.size) // max(1, shape["token"])


def _unit(shown: Shown) -> str:
    return "heads" if shown.quadratic else "numbers a token"
