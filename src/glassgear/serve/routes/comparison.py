"""Two runs side by side."""

from __future__ import annotations

from fastapi import APIRouter

from glassgear.serve.bodies import CompareAsked
from glassgear.serve.compare import compare
from glassgear.serve.replies import Json
from glassgear.serve.service import Service

__all__ = ["routes"]


def routes(service: Service) -> APIRouter:
    """The addresses of this group."""
    router = APIRouter(prefix="/api")

    @router.post("/compare")
    def compared(asked: CompareAsked) -> Json:
        found = compare(service.runs.get(asked.a), service.runs.get(asked.b), asked.token)
        return Json(found)

    return router
