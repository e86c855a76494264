"""Two runs side by side: how far each gear's values are apart, and what that does to the answer.

Where an id stands for the same in both, their texts are compared id by id; else by the bytes of the texts.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glassgear.errors import SettingError
from glassgear.sampling import logprobs
from glassgear.serve.answers import largest, position
from glassgear.serve.prompts import text_of
from glassgear.serve.runs import Run
from glassgear.serve.store import Found

__all__ = ["compare", "likeliest_of_both"]

Floats = NDArray[np.float32]
LISTED = 12  # candidates of one run
OF_EACH = 5  # of each, where both are in one list


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
    by_ids = _same_vocabulary(a, b)
    texts = (_by_ids(a), _by_ids(b)) if by_ids else (_by_bytes(a), _by_bytes(b))
    same = _same_start(*texts)
    token, other = _where((a, b), texts, same) if token is None else (token, token)
    token, other = position(a, token), position(b, other)
    common = [path for path in a.entry.paths if path in b.entry.paths]
    if not common:
        raise SettingError("the two models have no value in common")
    found = a.find(common, first=token), b.find(common, first=other)
    at = token, other
    return {
        "token": token,
        "other_token": other,
        "tokens": bisect_right(texts[0].ends, same),  # of the first run, that both begin with
        "same_tokens": texts[0].ends[token] == texts[1].ends[other] <= same,
        "same_model": a.entry is b.entry,
        "alike": a.model.gears.dim == b.model.gears.dim,  # else few values have a shape in common
        "gears": [_gear(path, found, at) for path in common],
        "logits": _logits((a, b), found, at, by_ids),
    }


@dataclass(frozen=True)
class _Text:
    """A run's text as it is compared with another.

    Attributes:
        units: ids, or bytes.
        ends: for each token, how many units the text has up to its end.
    """

    units: Sequence[int]
    ends: Sequence[int]


def _by_ids(run: Run) -> _Text:
    return _Text(run.ids, range(1, len(run.ids) + 1))


def _by_bytes(run: Run) -> _Text:
    """The bytes of the text, without the control tokens and a space that the tokenizer put in front."""
    parts = [
        b"" if special else _bytes(run, token)
        for token, special in zip(run.ids, run.special(run.ids), strict=True)
    ]
    ends, text = list(accumulate(map(len, parts))), b"".join(parts)
    if run.tokenizer is None or not run.tokenizer.leading_space or not text.startswith(b" "):
        return _Text(text, ends)
    return _Text(text[1:], [max(0, end - 1) for end in ends])


def _bytes(run: Run, token: int) -> bytes:
    if run.tokenizer is None or token >= run.tokenizer.vocab_size:
        return text_of(None, token).encode()
    return run.tokenizer.token_bytes(token)


def _same_start(a: _Text, b: _Text) -> int:
    """How many units both begin with."""
    pairs = enumerate(zip(a.units, b.units, strict=False))
    return next((i for i, (x, y) in pairs if x != y), min(len(a.units), len(b.units)))


def _where(runs: tuple[Run, Run], texts: tuple[_Text, _Text], same: int) -> tuple[int, int]:
    """Which token of each to compare: after the same prompt, the last at which both texts are the same."""
    firsts = [max(0, run.prompt - 1) for run in runs]
    ends = [text.ends[first : run.tokens_run] for run, text, first in zip(runs, texts, firsts, strict=True)]
    common = max((end for end in set(ends[0]) & set(ends[1]) if end <= same), default=None)
    if common is None:
        return runs[0].tokens_run - 1, runs[1].tokens_run - 1
    return firsts[0] + ends[0].index(common), firsts[1] + ends[1].index(common)


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


def _logits(
    runs: tuple[Run, Run], found: tuple[Found, Found], at: tuple[int, int], by_ids: bool
) -> dict[str, Any] | None:
    """What may come next: each run's likeliest ids; None for a model without a head.

    Where the vocabularies are the same, also KL(a || b) in nats, and `likeliest_of_both`, with the two
    probabilities of each.
    """
    rows = [_row(one, "head", token) for one, token in zip(found, at, strict=True)]
    if rows[0] is None or rows[1] is None:
        return None
    p, q = (logprobs(row) for row in rows if row is not None)
    each = {"a": _likeliest(runs[0], p), "b": _likeliest(runs[1], q)}
    if not by_ids:
        return {"kl": None, "same_top": None, "candidates": None, **each}
    return {
        "kl": float((_shares(p) * (p.astype(np.float64) - q)).sum()),
        "same_top": int(p.argmax()) == int(q.argmax()),
        "candidates": [
            {
                "id": int(i),
                "text": text_of(runs[0].tokenizer, int(i)),
                "a": float(_shares(p[i])),
                "b": float(_shares(q[i])),
            }
            for i in likeliest_of_both(p, q)
        ],
        **each,
    }


def likeliest_of_both(p: Floats, q: Floats) -> NDArray[np.int64]:
    """The `OF_EACH` likeliest ids of each of two runs, by the larger of their two probabilities.

    Each run has its own among them, however flat it is: what a change makes likely is what one wants to see.
    Where both prefer the same ids, the next likeliest fill the list.

    Args:
        p: log probabilities of one, float32 [vocab].
        q: of the other.
    """
    higher = np.maximum(p, q)
    each = np.union1d(largest(p, OF_EACH), largest(q, OF_EACH))
    more = largest(higher, 2 * OF_EACH)
    more = more[~np.isin(more, each)][: 2 * OF_EACH - len(each)]
    ids = np.concatenate([each, more])
    ordered: NDArray[np.int64] = ids[np.argsort(-higher[ids], kind="stable")]
    return ordered


def _shares(logs: Floats) -> NDArray[np.float64]:
    """Probabilities of log probabilities."""
    shares: NDArray[np.float64] = np.exp(logs.astype(np.float64))
    return shares


def _likeliest(run: Run, p: Floats) -> list[dict[str, Any]]:
    """The likeliest ids of one run, from log probabilities."""
    return [
        {"id": int(i), "text": text_of(run.tokenizer, int(i)), "probability": float(_shares(p[i]))}
        for i in largest(p, LISTED)
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
