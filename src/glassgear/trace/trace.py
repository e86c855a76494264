"""What was recorded: arrays with named axes by gear path, the text they belong to, and a file of both."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from fnmatch import fnmatchcase
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glassgear.errors import FileError, FormatError, SettingError, UnsupportedError
from glassgear.weights import safetensors

__all__ = ["Trace", "Value", "check_folder", "kind_of", "matches"]

Floats = NDArray[np.float32]
FORMAT = "glassgear-trace-1"
KEY, POSITIONS = "glassgear.trace", ".positions"


def matches(path: str, select: Collection[str]) -> bool:
    """Whether a path fits one of the patterns: `*` stands for anything, dots included."""
    return "*" in select or any(fnmatchcase(path, pattern) for pattern in select)


def check_folder(path: str | PathLike[str]) -> None:
    """Refuse a file for which there is no folder, before anything is computed for it.

    Raises:
        FileError: there is none.
    """
    folder = Path(path).parent
    if not folder.is_dir():
        what = "is no folder" if folder.exists() else "doesn't exist"
        raise FileError(path, f"can't be written: the folder {folder} {what}")


def kind_of(path: str) -> str:
    """A path without its numbers: `blocks.*.ffn.down` for that of any block."""
    return ".".join("*" if word.isdigit() else word for word in path.split("."))


@dataclass(frozen=True, eq=False)
class Value:
    """One value of one gear, for all tokens that it was computed for.

    Attributes:
        path: such as `blocks.3.attention.scores`.
        axes: the name of each axis: `token`, `head`, `seen` (the token that is looked at),
            `channel`, `expert`, `entry` (of the vocabulary).
        array: float32. Scores of tokens that can't be seen are -inf, their weights 0. A gear's value that is
            its last step's shares its memory: copy it before writing to it.
        positions: int64, the token of each row along the axis `token`. An expert has rows only
            for the tokens that chose it.
    """

    path: str
    axes: tuple[str, ...]
    array: Floats
    positions: NDArray[np.int64]

    def at(self, token: int) -> Floats:
        """The value of one token, the axis `token` gone.

        Raises:
            SettingError: there is none for this token.
        """
        rows = np.flatnonzero(self.positions == token)
        if not len(rows):
            here = f"tokens 0 to {self.positions[-1]}" if len(self.positions) else "no token"
            raise SettingError(f"{self.path} has no value for token {token}: it was computed for {here}")
        taken: Floats = np.take(self.array, int(rows[0]), axis=self.axes.index("token"))
        return taken

    def number(self, token: int, index: Sequence[int]) -> np.float32:
        """One number of one token.

        Raises:
            SettingError: the index doesn't fit the value's shape, which is said.
        """
        row = self.at(token)
        names = [name for name in self.axes if name != "token"]
        fits = len(index) == row.ndim and all(-n <= i < n for i, n in zip(index, row.shape, strict=True))
        if not fits:
            shape = ", ".join(f"{name} 0 to {n - 1}" for name, n in zip(names, row.shape, strict=True))
            raise SettingError(f"{self.path} has no number at {', '.join(map(str, index))}: it has {shape}")
        picked: np.float32 = row[tuple(index)]
        return picked

    def _repr_html_(self) -> str:
        """For notebooks: figures and a heatmap."""
        from glassgear.trace.display import value_html

        return value_html(self)


@dataclass(frozen=True, eq=False)
class Trace(Mapping[str, Value]):
    """Recorded values by path, in the order in which they were computed.

    Attributes:
        ids: prompt and generated ids.
        texts: what each id stands for, or empty without a tokenizer.
        prompt: how many of the ids are the prompt. The last id of all wasn't run, if any were made.
        model: path or name of the model.
        backend: what ran it.
        family: kind of model.
        settings: how ids were chosen, for people.
        recorded: path -> value.
    """

    ids: tuple[int, ...]
    texts: tuple[str, ...]
    prompt: int
    model: str
    backend: str
    family: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    recorded: Mapping[str, Value] = field(default_factory=dict)

    def __getitem__(self, path: str) -> Value:
        """A value; the error names those that are spelled alike."""
        if path not in self.recorded:
            near = get_close_matches(path, list(self.recorded), 3, 0.5)
            hint = f": did you mean {' or '.join(near)}?" if near else ""
            raise PathError(f"nothing was recorded under {path!r}{hint}")
        return self.recorded[path]

    def __iter__(self) -> Iterator[str]:
        return iter(self.recorded)

    def __len__(self) -> int:
        return len(self.recorded)

    @property
    def tokens(self) -> int:
        """How many tokens were run."""
        return max((int(v.positions[-1]) + 1 for v in self.recorded.values() if len(v.positions)), default=0)

    @property
    def nbytes(self) -> int:
        """Bytes of all values."""
        return sum(value.array.nbytes for value in self.recorded.values())

    def _repr_html_(self) -> str:
        """For notebooks: the text, and a table of the values."""
        from glassgear.trace.display import trace_html

        return trace_html(self)

    def select(self, *patterns: str) -> Trace:
        """A trace of those values that fit a pattern, such as `blocks.*.ffn.*`."""
        kept = {path: value for path, value in self.recorded.items() if matches(path, patterns)}
        return Trace(
            self.ids, self.texts, self.prompt, self.model, self.backend, self.family, self.settings, kept
        )

    def save(self, path: str | PathLike[str]) -> None:
        """Write it as safetensors, with what belongs to it as JSON in the metadata.

        Raises:
            FileError: there is no folder for it, or it can't be written.
        """
        check_folder(path)
        about = {
            "format": FORMAT, "ids": self.ids, "texts": self.texts, "prompt": self.prompt,
            "model": self.model, "backend": self.backend, "family": self.family,
            "settings": dict(self.settings),
            "axes": {path: value.axes for path, value in self.recorded.items()},
        }  # fmt: skip
        arrays: dict[str, NDArray[Any]] = {}
        for name, value in self.recorded.items():
            arrays[name] = value.array
            if not np.array_equal(value.positions, np.arange(len(value.positions))):
                arrays[name + POSITIONS] = value.positions
        safetensors.write(path, arrays, {KEY: json.dumps(about, ensure_ascii=False)})

    @classmethod
    def open(cls, path: str | PathLike[str]) -> Trace:
        """Read what `save` wrote. Values stay in the file until they are looked at.

        Raises:
            FormatError: another file.
        """
        try:
            text = safetensors.read_metadata(path).get(KEY)
        except (FormatError, UnsupportedError) as trouble:
            raise FormatError(
                path, f"is no trace, which is a safetensors file that `glassgear trace --save` writes: it "
                f"{trouble.trouble}"
            ) from trouble  # fmt: skip
        if text is None:
            raise FormatError(path, "is a safetensors file, but no trace")
        try:
            about = json.loads(text)
            return cls._read(path, about)
        except (ValueError, KeyError, TypeError, AttributeError) as trouble:
            raise FormatError(path, "is a trace whose description is damaged") from trouble

    @classmethod
    def _read(cls, path: str | PathLike[str], about: dict[str, Any]) -> Trace:
        if about["format"] != FORMAT:
            raise FormatError(path, f"is a trace of the form {about['format']!r:.40}, not {FORMAT}")
        stored = safetensors.read(path)
        values = {}
        for name, axes in about["axes"].items():
            array = stored[name].float32()
            if len(axes) != array.ndim or "token" not in axes:
                raise FormatError(path, f"`{name}` has {array.ndim} axes; its description says {axes!r:.80}")
            rows = array.shape[axes.index("token")]
            kept = stored.get(name + POSITIONS)
            positions = np.arange(rows) if kept is None else kept.data.view(np.int64).copy()
            if len(positions) != rows:
                raise FormatError(path, f"`{name}` has {rows} rows but {len(positions)} positions")
            values[name] = Value(name, tuple(axes), array, positions)
        return cls(
            tuple(int(i) for i in about["ids"]), tuple(about["texts"]), int(about["prompt"]),
            about["model"], about["backend"], about["family"], about["settings"], values,
        )  # fmt: skip


class PathError(SettingError, KeyError):
    """A path that nothing was recorded under."""

    def __str__(self) -> str:
        """The message as it is; KeyError would put it in quotes."""
        return str(self.args[0])
