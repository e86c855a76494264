"""What is made of a run's values: candidates, the logit lens, growth, heads and their habits."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from glassgear.serve import answers, saying
from glassgear.serve.bodies import Asked, SamplingAsked
from glassgear.serve.replies import Json
from glassgear.serve.service import Service, sampling_with

__all__ = ["routes"]


def routes(service: Service) -> APIRouter:
    """The addresses of this group."""
    router = APIRouter(prefix="/api/runs/{run}")

    @router.get("/candidates")
    def candidates(
        run: str,
        token: int = -1,
        temperature: float | None = None,
        top_k: int | None = None,
        top_p: float | None = None,
        min_p: float | None = None,
        repetition_penalty: float | None = None,
        presence_penalty: float | None = None,
        frequency_penalty: float | None = None,
        penalty_window: int | None = None,
        seed: int | None = None,
        count: int = 20,
        lang: Asked = "en",
    ) -> Json:
        given = locals()
        asked = SamplingAsked(**{name: given[name] for name in SamplingAsked.model_fields})
        found = service.runs.get(run)
        told = answers.candidates(found, token, sampling_with(found.sampling, asked), count)
        return Json(saying.candidates(told, lang))

    @router.get("/lens")
    def lens(run: str, token: int = -1, top: int = 5, lang: Asked = "en") -> Json:
        return Json(saying.lens(answers.lens(service.runs.get(run), token, top), lang))

    @router.get("/growth")
    def growth(run: str) -> Json:
        return Json(answers.growth(service.runs.get(run)))

    @router.get("/heads")
    def heads(run: str, token: int = -1, top: Annotated[int, Query(ge=1, le=20)] = 3) -> Json:
        return Json(answers.heads(service.runs.get(run), token, top))

    @router.get("/habits")
    def habits(run: str, path: Annotated[str, Query(max_length=300)] = "*.attention.weights") -> Json:
        return Json(answers.habits(service.runs.get(run), path))

    return router
