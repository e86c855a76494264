"""The spine: ids -> batch step -> logits -> id -> text, until something says stop.

In: requests (prompt ids, a sampler, limits), a backend, a tokenizer. Out: pieces of text as
soon as they are certain. Several requests run as one batch; each is independent of its
neighbours. Loading, templates and sessions are left to `language_model.py`.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from glassgear.backends.base import Backend, Chunk, Track
from glassgear.errors import ContextFullError, SettingError
from glassgear.sampling import logprobs
from glassgear.text.base import Tokenizer
from glassgear.text.stream import TextStream

__all__ = ["Chooser", "FinishReason", "Piece", "Request", "TokenLogprob", "generate"]

FinishReason = Literal["stop", "length", "context"]


class Chooser(Protocol):
    """Picks the next id: `sampling.Sampler`, or the one of llama2.c."""

    def next(self, logits: NDArray[np.float32], history: Sequence[int]) -> int:
        """An id from logits [vocab], which stay as they are, after the ids so far."""
        ...


@dataclass(frozen=True)
class TokenLogprob:
    """Natural-log probability of a chosen id before any sampling setting, and the likeliest ids."""

    id: int
    logprob: float
    top: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True)
class Piece:
    """A stretch of generated text. It prints as its text.

    Attributes:
        text: what to show now; may be empty on the last piece.
        ids: the new ids it covers, the end token included on the last piece.
        logprobs: one for each id where they were asked for.
        finish_reason: on the last piece `stop` (end token or stop string), `length`
            (max_tokens) or `context` (the context is full); None before.
        index: which prompt of a batch it belongs to.
    """

    text: str
    ids: tuple[int, ...] = ()
    logprobs: tuple[TokenLogprob, ...] | None = None
    finish_reason: FinishReason | None = None
    index: int = 0

    def __str__(self) -> str:
        """The text."""
        return self.text


@dataclass(eq=False)
class Request:
    """One prompt to continue.

    Attributes:
        ids: the prompt. Ids that are generated are appended to it.
        sampler: chooses each id.
        max_tokens: most new ids; None: until the context is full.
        end_ids: ids that end the text.
        stop: strings that end the text and aren't shown.
        logprobs: None, or how many of the likeliest ids to report beside the chosen one.
        continuing: the text goes on from a text in the prompt, so that a space before its first
            word is shown; False for an answer, which begins a text of its own.
        track: a cache that holds the first `track.length` of `ids`; None: a new one, closed
            when done.
    """

    ids: list[int]
    sampler: Chooser
    max_tokens: int | None = None
    end_ids: frozenset[int] = frozenset()
    stop: Sequence[str] = ()
    logprobs: int | None = None
    continuing: bool = True
    track: Track | None = None


def generate(
    backend: Backend, tokenizer: Tokenizer | None, requests: Sequence[Request], *, context: int
) -> Generator[Piece, None, None]:
    """Continue all prompts as one batch.

    Args:
        backend: runs the model.
        tokenizer: makes the text; None yields pieces with ids alone.
        requests: what to continue.
        context: most tokens that a sequence may hold in the cache.

    Yields:
        Pieces; those of one request in order, its last with a finish reason.

    Raises:
        ContextFullError: a prompt alone is longer than the context.
        NonFiniteError: the model produced NaN, or no finite logit.
    """
    lines = [_Line(i, request, backend, tokenizer) for i, request in enumerate(requests)]
    try:
        for line in lines:
            line.check(context)
        live = [line for line in lines if not line.done]
        yield from (line.end("length") for line in lines if line.done)
        while live:
            rows = backend.step([line.chunk() for line in live])
            for line, logits in zip(live, rows, strict=True):
                piece = line.advance(logits[0], context)
                if piece is not None:
                    yield piece
            live = [line for line in live if not line.done]
    finally:
        for line in lines:
            if line.request.track is None:
                backend.close(line.track)


@dataclass(eq=False)
class _Line:
    """One sequence of the batch, from its prompt to its finish reason."""

    index: int
    request: Request
    backend: Backend
    tokenizer: Tokenizer | None
    made: int = 0  # ids generated
    done: bool = False
    held: list[int] = field(default_factory=list)  # generated ids that no piece has covered yet
    held_logprobs: list[TokenLogprob] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.track = self.backend.open() if self.request.track is None else self.request.track
        self.stream = None
        if self.tokenizer:
            self.stream = TextStream(self.tokenizer, self.request.stop, continuing=self.request.continuing)
        elif self.request.stop:
            raise SettingError("stop strings need a tokenizer, and this model has none")

    def check(self, context: int) -> None:
        """Refuse what can't be run; callers say it better, with what their user can do."""
        if not self.request.ids:
            raise SettingError("the prompt is empty: at least one id is needed to start from")
        if len(self.request.ids) > context:
            raise ContextFullError(
                f"the prompt is {len(self.request.ids):,} tokens, the context holds {context:,}"
            )
        self.done = self.request.max_tokens is not None and self.request.max_tokens <= 0

    def chunk(self) -> Chunk:
        """What the cache doesn't hold yet."""
        return Chunk(self.track, self.request.ids[self.track.length :])

    def advance(self, logits: NDArray[np.float32], context: int) -> Piece | None:
        """Take one id; a piece if text became certain or the sequence ends."""
        request = self.request
        token = request.sampler.next(logits, request.ids)
        if request.logprobs is not None:
            self.held_logprobs.append(_token_logprob(logits, token, request.logprobs))
        request.ids.append(token)
        self.held.append(token)
        self.made += 1
        if token in request.end_ids:
            return self.end("stop")
        text = self.stream.push(token) if self.stream else ""
        if self.stream and self.stream.stopped is not None:
            return self.end("stop", text)
        if request.max_tokens is not None and self.made >= request.max_tokens:
            return self.end("length", text)
        if self.track.length >= context:
            return self.end("context", text)
        return self._piece(text) if text or not self.stream else None

    def end(self, reason: FinishReason, text: str = "") -> Piece:
        """The last piece, with whatever text was held back."""
        self.done = True
        if self.stream:
            text += self.stream.finish()
            reason = reason if self.stream.stopped is None else "stop"
        return self._piece(text, reason)

    def _piece(self, text: str, reason: FinishReason | None = None) -> Piece:
        marks = tuple(self.held_logprobs) if self.request.logprobs is not None else None
        piece = Piece(text, tuple(self.held), marks, reason, self.index)
        self.held.clear()
        self.held_logprobs.clear()
        return piece


def _token_logprob(logits: NDArray[np.float32], token: int, count: int) -> TokenLogprob:
    values = logprobs(logits)
    count = min(count, len(values))
    top = np.argpartition(-values, count - 1)[:count] if count else np.zeros(0, int)
    best = sorted(((int(i), float(values[i])) for i in top), key=lambda pair: (-pair[1], pair[0]))
    return TokenLogprob(token, float(values[token]), tuple(best))
