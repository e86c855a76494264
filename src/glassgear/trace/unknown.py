"""The error for a name that doesn't exist, with those that are spelled alike."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches

from glassgear.errors import SettingError

__all__ = ["UnknownName", "unknown_path"]


class UnknownName(SettingError):
    """A name that doesn't exist. `near` holds names that are spelled alike."""

    def __init__(self, text: str, near: Sequence[str]) -> None:
        super().__init__(text)
        self.near = tuple(near)


def unknown_path(path: str, known: Sequence[str], what: str) -> UnknownName:
    """The error for a path that nothing has, with near ones."""
    near = get_close_matches(path[:200], known, 3, 0.5)
    hint = f": did you mean {' or '.join(near)}?" if near else ""
    return UnknownName(f"{what} {path[:200]!r}{hint}", near)
