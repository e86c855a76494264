"""How one number of a run came about: the ordinary explanation, from what the run has recorded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from glassgear.languages import Language, words_in
from glassgear.serve.answers import position
from glassgear.serve.errors import unknown_path
from glassgear.serve.runs import Run
from glassgear.serve.store import Found
from glassgear.trace.explain import desk_for
from glassgear.trace.explain import explain as explained
from glassgear.trace.explain.said import said
from glassgear.trace.flow import flow
from glassgear.trace.pipeline import text_of
from glassgear.trace.trace import Trace, Value

__all__ = ["explain"]

SUM = " + "  # between the paths of a sum that has no name of its own


def explain(
    run: Run, path: str, token: int, index: Sequence[int] | None, top: int | None = None, *,
    language: Language = "en",
) -> dict[str, Any]:  # fmt: skip
    """An explanation as JSON.

    Args:
        run: the run.
        path: of the value; also `probability`, `sampled`, and sums as explanations name them.
        token: its token.
        index: place in the token's value; None: its largest number.
        top: list so many of the largest terms; None: all.
        language: of its sentences and names.

    Raises:
        UnknownName: no such value; near ones are named.
        SettingError: no such token or number; the message says what there is.
    """
    token = position(run, token)
    chart = flow(run.model.gears)
    for one in path.split(SUM):
        if one not in chart:
            raise unknown_path(one, list(chart), "there is no value called")

    def record(paths: Sequence[str]) -> Trace:
        known = [one for one in paths if one in run.entry.paths]
        found = run.find(list(dict.fromkeys(other for one in known for other in run.group(one))), first=token)
        return run.trace({one: _value(found, one, token, run) for one in known if one in found})

    # It begins with the value itself, and asks for what that is made from.
    shown = [one if one in run.entry.paths else "head" for one in path.split(SUM)]
    desk = desk_for(run.model.backend, run.model.checkpoint.tensors, record(shown), path)
    desk.again, desk.zeroing = record, run.hook
    if run.tokenizer is not None:
        desk.piece = partial(text_of, run.tokenizer)
    found = explained(desk, path, token, index).to_json(top)
    return found if language == "en" else said(found, words_in(language))


def _value(found: Found, path: str, token: int, run: Run) -> Value:
    """A recorded value; of logits and of what is seen, which are large, the one row that is read."""
    axes = run.entry.paths[path]
    if path != "head" and axes[-1] != "seen":
        return found[path]
    row = found.of(path, together=False).between(token, token + 1)
    if axes[-1] != "seen":
        return row
    nothing = np.float32(-np.inf if path.endswith(".scores") else 0)
    whole = np.full((len(row.array), 1, run.tokens_run), nothing)
    whole[:, :, : row.array.shape[2]] = row.array
    return replace(row, array=whole)
