"""What the server knows, and what it tells of a run as a whole."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

from glassgear._version import __version__
from glassgear.languages import LANGUAGES, Language
from glassgear.sampling import Sampling
from glassgear.serve import saying
from glassgear.serve.bodies import RunAsked, SamplingAsked
from glassgear.serve.limits import Limits
from glassgear.serve.models import Models
from glassgear.serve.prompts import pipeline, prepare
from glassgear.serve.runs import Run, Runs, Step
from glassgear.trace.changes import Change, Zero

__all__ = ["Service", "sampling_with", "told_changes", "told_step"]


class Service:
    """What the server knows: models, runs, limits.

    Args:
        models: those that are loaded, and how to load others.
        limits: see `Limits`.
    """

    def __init__(self, models: Models, limits: Limits) -> None:
        self.models, self.limits, self.runs = models, limits, Runs(limits)
        models.in_use = self.runs.models

    def about(self) -> dict[str, Any]:
        """What the page asks first."""
        return {
            "version": __version__,
            "models": self.models.listed(),
            "limits": {"tokens": self.limits.tokens, "bytes": self.limits.nbytes},
            "languages": list(LANGUAGES),
        }

    def start(self, asked: RunAsked, language: Language = "en") -> dict[str, Any]:
        """Make a run; nothing is computed yet."""
        entry = self.models.get(asked.model)
        prepared = prepare(entry.model, asked.prompt, chat=asked.chat, system=asked.system)
        recommended = Sampling(**entry.model.checkpoint.sampling)  # type: ignore[arg-type]
        sampling = sampling_with(recommended, asked.sampling)
        entry.warm()
        run = self.runs.start(entry, prepared, sampling, [change.made() for change in asked.changes])
        return {
            "run": run.key,
            "ids": run.ids,
            "texts": run.texts(run.ids),
            "special": run.special(run.ids),
            "prompt": run.prompt,
            "warnings": saying.warnings(prepared.warnings, language),
            "pipeline": pipeline(prepared),
            "sampling": run.told_sampling(),
        }

    def told(self, run: Run, language: Language = "en") -> dict[str, Any]:
        """All about a run but its values."""
        counted = run.model.ledger()
        length = run.tokens_run
        decoded = max(0, length - run.prompt)
        # Without a cache each step would read the whole text again.
        saved = sum(counted.prompt_flops(n) for n in range(run.prompt + 1, length + 1)) - sum(
            counted.flops_per_token(n) for n in range(run.prompt, length)
        )
        return {
            "run": run.key,
            "model": run.entry.name,
            "ids": run.ids,
            "texts": run.texts(run.ids),
            "special": run.special(run.ids),
            "prompt": run.prompt,
            "tokens_run": length,
            "done": run.done,
            "warnings": saying.warnings(run.prepared.warnings, language),
            "sampling": run.told_sampling(),
            "changes": told_changes(run.changes),
            "recorded": "all" if run.store.whole else "asked",
            "bytes": run.nbytes,
            "cache": {
                "tokens": length,
                "bytes": counted.kv_bytes_per_token * length,
                "saved_flops": saved if decoded else 0,
            },
        }


def sampling_with(base: Sampling, asked: SamplingAsked | None) -> Sampling:
    """Settings in which what a request asks for takes the place of what there was."""
    given = {} if asked is None else {k: v for k, v in vars(asked).items() if v is not None}
    return replace(base, **given)


def told_changes(changes: Sequence[Change]) -> list[dict[str, Any]]:
    """Changes as JSON, as a request says them."""
    return [_change(change) for change in changes]


def _change(change: Change) -> dict[str, Any]:
    op = "zero" if isinstance(change, Zero) else "activation"
    return {"op": op} | {name: value for name, value in asdict(change).items() if value is not None}


def told_step(run: Run, step: Step) -> dict[str, Any]:
    """What a step did, as JSON."""
    return {
        "run": run.key,
        "ids": step.ids,
        "texts": run.texts(step.ids),
        "special": run.special(step.ids),
        "tokens_run": run.tokens_run,
        "length": len(run.ids),
        "done": step.done,
        "ms": step.ms,
        "recorded": "all" if run.store.whole else "asked",
    }
