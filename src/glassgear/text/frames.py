"""What stands around one text or between two, and how much of them fits.

In: the ids of texts, without control tokens. Out: what a model takes in, with the control tokens and the
token types that it expects (Devlin et al. 2018: `[CLS] A [SEP]`, and `[CLS] A [SEP] B [SEP]` with type
0 up to the first `[SEP]` and 1 behind it).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from glassgear.errors import SettingError

__all__ = ["Frame", "Inputs", "framed"]

Marked = tuple[tuple[int, int], ...]  # control tokens, each with its type


@dataclass(frozen=True)
class Inputs:
    """What a model takes in.

    Attributes:
        ids: the ids.
        types: the token type of each.
        dropped: how many ids of the texts were left out, since they didn't fit.
    """

    ids: tuple[int, ...]
    types: tuple[int, ...]
    dropped: int = 0


@dataclass(frozen=True)
class Frame:
    """The control tokens of a text or of a pair.

    Attributes:
        head: in front of the first text.
        tail: behind the last one.
        middle: between two texts; empty where there is one.
        types: token types of the first and of the second text.
    """

    head: Marked = ()
    tail: Marked = ()
    middle: Marked = ()
    types: tuple[int, int] = (0, 1)

    @property
    def size(self) -> int:
        """How many control tokens there are."""
        return len(self.head) + len(self.middle) + len(self.tail)


def framed(
    frame: Frame, first: Sequence[int], second: Sequence[int] | None = None, most: int | None = None
) -> Inputs:
    """Put a frame around one text or two.

    Args:
        frame: the control tokens.
        first: ids of the text.
        second: ids of the second one.
        most: how many ids there may be in all; the ends of texts go, of a pair that of the longer one
            first, the frame never (`longest_first` of Hugging Face's `tokenizers`).

    Raises:
        SettingError: not even the frame fits.
    """
    other = () if second is None else second
    lengths = len(first), len(other)
    if most is not None:
        if most < frame.size:
            raise SettingError(f"{most} ids are too few: {frame.size} of them stand around the text")
        lengths = _fitting(*lengths, most - frame.size)
    marked = [*frame.head, *((token, frame.types[0]) for token in first[: lengths[0]])]
    if second is not None:
        marked += [*frame.middle, *((token, frame.types[1]) for token in second[: lengths[1]])]
    marked += frame.tail
    dropped = len(first) + len(other) - sum(lengths)
    return Inputs(tuple(token for token, _ in marked), tuple(kind for _, kind in marked), dropped)


def _fitting(first: int, second: int, room: int) -> tuple[int, int]:
    """How many ids of each text fit: the shorter one is kept whole while it takes less than half."""
    if first + second <= room:
        return first, second
    shorter = min(first, second, room // 2)
    return (room - shorter, shorter) if first > second else (shorter, room - shorter)
