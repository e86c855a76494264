"""How long a text took, and why it ended."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from glassgear.cli import console

if TYPE_CHECKING:
    from glassgear.generate import Piece

__all__ = ["Stats"]


@dataclass
class Stats:
    """The figures of one text, taken from its pieces as they come.

    Attributes:
        prompt_tokens: tokens of the prompt.
        seed: the seed that repeats the text, or None where nothing is drawn.
        cached_tokens: how many of them the cache held already; the prompt then has no rate.
        load_seconds: what loading the model took, or None where that was earlier.
        tokens: new tokens so far, the end token included.
        finish_reason: why it ended; None while it goes on, `interrupted` after Ctrl-C.
    """

    prompt_tokens: int
    seed: int | None = None
    load_seconds: float | None = None
    cached_tokens: int = 0
    tokens: int = 0
    finish_reason: str | None = None
    _start: float = field(default_factory=time.perf_counter)
    _first: float | None = None
    _first_tokens: int = 0
    _last: float = 0.0

    def watch(self, pieces: Iterable[Piece]) -> Iterator[Piece]:
        """Pass pieces on, and keep count."""
        self._start = time.perf_counter()
        for piece in pieces:
            self._last = time.perf_counter()
            self.tokens += len(piece.ids)
            if self._first is None and self.tokens:
                self._first, self._first_tokens = self._last, self.tokens
            self.finish_reason = piece.finish_reason
            yield piece

    @property
    def first_token_seconds(self) -> float | None:
        """From the start to the first token: the prompt's share of the time."""
        return None if self._first is None else self._first - self._start

    @property
    def prompt_rate(self) -> float | None:
        """Tokens of the prompt in a second."""
        return None if self.cached_tokens else _rate(self.prompt_tokens, self.first_token_seconds)

    @property
    def decode_rate(self) -> float | None:
        """New tokens in a second, those of the first piece aside."""
        return (
            None if self._first is None else _rate(self.tokens - self._first_tokens, self._last - self._first)
        )

    def as_json(self) -> dict[str, Any]:
        """The figures as the last line of `--json` holds them; seconds, and tokens in a second."""
        return {
            "finish_reason": self.finish_reason,
            "usage": {"prompt_tokens": self.prompt_tokens, "completion_tokens": self.tokens},
            "timings": {
                "load_s": self.load_seconds,
                "first_token_s": self.first_token_seconds,
                "prompt_tokens_per_s": self.prompt_rate,
                "decode_tokens_per_s": self.decode_rate,
            },
            "seed": self.seed,
        }

    def show(self) -> None:
        """Print them for a person, on stderr."""
        rows = [
            ("load", _seconds(self.load_seconds)),
            ("prompt", _speed(self.prompt_tokens, self.prompt_rate)),
            ("first token", _seconds(self.first_token_seconds)),
            ("answer", _speed(self.tokens, self.decode_rate)),
            ("finish", self.finish_reason or "-"),
            ("seed", "" if self.seed is None else str(self.seed)),
        ]
        for name, value in rows:
            if value:
                console.say(f"{console.style(f'{name:<12}', dim=True)} {value}")


def _rate(count: int, seconds: float | None) -> float | None:
    return count / seconds if count and seconds else None


def _speed(count: int, rate: float | None) -> str:
    text = f"{count:,} token{'' if count == 1 else 's'}"
    return text if rate is None else f"{text}, {rate:,.1f} tok/s"


def _seconds(seconds: float | None) -> str:
    if seconds is None:
        return ""
    return f"{seconds:.2f} s" if seconds >= 1 else f"{seconds * 1000:.0f} ms"
