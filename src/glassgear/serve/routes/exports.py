"""A run's values as a file."""

from __future__ import annotations

import os
from typing import Literal

from fastapi import APIRouter
from fastapi.responses import FileResponse, Response
from starlette.background import BackgroundTask

from glassgear.serve import files
from glassgear.serve.service import Service

__all__ = ["routes"]


def routes(service: Service) -> APIRouter:
    """The addresses of this group."""
    router = APIRouter(prefix="/api")

    @router.get("/export")
    def export(run: str, what: Literal["json", "safetensors"] = "json", select: str = "*") -> Response:
        found, patterns = service.runs.get(run), [word for word in select.split(",") if word]
        if what == "json":
            named = {"Content-Disposition": 'attachment; filename="trace.json"'}
            return Response(files.as_json(found, patterns), media_type="application/json", headers=named)
        path = files.as_safetensors(found, patterns)
        return FileResponse(
            path,
            media_type="application/octet-stream",
            filename="trace.safetensors",
            background=BackgroundTask(os.unlink, path),
        )

    return router
