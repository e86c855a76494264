"""Addresses -> functions: what the page asks, and what it gets.

Functions that compute are plain ones: FastAPI runs each in a thread of its own, so that a step of one
run doesn't keep the values of another waiting. Every error is a sentence in JSON.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, replace
from math import isfinite
from pathlib import Path
from typing import Annotated, Any, Literal

from fastapi import FastAPI, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, JSONResponse, Response, StreamingResponse
from fastapi.staticfiles import StaticFiles
from pydantic import BaseModel, ConfigDict, Field
from starlette.background import BackgroundTask
from starlette.exceptions import HTTPException

from glassgear._version import __version__
from glassgear.errors import GlassgearError, NotFoundError
from glassgear.languages import LANGUAGES, Language, Words, words_in
from glassgear.sampling import Sampling
from glassgear.serve import answers, files, saying
from glassgear.serve.compare import compare
from glassgear.serve.errors import Gone, TooMuch, UnknownName
from glassgear.serve.explaining import explain
from glassgear.serve.guard import Guard
from glassgear.serve.limits import Limits
from glassgear.serve.models import Models
from glassgear.serve.prompts import pipeline, prepare
from glassgear.serve.runs import Run, Runs, Step
from glassgear.trace.changes import Activate, Change, Zero

__all__ = ["PAGE", "Service", "create_app"]

PAGE = Path(__file__).parent / "page"
MOST_STEPS = 512  # tokens in one request
TOP = 64  # terms of an explanation, unless another number is asked for
FRESH = {"Cache-Control": "no-store"}
LOG = logging.getLogger("glassgear.serve")
Asked = Annotated[Language, Query(alias="lang")]


class Json(JSONResponse):
    """JSON, in which a number that isn't finite is null."""

    def render(self, content: Any) -> bytes:
        """The bytes."""
        try:
            return super().render(content)
        except ValueError:
            return super().render(_finite(content))


def _finite(content: Any) -> Any:
    if isinstance(content, dict):
        return {name: _finite(value) for name, value in content.items()}
    if isinstance(content, list | tuple):
        return [_finite(value) for value in content]
    return None if isinstance(content, float) and not isfinite(content) else content


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid")


class ModelAsked(_Body):
    """Which model to load."""

    model: str = Field(min_length=1, max_length=4096)
    random: bool = False
    seed: int = Field(0, ge=0)


class SamplingAsked(_Body):
    """Sampling settings; what is left out is the model's recommendation, or the default."""

    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    penalty_window: int | None = None
    seed: int | None = None


class ChangeAsked(_Body):
    """One thing that a run does differently."""

    op: Literal["zero", "activation"]
    path: str = Field(max_length=300)
    head: int | None = None
    to: str | None = Field(None, max_length=40)

    def made(self) -> Change:
        """As `changes.py` has it."""
        return Zero(self.path, self.head) if self.op == "zero" else Activate(self.path, self.to or "")


class RunAsked(_Body):
    """A new run."""

    model: str = Field(min_length=1, max_length=4096)
    prompt: str = ""
    chat: bool = False
    system: str | None = None
    sampling: SamplingAsked = SamplingAsked()
    changes: list[ChangeAsked] = Field([], max_length=200)


class StepAsked(_Body):
    """How many tokens, and perhaps other settings from now on."""

    count: int = Field(1, ge=0, le=MOST_STEPS)
    sampling: SamplingAsked | None = None


class BackAsked(_Body):
    """How many tokens to forget."""

    count: int = Field(1, ge=0)


class ChooseAsked(_Body):
    """Which id to take."""

    id: int


class CompareAsked(_Body):
    """Two runs."""

    a: str
    b: str
    token: int | None = None


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
        sampling = _sampling(Sampling(**entry.model.checkpoint.sampling), asked.sampling)  # type: ignore[arg-type]
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
            "changes": [_change(change) for change in run.changes],
            "recorded": "all" if run.store.whole else "asked",
            "bytes": run.nbytes,
            "cache": {
                "tokens": length,
                "bytes": counted.kv_bytes_per_token * length,
                "saved_flops": saved if decoded else 0,
            },
        }


