"""A run's values as numbers and as summaries, and how one number came about."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from fastapi.responses import Response

from glassgear.serve import answers
from glassgear.serve.bodies import Asked
from glassgear.serve.explaining import explain
from glassgear.serve.replies import FRESH, Json
from glassgear.serve.service import Service

__all__ = ["routes"]

TOP = 64  # terms of an explanation, unless another number is asked for


def routes(service: Service) -> APIRouter:
    """The addresses of this group."""
    router = APIRouter(prefix="/api/runs/{run}")

    @router.get("/value")
    def value(
        run: str,
        path: str,
        token: int | None = None,
        first: int | None = None,
        last: int | None = None,
        channels: Annotated[str | None, Query(pattern=r"^\d{1,9}:\d{1,9}$")] = None,
        head: int | None = None,
    ) -> Response:
        part = (
            None if channels is None else (int(channels.partition(":")[0]), int(channels.partition(":")[2]))
        )
        found = answers.numbers(
            service.runs.get(run), path, token=token, first=first, last=last, channels=part, head=head
        )
        return Response(
            found.array.tobytes(), media_type="application/octet-stream", headers={**found.headers, **FRESH}
        )

    @router.get("/summary")
    def summary(run: str, path: str) -> Json:
        found = answers.summaries(service.runs.get(run), path)
        return Json(found if any(c in path for c in "*?[") else found[0])

    @router.get("/explain")
    def explained(
        run: str,
        path: str,
        token: int,
        index: Annotated[str, Query(pattern=r"^-?\d{1,9}(,-?\d{1,9})*$")] | None = None,
        top: Annotated[int, Query(ge=0, le=1_000_000)] = TOP,
        lang: Asked = "en",
    ) -> Json:
        place = None if index is None else tuple(int(i) for i in index.split(","))
        return Json(explain(service.runs.get(run), path, token, place, top or None, language=lang))

    return router
