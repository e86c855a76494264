"""Texts to ids on disk: documents, a tokenizer, a split by document, and memory-mapped ids.

What is made is kept beside a description of what it was made from; a run whose description is the
same takes it up, any other makes it anew.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glassgear.errors import FormatError, NotFoundError, SettingError
from glassgear.train.compared import refusal
from glassgear.train.settings import DataSettings
from glassgear.train.tokenizer import BOS, EOS, entries, read_tokenizer, train_tokenizer
from glassgear.weights.atomic import replacing

__all__ = ["Corpus", "Ids", "Windows", "documents", "prepare", "read_corpus"]

PARTS = ("train", "validation")
SIZES, ABOUT = "validation.sizes", "data.json"
# What tokenizers call the tokens around a document; of several the first counts.
BEGINNINGS = (BOS, "<|begin_of_text|>", "<bos>")
ENDS = (EOS, "<|end_of_text|>", "<eos>", "<|endoftext|>")
FORMAT = 1
DRAWS = 2**64  # what a document's hash is one of
AT_ONCE = 1000  # documents that are encoded together
Progress = Callable[[str, float], None]
Ids = NDArray[Any]


@dataclass(frozen=True, eq=False)
class Corpus:
    """Ids of a corpus.

    Attributes:
        tokenizer: path of its tokenizer.json.
        vocab: entries of the tokenizer.
        train: ids, memory-mapped; every document begins with BOS and ends with EOS.
        validation: likewise, of other documents.
        validation_sizes: int64 [documents, 2]: ids and UTF-8 bytes of each validation document, in the
            order of `validation`.
        ends: ids that end a document.
        fingerprint: of texts, tokenizer and split.
    """

    tokenizer: Path
    vocab: int
    train: Ids
    validation: Ids
    validation_sizes: NDArray[np.int64]
    ends: frozenset[int]
    fingerprint: str


@dataclass(frozen=True, eq=False)
class Windows:
    """The order in which windows of text are seen: a function of a number, so that runs can be resumed.

    An epoch is every whole window of `length` + 1 ids from an offset of its own, shuffled.

    Args:
        ids: the text.
        length: tokens of a window.
        seed: of offsets and order.
    """

    ids: Ids
    length: int
    seed: int

    def __post_init__(self) -> None:
        if len(self.ids) < 2 * self.length + 1:
            raise SettingError(
                f"the text has {len(self.ids):,} tokens; windows of {self.length:,} need at least "
                f"{2 * self.length + 1:,}: give more text, or a smaller context"
            )

    @property
    def epoch(self) -> int:
        """Windows of an epoch."""
        return (len(self.ids) - self.length) // self.length - 1 or 1

    def __getitem__(self, number: int) -> NDArray[np.int64]:
        """Window `number` of the whole run: int64 [length + 1]; the last id is only a target."""
        epoch, place = divmod(number, self.epoch)
        offset, order = self._plan(epoch)
        start = offset + int(order[place]) * self.length
        return np.asarray(self.ids[start : start + self.length + 1], np.int64)

    def _plan(self, epoch: int) -> tuple[int, NDArray[np.int64]]:
        held = self.__dict__.get("_held")
        if held is None or held[0] != epoch:
            random = np.random.Generator(np.random.PCG64([self.seed, epoch]))
            offset = int(random.integers(0, self.length))
            held = (epoch, offset, random.permutation(self.epoch))
            object.__setattr__(self, "_held", held)
        return held[1], held[2]

    def batch(self, first: int, count: int) -> NDArray[np.int64]:
        """Windows `first` to `first + count`: [count, length + 1]."""
        return np.stack([self[i] for i in range(first, first + count)])


def documents(settings: DataSettings) -> Iterator[str]:
    """Every document that isn't empty, file by file.

    Raises:
        NotFoundError: no such file.
        FormatError: not UTF-8, or a JSONL line without the text; the message names the line.
    """
    for name in settings.files:
        path = Path(name)
        _check_file(path)
        made = _from_jsonl(path, settings.field) if path.suffix == ".jsonl" else _from_text(path, settings)
        yield from (text for text in made if text.strip())


def _check_file(path: Path) -> None:
    if path.is_dir():
        raise NotFoundError(path, "is a folder: data.files names files")
    if not path.is_file():
        raise NotFoundError(path, "there is no such file")


def _from_text(path: Path, settings: DataSettings) -> Iterator[str]:
    held = ""
    try:
        with open(path, encoding="utf-8", newline="") as file:
            while piece := file.read(1 << 20):
                *whole, held = (held + piece).split(settings.separator)
                yield from (text.strip() for text in whole)
    except UnicodeDecodeError as trouble:
        raise FormatError(path, f"is no UTF-8 text: {trouble.reason} at byte {trouble.start:,}") from trouble
    yield held.strip()


def _from_jsonl(path: Path, field: str) -> Iterator[str]:
    with open(path, "rb") as file:  # as bytes, so that a line that is no UTF-8 has its number
        for number, line in enumerate(file, 1):
            if line.strip():
                yield _text_of(path, number, line, field)


def _text_of(path: Path, number: int, line: bytes, field: str) -> str:
    try:
        text = json.loads(line.decode("utf-8"))[field]
    except UnicodeDecodeError as trouble:
        raise FormatError(
            path, f"line {number:,} is no UTF-8 text: {trouble.reason} at byte {trouble.start + 1:,} of it"
        ) from trouble
    except (ValueError, KeyError, TypeError, RecursionError) as trouble:
        raise FormatError(path, f"line {number:,} is no object with a text under `{field}`") from trouble
    if not isinstance(text, str):
        raise FormatError(path, f"line {number:,}: `{field}` should be a text, found {text!r:.40}")
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as trouble:
        half = f"\\u{ord(text[trouble.start]):04x}"
        raise FormatError(
            path,
            f"line {number:,}: `{field}` has {half}, half of a pair that stands for one character, without "
            "the other half: write the character itself, or leave it out",
        ) from trouble
    return text


def held_out(text: str, share: float) -> bool:
    """Whether a document is for validation: by its own hash, so that equal ones stay together."""
    return _draw(text) < share * DRAWS


def _draw(text: str) -> int:
    """A document's number, below `DRAWS`."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")


