"""How an answer goes out: JSON, and for everything that went wrong a sentence with the status that fits."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from math import isfinite
from typing import Any

from fastapi.responses import JSONResponse

from glassgear.errors import GlassgearError, NotFoundError
from glassgear.languages import Words
from glassgear.serve.errors import Gone, TooMuch, UnknownName

__all__ = ["FRESH", "Json", "failed", "misread"]

FRESH = {"Cache-Control": "no-store"}  # headers of what is computed anew each time
LOG = logging.getLogger("glassgear.serve")


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


def failed(trouble: Exception, words: Words) -> Json:
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


def misread(found: Mapping[str, Any]) -> str:
    """What is wrong with a request, as a sentence.

    Args:
        found: an error of pydantic's, as FastAPI hands it on: `type`, `loc`, `msg`, and for a body that is no
            JSON `ctx`, which has what Python's decoder says.
    """
    source, *where = found["loc"]
    if found["type"] == "json_invalid":
        why = str(found.get("ctx", {}).get("error", "")).removesuffix(" at").removesuffix(" starting")
        place = f", at character {where[0] + 1}" if where and isinstance(where[0], int) else ""
        return f"the body isn't valid JSON{place}: {_begun(why) or 'it ends too early'}"
    if source == "body" and not where:
        return "the body must be a JSON object with names and values"
    name = ".".join(map(str, where))
    told = _begun(str(found["msg"]))
    return f"{name}: {told}" if name else told


def _begun(text: str) -> str:
    """A sentence to stand behind a colon: abbreviations keep their capitals."""
    return text if text[1:2].isupper() else text[:1].lower() + text[1:]
