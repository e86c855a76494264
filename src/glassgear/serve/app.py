"""The application: every group of addresses, what is said when one fails, and the guard around it.

What the addresses are and what each of them answers stands in `routes/`.
"""

from __future__ import annotations

from pathlib import Path

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.staticfiles import StaticFiles
from starlette.exceptions import HTTPException

from glassgear._version import __version__
from glassgear.errors import GlassgearError
from glassgear.languages import Words
from glassgear.serve import saying
from glassgear.serve.guard import Guard
from glassgear.serve.replies import Json, failed, misread
from glassgear.serve.routes import GROUPS
from glassgear.serve.service import Service

__all__ = ["PAGE", "Service", "create_app"]

PAGE = Path(__file__).parent / "page"
SAID = {  # in our own words, by status; nothing here gives one of these but the framework
    400: "the body can't be read: it must be JSON in UTF-8, not too deeply nested",
    404: "there is nothing at this address",
}


def create_app(service: Service, host: str = "127.0.0.1") -> Guard:
    """The application, with the guard around it.

    Args:
        service: models and runs.
        host: the address that the server is bound to.
    """
    app = FastAPI(title="Glassgear", version=__version__, docs_url=None, redoc_url=None, openapi_url=None)
    _errors(app)
    for routes in GROUPS:
        app.include_router(routes(service))
    if PAGE.is_dir():
        app.mount("/", StaticFiles(directory=PAGE, html=True))
    return Guard(app, host)


def _errors(app: FastAPI) -> None:
    @app.exception_handler(GlassgearError)
    def engine(request: Request, trouble: GlassgearError) -> Json:
        return failed(trouble, _words(request))

    @app.exception_handler(RequestValidationError)
    def invalid(request: Request, trouble: RequestValidationError) -> Json:
        return Json({"error": _words(request)(misread(trouble.errors()[0]))}, 400)

    @app.exception_handler(HTTPException)
    def other(request: Request, trouble: HTTPException) -> Json:
        told = SAID.get(trouble.status_code, str(trouble.detail))
        return Json({"error": _words(request)(told)}, trouble.status_code)

    @app.exception_handler(MemoryError)
    def memory(request: Request, trouble: MemoryError) -> Json:
        told = "there isn't enough memory for this: a shorter text needs less"
        return Json({"error": _words(request)(told)}, 500)

    @app.exception_handler(Exception)
    def fault(request: Request, trouble: Exception) -> Json:
        return failed(trouble, _words(request))


def _words(request: Request) -> Words:
    return saying.asked(request.url.query)