def prepare(
    settings: DataSettings,
    folder: Path,
    progress: Progress | None = None,
    other: Callable[[], str] | None = None,
    damaged: Callable[[str], None] | None = None,
) -> Corpus:
    """Make the ids of a corpus, or take up those that are there and as they were written.

    Args:
        settings: what to read.
        folder: where ids, tokenizer and their description go.
        progress: is told what is being done, and the share that is done, 0 to 1.
        other: given where what is there is still needed; says what differs if the settings ask for other ids.
        damaged: is told what isn't as it was written, in a sentence without its end, before it is made anew.

    Raises:
        SettingError: they do, or the text is too small.
    """
    tell = progress or (lambda what, share: None)
    folder.mkdir(parents=True, exist_ok=True)
    description = _description(settings)
    made, fault = _found(folder)
    another = bool(made) and made.get("source") != description
    if another and other:
        raise refusal(folder, other())
    if fault and damaged and not another:
        damaged(fault)
    if another or fault or not made:
        made = _make(settings, folder, description, tell)
        with replacing(folder / ABOUT) as file:
            file.write(json.dumps(made, indent=1).encode())
    return _opened(folder, made)


def read_corpus(folder: Path) -> Corpus:
    """What `prepare` has left in a folder.

    Raises:
        NotFoundError: nothing, or not all of it as it was written.
    """
    made, fault = _found(folder)
    if fault:
        raise NotFoundError(
            folder, f"holds text, but not all of it as it was written ({fault}): training makes it anew"
        )
    if not made:
        raise NotFoundError(folder, "holds no prepared text: train first")
    return _opened(folder, made)


def _opened(folder: Path, made: dict[str, Any]) -> Corpus:
    width = _width(made["vocab"])
    ids = [np.memmap(folder / f"{part}.ids", width, "r") for part in PARTS]
    sizes = np.fromfile(folder / SIZES, np.int64).reshape(-1, 2)
    ends = frozenset({int(ids[0][-1])}) if made["ended"] else frozenset()
    return Corpus(folder / "tokenizer.json", made["vocab"], ids[0], ids[1], sizes, ends, made["fingerprint"])


def _width(vocab: int) -> type[np.uint16] | type[np.uint32]:
    return np.uint16 if vocab <= 1 << 16 else np.uint32


def _description(settings: DataSettings) -> dict[str, Any]:
    """What ids depend on: the settings, and the files' sizes and contents."""
    source: dict[str, Any] = {"format": FORMAT, **asdict(settings), "files": []}
    for name in settings.files:
        _check_file(Path(name))
        source["files"].append([Path(name).name, _digest(Path(name))])
    if isinstance(settings.tokenizer, str):
        if not Path(settings.tokenizer).is_file():
            raise NotFoundError(settings.tokenizer, "there is no such tokenizer")
        source["tokenizer"] = _digest(Path(settings.tokenizer))
    return source


