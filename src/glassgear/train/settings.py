"""What a training run is told, as a TOML file or in Python, checked before anything is made."""

from __future__ import annotations

import json
import math
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

from glassgear.errors import FormatError, NotFoundError, SettingError
from glassgear.loading import MOST_THREADS
from glassgear.measure.machine import free_memory
from glassgear.model.gears import Model
from glassgear.model.ledger import ledger
from glassgear.train.model import LARGEST, SIZES, model_of
from glassgear.train.tokenizer import check_size, entries_of

__all__ = ["DataSettings", "TrainSettings", "check_changes", "check_model", "check_room", "read_settings"]


TABLES = ("data", "model", "train")


@dataclass(frozen=True)
class DataSettings:
    """Where the text comes from.

    Attributes:
        files: text files, or JSONL with an object a line.
        tokenizer: how many entries a tokenizer of our own gets, or the path of one.
        separator: what stands between the documents of a text file.
        field: the key of the text in JSONL.
        validation: the share of documents that is held out; a document is on one side as a whole, and
            equal documents on the same one.
    """

    files: tuple[str, ...]
    tokenizer: int | str = 1024
    separator: str = "<|endoftext|>"
    field: str = "text"
    validation: float = 0.05


@dataclass(frozen=True)
class TrainSettings:
    """A run.

    Attributes:
        out: the folder of the run; it is made, or taken up where it was left.
        data: the text.
        model: sizes of a Llama (`dim`, `hidden`, `layers`, `heads`, `kv_heads`, ...), or `design`: a
            TOML file of gears.
        start: a model whose weights a new run begins with; empty: random ones.
        context: tokens of a sequence.
        batch: sequences of a micro-batch.
        accumulate: micro-batches of a step, over all processes together.
        steps: how many.
        learning_rate: the peak.
        final_rate: the last rate, as a share of the peak.
        warmup: steps on the way to the peak.
        weight_decay: of matrices and tables.
        betas: of AdamW.
        eps: of AdamW.
        clip: largest norm of a gradient; 0: any.
        seed: of weights and of the order of the text.
        device: `cpu`, `cuda`, ...; empty: a GPU if there is one.
        dtype: what products are computed in: `float32`, or `bfloat16` and `float16` by autocast.
        compiled: through `torch.compile`.
        strategy: how several processes share a run: `ddp` or `fsdp`.
        threads: CPU threads; 0: PyTorch's choice.
        log_every: steps from line to line of the metrics.
        evaluate_every: steps from one look at held-out text to the next.
        evaluate_batches: micro-batches of such a look; 0: all of it.
        save_every: steps from checkpoint to checkpoint.
        keep: how many checkpoints stay.
        sample_every: steps from sample to sample; 0: none.
        sample_prompt: what samples go on from.
    """

    out: str
    data: DataSettings
    model: Mapping[str, Any]
    start: str = ""
    context: int = 256
    batch: int = 16
    accumulate: int = 1
    steps: int = 1000
    learning_rate: float = 1e-3
    final_rate: float = 0.1
    warmup: int = 100
    weight_decay: float = 0.1
    betas: tuple[float, float] = (0.9, 0.95)
    eps: float = 1e-8
    clip: float = 1.0
    seed: int = 1
    device: str = ""
    dtype: Literal["float32", "bfloat16", "float16"] = "float32"
    compiled: bool = False
    strategy: Literal["ddp", "fsdp"] = "ddp"
    threads: int = 0
    log_every: int = 10
    evaluate_every: int = 200
    evaluate_batches: int = 20
    save_every: int = 500
    keep: int = 2
    sample_every: int = 500
    sample_prompt: str = "Once upon a time"

    def __post_init__(self) -> None:
        _least("context", self.context, 2)
        for name in (
            "batch",
            "accumulate",
            "steps",
            "log_every",
            "evaluate_every",
            "save_every",
            "keep",
        ):
            _least(name, getattr(self, name), 1)
        for name in (
            "warmup",
            "evaluate_batches",
            "sample_every",
            "threads",
            "clip",
            "weight_decay",
            "eps",
            "seed",
        ):
            _least(name, getattr(self, name), 0)
        if not 0 < self.learning_rate < 10:
            raise SettingError(f"learning_rate is {self.learning_rate:g}: it must be above 0 and below 10")
        if self.threads > MOST_THREADS:
            raise SettingError(
                f"threads is {self.threads:,}: the most are {MOST_THREADS:,}, and more than the machine has "
                "processors make a run slower; 0 leaves it to PyTorch"
            )
        if self.seed >= LARGEST:
            raise SettingError("seed is too large: it must be below 2 to the 63rd")
        if not 0 <= self.final_rate <= 1:
            raise SettingError(f"final_rate is {self.final_rate:g}; it is a share of the peak, 0 to 1")
        if len(self.betas) != 2 or not all(0 <= b < 1 for b in self.betas):
            raise SettingError(f"betas are {self.betas}; both lie between 0 and 1")
        if not 0 < self.data.validation < 1:
            raise SettingError(f"validation is {self.data.validation:g}; it is a share, above 0 and below 1")
        if isinstance(self.data.tokenizer, int):
            check_size(self.data.tokenizer)
        if not self.data.separator:
            raise SettingError("data.separator is empty: documents need something between them")
        if not self.data.files:
            raise SettingError("data.files names no file")

    @property
    def tokens_per_step(self) -> int:
        """Tokens whose loss a step adds up."""
        return self.batch * self.accumulate * self.context


