"""How one number of a run came about: the ordinary explanation, from what the run has recorded."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from glassgear.serve.answers import position
from glassgear.serve.errors import unknown_path
from glassgear.serve.runs import Run
from glassgear.serve.store import Found
from glassgear.trace.explain import desk_for
from glassgear.trace.explain import explain as explained
from glassgear.trace.flow import flow
from glassgear.trace.trace import Trace, Value

__all__ = ["explain"]

SUM = " + "  # between the paths of a sum that has no name of its own


def explain(
    run: Run, path: str, token: int, index: Sequence[int] | None, top: int | None = None
) -> dict[str, Any]:
    """An explanation as JSON.

    Args:
        run: the run.
        path: of the value; also `probability`, `sampled`, and sums as explanations name them.
        token: its token.
        index: place in the token's value; None: its largest number.
        top: list so many of the largest terms; None: all.

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
        return run.trace({one: _value(found, one, token) for one in known if one in found})

    # It begins with the value itself, and asks for what that is made from.
    shown = [one if one in run.entry.paths else "head" for one in path.split(SUM)]
    desk = desk_for(run.model.backend, run.model.checkpoint.tensors, record(shown), path)
    desk.again = record
    if run.tokenizer is not None:
        desk.piece = run.tokenizer.piece
    return explained(desk, path, token, index).to_json(top)


def _value(found: Found, path: str, token: int) -> Value:
    """A recorded value; of logits, which are large and of which no other row is read, one token's."""
    return found.of("head", together=False).between(token, token + 1) if path == "head" else found[path]
