"""Ids, one at a time -> text that is safe to show.

In: the ids of one sequence as they are chosen. Out: pieces of text which, joined, are
`tokenizer.decode` of all ids, cut at the first stop string. A piece never holds half a
character, and never the beginning of what may become a stop string. Which ids end a text is
left to the caller.
"""

from __future__ import annotations

import codecs
from collections.abc import Sequence

from glassgear.text.base import Tokenizer
from glassgear.text.stops import StopFinder, stop_strings

__all__ = ["TextStream"]

# An id that completes a character comes at most this much later: UTF-8 has 1 to 4 bytes.
LONGEST_CHARACTER = 4


class TextStream:
    """The text of a growing sequence of ids.

    Control tokens are hidden, as `decode` hides them: text goes on behind them as if they
    weren't there. Bytes that can't become a character are shown as U+FFFD as soon as that is
    certain.

    Args:
        tokenizer: makes the text.
        stop: one stop string or several. The one that begins first wins, the shortest of those
            that begin there, wherever tokens are cut. It isn't shown.
        continuing: the text goes on from a prompt, so the space that `decode` takes off the
            start of a text belongs to it here.

    Attributes:
        stopped: the stop string that was found, or None.

    Raises:
        SettingError: a stop string is empty, or isn't a string.
    """

    def __init__(
        self, tokenizer: Tokenizer, stop: str | Sequence[str] | None = (), *, continuing: bool = False
    ) -> None:
        self._finder = StopFinder(stop_strings(stop))
        self._text: _ByteText | _WindowText
        self._text = _ByteText(tokenizer, continuing) if tokenizer.joins else _WindowText(tokenizer)
        self._ids: list[int] = []

    @property
    def stopped(self) -> str | None:
        """The stop string that was found, or None."""
        return self._finder.found

    def push(self, token: int) -> str:
        """Take one more id; text that is now safe to show, "" while there is none."""
        if self.stopped is not None:
            return ""
        self._ids.append(token)
        return self._finder.push(self._text.push(token))

    def finish(self) -> str:
        """The rest, when no more ids come: held text, and U+FFFD for a character cut short."""
        if self.stopped is not None:
            return ""
        text = self._finder.push(self._text.finish())
        return text if self.stopped is not None else text + self._finder.finish()

    def take_ids(self) -> tuple[int, ...]:
        """The ids pushed since the last call: those that the piece just returned covers.

        Called with every piece that isn't empty and after `finish`, it gives each id once.
        """
        taken, self._ids = tuple(self._ids), []
        return taken


class _ByteText:
    """For tokenizers whose text is the joined bytes of its ids."""

    def __init__(self, tokenizer: Tokenizer, continuing: bool) -> None:
        self._tokenizer = tokenizer
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._strip = tokenizer.leading_space and not continuing

    def push(self, token: int) -> str:
        if self._tokenizer.is_special(token):
            return ""
        data = self._tokenizer.token_bytes(token)
        if self._strip and data:
            self._strip = False
            data = data.removeprefix(b" ")
        return self._decoder.decode(data)

    def finish(self) -> str:
        return self._decoder.decode(b"", final=True)


class _WindowText:
    """For tokenizers that decode in their own way, such as cleaning up before punctuation.

    Only a short window of ids is decoded: the ids of the last piece, which give the context,
    and those since. The new text is what the window gained.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._window: list[int] = []
        self._shown = 0  # ids at the front of the window whose text has been given out
        self._before = ""  # their text

    def push(self, token: int) -> str:
        if self._tokenizer.is_special(token):
            return ""
        self._window.append(token)
        text = self._tokenizer.decode(self._window)
        unfinished = text.endswith("\ufffd") and len(self._window) - self._shown < LONGEST_CHARACTER
        return "" if unfinished else self._advance(text)

    def finish(self) -> str:
        return self._advance(self._tokenizer.decode(self._window))

    def _advance(self, text: str) -> str:
        if len(text) <= len(self._before) and len(self._window) - self._shown < LONGEST_CHARACTER:
            return ""
        new = text[len(self._before) :]
        self._window = self._window[self._shown :]
        self._shown = len(self._window)
        self._before = self._tokenizer.decode(self._window)
        return new
