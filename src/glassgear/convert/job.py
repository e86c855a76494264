"""Convert a model: open it, settle everything that can fail, then write.

In: the path of a model, and what it shall become. Out: a GGUF file, a Hugging Face folder or a
llama2.c `.bin`, whole or not at all, and a `Summary`.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from glassgear.convert.targets import Plan
from glassgear.convert.to_folder import plan_folder
from glassgear.convert.to_gguf import plan_gguf
from glassgear.convert.to_llama2c import plan_llama2c
from glassgear.convert.values import TypeRule
from glassgear.errors import FileError, NotFoundError, SettingError
from glassgear.weights.folder import CONFIG
from glassgear.weights.open import open_checkpoint
from glassgear.weights.quantize import WRITABLE

__all__ = ["KINDS", "Summary", "Wanted", "check_options", "convert", "kind_of"]

KINDS = ("gguf", "folder", "bin")
NO_FOLDERS = (".safetensors", ".pt", ".pth", ".onnx", ".ggml", ".json", ".toml", ".txt")
"""Endings that nobody gives a folder: whoever writes one expects a file."""
Progress = Callable[[int, int], None]
"""Called with the bytes written so far, and in all."""


@dataclass(frozen=True)
class Wanted:
    """What the target shall be.

    Attributes:
        kind: `gguf`, `folder` or `bin`; None: as its name says.
        type: type of matrices, in small letters; None: what each is stored in, where the target can
            hold it, else f32.
        head_type: type of the embedding table and the output matrix; None: as `type`.
        bin_version: of a `.bin`: 0, 1 or 2; None: 0.
        replace: whether something that is there may be replaced.
    """

    kind: str | None = None
    type: str | None = None
    head_type: str | None = None
    bin_version: int | None = None
    replace: bool = False


@dataclass(frozen=True)
class Summary:
    """What was done.

    Attributes:
        source: the path that was read, `container` what it is.
        target: the path that was written, `kind` what it is.
        nbytes: bytes of the weights.
        types: type -> number of tensors.
        fallbacks: tensor -> its type, where that isn't the one that was asked for.
        notices: what a user should know.
    """

    source: str
    container: str
    target: str
    kind: str
    nbytes: int
    types: dict[str, int]
    fallbacks: dict[str, str]
    notices: tuple[str, ...] = ()


def convert(
    source: Path,
    target: Path,
    wanted: Wanted = Wanted(),
    progress: Progress | None = None,
) -> Summary:
    """Convert a model.

    Args:
        source: a GGUF file, a `.bin` or a folder.
        target: where the new one shall be.
        wanted: what it shall be.
        progress: see `Progress`.

    Raises:
        SettingError: options that don't go together, or a target that is there already.
        FileError: the source is damaged, or holds something that the target can't; the system refuses.
    """
    kind = wanted.kind or kind_of(target)
    check_options(target, wanted)
    checkpoint = open_checkpoint(source)
    if not checkpoint.tensors:
        raise SettingError(f"{source} is a {checkpoint.container}, which has no weights to convert")
    _check_target(source, target, kind, wanted.replace)
    rule = TypeRule(_upper(wanted.type), _upper(wanted.head_type))
    told = _Told(progress)
    if kind == "gguf":
        plan = plan_gguf(checkpoint, target, rule, told)
    elif kind == "bin":
        plan = plan_llama2c(checkpoint, target, wanted.bin_version or 0, told, replace=wanted.replace)
    else:
        plan = plan_folder(checkpoint, target, rule, told)
    _check_space(target, plan.nbytes)
    told.total = plan.nbytes
    plan.write()
    return Summary(
        str(source), checkpoint.container, str(target), kind, plan.nbytes,
        dict(Counter(plan.types.values())), _fallbacks(plan, rule),
        (*checkpoint.notices, *plan.notices),
    )  # fmt: skip


def kind_of(target: Path) -> str:
    """What a target's name says that it shall be."""
    suffix = target.suffix.lower()
    return {".gguf": "gguf", ".bin": "bin"}.get(suffix, "folder")


class _Told:
    """Adds up bytes for whoever looks on."""

    def __init__(self, progress: Progress | None) -> None:
        self._progress = progress
        self._done = 0
        self.total = 0

    def __call__(self, count: int) -> None:
        self._done += count
        if self._progress is not None:
            self._progress(self._done, self.total)


def _upper(kind: str | None) -> str | None:
    return kind.upper() if kind else None


def check_options(target: Path, wanted: Wanted) -> None:
    """Refuse options that don't go together.

    Raises:
        SettingError: which, and what to do.
    """
    kind = wanted.kind or kind_of(target)
    if kind not in KINDS:
        raise SettingError(f"no kind of target is called {kind!r}: choose {', '.join(KINDS)}")
    if wanted.kind is None and kind == "folder" and (target.name == "-" or target.suffix in NO_FOLDERS):
        raise SettingError(
            f"{target} looks like a file, and what would be written is a Hugging Face folder: "
            "let the name end in .gguf or .bin, name a folder, or choose --to"
        )
    for name in (wanted.type, wanted.head_type):
        if name is not None and name.upper() not in WRITABLE:
            known = ", ".join(WRITABLE).lower()
            raise SettingError(f"no type that can be written is called {name!r}: choose {known}")
        if kind == "folder" and name is not None and name.upper() not in ("F32", "F16", "BF16"):
            raise SettingError(
                f"a Hugging Face folder can't hold {name}: choose f32, f16 or bf16, or write a .gguf"
            )
        if kind == "bin" and name not in (None, "f32"):
            raise SettingError(
                "a llama2.c .bin has one type for each version, f32 in 0 and 1, 8-bit codes in 2: "
                "leave out --type"
            )
    if wanted.head_type and kind != "gguf":
        raise SettingError("only a GGUF can have another type for its embedding and output matrices")
    if wanted.bin_version is not None and kind != "bin":
        raise SettingError("--bin-version is for a llama2.c .bin alone")
    if wanted.bin_version not in (None, 0, 1, 2):
        raise SettingError(f"llama2.c has the versions 0, 1 and 2, not {wanted.bin_version}")


def _check_target(source: Path, target: Path, kind: str, replace: bool) -> None:
    if not target.parent.is_dir():
        raise NotFoundError(target.parent, "there is no such folder to write to")
    if not target.exists() and not target.is_symlink():
        return
    if target.exists() and target.samefile(source):
        raise SettingError(f"{target} is the model itself: give the new one another name")
    if not replace:
        raise SettingError(f"{target} is there already: choose another name, or --force to replace it")
    if target.is_dir() != (kind == "folder"):
        what = "a folder" if target.is_dir() else "a file"
        raise SettingError(f"{target} is {what}, which isn't replaced by a {kind}: remove it first")
    if kind == "folder" and any(target.iterdir()) and not (target / CONFIG).is_file():
        raise SettingError(
            f"{target} holds no {CONFIG}, so it is no model folder and isn't replaced: remove it first"
        )


def _check_space(target: Path, need: int) -> None:
    free = shutil.disk_usage(target.parent).free
    if need > free:
        raise FileError(target, f"needs {need:,} bytes, and {free:,} are free there")


def _fallbacks(plan: Plan, rule: TypeRule) -> dict[str, str]:
    """Matrices that are neither of the wanted type nor F32."""
    asked = {rule.matrices, rule.head, "F32"}
    if rule.matrices is None:
        return {}
    return {name: kind for name, kind in plan.types.items() if kind not in asked}