def _change(change: Change) -> dict[str, Any]:
    op = "zero" if isinstance(change, Zero) else "activation"
    return {"op": op} | {name: value for name, value in asdict(change).items() if value is not None}


def _sampling(base: Sampling, asked: SamplingAsked | None) -> Sampling:
    given = {} if asked is None else {k: v for k, v in vars(asked).items() if v is not None}
    return replace(base, **given)


def _step(run: Run, step: Step) -> dict[str, Any]:
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


def create_app(service: Service, host: str = "127.0.0.1") -> Guard:
    """The application, with the guard around it.

    Args:
        service: models and runs.
        host: the address that the server is bound to.
    """
    app = FastAPI(title="Glassgear", version=__version__, docs_url=None, redoc_url=None, openapi_url=None)
    _errors(app)
    _models(app, service)
    _runs(app, service)
    _steps(app, service)
    _values(app, service)
    _views(app, service)
    if PAGE.is_dir():
        app.mount("/", StaticFiles(directory=PAGE, html=True))
    return Guard(app, host)


# --- errors -------------------------------------------------------------------------------------


def _errors(app: FastAPI) -> None:
    @app.exception_handler(GlassgearError)
    def engine(request: Request, trouble: GlassgearError) -> Json:
        return _failed(trouble, _words(request))

    @app.exception_handler(RequestValidationError)
    def invalid(request: Request, trouble: RequestValidationError) -> Json:
        first = trouble.errors()[0]
        where = ".".join(str(part) for part in first["loc"][1:] if first["type"] != "json_invalid")
        message = str(first["msg"])
        message = message[:1].lower() + message[1:]
        return Json({"error": _words(request)(f"{where}: {message}" if where else message)}, 400)

    @app.exception_handler(HTTPException)
    def other(request: Request, trouble: HTTPException) -> Json:
        told = "there is nothing at this address" if trouble.status_code == 404 else str(trouble.detail)
        return Json({"error": _words(request)(told)}, trouble.status_code)

    @app.exception_handler(MemoryError)
    def memory(request: Request, trouble: MemoryError) -> Json:
        told = "there isn't enough memory for this: a shorter text needs less"
        return Json({"error": _words(request)(told)}, 500)

    @app.exception_handler(Exception)
    def fault(request: Request, trouble: Exception) -> Json:
        return _failed(trouble, _words(request))


def _words(request: Request) -> Words:
    return saying.asked(request.url.query)


def _failed(trouble: Exception, words: Words) -> Json:
    """A sentence, with the status that fits."""
    if not isinstance(trouble, GlassgearError):
        debug = os.environ.get("GLASSGEAR_DEBUG", "0") not in ("", "0")
        LOG.error("fault: %s: %s", type(trouble).__name__, trouble, exc_info=trouble if debug else None)
        return Json({"error": words(f"this is a fault in Glassgear: {type(trouble).__name__}")}, 500)
    told: dict[str, Any] = {"error": words(str(trouble))}
    if isinstance(trouble, UnknownName):
        return Json(told | {"near": list(trouble.near)}, 404)
    if isinstance(trouble, Gone | NotFoundError):
        return Json(told, 404)
    return Json(told, 413 if isinstance(trouble, TooMuch) else 400)


# --- addresses ----------------------------------------------------------------------------------


def _models(app: FastAPI, service: Service) -> None:
    @app.get("/api/about")
    def about(lang: Asked = "en") -> Json:
        return Json(saying.about(service.about(), lang))

    @app.post("/api/models")
    def load(asked: ModelAsked, lang: Asked = "en") -> Response:
        entry = service.models.load(asked.model, random=asked.random, seed=asked.seed)
        return Response(saying.tree(entry.drawn, lang), media_type="application/json")

    @app.get("/api/tree")
    def tree(model: str, lang: Asked = "en") -> Response:
        return Response(saying.tree(service.models.get(model).drawn, lang), media_type="application/json")


