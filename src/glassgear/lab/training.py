"""Training of small models for experiments: a text by rule or of one's own, a design, and how it went.

The steps are those of `glassgear train`, on the same trees; nothing is written. Needs PyTorch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import process_time
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from glassgear.errors import FileError, FormatError, NotFoundError
from glassgear.lab.models import require_torch

if TYPE_CHECKING:
    from glassgear.backends.torch import ModelModule

__all__ = ["Course", "Recipe", "Text", "spikes", "story", "text_of", "train"]

WINDOW = 20  # steps before a step that say what loss is usual
JUMP = 1.25  # a loss so many times the usual one is a spike
IN_A_ROW = 3  # steps without a finite gradient, after which a run stops
MOST = 4_000_000  # bytes of a file that are read
BUILT_IN = "stories by rule"

# --------------------------------------------------------------------------------------------
# Text

GIRLS = ("Lily", "Anna", "Mia", "Sue", "Lucy", "Rose", "Ella", "Nora", "Ruby", "Ida")
BOYS = ("Tom", "Ben", "Sam", "Max", "Tim", "Jack", "Leo", "Finn", "Hugo", "Carl")
PETS = ("dog", "cat", "bird", "frog", "duck", "mouse", "pony", "rabbit")
THINGS = ("ball", "hat", "kite", "cake", "drum", "book", "boat", "cup", "doll", "stick", "stone", "shell")
LOOKS = ("red", "big", "small", "blue", "old", "new", "round", "soft", "shiny", "green")
PLACES = ("park", "forest", "garden", "house", "river", "hill", "shop", "beach")
CAUSES = {
    "lost": "sad", "found": "happy", "broke": "angry", "hid": "silly", "dropped": "sorry", "made": "proud"
}  # fmt: skip


def story(random: np.random.Generator) -> str:
    """A story of some 300 letters: names, pronouns and things come back, feelings follow from deeds."""

    def pick(words: Any) -> str:
        return str(words[int(random.integers(len(words)))])

    names = GIRLS + BOYS
    one = pick(names)
    other = pick([name for name in names if name != one])
    he, his = ("She", "her") if one in GIRLS else ("He", "his")
    thing, look, place, pet = pick(THINGS), pick(LOOKS), pick(PLACES), pick(PETS)
    deed = pick(list(CAUSES))
    said = [
        f"One day {one} went to the {place} with a {look} {thing}.",
        f"{he} had a {pick(LOOKS)} {pet}. The {pet} liked the {thing}.",
        f"In the {place} {one} met {other}.",
        f'"Look at my {look} {thing}," said {one}.',
        f"{other} {deed} the {thing}. {other} was {CAUSES[deed]}.",
        f"{one} and {other} looked for the {pet} in the {place}.",
        f'"Where is the {pet}?" said {other}.',
        f"Then {one} gave the {thing} to {his} {pet}.",
    ]
    middle = sorted(random.choice(np.arange(1, len(said)), 5, replace=False).tolist())
    end = f"{one} and {other} went home with the {pet}."
    return " ".join([said[0], *(said[i] for i in middle), end]) + "\n"


@dataclass(frozen=True, eq=False)
class Text:
    """Ids: a number for each byte that occurs.

    Attributes:
        name: for people.
        train: uint8.
        held_out: uint8, of other stories, or the last tenth of a file.
        vocab: how many different ids there are.
        by_frequency: nats a token that knowing nothing but how often each occurs costs on `held_out`.
    """

    name: str
    train: NDArray[np.uint8]
    held_out: NDArray[np.uint8]
    vocab: int
    by_frequency: float


def text_of(name: str | None, seed: int = 0, stories: int = 2000) -> Text:
    """The text of a run.

    Args:
        name: of a file, any; its first 4 MB. None: stories by rule, so that nothing has to be at hand.
        seed: of the stories.
        stories: how many are made for training; a tenth as many are held out.

    Raises:
        NotFoundError: there is no such file.
        FormatError: it has less than 20,000 bytes.
        FileError: it can't be read.
    """
    if name is None:
        random = np.random.default_rng(seed)
        made = [story(random) for _ in range(stories + stories // 10)]
        parts = ["".join(made[:stories]).encode(), "".join(made[stories:]).encode()]
    else:
        held = _read(Path(name))
        parts = [held[: len(held) * 9 // 10], held[len(held) * 9 // 10 :]]
    bytes_ = [np.frombuffer(part, np.uint8) for part in parts]
    used, ids = np.unique(np.concatenate(bytes_), return_inverse=True)
    train, held_out = np.split(ids.astype(np.uint8), [len(bytes_[0])])
    counts = np.bincount(train, minlength=len(used)) + 1.0
    nats = -np.log(counts / counts.sum())[held_out[1:]]
    return Text(Path(name).name if name else BUILT_IN, train, held_out, len(used), float(nats.mean()))


def _read(path: Path) -> bytes:
    if not path.is_file():
        raise NotFoundError(path, "there is no such file")
    try:
        with open(path, "rb") as file:
            held = file.read(MOST)
    except OSError as trouble:
        raise FileError(path, f"can't be read: {trouble.strerror or trouble}") from trouble
    if len(held) < 20_000:
        raise FormatError(path, f"has {len(held):,} bytes; to learn from it takes 20,000 and more")
    return held


# --------------------------------------------------------------------------------------------
# Training


@dataclass(frozen=True)
class Recipe:
    """How a model is trained; what isn't here is as `glassgear train` has it.

    Attributes:
        steps: how many.
        rate: the peak of the learning rate, which ends at a tenth of it.
        warmup: steps on the way to the peak.
        context: tokens of a sequence.
        batch: sequences of a step.
        clip: largest norm of a gradient; 0: any.
        by_depth: whether what is added to the stream begins smaller in deeper models.
    """

    steps: int = 200
    rate: float = 3e-3
    warmup: int = 20
    context: int = 64
    batch: int = 8
    clip: float = 1.0
    by_depth: bool = True


@dataclass(frozen=True)
class Course:
    """How a training went.

    Attributes:
        losses: nats a token, a number for each step; NaN where it wasn't finite.
        norms: of the gradients, before they are clipped.
        held_out: nats a token on held-out text, in the end; NaN where the run broke down.
        spikes: steps at which the loss jumped up.
        diverged: three steps in a row weren't finite, or the end is above the beginning.
        seconds: of CPU time.
    """

    losses: tuple[float, ...]
    norms: tuple[float, ...]
    held_out: float
    spikes: tuple[int, ...]
    diverged: bool
    seconds: float

    @property
    def last(self) -> float:
        """Mean loss of the last tenth of the steps."""
        return float(np.mean(self.losses[-max(1, len(self.losses) // 10) :]))


def train(
    design: Mapping[str, Any], text: Text, recipe: Recipe, seed: int,
    look: Callable[[int, ModelModule], None] | None = None,
    begin: Callable[[ModelModule], None] | None = None,
) -> tuple[Course, ModelModule]:  # fmt: skip
    """Train a model of one's own description.

    The same design, text, recipe and seed give the same course on the same machine, by one thread.

    Args:
        design: what a model file says, see docs/designs.md, but for `vocab` and `context`.
        text: what it learns.
        recipe: how.
        seed: of weights and of the order of the text.
        look: is called after each step with its number, from 1, and the module.
        begin: may change the fresh weights.

    Returns:
        How it went, and the module in training mode.

    Raises:
        NotHereError: PyTorch isn't installed.
        SettingError: the text is too short for the context.
    """
    require_torch()
    import torch

    from glassgear.model.designs import design as designed
    from glassgear.train.ranks import Ranks
    from glassgear.train.settings import DataSettings, TrainSettings
    from glassgear.train.step import Steps

    model = designed({"name": "trained", **design, "vocab": text.vocab, "context": recipe.context}, "design")
    settings = TrainSettings(
        out="", data=DataSettings((text.name,)), model={}, context=recipe.context, batch=recipe.batch,
        steps=recipe.steps, learning_rate=recipe.rate, warmup=recipe.warmup, clip=recipe.clip, seed=seed,
    )  # fmt: skip
    steps = Steps(settings, Ranks(0, 1, torch.device("cpu")))
    losses: list[float] = []
    norms: list[float] = []
    bad, start = 0, process_time()
    with _one_thread():
        steps.begin(model, text.train, by_depth=recipe.by_depth)
        if begin is not None:
            begin(steps.plain)
        while len(losses) < recipe.steps and bad < IN_A_ROW:
            loss, norm, moved = steps.step(len(losses))
            losses.append(loss if math.isfinite(loss) else math.nan)
            norms.append(norm)
            bad = 0 if moved else bad + 1
            if look is not None:
                look(len(losses), steps.plain)
        held_out = math.nan if bad else _held_out(steps, text)
    tail = float(np.mean(losses[-max(1, len(losses) // 10) :]))
    diverged = bad > 0 or not math.isfinite(held_out) or not tail < losses[0]
    course = Course(tuple(losses), tuple(norms), held_out, spikes(losses), diverged, process_time() - start)
    return course, steps.plain


def _held_out(steps: Any, text: Text) -> float:
    from glassgear.train.looks import held_out_loss

    ids = text.held_out[: 16 * steps.settings.batch * steps.settings.context + 1]
    summed, count = held_out_loss(steps.plain, steps.settings, ids, steps.ranks)
    return summed / count


def spikes(losses: list[float] | tuple[float, ...]) -> tuple[int, ...]:
    """Steps, from 1, at which the loss jumps to 1.25 times the median of the 20 before it, or isn't finite.

    A jump counts once, however long the loss stays up.
    """
    found: list[int] = []
    up = False
    for i in range(WINDOW, len(losses)):
        usual = float(np.nanmedian(losses[i - WINDOW : i]))
        was, up = up, not losses[i] < JUMP * usual
        if up and not was:
            found.append(i + 1)
    return tuple(found)


@contextmanager
def _one_thread() -> Iterator[None]:
    """Matrices this small are slower with more, and sums come in one order."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
