"""The text that tiny-stories learns from: real stories, and stories that a teacher tells.

    python models/tiny-stories/make_text.py --data DATA --out FOLDER

`DATA` holds `stories260K.bin` and `tok512.bin` (github.com/karpathy/llama2.c), `tinystories-2mb.txt`
(the first 2 MiB of TinyStories, `<|endoftext|>` between the stories) and
`tinystories-lowercase-4mb.txt` (the first 4 MiB in lower case, whose stories beyond the first 2 MiB get
their capitals back by rule). What it writes:

- `real.txt`: whole stories of the first file; some of them are held out, by a hash of their text.
- `held_out.txt`: those, for the figures of the card.
- `restored.txt`: stories of the second file that come after the first's.
- `told.txt`: stories of the teacher at temperature 1, by Glassgear's CPU backend.

Every story of the teacher has a random generator of its own, from the seed and its number, so that
the same command gives the same bytes on the same kind of processor.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import glassgear
from glassgear.backends.base import Chunk, Track
from glassgear.train.data import held_out

SEPARATOR = "<|endoftext|>"
SHARE = 0.05  # of the real stories, held out: as `validation` in recipe.toml
CONTEXT = 512  # what the teacher was trained with
BESIDE = 16  # stories that are told at the same time
BEGINS = re.compile(r'(^|[.!?]["”]?\s+|\n\s*|[\s(]["“])(["“]?)([a-z])')


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", type=Path, nargs="+", required=True, help="folders of the four files")
    parser.add_argument("--out", type=Path, required=True, help="where the texts go")
    parser.add_argument("--tokens", type=float, default=15e6, help="tokens of the teacher, about")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--workers", type=int, default=1, help="processes that tell stories")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)

    real = split(find(options.data, "tinystories-2mb.txt").read_text(encoding="utf-8"))
    write(options.out / "real.txt", real)
    write(options.out / "held_out.txt", [story for story in real if held_out(story, SHARE)])
    kept = [story for story in real if not held_out(story, SHARE)]
    lower = find(options.data, "tinystories-lowercase-4mb.txt").read_text(encoding="utf-8")
    write(options.out / "restored.txt", restored(lower, real, kept))
    teacher = find(options.data, "stories260K.bin"), find(options.data, "tok512.bin")
    told = tell(teacher, options.seed, options.tokens, options.workers)
    write(options.out / "told.txt", told)
    return 0


def find(folders: Iterable[Path], name: str) -> Path:
    found = next((folder / name for folder in folders if (folder / name).is_file()), None)
    return found or sys.exit(f"{name} is in none of the folders")


def split(text: str) -> list[str]:
    """Whole stories: the last one of an excerpt is cut off."""
    return [story.strip() for story in text.split(SEPARATOR)[:-1] if story.strip()]


def write(path: Path, stories: Iterable[str]) -> None:
    stories = list(stories)
    path.write_text("".join(f"{story}\n{SEPARATOR}\n" for story in stories), encoding="utf-8")
    size = sum(len(story.encode()) for story in stories)
    print(json.dumps({"file": path.name, "stories": len(stories), "bytes": size}), flush=True)


# ---------------------------------------------------------------- capitals


def restored(text: str, real: list[str], kept: list[str]) -> list[str]:
    """The stories of a text in lower case that come after the last of the real ones, with capitals.

    There a line break alone ends a story, and an empty line a paragraph. A word gets a capital at the
    beginning of a sentence or of something said, and where real stories give it one inside of a sentence
    more often than not. Stories with bytes that were decoded wrongly are left out.
    """
    names = capitalised(kept)
    last = text.rfind(real[-1].lower().split("\n")[0])
    if last < 0:
        sys.exit("the text in lower case doesn't go on from the real one")
    stories = re.split(r"(?<!\n)\n(?!\n)", text[last:])[1:-1]
    clean = [re.sub(r"[ \n]*\n", "\n", story).strip() for story in stories if "â€" not in story]
    return [with_capitals(story, names) for story in clean if len(story) > 200]


def capitalised(stories: list[str]) -> set[str]:
    """Words that have a capital inside of sentences, mostly."""
    upper, total = Counter[str](), Counter[str]()
    for story in stories:
        for word in re.findall(r"[a-z,;] ([A-Za-z']+)", story):
            total[word.lower()] += 1
            upper[word.lower()] += word[0].isupper()
    return {word for word, count in total.items() if upper[word] * 2 > count}


def with_capitals(story: str, names: set[str]) -> str:
    story = BEGINS.sub(lambda found: found[1] + found[2] + found[3].upper(), story)
    return re.sub(r"\b[a-z']+", lambda found: raised(found[0], names), story)


def raised(word: str, names: set[str]) -> str:
    stem = word.removesuffix("'s")
    if word.startswith("i'") or word in names or stem in names:
        return word[0].upper() + word[1:]
    return word


# ----------------------------------------------------------------- teacher


@dataclass(eq=False)
class Story:
    """One that is being told."""

    number: int
    track: Track
    chances: NDArray[np.float64]
    ids: list[int] = field(default_factory=lambda: [1])


def tell(teacher: tuple[Path, Path], seed: int, tokens: float, workers: int) -> Iterator[str]:
    """Stories in the order of their numbers, worker by worker."""
    shares = [(teacher, seed, index, workers, tokens / workers) for index in range(workers)]
    with get_context("spawn").Pool(workers) as pool:
        for texts in pool.imap(worker, shares):
            yield from texts


def worker(share: tuple[tuple[Path, Path], int, int, int, float]) -> list[str]:
    teacher, seed, index, workers, goal = share
    model = glassgear.load(teacher[0], teacher[1], threads=1)
    backend, ends = model.backend, model.end_ids | {1}
    numbers = iter(range(index, sys.maxsize, workers))

    def begin() -> Story:
        number = next(numbers)
        chances = np.random.Generator(np.random.PCG64([seed, number])).random(CONTEXT)
        return Story(number, backend.open(), chances)

    live, finished, made, start = [begin() for _ in range(BESIDE)], [], 0, time.time()
    while live:
        rows = backend.step([Chunk(story.track, story.ids[-1:]) for story in live])
        chosen = draw(np.concatenate(rows), np.array([s.chances[len(s.ids) - 1] for s in live]))
        for place, (story, token) in enumerate(zip(list(live), chosen, strict=True)):
            story.ids.append(token)
            if token in ends or len(story.ids) == CONTEXT:
                backend.close(story.track)
                made += len(story.ids)
                finished.append(story)
                live[place] = begin() if made < goal else None
                if len(finished) % 2000 == 0:
                    print(f"{made:,} tokens, {made / (time.time() - start):,.0f} a second", file=sys.stderr)
        live = [story for story in live if story is not None]
    finished.sort(key=lambda story: story.number)
    return [text for story in finished if (text := ended(model, story, ends))]


def draw(logits: NDArray[np.float32], chances: NDArray[np.float64]) -> list[int]:
    """An id a row, at temperature 1 from the whole distribution."""
    weights = np.exp(logits.astype(np.float64) - logits.max(1, keepdims=True))
    sums = np.cumsum(weights, 1)
    ids = (sums <= chances[:, None] * sums[:, -1:]).sum(1)
    return [int(i) for i in np.minimum(ids, logits.shape[1] - 1)]


def ended(model: glassgear.LanguageModel, story: Story, ends: frozenset[int]) -> str:
    """The story's text, up to its last whole sentence if the context was full before its end."""
    whole = story.ids[-1] in ends
    text = model.tokenizer.decode(story.ids[1:-1] if whole else story.ids[1:]).strip()
    if not whole:
        text = text[: max(text.rfind(mark) for mark in ('."', ".", "!", "?")) + 1]
    return text if "\ufffd" not in text else ""


if __name__ == "__main__":
    sys.exit(main())
