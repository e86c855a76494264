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
from glassgear.train.tokenizer import BOS, EOS, train_tokenizer
from glassgear.weights.atomic import replacing

__all__ = ["Corpus", "Ids", "Windows", "documents", "prepare", "read_corpus"]

PARTS = ("train", "validation")
SIZES = "validation.sizes"
# What tokenizers call the tokens around a document; of several the first counts.
BEGINNINGS = (BOS, "<|begin_of_text|>", "<bos>")
ENDS = (EOS, "<|end_of_text|>", "<eos>", "<|endoftext|>")
FORMAT = 1
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
    with open(path, encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            try:
                text = json.loads(line)[field]
            except (ValueError, KeyError, TypeError, RecursionError) as trouble:
                raise FormatError(
                    path, f"line {number:,} is no object with a text under `{field}`"
                ) from trouble
            if not isinstance(text, str):
                raise FormatError(path, f"line {number:,}: `{field}` should be a text, found {text!r:.40}")
            yield text


def held_out(text: str, share: float) -> bool:
    """Whether a document is for validation: by its own hash, so that equal ones stay together."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") < share * 2**64


def prepare(
    settings: DataSettings,
    folder: Path,
    progress: Progress | None = None,
    other: Callable[[], str] | None = None,
) -> Corpus:
    """Make the ids of a corpus, or take up those that are there.

    Args:
        settings: what to read.
        folder: where ids, tokenizer and their description go.
        progress: is told what is being done, and the share that is done, 0 to 1.
        other: given where what is there is still needed; says what differs if the settings ask for other ids.

    Raises:
        SettingError: they do, or the text is too small.
    """
    tell = progress or (lambda what, share: None)
    folder.mkdir(parents=True, exist_ok=True)
    description = _description(settings)
    about = folder / "data.json"
    made = _read(about)
    if other and made and made.get("source") != description:
        raise refusal(folder, other())
    if made.get("source") != description:
        made = _make(settings, folder, description, tell)
        with replacing(about) as file:
            file.write(json.dumps(made, indent=1).encode())
    return read_corpus(folder)


def read_corpus(folder: Path) -> Corpus:
    """What `prepare` has left in a folder.

    Raises:
        NotFoundError: nothing, or not all of it.
    """
    made = _read(folder / "data.json")
    if not made:
        raise NotFoundError(folder, "holds no prepared text, or not all of it as it was written: train first")
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


def _read(about: Path) -> dict[str, Any]:
    try:
        found = json.loads(about.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) and _is_whole(about.parent, found) else {}


def _is_whole(folder: Path, made: dict[str, Any]) -> bool:
    """Whether the files that a description speaks of are there, and as they were written."""
    try:
        width = np.dtype(_width(made["vocab"])).itemsize
        lengths = {f"{part}.ids": made["tokens"][part] * width for part in PARTS}
        lengths[SIZES] = made["held_out"] * 16
        right = all((folder / name).stat().st_size == length for name, length in lengths.items())
        digest = _digest(folder / "tokenizer.json")
        right = right and digest == made.get("tokenizer", digest)  # earlier runs have no such entry
        return right and all(
            _digest(folder / name) == wanted for name, wanted in made.get("digests", {}).items()
        )
    except (OSError, KeyError, TypeError):
        return False


def _make(settings: DataSettings, folder: Path, source: dict[str, Any], tell: Progress) -> dict[str, Any]:
    count = sum(1 for _ in documents(settings))
    if count < 2:
        raise SettingError(
            f"the files hold {count} documents; a split by document needs at least 2: "
            f"what parts them is data.separator, {settings.separator!r} now"
        )
    if isinstance(settings.tokenizer, int):
        tell("training a tokenizer", 0.0)
        texts = (t for t in documents(settings) if not held_out(t, settings.validation))
        train_tokenizer(texts, settings.tokenizer, folder / "tokenizer.json")
    else:
        _copy_tokenizer(Path(settings.tokenizer), folder)
    tokenizer = _tokenizer(folder / "tokenizer.json", settings)
    vocab = max(tokenizer.get_vocab().values()) + 1
    ends = _known(tokenizer, ENDS)
    counts, held = _encode(settings, folder, tokenizer, count, tell)
    for part in PARTS:
        if counts[part] < 2:
            raise SettingError(
                f"the {part} part is empty: {count} documents, {settings.validation:g} of them held out"
            )
    fingerprint = hashlib.sha256(json.dumps(source, sort_keys=True).encode()).hexdigest()
    return {
        "source": source, "vocab": vocab, "fingerprint": fingerprint, "documents": count,
        "tokens": counts, "held_out": held, "ended": ends is not None,
        "tokenizer": _digest(folder / "tokenizer.json"),
        "digests": {name: _digest(folder / name) for name in (*(f"{part}.ids" for part in PARTS), SIZES)},
    }  # fmt: skip


def _copy_tokenizer(source: Path, folder: Path) -> None:
    """The file, and those beside it that say which of its tokens open and end a text."""
    for name in ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"):
        given = source if name == "tokenizer.json" else source.with_name(name)
        if given.is_file():
            with replacing(folder / name) as file:
                file.write(given.read_bytes())
        else:
            (folder / name).unlink(missing_ok=True)


def _tokenizer(path: Path, settings: DataSettings) -> Any:
    from tokenizers import Tokenizer

    try:
        return Tokenizer.from_file(str(path))
    except Exception as trouble:  # the library raises nothing more particular
        raise FormatError(str(settings.tokenizer), f"is no tokenizer.json: {trouble}") from trouble


def _known(tokenizer: Any, names: tuple[str, ...]) -> int | None:
    """The id of the first of these tokens that a tokenizer has."""
    ids = (tokenizer.token_to_id(name) for name in names)
    return next((i for i in ids if i is not None), None)


def _encode(
    settings: DataSettings, folder: Path, tokenizer: Any, total: int, tell: Progress
) -> tuple[dict[str, int], int]:
    """Write the ids of both parts; how many each has, and how many documents are held out."""
    begin, end = (_known(tokenizer, names) for names in (BEGINNINGS, ENDS))
    width = _width(max(tokenizer.get_vocab().values()) + 1)
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
