"""Call `tokenizers`, whose failures come in three shapes, and turn each into one of ours."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from glassgear.errors import FormatError, TokenizerError

if TYPE_CHECKING:
    from pathlib import Path

    from tokenizers import Tokenizer as Backend

__all__ = ["called", "encoded", "from_json"]

Result = TypeVar("Result")


def called(action: Callable[[], Result], trouble: str) -> Result:
    """What the library returns.

    Raises:
        TokenizerError: it failed; the message begins with `trouble`.
    """
    try:
        return action()
    except BaseException as error:
        # A panic in Rust arrives as a class of its own that isn't an Exception.
        if isinstance(error, Exception) or type(error).__name__ == "PanicException":
            raise TokenizerError(f"{trouble}: {str(error)[:200]}") from None
        raise


def encoded(backend: Backend, text: str, *, framed: bool = False) -> list[int]:
    """Ids of plain text.

    Args:
        backend: the engine.
        text: any text without surrogates.
        framed: whether the library puts BOS and the like around it.

    Raises:
        TokenizerError: the library gave up, mostly since a regular expression took too long.
    """
    trouble = f"the text of {len(text):,} characters can't be encoded"
    return called(lambda: list(backend.encode(text, add_special_tokens=framed).ids), trouble)


def from_json(path: Path, text: str) -> Backend:
    """The engine that a `tokenizer.json` describes.

    Raises:
        FormatError: the library can't make one of it.
    """
    from tokenizers import Tokenizer

    try:
        return called(lambda: Tokenizer.from_str(text), "can't be used")
    except TokenizerError as error:
        raise FormatError(path, str(error)) from None
