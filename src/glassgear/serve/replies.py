"""How an answer goes out: JSON, and for everything that went wrong a sentence with the status that fits."""

from __future__ import annotations

import logging
import os
from math import isfinite
from typing import Any

from fastapi.responses import JSONResponse

from glassgear.errors import GlassgearError, NotFoundError
from glassgear.languages import Words
from glassgear.serve.errors import Gone, TooMuch, UnknownName

__all__ = ["FRESH", "Json", "failed"]

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
