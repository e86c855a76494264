"""The real stories that tiny-stories and one of its teachers learn from.

    python models/tiny-stories/make_text.py --data DATA --out FOLDER

`DATA` holds `tinystories-2mb.txt` (the first 2 MiB of TinyStories, `<|endoftext|>` between the stories)
and `tinystories-lowercase-4mb.txt` (the first 4 MiB in lower case, whose stories beyond the first 2 MiB
get their capitals back by rule). What it writes:

- `real.txt`: whole stories of the first file; some of them are held out, by a hash of their text.
- `held_out.txt`: those, for the figures of the card.
- `restored.txt`: stories of the second file that come after the first's.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from glassgear.train.data import held_out

SEPARATOR = "<|endoftext|>"
SHARE = 0.05  # of the real stories, held out: as `validation` in the recipes
BEGINS = re.compile(r'(^|[.!?]["”]?\s+|\n\s*|[\s(]["“])(["“]?)([a-z])')


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", type=Path, nargs="+", required=True, help="folders of the two files")
    parser.add_argument("--out", type=Path, required=True, help="where the texts go")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)

    real = split(find(options.data, "tinystories-2mb.txt").read_text(encoding="utf-8"))
    write(options.out / "real.txt", real)
    write(options.out / "held_out.txt", [story for story in real if held_out(story, SHARE)])
    kept = [story for story in real if not held_out(story, SHARE)]
    lower = find(options.data, "tinystories-lowercase-4mb.txt").read_text(encoding="utf-8")
    write(options.out / "restored.txt", restored(lower, real, kept))
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


if __name__ == "__main__":
    sys.exit(main())
