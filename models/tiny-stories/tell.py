"""Stories that a model tells, as text to learn from.

    python models/tiny-stories/tell.py stories260K.bin --tokenizer tok512.bin --tokens 15e6 --out told.txt
    python models/tiny-stories/tell.py runs/tiny-stories/teacher/model --beginnings real.txt --out told.txt

With `--beginnings` each story goes on from the first sentence of one of those. Every story has a random
generator of its own, from the seed and its number, so that the same command gives the same bytes on the
same kind of processor. A story that goes round in circles is left out, and one that hasn't ended when its
tokens are used up ends with its last whole sentence.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path

import numpy as np
from make_text import SEPARATOR, SHARE, split
from numpy.typing import NDArray

import glassgear
from glassgear.backends.base import Chunk, Track
from glassgear.train.data import held_out

SMALLEST = np.exp(-16)  # of the likeliest token's probability: what is less likely isn't drawn


@dataclass(frozen=True)
class Order:
    """What a worker is asked for: tokens, in stories whose numbers are `index`, `index + step`, ..."""

    model: str
    tokenizer: str | None
    temperature: float
    context: int
    beside: int
    seed: int
    tokens: float
    index: int
    step: int
    beginnings: tuple[str, ...]


@dataclass(eq=False)
class Story:
    """One that is being told."""

    number: int
    track: Track
    chances: NDArray[np.float64]
    ids: list[int] = field(default_factory=list)
    run: int = 0  # how many of the ids the model has read


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("model", help="who tells them")
    parser.add_argument("--tokenizer", help="where it isn't in the model")
    parser.add_argument("--out", type=Path, required=True, help="the text file")
    parser.add_argument("--tokens", type=float, default=1e6, help="how many, about")
    parser.add_argument("--temperature", "-t", type=float, default=1.0)
    parser.add_argument("--context", type=int, default=512, help="most tokens of a story")
    parser.add_argument("--beside", type=int, default=16, help="stories that are told at the same time")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--workers", type=int, default=1, help="processes")
    parser.add_argument("--beginnings", type=Path, nargs="*", default=[], help="stories to begin as")
    given = parser.parse_args()
    begun = [first_sentence(story) for path in given.beginnings for story in stories_of(path)]
    orders = [
        Order(
            given.model, given.tokenizer, given.temperature, given.context, given.beside,
            given.seed, given.tokens / given.workers, index, given.workers,
            tuple(begun),
        )
        for index in range(given.workers)
    ]  # fmt: skip
    stories, size = 0, 0
    with get_context("spawn").Pool(given.workers) as pool, given.out.open("w", encoding="utf-8") as file:
        for texts in pool.imap(tell, orders):
            for text in texts:
                file.write(f"{text}\n{SEPARATOR}\n")
                stories, size = stories + 1, size + len(text.encode())
    print(json.dumps({"file": given.out.name, "stories": stories, "bytes": size}))
    return 0


def stories_of(path: Path) -> list[str]:
    """Stories that may be learned from: not those that are held out."""
    return [story for story in split(path.read_text(encoding="utf-8")) if not held_out(story, SHARE)]


def first_sentence(story: str) -> str:
    return re.split(r"(?<=[.!?])\s", story, maxsplit=1)[0]


def tell(order: Order) -> list[str]:
    """A worker's stories, in the order of their numbers."""
    model = glassgear.load(order.model, order.tokenizer, threads=1)
    backend, ends = model.backend, model.end_ids
    first = model.tokenizer.encode("") or [min(ends)]
    numbers = iter(range(order.index, sys.maxsize, order.step))

    def begin() -> Story:
        number = next(numbers)
        generator = np.random.Generator(np.random.PCG64([order.seed, number]))
        chances = generator.random(order.context)
        text = order.beginnings[generator.integers(len(order.beginnings))] if order.beginnings else ""
        return Story(number, backend.open(), chances, first + model.tokenizer.encode(text, add_special=False))

    live, finished, made, start = [begin() for _ in range(order.beside)], [], 0, time.time()
    while live:
        rows = backend.step([Chunk(story.track, story.ids[story.run :]) for story in live])
        for place, story in enumerate(list(live)):
            story.run = len(story.ids)
            token = draw(rows[place][-1], order.temperature, story.chances[len(story.ids) - 1])
            story.ids.append(token)
            if token in ends or token in first or len(story.ids) >= order.context:
                backend.close(story.track)
                made += len(story.ids)
                finished.append(story)
                live[place] = begin() if made < order.tokens else None
                if len(finished) % 500 == 0:
                    print(f"{made:,} tokens, {made / (time.time() - start):,.0f} a second", file=sys.stderr)
        live = [story for story in live if story is not None]
    finished.sort(key=lambda story: story.number)
    texts = [ended(model, story, {*ends, *first}) for story in finished]
    return [text for text in texts if text and not circles(text)]


def draw(logits: NDArray[np.float32], temperature: float, chance: float) -> int:
    """An id, from all that are likely enough to matter."""
    candidates = np.flatnonzero(logits > logits.max() + temperature * np.log(SMALLEST))
    scaled = logits[candidates].astype(np.float64) / temperature
    sums = np.cumsum(np.exp(scaled - scaled.max()))
    return int(candidates[min((sums <= chance * sums[-1]).sum(), len(candidates) - 1)])


def ended(model: glassgear.LanguageModel, story: Story, ends: set[int]) -> str:
    """The story's text, up to its last whole sentence if there was no room for its end."""
    whole = story.ids[-1] in ends
    text = model.tokenizer.decode(story.ids[1:-1] if whole else story.ids[1:]).strip()
    if not whole:
        text = text[: max(text.rfind(mark) for mark in ('."', ".", "!", "?")) + 1]
    return text if "\ufffd" not in text else ""


def circles(text: str) -> bool:
    """Whether a sentence comes three times."""
    sentences = Counter(re.split(r"(?<=[.!?])\s+", text))
    return any(count > 2 and len(sentence) > 12 for sentence, count in sentences.items())


if __name__ == "__main__":
    sys.exit(main())
