"""What can be loaded, and a model's tree."""

from __future__ import annotations

from fastapi import APIRouter
from fastapi.responses import Response

from glassgear.serve import saying
from glassgear.serve.bodies import Asked, ModelAsked
from glassgear.serve.replies import Json
from glassgear.serve.service import Service

__all__ = ["routes"]


def routes(service: Service) -> APIRouter:
    """The addresses of this group."""
    router = APIRouter(prefix="/api")

    @router.get("/about")
    def about(lang: Asked = "en") -> Json:
        return Json(saying.about(service.about(), lang))

    @router.post("/models")
    def load(asked: ModelAsked, lang: Asked = "en") -> Response:
        entry = service.models.load(asked.model, random=asked.random, seed=asked.seed)
        return Response(saying.tree(entry.drawn, lang), media_type="application/json")

    @router.get("/tree")
    def tree(model: str, lang: Asked = "en") -> Response:
        return Response(saying.tree(service.models.get(model).drawn, lang), media_type="application/json")

    return router
