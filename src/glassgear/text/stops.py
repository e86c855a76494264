"""Find stop strings in text that arrives in pieces.

In: pieces of text, however they are cut. Out: the text before the stop string that begins
first, given out as early as it is certain. What is found doesn't depend on where the pieces
were cut: it is what a search through the whole text would find.
"""

from __future__ import annotations

from collections.abc import Sequence

from glassgear.errors import SettingError

__all__ = ["StopFinder", "stop_strings"]

LONGEST = 50_000  # characters of all stop strings together: each costs a state of the automaton


def stop_strings(stop: str | Sequence[str] | None) -> tuple[str, ...]:
    """The stop strings as a user may give them: one, several, or none.

    Raises:
        SettingError: one is empty, or isn't a string, or all together are too long.
    """
    try:
        given = (stop,) if isinstance(stop, str) else tuple(stop or ())
    except TypeError:
        raise SettingError(f"stop strings are text or a list of texts, found {stop!r:.60}") from None
    for one in given:
        if not isinstance(one, str):
            raise SettingError(f"a stop string must be text, found {one!r}")
        if not one:
            raise SettingError("a stop string is empty: it would end every text at once; leave it out")
    if (total := sum(map(len, given))) > LONGEST:
        raise SettingError(f"the stop strings are {total:,} characters long; {LONGEST:,} are the most")
    return given


class StopFinder:
    """An Aho-Corasick automaton over the stop strings (Aho and Corasick 1975).

    After each character its state is the longest end of the text that begins a stop string, so
    exactly that much is held back, and a character costs the same however long the text is.
    The stop string that begins first wins, the shortest of those that begin there. A longer
    one that began earlier is waited for until it is complete or refuted.

    Attributes:
        found: the stop string that was found, or None.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        self.found: str | None = None
        self._next: list[dict[str, int]] = [{}]
        self._depth = [0]
        self._ends: list[str | None] = [None]  # longest stop string that ends in this state
        for stop in stops:
            self._add(stop)
        self._fallback = self._link()
        self._state = 0
        self._held = ""
        self._candidate: str | None = None  # a complete stop string that an earlier one may replace
        self._candidate_at = 0  # where it begins in `_held`

    def push(self, text: str) -> str:
        """Text that is now certain; "" once a stop string has been found."""
        if self.found is not None:
            return ""
        if len(self._next) == 1:
            return text
        start = len(self._held)
        self._held += text
        for place in range(start, len(self._held)):
            if self._step(place):
                return self._cut()
        return self._give(len(self._held) - self._depth[self._state])

    def finish(self) -> str:
        """What is left when no more text comes."""
        if self._candidate is not None and self.found is None:
            return self._cut()
        return self._give(len(self._held))

    def _step(self, place: int) -> bool:
        """Take the character at `place`; whether a stop string is found for good."""
        state, letter = self._state, self._held[place]
        while state and letter not in self._next[state]:
            state = self._fallback[state]
        self._state = state = self._next[state].get(letter, 0)
        ended = self._ends[state]
        if ended is not None:
            begins = place + 1 - len(ended)
            if self._candidate is None or begins < self._candidate_at:
                self._candidate, self._candidate_at = ended, begins
        # Whatever may still be complete later begins where the state's text begins.
        return self._candidate is not None and place + 1 - self._depth[state] >= self._candidate_at

    def _cut(self) -> str:
        self.found = self._candidate
        text, self._held = self._held[: self._candidate_at], ""
        return text

    def _give(self, count: int) -> str:
        if self._candidate is not None:
            count = min(count, self._candidate_at)
        text, self._held = self._held[:count], self._held[count:]
        self._candidate_at -= count
        return text

    def _add(self, stop: str) -> None:
        state = 0
        for letter in stop:
            following = self._next[state].get(letter)
            if following is None:
                following = self._next[state][letter] = len(self._next)
                self._next.append({})
                self._depth.append(self._depth[state] + 1)
                self._ends.append(None)
            state = following
        self._ends[state] = stop

    def _link(self) -> list[int]:
        """For each state, the one for its longest proper end; states are met in order of depth."""
        fallback = [0] * len(self._next)
        queue = list(self._next[0].values())
        for state in queue:
            for letter, following in self._next[state].items():
                back = fallback[state]
                while back and letter not in self._next[back]:
                    back = fallback[back]
                fallback[following] = self._next[back].get(letter, 0)
                queue.append(following)
            if self._ends[state] is None:
                self._ends[state] = self._ends[fallback[state]]
        return fallback
