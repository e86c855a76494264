"""One sequence and its cache, kept from call to call."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from glassgear import arguments
from glassgear.errors import SettingError
from glassgear.generate import Piece, Request, generate
from glassgear.sampling import Sampler, Sampling
from glassgear.text.stops import stop_strings

if TYPE_CHECKING:
    from glassgear.language_model import LanguageModel
    from glassgear.sampling import LogitsHook

__all__ = ["OPTIONS", "Message", "Session"]

Message = Mapping[str, Any]
OPTIONS = frozenset(field.name for field in fields(Sampling))  # of sampling, by name


class Session:
    """One sequence and its cache. A call reuses the longest common prefix with the last one."""

    def __init__(self, model: LanguageModel) -> None:
        model.require_causal()
        self.model = model
        self._track = model.backend.open()
        self._ids: list[int] = []  # what the cache holds
        self._turn = 0  # counts calls: a new one ends the one before

    def __enter__(self) -> Session:
        """Use as a context manager closes the cache at the end."""
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        track = getattr(self, "_track", None)
        if track is not None and not track.closed:
            self.model.backend.close(track)

    def close(self) -> None:
        """Give the cache pages back."""
        self.model.backend.close(self._track)

    @property
    def cached(self) -> int:
        """Tokens in the cache."""
        return self._track.length

    def generate(self, prompt: str | Sequence[int] | None = None, **options: Any) -> Iterator[Piece]:
        """Continue a prompt.

        Args:
            prompt: text or ids; None starts from nothing.
            **options: `max_tokens` (None: until the context is full), `stop` (a string or
                several), `logprobs` (None, or how many alternatives), `ignore_eos`,
                `parse_special`, `continuing` (whether a space before the first word is shown;
                None: if the prompt holds any text), `end_ids`, `sampler` (replaces all sampling
                settings), `hook` (sees and changes logits), and any field of
                `sampling.Sampling`: `temperature`, `top_k`, `top_p`, `min_p`, `seed`, ...

        Yields:
            Pieces as soon as their text is certain.
        """
        return self._run(self._request(prompt, **options))

    def chat(
        self,
        messages: Sequence[Message],
        *,
        tools: Sequence[Any] | None = None,
        continue_final_message: bool = False,
        template: str | None = None,
        template_options: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> Iterator[Piece]:
        """The next answer in a conversation.

        Args:
            messages: `{"role": ..., "content": ...}` in order; all of them each time, what the
                cache holds already isn't computed again.
            tools: functions that the template may describe to the model.
            continue_final_message: extend the last message instead of answering it.
            template: which one to take where the model has several by name.
            template_options: extra variables for the template.
            **options: as for `generate`.
        """
        from glassgear.text.chat import encode_chat

        ids = encode_chat(
            self.model.tokenizer,
            self.model.chat_template,
            arguments.messages(messages),
            tools=tools,
            add_generation_prompt=not continue_final_message,
            continue_final_message=continue_final_message,
            template_name=template,
            **(template_options or {}),
        )
        return self.generate(ids, continuing=continue_final_message, **options)

    def _run(self, request: Request) -> Iterator[Piece]:
        """Pieces of one call; a later call, or `close`, ends it."""
        self._turn += 1
        return self._pieces(request, self._turn)

    def _pieces(self, request: Request, turn: int) -> Iterator[Piece]:
        self._check_turn(turn)
        same = _common_prefix(self._ids, request.ids)
        # At least the last token is always run: its logits choose the next one.
        self.model.backend.truncate(self._track, min(same, len(request.ids) - 1))
        self._ids = request.ids
        request.track = self._track
        made = generate(self.model.backend, self.model._tokenizer, [request], context=self.model.context)
        try:
            for piece in made:
                yield piece
                self._check_turn(turn)
        finally:
            made.close()
            if turn == self._turn:
                self._ids = request.ids[: self._track.length]

    def _check_turn(self, turn: int) -> None:
        if self._track.closed:
            raise SettingError("this session is closed: open another with model.session()")
        if turn != self._turn:
            raise SettingError(
                "this answer was given up when its session began another: "
                "use a session of its own for each text that is made at the same time"
            )

    def _request(
        self,
        prompt: str | Sequence[int] | None,
        *,
        max_tokens: int | None = None,
        stop: str | Sequence[str] | None = (),
        logprobs: int | None = None,
        ignore_eos: bool = False,
        parse_special: bool = False,
        continuing: bool | None = None,
        end_ids: frozenset[int] | None = None,
        sampler: Any = None,
        hook: LogitsHook | None = None,
        **settings: Any,
    ) -> Request:
        if max_tokens is not None:
            max_tokens = arguments.whole("max_tokens", max_tokens, 0)
        if logprobs is not None:
            logprobs = arguments.whole("logprobs", logprobs, 0)
        arguments.known_options(settings, OPTIONS)
        recommended = dict(self.model.checkpoint.sampling)
        given = {name: value for name, value in settings.items() if value is not None}
        sampler = sampler or Sampler(Sampling(**(recommended | given)), hook=hook)
        ends = self.model.end_ids if end_ids is None else end_ids
        ids = self.model.encode(prompt, parse_special=parse_special)
        if not ids:
            raise SettingError("the prompt is empty: give at least one id, or None to start from nothing")
        self.model.check_length(len(ids), "the prompt")
        if continuing is None:
            continuing = self.model.has_text(ids)
        return Request(
            ids,
            sampler,
            max_tokens,
            frozenset() if ignore_eos else ends,
            stop_strings(stop),
            logprobs,
            continuing,
        )


def _common_prefix(a: Sequence[int], b: Sequence[int]) -> int:
    count = 0
    for x, y in zip(a, b, strict=False):
        if x != y:
            break
        count += 1
    return count
