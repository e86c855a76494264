"""What a run can be taken up from, written so that a broken write loses nothing.

A checkpoint is a folder `step-00000500` with `model.safetensors`, `optimizer.safetensors` and
`state.json`. It is written under another name and renamed when it is complete. The order of the
text follows from the step, so that nothing else has to be kept.
"""

from __future__ import annotations

import json
import shutil
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.distributed.tensor import DTensor, distribute_tensor

from glassgear.errors import FileError, FormatError
from glassgear.model.gears import Model
from glassgear.train.compared import refusal
from glassgear.train.ranks import Ranks, whole
from glassgear.weights import safetensors
from glassgear.weights.atomic import replacing
from glassgear.weights.names import plain_name, renamed
from glassgear.weights.tensor import StoredTensor

__all__ = ["State", "begin_with", "checkpoints", "load", "newest_whole", "save", "thin_out", "weights_of"]

MOMENTS = ("exp_avg", "exp_avg_sq")


@dataclass(frozen=True)
class State:
    """Where a run stands.

    Attributes:
        step: steps done.
        tokens: tokens seen.
        skipped: steps whose gradient wasn't finite.
        best: lowest validation loss so far, nats per token.
        fingerprint: of everything that a run can't change on the way: model, data, order.
        scaler: where the scale of float16 gradients stands; empty without one.
        sums: file -> CRC-32 of its bytes.
    """

    step: int = 0
    tokens: int = 0
    skipped: int = 0
    best: float | None = None
    fingerprint: str = ""
    scaler: Mapping[str, Any] = field(default_factory=dict)
    sums: Mapping[str, int] = field(default_factory=dict)


def _arrays(tensors: Mapping[str, Any]) -> dict[str, NDArray[np.float32]]:
    return {name: whole(t).detach().float().cpu().contiguous().numpy() for name, t in tensors.items()}


def weights_of(module: nn.Module) -> dict[str, Tensor]:
    """Parameters and buffers by gear path; a tied head once."""
    named = [*module.named_parameters(), *module.named_buffers()]
    return {plain_name(name): value for name, value in named}


def checkpoints(folder: Path) -> list[Path]:
    """Checkpoints of a run, oldest first, damaged ones among them."""
    return sorted((p for p in folder.glob("step-*") if p.name[5:].isdigit() and p.is_dir()), key=_step)


def _step(path: Path) -> int:
    return int(path.name[5:])


def save(
    folder: Path, module: nn.Module, optimizer: torch.optim.Optimizer, state: State, ranks: Ranks
) -> Path:
    """Write a checkpoint. All processes must call it."""
    weights = _arrays(weights_of(module))
    moments: dict[str, Tensor] = {}
    for name, parameter in module.named_parameters():
        held = optimizer.state.get(parameter, {})
        moments |= {f"{plain_name(name)}.{m}": held[m] for m in MOMENTS if m in held}
    arrays = _arrays(moments)
    target = folder / f"step-{state.step:08d}"
    if ranks.first:
        half = folder / f".{target.name}.part"
        shutil.rmtree(half, ignore_errors=True)
        half.mkdir(parents=True)
        try:
            safetensors.write(half / "model.safetensors", weights)
            safetensors.write(half / "optimizer.safetensors", arrays)
            state = replace(state, sums={path.name: _crc(path) for path in sorted(half.iterdir())})
            with replacing(half / "state.json") as file:
                file.write(json.dumps(vars(state), indent=1).encode())
            shutil.rmtree(target, ignore_errors=True)
            half.rename(target)
        except BaseException:
            shutil.rmtree(half, ignore_errors=True)
            raise
    ranks.wait()
    return target


def thin_out(folder: Path, keep: int) -> list[Path]:
    """Delete all whole checkpoints but the newest `keep`, and damaged ones that a whole one has followed.

    A damaged one doesn't count as one of `keep`. One that the system doesn't let us read may be whole: it
    counts as little, and stays.

    Returns:
        The damaged ones that were deleted.
    """
    whole, damaged = 0, []
    for path in reversed(checkpoints(folder)):
        if whole == keep:
            shutil.rmtree(path, ignore_errors=True)
            continue
        trouble = _trouble(path)
        whole += trouble is None
        if whole and isinstance(trouble, FormatError):
            damaged.append(path)
            shutil.rmtree(path, ignore_errors=True)
    return damaged


