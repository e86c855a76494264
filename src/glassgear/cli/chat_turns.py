"""A conversation with a model: its messages, one session, and answers that can be stopped."""

from __future__ import annotations

import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from glassgear.cli import console
from glassgear.cli.options import with_seed
from glassgear.cli.output import Output
from glassgear.cli.stats import Stats
from glassgear.errors import ContextFullError, GlassgearError, TemplateError

if TYPE_CHECKING:
    from types import FrameType

    from glassgear.language_model import LanguageModel
    from glassgear.text.chat import ChatTemplate

__all__ = ["Chat"]


class Chat:
    """Turns of a conversation.

    Args:
        model: answers.
        template: writes the conversation down.
        system: the system prompt, or None.
        options: keyword arguments of `Session.generate`.

    Attributes:
        turns: what was said, without the system prompt.
        last: figures of the last answer.
    """

    def __init__(
        self, model: LanguageModel, template: ChatTemplate, system: str | None, options: Mapping[str, Any]
    ) -> None:
        self.model = model
        self.system = system
        self.turns: list[dict[str, str]] = []
        self.last: Stats | None = None
        self._template = template
        self._options = options
        self._session = model.session()

    @property
    def messages(self) -> list[dict[str, str]]:
        """The conversation as the template takes it."""
        system = [{"role": "system", "content": self.system}] if self.system else []
        return system + self.turns

    def reset(self) -> None:
        """Forget what was said; the system prompt stays."""
        self.turns.clear()
        self.last = None

    def ask(self, text: str, output: Output) -> Stats:
        """Say something and print the answer. Ctrl-C stops the answer; what came of it stays.

        After an error, or if nothing was answered, the conversation is as it was before.
        """
        self.turns.append({"role": "user", "content": text})
        try:
            answer, stats = self._answer(output)
        except GlassgearError:
            self.turns.pop()
            raise
        if answer or stats.finish_reason == "stop":
            self.turns.append({"role": "assistant", "content": answer})
        else:
            self.turns.pop()
        self.last = stats
        return stats

    def _answer(self, output: Output) -> tuple[str, Stats]:
        options = with_seed(self._options)
        stats = Stats(0, options["seed"], cached_tokens=self._session.cached)
        parts: list[str] = []
        with _interrupts() as interrupt:
            try:
                ids = self._ids()
                stats.prompt_tokens = len(ids)
                with console.status("Reading ...") as line:
                    for piece in stats.watch(self._session.generate(ids, continuing=False, **options)):
                        line.close()
                        interrupt.wait_for_piece = True
                        output.piece(piece)
                        parts.append(piece.text)
                        if interrupt.asked:
                            stats.finish_reason = "interrupted"
                            break
            except KeyboardInterrupt:
                # Broken off anywhere inside the engine: a new session shares nothing with it.
                self._session = self.model.session()
                stats.finish_reason = "interrupted"
            finally:
                if parts or stats.finish_reason is not None:
                    output.end()
        return "".join(parts), stats

    def _ids(self) -> list[int]:
        from glassgear.text.chat import encode_chat

        try:
            ids = encode_chat(self.model.tokenizer, self._template, self.messages, add_generation_prompt=True)
        except TemplateError as trouble:
            advice = "; leave --system out and say it in the first message" if self.system else ""
            raise TemplateError(f"{trouble}{advice}") from trouble
        if len(ids) > self.model.context:
            raise ContextFullError(
                f"the conversation is {len(ids):,} tokens, the context holds {self.model.context:,}: "
                "/reset starts anew, and --ctx makes room for more if the model was trained for it"
            )
        return ids


class _Interrupt:
    """What Ctrl-C does: stop after the next piece, or at once if there is none to wait for."""

    def __init__(self) -> None:
        self.asked = False
        self.wait_for_piece = False

    def __call__(self, number: int, frame: FrameType | None) -> None:
        if self.asked or not self.wait_for_piece:
            raise KeyboardInterrupt
        self.asked = True


@contextmanager
def _interrupts() -> Iterator[_Interrupt]:
    interrupt = _Interrupt()
    try:
        before = signal.signal(signal.SIGINT, interrupt)
    except ValueError:  # only a program's main thread can
        yield interrupt
        return
    try:
        yield interrupt
    finally:
        signal.signal(signal.SIGINT, before)
