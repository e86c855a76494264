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
LISTED = 12  # candidates for the next token


def compare(a: Run, b: Run, token: int | None = None) -> dict[str, Any]:
    """The difference of two runs, each at one token.

    Args:
        a: the run that differences are relative to.
        b: the other.
        token: the position in both. None: the last token of each; of runs that began with the same
            prompt, the last one before their texts part.

    Raises:
        SettingError: one of them hasn't run that token.
    """
    if not (a.tokens_run and b.tokens_run):
        raise SettingError("nothing has been run yet: make a step in both runs first")
    same = _same_start(a.ids, b.ids)
    token, other = _where(a, b, same) if token is None else (token, token)
    token, other = position(a, token), position(b, other)
    common = [path for path in a.entry.paths if path in b.entry.paths]
    if not common:
        raise SettingError("the two models have no value in common")
    found = a.find(common, first=token), b.find(common, first=other)
    at = token, other
    return {
        "token": token,
        "other_token": other,
        "tokens": same,
        "same_tokens": same > token,
        "same_model": a.entry is b.entry,
        "alike": a.model.gears.dim == b.model.gears.dim,  # else few values have a shape in common
        "gears": [_gear(path, found, at) for path in common],
        "logits": _logits((a, b), found, at),
    }


def _where(a: Run, b: Run, same: int) -> tuple[int, int]:
    """Which token of each to compare: after the same prompt, the last one that both have in common."""
    shared = min(same, a.tokens_run, b.tokens_run)
    if shared and shared >= max(a.prompt, b.prompt):
        return shared - 1, shared - 1
    return a.tokens_run - 1, b.tokens_run - 1


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


def _gear(path: str, found: tuple[Found, Found], at: tuple[int, int]) -> dict[str, Any]:
    """Norm of the difference relative to the first run's value, and the cosine of the two."""
    nothing = {"path": path, "difference": None, "cosine": None}
    a, b = (_row(one, path, token) for one, token in zip(found, at, strict=True))
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


def _logits(runs: tuple[Run, Run], found: tuple[Found, Found], at: tuple[int, int]) -> dict[str, Any] | None:
    """What may come next: each run's likeliest ids; None for a model without a head.

    Where the vocabularies are the same, also KL(a || b) in nats, and the ids that are likely in one of the
    two, the likeliest first.
    """
    rows = [_row(one, "head", token) for one, token in zip(found, at, strict=True)]
    if rows[0] is None or rows[1] is None:
        return None
    p, q = (logprobs(row).astype(np.float64) for row in rows if row is not None)
    each = {"a": _likeliest(runs[0], p), "b": _likeliest(runs[1], q)}
    if not _same_vocabulary(*runs):
        return {"kl": None, "same_top": None, "candidates": None, **each}
    most = np.argsort(-np.maximum(p, q), kind="stable")[:LISTED]
    return {
        "kl": float((np.exp(p) * (p - q)).sum()),
        "same_top": int(p.argmax()) == int(q.argmax()),
        "candidates": [
            {
                "id": int(i),
                "text": text_of(runs[0].tokenizer, int(i)),
                "a": float(np.exp(p[i])),
                "b": float(np.exp(q[i])),
            }
            for i in most
        ],
        **each,
    }


def _likeliest(run: Run, p: NDArray[np.float64]) -> list[dict[str, Any]]:
    """The likeliest ids of one run, from log probabilities."""
    return [
        {"id": int(i), "text": text_of(run.tokenizer, int(i)), "probability": float(np.exp(p[i]))}
        for i in np.argsort(-p, kind="stable")[:LISTED]
    ]


def _same_vocabulary(a: Run, b: Run) -> bool:
    """Whether an id stands for the same in both, as far as a thousand of them can tell."""
    size = a.model.gears.vocab
    if size != b.model.gears.vocab:
        return False
    if a.entry is b.entry or (a.tokenizer is None and b.tokenizer is None):
        return True
    ids = range(0, size, max(1, size // 1000))
    return a.texts(ids) == b.texts(ids)
