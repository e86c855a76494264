"""Models that come with the package: they are there without being fetched."""

from __future__ import annotations

from pathlib import Path

from glassgear.weights.cache import CachedModel

__all__ = [
    "ABOUT",
    "DEFAULT",
    "EXAMPLE",
    "EXAMPLE_WORDS",
    "PROMPT",
    "example",
    "inside",
    "is_example",
    "path_of",
]

DEFAULT = "tiny-stories"
PROMPT = "Once upon a time"  # how most of the stories begin that it has learned from
ABOUT = {DEFAULT: "0.9 million parameters that tell small stories; comes with Glassgear"}
EXAMPLE = "worked-example"  # the block that `glassgear lab worked-example` works out by hand
EXAMPLE_WORDS = ("西安", "今天", "的", "天气", "怎么样", "？")  # its vocabulary: places are ids
_FOLDER = Path(__file__).parent / "shipped"


def example() -> Path:
    """The model file of the worked example."""
    return Path(__file__).parents[1] / "lab" / "worked_example.toml"


def is_example(path: Path | str) -> bool:
    """Whether a path is that file: its words are its vocabulary, and a model file has no place for any."""
    return Path(path) == example()


def path_of(name: str) -> Path | None:
    """The folder or file of a model that comes with the package; None for any other name."""
    if name == EXAMPLE:
        return example()
    path = _FOLDER / name
    return path if name in ABOUT and path.is_dir() else None


def inside() -> list[CachedModel]:
    """All of them, as `glassgear list` shows them: the models, and then the example."""
    found = [(name, path) for name in ABOUT if (path := path_of(name)) is not None]
    models = [
        CachedModel(
            name, path, sum(f.stat().st_size for f in path.iterdir()), "comes with Glassgear", "folder"
        )
        for name, path in found
    ]
    size = example().stat().st_size
    return [*models, CachedModel(EXAMPLE, example(), size, "an example; comes with Glassgear", "model file")]
