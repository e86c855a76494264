"""What is asked of a run: values, figures, candidates, views, explanations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glassgear.errors import SettingError
from glassgear.sampling import Sampling, Stage, top_k
from glassgear.serve.errors import TooMuch, unknown_path
from glassgear.serve.prompts import text_of
from glassgear.serve.runs import Run
from glassgear.trace import views
from glassgear.trace.trace import Value, matches

__all__ = [
    "Numbers",
    "candidates",
    "growth",
    "habits",
    "heads",
    "largest",
    "lens",
    "numbers",
    "position",
    "summaries",
]

Floats = NDArray[np.float32]
MOST = 1 << 22  # numbers in an answer
FEW = 8  # removed ids that are named for each stage
MOST_ROWS = 200


@dataclass(frozen=True)
class Numbers:
    """A slice of a value, as it is sent.

    Attributes:
        array: float32, little-endian, C order.
        axes: their names.
        positions: the tokens of the axis `token`.
        again: milliseconds that recording it again took; 0: it was there.
    """

    array: Floats
    axes: tuple[str, ...]
    positions: tuple[int, ...]
    again: float

    @property
    def headers(self) -> dict[str, str]:
        """What the numbers are, for the answer's head."""
        finite = self.array[np.isfinite(self.array)]
        found = {
            "X-Shape": ",".join(map(str, self.array.shape)),
            "X-Axes": ",".join(self.axes),
            "X-Positions": ",".join(map(str, self.positions)),
        }
        if finite.size:
            found |= {"X-Min": repr(float(finite.min())), "X-Max": repr(float(finite.max()))}
        return found | ({"X-Recorded-Again": f"{self.again:.0f}"} if self.again else {})


def numbers(
    run: Run,
    path: str,
    *,
    token: int | None = None,
    first: int | None = None,
    last: int | None = None,
    channels: tuple[int, int] | None = None,
    head: int | None = None,
) -> Numbers:
    """A slice of a value.

    Args:
        run: the run.
        path: of the value.
        token: one token, whose axis goes; or else
        first: the first of several tokens, and
        last: the one behind the last of them; None: all from or up to there.
        channels: of the last axis, from and up to without; None: all.
        head: one head, whose axis goes; None: all.

    Raises:
        SettingError: no such value, token, head or channels; the message says what there is.
        TooMuch: more numbers than an answer may have.
    """
    if token is not None:
        token = position(run, token)
        first, last = token, token + 1
    if not run.tokens_run:
        raise SettingError("nothing has been run yet: make a step first")
    first = 0 if first is None else first
    last = run.tokens_run if last is None else min(last, run.tokens_run)
    if not 0 <= first < last:
        raise SettingError(
            f"there are no tokens from {first} to {last - 1}: the run has 0 to {run.tokens_run - 1}"
        )
    found = run.find([path] if run.store.whole else run.group(path), first=first)
    pieces = found.of(path, together=last - first > 1)
    _check_size(pieces.path, pieces.axes, pieces.shape, last - first, channels, head)
    value = pieces.between(first, last)
    if value.axes[-1] == "seen" and run.model.gears.causal:
        value = replace(value, array=value.array[:, :, :last])
    array, axes = _cut(value, channels, head)
    if token is not None:
        array, axes = _without(array, axes, "token", 0)
    sent = np.ascontiguousarray(array, "<f4")
    return Numbers(sent, axes, tuple(value.positions.tolist()), found.again)


def position(run: Run, token: int) -> int:
    """A token's position, negative ones counted from the end.

    Raises:
        SettingError: there is no such token, or it hasn't been run.
    """
    count = run.tokens_run
    if not -count <= token < count:
        there = f"the run has tokens 0 to {count - 1}" if count else "nothing has been run yet"
        raise SettingError(f"there is no token {token}: {there}")
    return token % count


def _check_size(
    path: str,
    axes: tuple[str, ...],
    shape: tuple[int, ...],
    tokens: int,
    channels: tuple[int, int] | None,
    head: int | None,
) -> None:
    sizes = dict(zip(axes, shape, strict=True)) | {"token": tokens}
    if head is not None:
        sizes["head"] = 1
    if channels is not None:
        sizes[axes[-1]] = channels[1] - channels[0]
    count = int(np.prod(list(sizes.values())))
    if count > MOST:
        told = ", ".join(f"{size:,} {name}s" for name, size in sizes.items())
        raise TooMuch(
            f"{path} has {count:,} numbers there ({told}), and one answer holds {MOST:,}: ask for fewer "
            "tokens (first, last), channels (from:to) or one head"
        )


def _cut(value: Value, channels: tuple[int, int] | None, head: int | None) -> tuple[Floats, tuple[str, ...]]:
    array, axes = value.array, value.axes
    if channels is not None:
        low, high = channels
        if not 0 <= low < high <= array.shape[-1]:
            raise SettingError(
                f"{value.path} has the {axes[-1]}s 0 to {array.shape[-1] - 1}, not {low} to {high - 1}"
            )
        array = array[..., low:high]
    if head is not None:
        if "head" not in axes:
            raise SettingError(f"{value.path} has no heads: {', '.join(axes)} are its axes")
        count = array.shape[axes.index("head")]
        if not 0 <= head < count:
            raise SettingError(f"{value.path} has the heads 0 to {count - 1}, not {head}")
        array, axes = _without(array, axes, "head", head)
    return array, axes


