"""Glassgear: a transformer language-model engine in Python with every gear on show.

    import glassgear
    model = glassgear.load("smollm2-135m")
    for piece in model.generate("Once upon a time", max_tokens=40):
        print(piece, end="", flush=True)

Names are looked up when first used, so that importing the package costs next to nothing.
"""

from __future__ import annotations

from importlib import import_module

from glassgear._version import __version__

TYPE_CHECKING = False  # type checkers take it for true; `typing` takes longer than all else here
if TYPE_CHECKING:
    from typing import Any

    from glassgear.encode import Candidate, Gap
    from glassgear.errors import (
        ContextFullError,
        DownloadError,
        FileError,
        FormatError,
        GlassgearError,
        NonFiniteError,
        NotFoundError,
        SettingError,
        TemplateError,
        TokenizerError,
        UnsupportedError,
    )
    from glassgear.generate import Piece, TokenLogprob
    from glassgear.language_model import LanguageModel, Score
    from glassgear.loading import load, load_tokenizer
    from glassgear.sampling import Sampling
    from glassgear.session import Session
    from glassgear.weights.pull import pull

_HOMES = {
    "encode": ("Candidate", "Gap"),
    "errors": (
        "ContextFullError", "DownloadError", "FileError", "FormatError", "GlassgearError", "NonFiniteError",
        "NotFoundError", "SettingError", "TemplateError", "TokenizerError", "UnsupportedError",
    ),
    "generate": ("Piece", "TokenLogprob"),
    "language_model": ("LanguageModel", "Score"),
    "session": ("Session",),
    "loading": ("load", "load_tokenizer"),
    "sampling": ("Sampling",),
    "weights.pull": ("pull",),
}  # fmt: skip
_HOME = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "Candidate",
    "ContextFullError",
    "DownloadError",
    "FileError",
    "FormatError",
    "Gap",
    "GlassgearError",
    "LanguageModel",
    "NonFiniteError",
    "NotFoundError",
    "Piece",
    "Sampling",
    "Score",
    "Session",
    "SettingError",
    "TemplateError",
    "TokenLogprob",
    "TokenizerError",
    "UnsupportedError",
    "__version__",
    "load",
    "load_tokenizer",
    "pull",
]


def __getattr__(name: str) -> Any:
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