def load(
    path: Path,
    module: nn.Module,
    optimizer: torch.optim.Optimizer,
    fingerprint: str,
    other: Callable[[], str] = lambda: "other settings",
) -> State:
    """Take up a checkpoint.

    Args:
        path: its folder.
        module: is filled.
        optimizer: likewise.
        fingerprint: of the run.
        other: says what differs where the fingerprint does.

    Raises:
        FormatError: it isn't whole, or its bytes aren't what was written.
        FileError: the system doesn't let us read it.
        SettingError: it belongs to another model, other data or another order of them.
    """
    state = _state(path)
    if state.fingerprint != fingerprint:
        raise refusal(path, other())
    _check(path, state)
    _fill_from(path / "model.safetensors", weights_of(module))
    wanted = {}
    for name, parameter in module.named_parameters():
        held = optimizer.state[parameter]
        held["step"] = torch.tensor(float(state.step - state.skipped), device=parameter.device)
        for moment in MOMENTS:
            held[moment] = torch.zeros_like(parameter)
            wanted[f"{plain_name(name)}.{moment}"] = held[moment]
    if state.step > state.skipped:
        _fill_from(path / "optimizer.safetensors", wanted)
    return state


def _state(path: Path) -> State:
    try:
        state = State(**json.loads((path / "state.json").read_text(encoding="utf-8")))
        if state.step != _step(path) or not isinstance(state.sums, dict):
            raise ValueError(state)
        return state
    except (FileNotFoundError, ValueError, TypeError) as trouble:
        raise FormatError(path, "is no whole checkpoint: its state.json isn't what was written") from trouble
    except OSError as trouble:
        raise FileError(path / "state.json", f"can't be read: {trouble.strerror or trouble}") from trouble


def _check(path: Path, state: State) -> None:
    for name, wanted in state.sums.items():
        if _crc(path / name) != wanted:
            raise FormatError(path / name, "is damaged: its bytes aren't those that were written")


def newest_whole(folder: Path) -> Path | None:
    """The newest checkpoint whose files are as they were written; None if there is none."""
    return next((path for path in reversed(checkpoints(folder)) if _trouble(path) is None), None)


def _trouble(path: Path) -> FileError | None:
    """What is wrong with a checkpoint."""
    try:
        _check(path, _state(path))
    except FileError as trouble:
        return trouble
    return None


def _crc(path: Path) -> int:
    """CRC-32 of a file, which is read once for as long as it stays as it is."""
    try:
        about = path.stat()
        return _crc_of(path, about.st_size, about.st_mtime_ns)
    except FileNotFoundError as trouble:
        raise FormatError(path, "isn't there") from trouble
    except OSError as trouble:
        raise FileError(path, f"can't be read: {trouble.strerror or trouble}") from trouble


@lru_cache(maxsize=256)
def _crc_of(path: Path, size: int, changed: int) -> int:
    found = 0
    with open(path, "rb") as file:
        while piece := file.read(1 << 20):
            found = zlib.crc32(piece, found)
    return found


def begin_with(name: str, module: nn.Module, model: Model) -> None:
    """Take the weights of a finished model, whatever its file's format.

    Args:
        name: what `glassgear run` takes.
        module: is filled.
        model: its tree.

    Raises:
        GlassgearError: no such model, one without weights, or one of another tree or other sizes.
    """
    from glassgear.weights.described import open_named

    given = open_named(name)
    if not given.tensors:
        raise FormatError(given.path, "has no weights to begin with")
    there, here = len(given.model.blocks), len(model.blocks)
    if there != here:
        raise FormatError(given.path, f"isn't the model of [model]: {there} layers there, {here} here")
    _fill(given.path, given.tensors, weights_of(module))


def _fill_from(path: Path, targets: Mapping[str, Tensor]) -> None:
    _fill(path, renamed(path, safetensors.read(path)), targets)


def _fill(path: Path | str, found: Mapping[str, StoredTensor], targets: Mapping[str, Tensor]) -> None:
    """Copy stored tensors into those of a module, all of them or none."""
    for name in (name for name in targets if name in found):
        there, here = list(found[name].shape), list(targets[name].shape)
        if there != here:
            raise FormatError(path, f"doesn't hold this model: `{name}` is {there} there, {here} here")
    if found.keys() != targets.keys():
        odd = min(found.keys() ^ targets.keys())
        raise FormatError(path, f"doesn't hold this model: it {'has' if odd in found else 'lacks'} `{odd}`")
    with torch.no_grad():
        for name, target in targets.items():
            values = torch.from_numpy(found[name].float32().copy())
            if isinstance(target, DTensor):
                target.copy_(
                    distribute_tensor(values.to(target.device), target.device_mesh, target.placements)
                )
            else:
                target.copy_(values)