def read_settings(path: Path | str, changes: Mapping[str, Any] | None = None) -> TrainSettings:
    """Read a TOML file: `out`, a table `[data]`, a table `[model]`, and `[train]` for the rest.

    Paths in it are taken from the file's own folder; those in `changes` as they stand.

    Args:
        path: the file.
        changes: what wins over the file: `out`, `data.tokenizer`, `model.dim`, `train.steps`, ...; a
            name without a table is of `[train]`.

    Raises:
        FormatError: no TOML, an unknown key, or a value of the wrong kind; the message names it.
        SettingError: a value outside what makes sense, sizes of a model that don't fit together, or a
            change of what isn't there or to what it can't be.
    """
    path = Path(path)
    if not path.is_file():
        raise NotFoundError(path, "there is no such file")
    try:
        found = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as trouble:
        raise FormatError(path, f"is no TOML: {trouble}") from trouble
    for key in found:
        if key not in TABLES and key != "out":
            raise FormatError(path, f"has `{key}`, which means nothing here{_near(key, {*TABLES, 'out'})}")
    for table in TABLES:
        if not isinstance(found.get(table, {} if table == "train" else None), dict):
            raise FormatError(path, f"needs a table `[{table}]`")
    changes = changes or {}
    check_changes(changes)
    tables = _changed(found, path, changes)
    data = _made(DataSettings, tables["data"], path, "data.")
    made: TrainSettings = _made(
        TrainSettings, tables["train"], path, "train.", data=data, model=tables["model"]
    )
    check_model(made)
    return made


def check_model(settings: TrainSettings) -> Model:
    """The model as the settings say, before any text is read.

    That the tokenizer's file isn't there is seen later: a run that has its own copy can do without.

    Raises:
        FormatError: the tokenizer's file is none.
        GlassgearError: as `model_of`.
    """
    size = settings.data.tokenizer
    if isinstance(size, str):
        size = entries_of(Path(size)) if Path(size).is_file() else 1
    return model_of(settings.model, size, settings.context)


def check_room(model: Model) -> None:
    """Refuse to train what can't be held: weights, their gradients, and AdamW's two means of each.

    Raises:
        SettingError: there isn't so much memory.
    """
    parameters = ledger(model).parameters
    needed, free = 4 * 4 * parameters, free_memory()
    if free is not None and needed > free:
        raise SettingError(
            f"training {parameters:,} parameters takes {needed / 1e9:,.1f} GB of memory (weights, gradients, "
            f"and the optimizer's two means), and {free / 1e9:,.1f} GB are free"
        )


