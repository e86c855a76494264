"""Runs: started, listed, told of, ended."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from fastapi import APIRouter

from glassgear.serve.bodies import Asked, RunAsked
from glassgear.serve.errors import Gone
from glassgear.serve.replies import Json
from glassgear.serve.runs import Run
from glassgear.serve.service import Service, told_changes

__all__ = ["routes"]


def routes(service: Service) -> APIRouter:
    """The addresses of this group."""
    router = APIRouter(prefix="/api/runs")

    @router.get("")
    def listed() -> Json:
        return Json({"runs": [_entry(run) for run in list(service.runs.runs.values())]})

    @router.post("")
    def start(asked: RunAsked, lang: Asked = "en") -> Json:
        return Json(service.start(asked, lang))

    @router.get("/{run}")
    def told(run: str, lang: Asked = "en") -> Json:
        return Json(service.told(service.runs.get(run), lang))

    @router.delete("/{run}")
    def close(run: str) -> Json:
        with suppress(Gone):  # closed already: as it was asked for
            service.runs.close(run)
        return Json({"run": run, "closed": True})

    return router


def _entry(run: Run) -> dict[str, Any]:
    return {
        "run": run.key,
        "model": run.entry.name,
        "prompt": run.prompt,
        "tokens_run": run.tokens_run,
        "changes": told_changes(run.changes),
    }
