"""The exceptions that reach a user. Each message says what was found, where, and what to do.

GlassgearError
├── FileError            a file or folder can't be read as what it claims to be
│   ├── NotFoundError    nothing lies at that path, or no model has that name
│   ├── FormatError      the bytes contradict the format
│   └── UnsupportedError a valid file that holds something this version doesn't do
├── TokenizerError       text can't be turned into ids, or ids into text
├── TemplateError        a chat template refuses or breaks
├── SettingError         an option or argument is out of range (also a ValueError)
├── ContextFullError     the sequence is longer than the context
├── NonFiniteError       NaN or infinite logits
└── DownloadError        a model can't be fetched
"""

from __future__ import annotations

from os import PathLike, fspath

__all__ = [
    "ContextFullError",
    "DownloadError",
    "FileError",
    "FormatError",
    "GlassgearError",
    "NonFiniteError",
    "NotFoundError",
    "SettingError",
    "TemplateError",
    "TokenizerError",
    "UnsupportedError",
]


class GlassgearError(Exception):
    """Every error that Glassgear raises for a cause outside its own code."""


class FileError(GlassgearError):
    """A file or folder can't be used.

    Args:
        path: the file in question; it opens the message.
        trouble: what was found and what to do about it, as a sentence.
    """

    def __init__(self, path: str | PathLike[str], trouble: str) -> None:
        self.path = fspath(path)
        self.trouble = trouble
        super().__init__(f"{self.path}: {trouble}")

    def __reduce__(self) -> tuple[object, ...]:
        """Keep both parts when the error crosses a process border."""
        return type(self), (self.path, self.trouble)


class NotFoundError(FileError):
    """Nothing lies at that path, or no model has that name."""


class FormatError(FileError):
    """The bytes contradict the format: cut off, overlapping, impossible counts."""


class UnsupportedError(FileError):
    """The file is valid, but holds something that this version doesn't do."""


class TokenizerError(GlassgearError):
    """Text can't be turned into ids, or ids into text."""


class TemplateError(GlassgearError):
    """A chat template refuses its messages, or is broken."""


class SettingError(GlassgearError, ValueError):
    """An option or argument is out of its range."""


class ContextFullError(GlassgearError):
    """A sequence no longer fits into the context."""


class NonFiniteError(GlassgearError):
    """Logits hold NaN, or nothing but infinities: no token can be chosen."""


class DownloadError(GlassgearError):
    """A model can't be fetched, or what arrived isn't what was asked for."""
