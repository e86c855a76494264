"""Seeing inside: what a model computes between a prompt and the next token, by gear and token.

`record.py` runs a backend with a hook and keeps what passes; `trace.py` is what it gives. Nothing is
computed a second time here: every number is the backend's own.
"""

from __future__ import annotations

from glassgear.trace.record import record, sizes
from glassgear.trace.trace import Trace, Value

__all__ = ["Trace", "Value", "record", "sizes"]