def _digest(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _found(folder: Path) -> tuple[dict[str, Any], str]:
    """The description of what was made, and what is wrong with it or with the files that it speaks of."""
    about = folder / ABOUT
    try:
        made = json.loads(about.read_bytes())
        return made, _fault(folder, made)
    except FileNotFoundError:
        return {}, ""
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return {}, f"{about} isn't what was written"


def _fault(folder: Path, made: dict[str, Any]) -> str:
    """Which file isn't there or not as it was written; empty: all are."""
    width = np.dtype(_width(made["vocab"])).itemsize
    lengths = {f"{part}.ids": made["tokens"][part] * width for part in PARTS} | {SIZES: made["held_out"] * 16}
    digests = dict(made.get("digests", {}))  # earlier runs have none
    if "tokenizer" in made:
        digests["tokenizer.json"] = made["tokenizer"]
    for name in (*lengths, "tokenizer.json"):
        path = folder / name
        if not path.is_file():
            return f"{path} isn't there"
        size = path.stat().st_size
        if size != (wanted := lengths.get(name, size)):
            return f"{path} has {size:,} bytes, not the {wanted:,} that were written"
        if name in digests and _digest(path) != digests[name]:
            return f"{path} isn't what was written: its SHA-256 is another"
    return ""


def _make(settings: DataSettings, folder: Path, source: dict[str, Any], tell: Progress) -> dict[str, Any]:
    count = _count(settings)
    if isinstance(settings.tokenizer, int):
        tell("training a tokenizer", 0.0)
        texts = (t for t in documents(settings) if not held_out(t, settings.validation))
        train_tokenizer(texts, settings.tokenizer, folder / "tokenizer.json")
    else:
        _copy_tokenizer(Path(settings.tokenizer), folder)
    tokenizer = read_tokenizer(folder / "tokenizer.json", str(settings.tokenizer))
    vocab = entries(tokenizer)
    ends = _known(tokenizer, ENDS)
    counts, held = _encode(settings, folder, tokenizer, count, tell)
    for part in PARTS:
        if counts[part] < 2:
            raise SettingError(f"the {part} part has fewer than 2 tokens: give more text, or longer one")
    fingerprint = hashlib.sha256(json.dumps(source, sort_keys=True).encode()).hexdigest()
    return {
        "source": source, "vocab": vocab, "fingerprint": fingerprint, "documents": count,
        "tokens": counts, "held_out": held, "ended": ends is not None,
        "tokenizer": _digest(folder / "tokenizer.json"),
        "digests": {name: _digest(folder / name) for name in (*(f"{part}.ids" for part in PARTS), SIZES)},
    }  # fmt: skip


def _count(settings: DataSettings) -> int:
    """How many documents there are, if both parts get some."""
    count = held = 0
    for text in documents(settings):
        count += 1
        held += held_out(text, settings.validation)
    if count < 2:
        raise SettingError(
            f"the files hold {count} documents; a split by document needs at least 2: "
            f"what parts them is data.separator, {settings.separator!r} now"
        )
    if held in (0, count):
        empty = f"{'none' if not held else 'all'} of the {count:,} documents are held out"
        raise SettingError(
            f"{empty} at data.validation {settings.validation:g} (a hash of its text decides about each): "
            f"{_better_share(settings)}"
        )
    return count


def _better_share(settings: DataSettings) -> str:
    """What to do where one part is empty: the nearest share that splits these documents."""
    draws = sorted(_draw(text) for text in documents(settings))
    shares = [i / 20 for i in range(1, 20) if draws[0] < i / 20 * DRAWS <= draws[-1]]
    if not shares:
        return "give more documents, of different texts"
    return f"--set data.validation={min(shares, key=lambda s: abs(s - settings.validation)):g} splits them"


def _copy_tokenizer(source: Path, folder: Path) -> None:
    """The file, and those beside it that say which of its tokens open and end a text."""
    for name in ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"):
        given = source if name == "tokenizer.json" else source.with_name(name)
        if given.is_file():
            with replacing(folder / name) as file:
                file.write(given.read_bytes())
        else:
            (folder / name).unlink(missing_ok=True)


def _known(tokenizer: Any, names: tuple[str, ...]) -> int | None:
    """The id of the first of these tokens that a tokenizer has."""
    ids = (tokenizer.token_to_id(name) for name in names)
    return next((i for i in ids if i is not None), None)


def _encode(
    settings: DataSettings, folder: Path, tokenizer: Any, total: int, tell: Progress
) -> tuple[dict[str, int], int]:
    """Write the ids of both parts; how many each has, and how many documents are held out."""
    begin, end = (_known(tokenizer, names) for names in (BEGINNINGS, ENDS))
    width = _width(entries(tokenizer))
    counts, held = dict.fromkeys(PARTS, 0), 0
    with (
        replacing(folder / "train.ids") as train,
        replacing(folder / "validation.ids") as validation,
        replacing(folder / SIZES) as sizes,
    ):
        files = {"train": train, "validation": validation}
        done = 0
        for texts in _grouped(documents(settings)):
            encoded = tokenizer.encode_batch(texts, add_special_tokens=False)
            for text, made in zip(texts, encoded, strict=True):
                part = PARTS[held_out(text, settings.validation)]
                ids = [i for i in (begin, *made.ids, end) if i is not None]
                files[part].write(np.array(ids, width).tobytes())
                counts[part] += len(ids)
                if part == "validation":
                    sizes.write(np.array([len(ids), len(text.encode())], np.int64).tobytes())
                    held += 1
            done += len(texts)
            tell("encoding", done / total)
    return counts, held


def _grouped(texts: Iterator[str]) -> Iterator[list[str]]:
    held: list[str] = []
    for text in texts:
        held.append(text)
        if len(held) == AT_ONCE:
            yield held
            held = []
    if held:
        yield held
