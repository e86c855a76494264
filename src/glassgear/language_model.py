"""A loaded model, as people use it: generate, chat, score, logits, sessions.

Everything here is thin: prompts become requests, `generate.generate` runs them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Literal, cast

import numpy as np
from numpy.typing import NDArray

from glassgear import arguments
from glassgear.backends.base import Backend, Chunk, Hook
from glassgear.errors import ContextFullError, SettingError, TokenizerError
from glassgear.generate import Piece, generate
from glassgear.model.gears import Attention, LatentAttention, Model, walk
from glassgear.model.ledger import Ledger, ledger
from glassgear.sampling import Sampler, Sampling, logprobs
from glassgear.session import OPTIONS, Message, Session
from glassgear.weights.checkpoint import Checkpoint

if TYPE_CHECKING:
    from glassgear.encode import Gap, Pooling
    from glassgear.text.base import Tokenizer
    from glassgear.text.chat import ChatTemplate
    from glassgear.trace.changes import Zeroing
    from glassgear.trace.explain import Explanation
    from glassgear.trace.trace import Trace

__all__ = ["LanguageModel", "Score"]

AT_ONCE = 128  # rows of logits held at a time while scoring


@dataclass(frozen=True, eq=False)
class Score:
    """How likely a text is under a model.

    Attributes:
        ids: the ids that were scored; the first of the text is context only.
        logprobs: natural log, one for each of `ids`, float64.
    """

    ids: tuple[int, ...]
    logprobs: NDArray[np.float64]

    @property
    def total(self) -> float:
        """Sum of the log-probabilities, in nats."""
        return float(self.logprobs.sum())

    @property
    def perplexity(self) -> float:
        """The exponential of the mean negative log-probability."""
        return float(np.exp(-self.logprobs.mean()))


class LanguageModel:
    """One model on one backend. `glassgear.load` makes it.

    Attributes:
        checkpoint: what the file said.
        backend: what runs it.
        tokenizer: text to ids, or None.
        context: most tokens of a sequence.
    """

    def __init__(
        self,
        checkpoint: Checkpoint,
        backend: Backend,
        tokenizer: Tokenizer | None,
        *,
        context: int | None = None,
    ) -> None:
        self.checkpoint = checkpoint
        self.backend = backend
        self.context = context or checkpoint.model.context
        self._tokenizer = tokenizer
        self._template: ChatTemplate | None = None
        if tokenizer is not None and tokenizer.vocab_size > self.gears.vocab:
            raise TokenizerError(
                f"the tokenizer has {tokenizer.vocab_size:,} entries, the model {self.gears.vocab:,}: "
                "they don't belong together"
            )

    @property
    def gears(self) -> Model:
        """The tree of gears."""
        return self.checkpoint.model

    @property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer.

        Raises:
            TokenizerError: the model came without one.
        """
        if self._tokenizer is None:
            raise TokenizerError(
                f"{self.checkpoint.path} has no tokenizer: give one with --tokenizer (tokenizer= in Python), "
                "or use ids"
            )
        return self._tokenizer

    @property
    def end_ids(self) -> frozenset[int]:
        """Every id that ends an answer: the checkpoint's and the tokenizer's."""
        own = self._tokenizer.end_ids if self._tokenizer else frozenset()
        return self.checkpoint.end_ids | own

    @property
    def chat_template(self) -> ChatTemplate:
        """How the model wants conversations written; `TemplateError` if it doesn't say."""
        if self._template is None:
            from glassgear.text.chat import template_for

            self._template = template_for(self.tokenizer)
        return self._template

    def ledger(self) -> Ledger:
        """Parameters, bytes and operations of this model as it is stored."""
        stored = {path: (t.type, t.nbytes) for path, t in self.checkpoint.tensors.items()}
        return ledger(self.gears, stored)

    def encode(self, prompt: str | Sequence[int] | None, *, parse_special: bool = False) -> list[int]:
        """Ids of a prompt as `generate` takes it; None or "" starts from the model's first token.

        Args:
            prompt: text, or ids that are taken as they are.
            parse_special: read control tokens written in the text as what they are.
        """
        if prompt is not None and not isinstance(prompt, str):
            return self._checked(arguments.ids(prompt))
        if prompt:
            return self._checked(self.tokenizer.encode(prompt, add_special=True, parse_special=parse_special))
        start = self.tokenizer.bos_id if self.tokenizer.bos_id is not None else self.tokenizer.eos_id
        if start is None:
            raise SettingError("this model has no token to start from: give a prompt")
        return [start]

    def has_text(self, ids: Sequence[int]) -> bool:
        """Whether ids hold more than control tokens."""
        return self._tokenizer is not None and not all(map(self._tokenizer.is_special, ids))

    def generate(
        self, prompt: str | Sequence[int] | Sequence[str] | None = None, **options: Any
    ) -> Iterator[Piece]:
        """Continue a prompt, or several as one batch; see `Session.generate` for the options.

        Yields:
            Pieces; in a batch `piece.index` tells whose.
        """
        if arguments.is_batch(prompt):
            asked = cast("Sequence[str | Sequence[int]]", prompt)
            made = [Session(self)._request(one, **options) for one in asked]
            return generate(self.backend, self._tokenizer, made, context=self.context)
        return self.session().generate(prompt, **options)  # type: ignore[arg-type]

    def chat(self, messages: Sequence[Message], **options: Any) -> Iterator[Piece]:
        """The next answer in a conversation; see `Session.chat`."""
        return self.session().chat(messages, **options)

    def session(self) -> Session:
        """A conversation with the cache: each call computes only what changed."""
        return Session(self)

    def logits(self, ids: Sequence[int], *, types: Sequence[int] | None = None) -> NDArray[np.float32]:
        """Logits of every row, float32 [len(ids), vocab]: of a decoder those of the next token.

        Args:
            ids: the text.
            types: token types, for models that have them; None: all 0.
        """
        return self._rows(ids, types, "logits")

    def hidden(self, ids: Sequence[int], *, types: Sequence[int] | None = None) -> NDArray[np.float32]:
        """Final hidden states, float32 [len(ids), dim]: what the head reads.

        Args:
            ids: the text.
            types: token types, for models that have them; None: all 0.
        """
        return self._rows(ids, types, "hidden")

    def _rows(
        self, ids: Sequence[int], types: Sequence[int] | None, output: Literal["logits", "hidden"]
    ) -> NDArray[np.float32]:
        ids = self._checked(arguments.ids(ids))
        self.check_length(len(ids))
        if types is not None:
            types = self._checked_types(arguments.ids(types), len(ids))
        if not ids:
            return np.zeros((0, self.gears.vocab if output == "logits" else self.gears.dim), np.float32)
        track = self.backend.open()
        try:
            return self.backend.step([Chunk(track, ids, "all", types)], output=output)[0]
        finally:
            self.backend.close(track)

    def trace(
        self,
        prompt: str | Sequence[int] | None = None,
        *,
        max_tokens: int = 0,
        select: str | Sequence[str] = "*",
        limit: int | None = None,
        change: Hook | Zeroing | None = None,
        parse_special: bool = False,
        **settings: Any,
    ) -> Trace:
        """Run a prompt and keep every selected value between it and the next token.

        Args:
            prompt: text or ids; None starts from the model's first token.
            max_tokens: how many ids to add; each of their steps is recorded too. 0: the prompt alone.
            select: patterns of paths, such as `blocks.*.attention.*`; `*` is everything.
            limit: most bytes kept; None: 2 GiB.
            change: sees each value under its path first, and may return another (ablation); or a
                `trace.changes.Zeroing`.
            parse_special: as for `generate`.
            **settings: fields of `sampling.Sampling`, as for `generate`; greedy by default.

        Raises:
            SettingError: an argument that isn't what it should be, no token at all, nothing that fits the
                selection, or more bytes than the limit.
        """
        from glassgear.trace.changes import Zeroing
        from glassgear.trace.pipeline import text_of
        from glassgear.trace.record import LIMIT, record

        arguments.known_options(settings, OPTIONS)
        sampling = Sampling(**({"temperature": 0.0} | settings))
        max_tokens = arguments.whole("max_tokens", max_tokens, 0)
        chosen = _patterns(select)
        most = LIMIT if limit is None else arguments.whole("limit", limit, 1)
        ids = self._some(self.encode(prompt, parse_special=parse_special))
        self.check_length(len(ids) + max(0, max_tokens - 1), "the trace")
        own, sampler = self._tokenizer, Sampler(sampling)
        if not sampling.greedy:
            settings = settings | {"seed": sampler.seed}
        return record(
            self.backend,
            ids,
            sampler=sampler,
            max_tokens=max_tokens,
            end_ids=self.end_ids,
            select=chosen,
            limit=most,
            change=change() if isinstance(change, Zeroing) else arguments.hook("change", change),
            about={
                "model": self.checkpoint.path,
                "family": self.gears.family,
                "settings": settings,
                "texts": None if own is None else lambda made: [text_of(own, i) for i in made],
            },
        )

    def explain(
        self,
        prompt: str | Sequence[int] | Trace | None,
        path: str,
        token: int = -1,
        index: int | Sequence[int] | None = None,
        *,
        max_tokens: int = 0,
        change: Hook | Zeroing | None = None,
        parse_special: bool = False,
        **settings: Any,
    ) -> Explanation:
        """How one number came about: every factor of it, in the arithmetic of the backend.

        Args:
            prompt: text or ids, which are run, or a trace of this model.
            path: of a value, such as `blocks.2.ffn.down`; `probability` and `sampled` follow from `head`.
            token: number of the token; negative ones count from the end.
            index: place of the number in the token's value: channel, or head and channel, or head and
                seen token. None: the number of the largest size.
            max_tokens: how many ids to add to a prompt.
            change: as for `trace`: a number that the run replaced says so. A function may be asked in
                several runs, and must do the same in each; beside a trace it must be the `Zeroing` that the
                trace was made with.
            parse_special: as for `generate`.
            **settings: as for `trace`.

        Raises:
            SettingError: there is no such value, token or number; the message says what there is.
        """
        from glassgear.trace.belonging import check_model
        from glassgear.trace.changes import Zeroing
        from glassgear.trace.explain import Replacing, desk_for, explain
        from glassgear.trace.pipeline import text_of
        from glassgear.trace.trace import Trace

        if not isinstance(path, str):
            raise SettingError(f"path is a text such as blocks.0.ffn.down, found {path!r:.60}")
        token = arguments.whole("token", token, -(2**63))
        if change is not None and not isinstance(change, Zeroing):
            change = Replacing(arguments.hook("change", change))

        def run(select: Sequence[str]) -> Trace:
            return self.trace(
                ids, max_tokens=max_tokens, select=select, change=change, parse_special=parse_special,
                **settings,
            )  # fmt: skip

        source: Trace | Callable[[Sequence[str]], Trace] = run
        if isinstance(prompt, Trace):
            if isinstance(change, Replacing):
                raise SettingError(
                    "a trace doesn't say which of its numbers a function replaced: give its prompt instead"
                )
            check_model(prompt, self.backend, self.checkpoint.path)
            source = prompt
        else:
            arguments.known_options(settings, OPTIONS)
            ids = self._some(self.encode(prompt, parse_special=parse_special))
            sampling = Sampling(**({"temperature": 0.0} | settings))
            if not sampling.greedy:  # further runs have to draw the same ids
                settings = settings | {"seed": Sampler(sampling).seed}
        own = self._tokenizer
        text = None if own is None else partial(text_of, own)
        desk = desk_for(self.backend, self.checkpoint.tensors, source, path, piece=text, change=change)
        return explain(desk, path, token, index)

    def embed(
        self,
        texts: str | Sequence[str] | Sequence[Sequence[int]],
        *,
        pooling: Pooling | None = None,
        normalize: bool | None = None,
        truncate: bool = False,
        notice: Callable[[str], None] | None = None,
    ) -> NDArray[np.float32]:
        """One vector for each text, float32 [texts, dim]: alike for texts that mean something alike.

        Args:
            texts: one or several, or lists of ids that are taken as they are.
            pooling: `mean`, `cls`, `last` or `pooler`, see `encode.Method`; None: as the checkpoint says.
            normalize: divide each vector by its length; None: as the checkpoint says, else yes.
            truncate: cut off what the model has no room for, instead of refusing it.
            notice: is told in a line if texts were cut.

        Raises:
            ContextFullError: a text that is too long, without `truncate`.
        """
        from glassgear import encode

        return encode.embed(
            self, texts, pooling=pooling, normalize=normalize, truncate=truncate, notice=notice
        )

    def fill(self, text: str, top: int = 5) -> list[Gap]:
        """The likeliest tokens for each masked word of a text, such as `Paris is the [MASK] of France`.

        Args:
            text: with the tokenizer's mask where words are to be guessed. Each is guessed while the
                others are open.
            top: how many tokens for each.
        """
        from glassgear import encode

        return encode.fill(self, text, top)

    def require_causal(self) -> None:
        """Refuse what only works from left to right.

        Raises:
            SettingError: tokens of this model see later ones.
        """
        if not self.gears.causal:
            raise SettingError(
                f"{self.gears.family} reads a text in both directions, so it can neither continue nor score "
                "one: embed (`glassgear embed`, model.embed) turns texts into vectors, "
                "fill (`glassgear fill`, model.fill) guesses masked words"
            )

    def score(self, text: str | Sequence[int]) -> Score:
        """Log-probability of each token of a text given those before it.

        A text longer than the context is read in windows that overlap by half, so that
        every token is seen with at least half a context before it. Text is encoded with the
        tokens the model expects around it (BOS), which aren't scored.
        """
        self.require_causal()
        ids = self._checked(
            self.tokenizer.encode(text, add_special=True) if isinstance(text, str) else arguments.ids(text)
        )
        if len(ids) < 2:
            raise SettingError(f"a score needs at least two tokens, found {len(ids)}")
        parts, done = [], 1  # ids[:done] have their score, or are the start
        while done < len(ids):
            start = max(0, done - self.context // 2) if len(ids) > self.context else 0
            stop = min(len(ids), start + self.context)
            parts.append(self._window(ids[start:stop], done - start))
            done = stop
        return Score(tuple(ids[1:]), np.concatenate(parts))

    def _window(self, ids: list[int], first: int) -> NDArray[np.float64]:
        """Scores of ids[first:], given all before them."""
        track, parts = self.backend.open(), []
        try:
            for start in range(0, len(ids) - 1, AT_ONCE):
                piece = ids[start : min(start + AT_ONCE, len(ids) - 1)]
                rows = self.backend.step([Chunk(track, piece, "all")])[0]
                after = np.array(ids[start + 1 : start + 1 + len(piece)])
                values = np.stack([logprobs(row) for row in rows])
                parts.append(np.take_along_axis(values, after[:, None], axis=1)[:, 0].astype(np.float64))
        finally:
            self.backend.close(track)
        return np.concatenate(parts)[first - 1 :]

    def _some(self, ids: list[int]) -> list[int]:
        if not ids:
            raise SettingError("there is no token: give at least one, or None for the model's first")
        return ids

    def _checked(self, ids: list[int]) -> list[int]:
        vocab = self.gears.vocab
        for token in ids:
            if not 0 <= token < vocab:
                raise SettingError(f"id {token} is outside the model's vocabulary, 0 to {vocab - 1}")
        return ids

    def _checked_types(self, types: list[int], count: int) -> list[int]:
        table = self.gears.token_types
        if table is None:
            raise SettingError("this model has no token types")
        if len(types) != count:
            raise SettingError(f"there are {len(types)} token types for {count} ids")
        for one in types:
            if not 0 <= one < table.count:
                raise SettingError(f"token type {one} is outside the model's, 0 to {table.count - 1}")
        return types

    def check_length(self, length: int, what: str = "the text") -> None:
        """Refuse what is longer than the context."""
        if length > self.context:
            trained = self.gears.context
            more = (
                f"the model was trained for {trained:,}, so a larger context (--ctx) makes room"
                if trained > self.context
                else "shorten it"
            )
            raise ContextFullError(f"{what} is {length:,} tokens, the context holds {self.context:,}: {more}")

    def __repr__(self) -> str:
        """What it is, in a line."""
        gears = self.gears
        every = (g for _, g in walk(gears) if isinstance(g, Attention | LatentAttention))
        heads = "".join(f", {gear.heads} heads" for gear in islice(every, 1))
        return (
            f"<LanguageModel {self.checkpoint.path!r}: {gears.family}, {len(gears.blocks)} blocks, "
            f"width {gears.dim}{heads}, vocabulary {gears.vocab:,}, on {self.backend.name}>"
        )


def _patterns(select: object) -> tuple[str, ...]:
    """Patterns of paths, checked."""
    found = (select,) if isinstance(select, str) else select
    if not isinstance(found, Sequence) or not found or not all(isinstance(one, str) for one in found):
        raise SettingError(
            f"select is a pattern such as blocks.*.ffn.*, or a list of them, found {select!r:.60}"
        )
    return tuple(found)
