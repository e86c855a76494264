"""What goes wrong with a request, beside the errors of the engine."""

from __future__ import annotations

from glassgear.errors import GlassgearError
from glassgear.trace.unknown import UnknownName, unknown_path

__all__ = ["Gone", "TooMuch", "UnknownName", "unknown_path"]


class Gone(GlassgearError):
    """What is asked for isn't there (any more): 404. So is an `UnknownName`."""


class TooMuch(GlassgearError):
    """An answer, or a request, would be too large: 413."""
