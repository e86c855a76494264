"""Models that come with the package: they are there without being fetched."""

from __future__ import annotations

from pathlib import Path

from glassgear.weights.cache import CachedModel

__all__ = ["ABOUT", "DEFAULT", "PROMPT", "inside", "path_of"]

DEFAULT = "tiny-stories"
PROMPT = "Once upon a time"  # how most of the stories begin that it has learned from
ABOUT = {DEFAULT: "0.9 million parameters that tell small stories; comes with Glassgear"}
_FOLDER = Path(__file__).parent / "shipped"


def path_of(name: str) -> Path | None:
    """The folder of a model that comes with the package; None for any other name."""
    path = _FOLDER / name
    return path if name in ABOUT and path.is_dir() else None


def inside() -> list[CachedModel]:
    """All of them, as `glassgear list` shows them."""
    found = [(name, path) for name in ABOUT if (path := path_of(name)) is not None]
    return [
        CachedModel(
            name, path, sum(f.stat().st_size for f in path.iterdir()), "comes with Glassgear", "folder"
        )
        for name, path in found
    ]