def _without(array: Floats, axes: tuple[str, ...], axis: str, index: int) -> tuple[Floats, tuple[str, ...]]:
    taken: Floats = np.take(array, index, axis=axes.index(axis))
    return taken, tuple(name for name in axes if name != axis)


# --- figures ----------------------------------------------------------------------------------


def summaries(run: Run, pattern: str) -> list[dict[str, Any]]:
    """Figures of every value that fits a pattern.

    Raises:
        UnknownName: none does; near ones are named.
    """
    paths = [path for path in run.entry.paths if matches(path, [pattern])]
    if not paths:
        raise unknown_path(pattern, list(run.entry.paths), "there is no value called")
    found = run.find(paths)

    def told(path: str) -> dict[str, Any]:
        pieces = found.of(path)
        figures = views.summary_of_all(path, list(pieces.stretches()))
        return replace(figures, shape=pieces.shape).to_json()

    return [run.cached_answer(("summary", path), partial(told, path)) for path in paths if path in found]


def growth(run: Run) -> dict[str, Any]:
    """Norms of the stream and of what each step added, by layer and token."""
    return run.cached_answer(("growth",), lambda: _growth(run))  # type: ignore[no-any-return]


def _growth(run: Run) -> dict[str, Any]:
    paths = [path for path in run.entry.paths if path.startswith("blocks.") and path.count(".") <= 2]
    rows = views.growth(run.find([p for p in paths if not p.endswith("_residual")]))
    layers = [
        {"path": row.path}
        | {f"norm_{step}": _short(norms) for step, norms in row.steps.items()}
        | {"norm_stream": _short(row.stream)}
        for row in rows
    ]
    return {"layers": layers, "tokens": list(rows[0].tokens) if rows else []}


def _short(norms: Floats) -> list[float]:
    """Numbers for a curve: six digits are more than it shows."""
    return [float(f"{norm:.6g}") for norm in norms.tolist()]


def heads(run: Run, token: int, top: int = 3) -> dict[str, Any]:
    """For each layer and head the tokens that one reads most."""
    token = position(run, token)
    return run.cached_answer(("heads", token, top), lambda: _heads(run, token, top))  # type: ignore[no-any-return]


def _heads(run: Run, token: int, top: int) -> dict[str, Any]:
    paths = [path for path in run.entry.paths if path.endswith(".attention.weights")]
    found = run.find(paths)
    rows = {path: found.of(path).between(token, token + 1) for path in paths}
    layers = [
        {"path": path, "heads": [[vars(look) for look in looks] for looks in each]}
        for path, each in views.heads(rows, token, top).items()
    ]
    return {"layers": layers}


def habits(run: Run, pattern: str = "*.attention.weights") -> dict[str, Any]:
    """For each head, how much it reads the token before, the first one and the reading token itself.

    Args:
        run: the run.
        pattern: which attention weights; all of a long text may be more than there is memory for.

    Raises:
        UnknownName: no attention weights fit.
        TooMuch: they would have to be recorded again, and are too many.
    """
    return run.cached_answer(("habits", pattern), lambda: _habits(run, pattern))  # type: ignore[no-any-return]


def _habits(run: Run, pattern: str) -> dict[str, Any]:
    there = [path for path in run.entry.paths if path.endswith(".attention.weights")]
    paths = [path for path in there if matches(path, [pattern])]
    if not paths:
        raise unknown_path(pattern, there, "there are no attention weights called")
    found = run.find(paths)
    layers = []
    for path in paths:
        shares = habit_shares(found.of(path, together=False).parts)
        names, heads = list(shares), np.stack(list(shares.values()), axis=1)  # [head, habit]
        rows = [dict(zip(names, map(float, row), strict=True)) for row in heads]
        layers.append({"path": path.removesuffix(".weights"), "heads": rows})
    return {"layers": layers}


def habit_shares(parts: Sequence[tuple[Floats, NDArray[np.int64]]]) -> dict[str, NDArray[np.float64]]:
    """How much of its weight a head gives to the token before, to the first and to the reading one.

    Averages over the tokens from the third on: before it, these three are the same ones. A text of one or
    two tokens has none of these, so there its last token counts.

    Args:
        parts: pieces of attention weights [head, token, seen], each with the positions of its tokens.

    Returns:
        `previous`, `first`, `self` -> a share, 0 to 1, for each head.
    """
    last = max(int(positions[-1]) for _, positions in parts)
    begin, count = min(2, last), 0
    heads = len(parts[0][0])
    sums = {name: np.zeros(heads) for name in ("previous", "first", "self")}
    for array, positions in parts:
        rows = np.flatnonzero(positions >= begin)
        at = positions[rows]
        seen = {"previous": np.maximum(at - 1, 0), "first": np.zeros_like(at), "self": at}
        for name, columns in seen.items():
            sums[name] += array[:, rows, columns].sum(axis=1, dtype=np.float64)
        count += len(rows)
    return {name: total / max(1, count) for name, total in sums.items()}


