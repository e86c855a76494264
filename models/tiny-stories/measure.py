"""How well models foretell the stories that were held out: nats per byte, by Glassgear itself.

    python models/tiny-stories/measure.py TEXTS/held_out.txt tiny-stories stories260K.bin:tok512.bin

Each story is scored by itself, from the token that begins a text; what ends a text isn't counted, since the
models do it differently. A story that is longer than a model's context is read in windows that overlap.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import glassgear


def nats_per_byte(model: glassgear.LanguageModel, stories: list[str]) -> float:
    """Minus the log-probability of all stories, by their UTF-8 bytes."""
    nats = -sum(model.score(story).total for story in stories)
    return nats / sum(len(story.encode()) for story in stories)


def main() -> int:
    if len(sys.argv) < 3:
        print(__doc__, file=sys.stderr)
        return 2
    path, *names = sys.argv[1:]
    stories = [story.strip() for story in Path(path).read_text(encoding="utf-8").split("<|endoftext|>")]
    stories = [story for story in stories if story]
    for name in names:
        file, _, tokenizer = name.partition(":")
        model = glassgear.load(file, tokenizer or None)
        found = nats_per_byte(model, stories)
        line = {"model": Path(file).name, "stories": len(stories), "nats_per_byte": round(found, 4)}
        print(json.dumps(line), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