def _changed(found: Mapping[str, Any], path: Path, changes: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The three tables, paths as they stand from here, changes put in."""
    tables = {"data": _paths(found["data"], path.parent), "model": dict(found["model"])}
    tables["train"] = dict(found.get("train", {}))
    if isinstance(start := tables["train"].get("start"), str) and (path.parent / start).exists():
        tables["train"]["start"] = str(path.parent / start)  # else it may be a name
    if isinstance(tables["model"].get("design"), str):
        tables["model"]["design"] = str(path.parent / tables["model"]["design"])
    tables["train"]["out"] = found.get("out", tables["train"].get("out", f"runs/{path.stem}"))
    if isinstance(tables["train"]["out"], str):
        tables["train"]["out"] = str(path.parent / tables["train"]["out"])
    for name, value in changes.items():
        table, _, key = name.rpartition(".")
        tables[table or "train"][key] = value
    return tables


def check_changes(changes: Mapping[str, Any]) -> None:
    """Whether each change is of a setting that there is, and of its kind; sizes of a model are checked later.

    Args:
        changes: as `read_settings` takes them.

    Raises:
        SettingError: one isn't; the message calls it what it was called.
    """
    hints: dict[str, dict[str, Any]] = {
        "data": get_type_hints(DataSettings),
        "model": dict.fromkeys((*SIZES, "design")),
        "train": {k: hint for k, hint in get_type_hints(TrainSettings).items() if k not in TABLES},
    }
    for name, value in changes.items():
        table, _, key = name.rpartition(".")
        known = hints.get(table if "." in name else "train", {})
        if key not in known:
            raise SettingError(f"`{name}` can't be set: {_why_not(name, hints)}")
        if known[key] is not None:
            _typed(value, known[key], name)


def _why_not(name: str, hints: Mapping[str, Mapping[str, Any]]) -> str:
    """What is wrong with the name of a setting, and which may have been meant."""
    table, dot, key = name.rpartition(".")
    if name in hints:
        return f"it is a table, whose settings are set one by one, such as {name}.{min(hints[name])}"
    if not key or (dot and not table):
        return "it should be TABLE.KEY, such as train.steps"
    if dot and table not in hints:
        meant = get_close_matches(table, hints, 1)
        which = f"did you mean `{meant[0]}`?" if meant else f"there are {_list(hints)}"
        return f"no table is `{table}`; {which}"
    here = [k for k in hints[table or "train"] if k != "out"]
    if near := get_close_matches(key, here, 1):
        return f"did you mean `{near[0]}`?"
    elsewhere = {k: t for t in hints for k in hints[t] if t != (table or "train")}
    if near := get_close_matches(key, elsewhere, 1):
        return f"did you mean `{elsewhere[near[0]]}.{near[0]}`?"
    asked = [table] if table else list(hints)
    return "no such setting; " + "; ".join(f"[{t}] has {_list(set(hints[t]) - {'out'})}" for t in asked)


def _list(names: Iterable[str]) -> str:
    return ", ".join(sorted(names))


def _paths(data: dict[str, Any], folder: Path) -> dict[str, Any]:
    """File names as they stand from here."""
    data = dict(data)
    files = data.get("files")
    if isinstance(files, list) and all(isinstance(f, str) for f in files):
        data["files"] = [str(folder / f) for f in files]
    if isinstance(data.get("tokenizer"), str):
        data["tokenizer"] = str(folder / data["tokenizer"])
    return data


def _made(kind: Any, values: Mapping[str, Any], path: Path, prefix: str, **ready: Any) -> Any:
    """A settings object, every key known and of its type."""
    hints = get_type_hints(kind)
    names = {f.name for f in fields(kind)} - ready.keys()
    taken = {}
    for key, value in values.items():
        if key not in names:
            known = names - {"out"}  # whose place is the file's top
            raise FormatError(path, f"has `{prefix}{key}`, which means nothing here{_near(key, known)}")
        try:
            taken[key] = _typed(value, hints[key], f"{prefix}{key}")
        except SettingError as trouble:
            raise FormatError(path, str(trouble)) from trouble
    missing = [f.name for f in fields(kind) if f.name in names - taken.keys() and _required(f)]
    if missing:
        raise FormatError(path, f"lacks `{prefix}{missing[0]}`")
    return kind(**taken, **ready)


def _required(field: Any) -> bool:
    from dataclasses import MISSING

    return field.default is MISSING and field.default_factory is MISSING


def _typed(value: Any, hint: Any, name: str) -> Any:
    """A value of the kind that a setting has.

    Raises:
        SettingError: it is of another kind, or a number that no setting can be.
    """
    options = get_args(hint)
    if get_origin(hint) is Literal:
        if value not in options:
            raise SettingError(f"`{name}` is {_shown(value)}; it can be {', '.join(map(repr, options))}")
        return value
    if get_origin(hint) is tuple:
        return _typed_list(value, options[0], name)
    known = options or (hint,)
    if isinstance(value, bool) and bool not in known:
        raise SettingError(f"`{name}` is {json.dumps(value)}; {_wanted(known, value)} is needed")
    _check_size(value, name)
    if float in known and isinstance(value, int):
        return float(value)
    if not isinstance(value, known):
        raise SettingError(f"`{name}` is {_shown(value)}; {_wanted(known, value)} is needed")
    return value


def _typed_list(value: Any, inner: type, name: str) -> tuple[Any, ...]:
    kinds: tuple[type, ...] = (str,) if inner is str else (int, float)
    what, such = ("texts", '["a.txt"]') if inner is str else ("numbers", "[0.9, 0.95]")
    if not isinstance(value, list):
        raise SettingError(f"`{name}` should be a list of {what}, such as {such}; found {_shown(value)}")
    for entry in value:
        if not isinstance(entry, kinds) or isinstance(entry, bool):
            raise SettingError(f"`{name}` should be a list of {what}, found {_shown(entry)} in it")
        _check_size(entry, name)
    return tuple(value)


def _check_size(value: Any, name: str) -> None:
    if isinstance(value, int):
        if not -LARGEST < value < LARGEST:
            raise SettingError(f"`{name}` is out of range: whole numbers go up to 2 to the 63rd")
    elif isinstance(value, float) and not math.isfinite(value):
        raise SettingError(f"`{name}` is {value}; a finite number is needed")


def _shown(value: Any) -> str:
    """A value in an error; Python prints no whole number of more than some thousand digits."""
    try:
        return f"{value!r:.60}"
    except ValueError:
        return "a number of thousands of digits"


def _wanted(known: tuple[type, ...], found: Any) -> str:
    words = {int: "whole number", float: "number", str: "text", bool: "true or false"}
    kinds = " or ".join(words[kind] for kind in known)
    if known == (bool,):
        return kinds
    quoted = isinstance(found, int | float) and str in known and not isinstance(found, bool)
    return f"a {kinds}" + (f', such as "{found}",' if quoted else "")


def _near(key: str, known: set[str]) -> str:
    near = get_close_matches(key, known, 1)
    return f": did you mean `{near[0]}`?" if near else f": known are {', '.join(sorted(known))}"


def _least(name: str, value: float, least: float) -> None:
    if not value >= least:  # nor is NaN
        raise SettingError(f"{name} is {value:g}; at least {least:g} is needed")
