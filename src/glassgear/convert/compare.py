"""Whether two trees of gears compute the same, and if not, where they differ.

Before anything is written, the settings that were made for the target are read back as any reader
would; the tree that comes of them must be the one that is to be converted. What a target can't say
shows up here, whatever it is.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import fields, replace
from typing import Any

from glassgear.model.gears import Attention, Gear, Model, Residual, RMSNorm, Rope
from glassgear.model.rope import attention_factor, inverse_frequencies

__all__ = ["differences"]

# For people; and what stored weights are changed for, when the target wants it otherwise.
_UNSAID = {(Model, "family"), (RMSNorm, "offset")}


def differences(ours: Model, theirs: Model) -> Iterator[tuple[str, Any, Any]]:
    """Path, value here and value there, of every setting that isn't the same.

    Numbers that agree to float32 are the same. Which channels a rotation pairs is left out: rows are
    put in the order that the target wants; and so is what is added to a norm's weights. How a stretched
    rotation is spelled doesn't matter, as long as all its frequencies agree, and a window that is
    as wide as the context is none.
    """
    if len(ours.blocks) != len(theirs.blocks):
        yield "layers", len(ours.blocks), len(theirs.blocks)
        return
    yield from _compared("", ours, theirs, min(ours.context, theirs.context))


def _compared(path: str, ours: Any, theirs: Any, context: int) -> Iterator[tuple[str, Any, Any]]:
    if isinstance(ours, Attention) and isinstance(theirs, Attention):
        ours, theirs = _bounded(ours, context), _bounded(theirs, context)
    if isinstance(ours, Residual) and isinstance(theirs, Residual):
        yield from _residuals(path.removesuffix(".steps"), ours, theirs, context)
    elif isinstance(ours, Rope) and isinstance(theirs, Rope):
        yield from _ropes(path, ours, theirs)
    elif isinstance(ours, Gear) and type(ours) is type(theirs):
        for field in fields(ours):
            if (type(ours), field.name) not in _UNSAID:
                name = f"{path}.{field.name}".lstrip(".")
                yield from _compared(name, getattr(ours, field.name), getattr(theirs, field.name), context)
    elif isinstance(ours, tuple) and isinstance(theirs, tuple) and len(ours) == len(theirs):
        for place, (a, b) in enumerate(zip(ours, theirs, strict=True)):
            yield from _compared(path if isinstance(a, Residual) else f"{path}.{place}", a, b, context)
    elif not _same(ours, theirs):
        yield path, _shown(ours), _shown(theirs)


def _residuals(path: str, ours: Residual, theirs: Residual, context: int) -> Iterator[tuple[str, Any, Any]]:
    """A step under the names that its parts have in paths."""
    for field in fields(ours):
        name = ours.step if field.name == "gear" else f"{ours.step}_{field.name}"
        yield from _compared(
            f"{path}.{name}", getattr(ours, field.name), getattr(theirs, field.name), context
        )


def _bounded(gear: Attention, context: int) -> Attention:
    """The gear without a window that nothing can reach out of, and with its scale spelled out."""
    return replace(gear, window=gear.window if gear.window < context else 0, score_scale=gear.scale)


def _ropes(path: str, ours: Rope, theirs: Rope) -> Iterator[tuple[str, Any, Any]]:
    if ours.dim != theirs.dim:
        yield f"{path}.dim", ours.dim, theirs.dim
        return
    pairs = zip(inverse_frequencies(ours), inverse_frequencies(theirs), strict=True)
    if not all(math.isclose(a, b, rel_tol=1e-5) for a, b in pairs):
        if _same(ours.theta, theirs.theta):
            yield f"{path}.scaling", _scaling(ours), _scaling(theirs)
        else:
            yield f"{path}.theta", ours.theta, theirs.theta
    elif not math.isclose(attention_factor(ours), attention_factor(theirs), rel_tol=1e-5):
        yield f"{path}.attention_factor", attention_factor(ours), attention_factor(theirs)


def _scaling(rope: Rope) -> str:
    return rope.scaling.kind if rope.scaling else "none"


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, float) or isinstance(b, float):
        numbers = isinstance(a, int | float) and isinstance(b, int | float)
        return numbers and math.isclose(a, b, rel_tol=1e-6)
    return bool(a == b)


def _shown(value: Any) -> Any:
    return type(value).__name__ if isinstance(value, Gear) else value
