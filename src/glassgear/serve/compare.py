"""Two runs side by side: how far each gear's values are apart, and what that does to the answer."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from glassgear.errors import SettingError
from glassgear.sampling import logprobs
from glassgear.serve.answers import position
from glassgear.serve.prompts import text_of
from glassgear.serve.runs import Run
from glassgear.serve.store import Found

__all__ = ["compare"]

Floats = NDArray[np.float32]
MOST_CHANGED = 12


def compare(a: Run, b: Run, token: int | None = None) -> dict[str, Any]:
    """The difference of two runs at one token.

    Args:
        a: the run that differences are relative to.
        b: the other.
        token: the position; None: the last one that both have run.

    Raises:
        SettingError: one of them hasn't run that token.
    """
    token = min(a.tokens_run, b.tokens_run) - 1 if token is None else token
    if token < 0:
        raise SettingError("nothing has been run yet: make a step in both runs first")
    token = position(a, token)
    position(b, token)
    common = [path for path in a.entry.paths if path in b.entry.paths]
    if not common:
        raise SettingError("the two models have no value in common")
    found = a.find(common, first=token), b.find(common, first=token)
    same = _same_start(a.ids, b.ids)
    return {
        "token": token,
        "tokens": same,
        "same_tokens": same > token,
        "same_model": a.entry is b.entry,
        "gears": [_gear(path, found, token) for path in common],
        "logits": _logits(a, b, found, token),
    }


def _same_start(a: list[int], b: list[int]) -> int:
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


def _row(found: Found, path: str, token: int) -> Floats | None:
    """The value of a token, or None: an expert that it doesn't use."""
    if path not in found:
        return None
    try:
        return found.of(path, together=False).between(token, token + 1).at(token)
    except SettingError:
        return None


def _gear(path: str, found: tuple[Found, Found], token: int) -> dict[str, Any]:
    """Norm of the difference relative to the first run's value, and the cosine of the two."""
    nothing = {"path": path, "difference": None, "cosine": None}
    a, b = (_row(one, path, token) for one in found)
    if a is None or b is None or a.shape != b.shape:
        return nothing
    usable = np.isfinite(a) & np.isfinite(b)
    x, y = a[usable].astype(np.float64), b[usable].astype(np.float64)
    long, other = float(np.linalg.norm(x)), float(np.linalg.norm(y))
    apart = float(np.linalg.norm(x - y))
    return {
        "path": path,
        "difference": apart / long if long else (0.0 if not apart else None),
        "cosine": float(x @ y / (long * other)) if long and other else None,
    }


def _logits(a: Run, b: Run, found: tuple[Found, Found], token: int) -> dict[str, Any] | None:
    """KL(a || b) in nats, and the ids whose probability changed most; None: they don't share a vocabulary."""
    rows = [_row(one, "head", token) for one in found]
    if rows[0] is None or rows[1] is None or rows[0].shape != rows[1].shape:
        return None
    p, q = (logprobs(row).astype(np.float64) for row in rows if row is not None)
    change = np.exp(q) - np.exp(p)
    most = np.argsort(-np.abs(change), kind="stable")[:MOST_CHANGED]
    return {
        "kl": float((np.exp(p) * (p - q)).sum()),
        "same_top": int(p.argmax()) == int(q.argmax()),
        "top_changed": [
            {
                "id": int(i),
                "text": text_of(a.tokenizer, int(i)),
                "a": float(np.exp(p[i])),
                "b": float(np.exp(q[i])),
            }
            for i in most
        ],
    }