def _runs(app: FastAPI, service: Service) -> None:
    @app.get("/api/runs")
    def listed() -> Json:
        told = [
            {
                "run": run.key,
                "model": run.entry.name,
                "prompt": run.prompt,
                "tokens_run": run.tokens_run,
                "changes": [_change(change) for change in run.changes],
            }
            for run in list(service.runs.runs.values())
        ]
        return Json({"runs": told})

    @app.post("/api/runs")
    def start(asked: RunAsked, lang: Asked = "en") -> Json:
        return Json(service.start(asked, lang))

    @app.get("/api/runs/{run}")
    def told(run: str, lang: Asked = "en") -> Json:
        return Json(service.told(service.runs.get(run), lang))

    @app.delete("/api/runs/{run}")
    def close(run: str) -> Json:
        with suppress(Gone):  # closed already: as it was asked for
            service.runs.close(run)
        return Json({"run": run, "closed": True})

    @app.post("/api/compare")
    def compared(asked: CompareAsked) -> Json:
        found = compare(service.runs.get(asked.a), service.runs.get(asked.b), asked.token)
        return Json(found)

    @app.get("/api/export")
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


def _steps(app: FastAPI, service: Service) -> None:
    @app.post("/api/runs/{run}/step")
    def step(run: str, asked: StepAsked) -> Json:
        found = service.runs.get(run)
        sampling = None if asked.sampling is None else _sampling(found.sampling, asked.sampling)
        return Json(_step(found, found.step(asked.count, sampling)))

    @app.post("/api/runs/{run}/back")
    def back(run: str, asked: BackAsked) -> Json:
        found = service.runs.get(run)
        return Json(_step(found, found.back(asked.count)))

    @app.post("/api/runs/{run}/choose")
    def choose(run: str, asked: ChooseAsked) -> Json:
        found = service.runs.get(run)
        return Json(_step(found, found.choose(asked.id)))

    @app.get("/api/runs/{run}/stream")
    def stream(
        run: str, count: Annotated[int, Query(ge=1, le=100_000)] = 64, lang: Asked = "en"
    ) -> StreamingResponse:
        found = service.runs.get(run)
        headers = {"Cache-Control": "no-store"}
        events = _events(found, count, words_in(lang))
        return StreamingResponse(events, media_type="text/event-stream", headers=headers)


def _events(run: Run, count: int, words: Words) -> Iterator[str]:
    """Server-sent events, one for each token."""
    done: str | None = "count"
    try:
        for _ in range(count):
            step = run.step(1)
            if step.ids:
                yield _event("token", _step(run, step))
            if step.done is not None:
                done = step.done
                break
        yield _event("end", {"done": done})
    except Exception as trouble:
        yield f"event: error\ndata: {bytes(_failed(trouble, words).body).decode()}\n\n"


def _event(name: str, data: dict[str, Any]) -> str:
    return f"event: {name}\ndata: {json.dumps(data)}\n\n"


def _values(app: FastAPI, service: Service) -> None:
    @app.get("/api/runs/{run}/value")
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

    @app.get("/api/runs/{run}/summary")
    def summary(run: str, path: str) -> Json:
        found = answers.summaries(service.runs.get(run), path)
        return Json(found if any(c in path for c in "*?[") else found[0])

    @app.get("/api/runs/{run}/explain")
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


def _views(app: FastAPI, service: Service) -> None:
    @app.get("/api/runs/{run}/candidates")
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
        told = answers.candidates(found, token, _sampling(found.sampling, asked), count)
        return Json(saying.candidates(told, lang))

    @app.get("/api/runs/{run}/lens")
    def lens(run: str, token: int = -1, top: int = 5, lang: Asked = "en") -> Json:
        return Json(saying.lens(answers.lens(service.runs.get(run), token, top), lang))

    @app.get("/api/runs/{run}/growth")
    def growth(run: str) -> Json:
        return Json(answers.growth(service.runs.get(run)))

    @app.get("/api/runs/{run}/heads")
    def heads(run: str, token: int = -1, top: Annotated[int, Query(ge=1, le=20)] = 3) -> Json:
        return Json(answers.heads(service.runs.get(run), token, top))

    @app.get("/api/runs/{run}/habits")
    def habits(run: str, path: Annotated[str, Query(max_length=300)] = "*.attention.weights") -> Json:
        return Json(answers.habits(service.runs.get(run), path))