def lens(run: Run, token: int, top: int = 5) -> dict[str, Any]:
    """What each layer would say after a token, and which one decided."""
    token, top = position(run, token), min(max(1, top), 50)
    return run.cached_answer(("lens", token, top), lambda: _lens(run, token, top))  # type: ignore[no-any-return]


def _lens(run: Run, token: int, top: int) -> dict[str, Any]:
    made_by = run.entry.lens  # says so if there is no head
    paths = [f"blocks.{i}" for i in range(len(run.model.gears.blocks))]
    found = run.find([*paths, "head"], first=token)
    rows = {path: found.of(path).between(token, token + 1) for path in paths}
    rows["head"] = found.of("head", together=False).between(token, token + 1)
    layers, decided = views.lens(rows, made_by, token, top)
    final = int(rows["head"].array[0].argmax())
    return {
        "layers": [
            {
                "path": layer.path,
                "top": [{"id": i, "text": text_of(run.tokenizer, i), "probability": p} for i, p in layer.top],
                "final": layer.final,
                "rank": layer.rank,
            }
            for layer in layers
        ],
        "decided": decided,
        "final": {"id": final, "text": text_of(run.tokenizer, final)},
        "computed_by": views.COMPUTED_BY,
    }


# --- sampling ---------------------------------------------------------------------------------


def candidates(run: Run, token: int, sampling: Sampling, count: int = 20) -> dict[str, Any]:
    """What may follow a token, stage by stage, from its logits; the model isn't run.

    Args:
        run: the run.
        token: after which one.
        sampling: the settings; without a seed the run's own.
        count: how many of the likeliest ids to list.

    Raises:
        SettingError: the token hasn't been run, or the model has no head.
    """
    token, count = position(run, token), min(max(1, count), MOST_ROWS)
    if run.model.gears.head is None:
        raise SettingError("this model has no head, so nothing can be chosen from")
    logits = run.find(["head"], first=token).of("head", together=False).between(token, token + 1).array[0]
    history = run.ids[: token + 1]
    sampler = run.sampler_at(token, sampling)
    stages = sampler.stages(logits, history)
    drawn = sampler.draw(logits, history)
    chosen = int(stages[-1].ids[0]) if drawn is None else drawn.id
    before, after = stages[0], stages[-1]
    p, final = before.probabilities, np.zeros(len(logits))
    final[after.ids] = after.probabilities
    listed = largest(before.logits, count)
    gone = _removed_by(before.ids[listed], stages)
    return {
        "stages": [_stage(run, *pair) for pair in zip([None, *stages], stages, strict=False)],
        "top": [
            {
                "id": int(before.ids[i]),
                "text": text_of(run.tokenizer, int(before.ids[i])),
                "logit": float(before.logits[i]),
                "probability": float(p[i]),
                "final": float(final[before.ids[i]]),
                "removed_by": gone.get(int(before.ids[i])),
            }
            for i in listed
        ],
        "draw": None
        if drawn is None
        else {"number": drawn.number, "interval": [drawn.low, drawn.high], "id": drawn.id},
        "chosen": {"id": chosen, "text": text_of(run.tokenizer, chosen)},
        "taken": run.ids[token + 1] if token + 1 < len(run.ids) else None,
        "seed": sampler.seed,
    }


def largest(values: Floats, count: int) -> NDArray[np.int64]:
    """Places of the largest values, largest first; of equal ones the first."""
    near = top_k(values, count)
    return near[np.argsort(-values[near], kind="stable")]


def _removed_by(ids: NDArray[np.int64], stages: Sequence[Stage]) -> dict[int, str]:
    """Of these ids, those that a stage removed, with its name."""
    found: dict[int, str] = {}
    for before, stage in pairwise(stages):
        if len(stage.ids) < len(before.ids):
            for one in ids[~np.isin(ids, stage.ids)]:
                found.setdefault(int(one), stage.name)
    return found


def _stage(run: Run, before: Stage | None, stage: Stage) -> dict[str, Any]:
    """One stage, and the likeliest of the ids that it removed."""
    told: dict[str, Any] = {"name": stage.name, "setting": stage.setting, "kept": len(stage.ids)}
    if before is None or len(before.ids) == len(stage.ids):
        return told | {"removed": [], "removed_count": 0}
    gone = ~np.isin(before.ids, stage.ids, assume_unique=True)
    ids, p = before.ids[gone], before.probabilities[gone]
    few = [int(i) for i in largest(p.astype(np.float32), FEW)]
    removed = [
        {"id": int(ids[i]), "text": text_of(run.tokenizer, int(ids[i])), "probability": float(p[i])}
        for i in few
    ]
    return told | {"removed": removed, "removed_count": len(ids), "removed_probability": float(p.sum())}
