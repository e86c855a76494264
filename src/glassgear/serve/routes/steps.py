"""A run goes on by tokens, at once or as a stream of events, and back."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Annotated, Any

from fastapi import APIRouter, Query
from fastapi.responses import StreamingResponse

from glassgear.languages import Words, words_in
from glassgear.serve.bodies import Asked, BackAsked, ChooseAsked, StepAsked
from glassgear.serve.replies import FRESH, Json, failed
from glassgear.serve.runs import Run
from glassgear.serve.service import Service, sampling_with, told_step

__all__ = ["routes"]


def routes(service: Service) -> APIRouter:
    """The addresses of this group."""
    router = APIRouter(prefix="/api/runs/{run}")

    @router.post("/step")
    def step(run: str, asked: StepAsked) -> Json:
        found = service.runs.get(run)
        sampling = None if asked.sampling is None else sampling_with(found.sampling, asked.sampling)
        return Json(told_step(found, found.step(asked.count, sampling)))

    @router.post("/back")
    def back(run: str, asked: BackAsked) -> Json:
        found = service.runs.get(run)
        return Json(told_step(found, found.back(asked.count)))

    @router.post("/choose")
    def choose(run: str, asked: ChooseAsked) -> Json:
        found = service.runs.get(run)
        return Json(told_step(found, found.choose(asked.id)))

    @router.get("/stream")
    def stream(
        run: str, count: Annotated[int, Query(ge=1, le=100_000)] = 64, lang: Asked = "en"
    ) -> StreamingResponse:
        events = _events(service.runs.get(run), count, words_in(lang))
        return StreamingResponse(events, media_type="text/event-stream", headers=FRESH)

    return router


def _events(run: Run, count: int, words: Words) -> Iterator[str]:
    """Server-sent events, one for each token."""
    done: str | None = "count"
    try:
        for _ in range(count):
            step = run.step(1)
            if step.ids:
                yield _event("token", told_step(run, step))
            if step.done is not None:
                done = step.done
                break
        yield _event("end", {"done": done})
    except Exception as trouble:
        yield f"event: error\ndata: {bytes(failed(trouble, words).body).decode()}\n\n"


def _event(name: str, data: dict[str, Any]) -> str:
    return f"event: {name}\ndata: {json.dumps(data)}\n\n"
