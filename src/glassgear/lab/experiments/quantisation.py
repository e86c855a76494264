"""What fewer bits cost: the error of every matrix, the size, and the distance of what the model says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glassgear.backends.base import Chunk
from glassgear.backends.reference import Reference
from glassgear.errors import SettingError
from glassgear.lab.frame import (
    Claim,
    Column,
    Experiment,
    Figure,
    Result,
    Settings,
    Table,
    Verdict,
    option,
)
from glassgear.lab.models import model_of, random_model, stories, title
from glassgear.language_model import LanguageModel
from glassgear.sampling import logprobs
from glassgear.weights.quantize import WRITABLE, fitting_type, quantize
from glassgear.weights.tensor import StoredTensor

__all__ = ["EXPERIMENT", "Types", "divergence", "quantised"]

ORDER = ("F16", "BF16", "Q8_0", "Q6_K", "Q5_K", "Q5_1", "Q5_0", "Q4_K", "Q4_1", "Q4_0")


@dataclass(frozen=True)
class Types(Settings):
    """Which model, text and types."""

    model: str | None = option(
        None, "The model. [default: the smallest at hand up to 32 MB, or a random one]"
    )
    tokens: int = option(128, "Tokens of the text that is read.", small=48, least=8)
    types: str = option("F16,Q8_0,Q6_K,Q5_K,Q5_1,Q4_K,Q4_1,Q4_0", "Types, with commas between.",
                        small="Q8_0,Q6_K,Q4_K,Q4_1,Q4_0")  # fmt: skip


def _types(settings: Types) -> list[str]:
    found = [name.strip().upper() for name in settings.types.split(",") if name.strip()]
    if strange := [name for name in found if name not in WRITABLE or name == "F32"]:
        raise SettingError(
            f"types: {strange[0]!r:.40} isn't one that can be written; choose {', '.join(ORDER)}"
        )
    if len(set(found)) < 2:
        raise SettingError("types: at least two are needed to compare, such as Q8_0,Q4_0")
    return sorted(set(found), key=ORDER.index)


def quantised(
    tensors: Mapping[str, StoredTensor], kind: str
) -> tuple[dict[str, StoredTensor], dict[str, float], set[str]]:
    """Every matrix in a type, or the one that takes its place where rows don't fit it.

    Returns:
        The tensors (vectors as they are), the relative error of each matrix, |w - w'| / |w|, and the
        types that were used.
    """
    made: dict[str, StoredTensor] = {}
    errors: dict[str, float] = {}
    used: set[str] = set()
    for path, tensor in tensors.items():
        if len(tensor.shape) != 2:
            made[path] = tensor
            continue
        values = np.ascontiguousarray(tensor.float32())
        fits = fitting_type(kind, tensor.shape[1])
        data = quantize(fits, values, name=path).reshape(-1)
        made[path] = StoredTensor(path, fits, tensor.shape, data, f"as {kind}")
        used.add(fits)
        off = made[path].float32() - values
        errors[path] = float(np.linalg.norm(off) / max(float(np.linalg.norm(values)), 1e-30))
    return made, errors, used


def divergence(p: NDArray[np.float32], q: NDArray[np.float32]) -> tuple[float, float]:
    """Mean KL(p || q) in nats of rows of logits, and the share of rows whose likeliest id is the same."""
    one, other = logprobs(p).astype(np.float64), logprobs(q).astype(np.float64)
    kl = float((np.exp(one) * (one - other)).sum(axis=1).mean())
    return kl, float((one.argmax(axis=1) == other.argmax(axis=1)).mean())


def _logits(model: LanguageModel, tensors: Mapping[str, StoredTensor], ids: list[int]) -> Any:
    backend = Reference(model.gears, tensors)
    return backend.step([Chunk(backend.open(), ids, "all")])[0]


def _stored(tensors: Mapping[str, StoredTensor]) -> tuple[str, ...]:
    """A word on matrices that are quantised already."""
    kinds = {t.type for t in tensors.values() if len(t.shape) == 2} - {"F32", "F16", "BF16"}
    if not kinds:
        return ()
    return (
        f"This model is stored in {', '.join(sorted(kinds))} already: a type that has room for those values "
        "looks free, and its own errors aren't seen.",
    )


def _part(path: str) -> str:
    """`blocks.3.ffn.up.weight` -> `ffn.up`, `blocks.3.attention.query.weight` -> `query`."""
    words = [word for word in path.removesuffix(".weight").split(".") if not word.isdigit()]
    return ".".join(words).removeprefix("blocks.").removeprefix("attention.")


def _model(settings: Types) -> tuple[LanguageModel, list[int], bool]:
    found = model_of(settings, settings.model, most=32 << 20)
    if found is not None:
        return found, stories(found, settings.tokens, settings.seed), True
    dim = 256  # K types have blocks of so many
    made = random_model(
        {
            "name": "random model", "vocab": 320, "dim": dim, "layers": 2, "attention": {"heads": 4},
            "ffn": {"kind": "gated", "hidden": 512},
        },
        settings.seed, "reference",
    )  # fmt: skip
    rng = np.random.default_rng(settings.seed)
    return made, [int(i) for i in rng.integers(0, 320, settings.tokens)], False


def run(settings: Types) -> Result:
    """Quantise all matrices of a model in each type, and run it on the float32 definition."""
    kinds = _types(settings)
    model, ids, real = _model(settings)
    tensors = model.checkpoint.tensors
    true = _logits(model, tensors, ids)
    rows: list[tuple[Any, ...]] = []
    by_part: dict[str, dict[str, list[float]]] = {}
    for kind in kinds:
        made, errors, used = quantised(tensors, kind)
        for path, error in errors.items():
            by_part.setdefault(_part(path), {}).setdefault(kind, []).append(error)
        kl, same = divergence(true, _logits(model, made, ids))
        values = sum(int(np.prod(t.shape)) for t in made.values())
        nbytes = sum(t.nbytes for t in made.values())
        off = float(np.sqrt(np.mean(np.square(list(errors.values())))))
        others = ", ".join(sorted(used - {kind}))
        rows.append((kind, 8 * nbytes / values, nbytes / 1e6, off, kl, same, others))
    found = {row[0]: row for row in rows}
    bits = [row[1] for row in rows]
    order = np.argsort(bits)
    # The larger the type the smaller the error, but for types of nearly one size.
    falling = all(
        rows[a][3] >= rows[b][3] * 0.98 for a, b in pairwise(order) if bits[b] - bits[a] > 0.3
    )  # fmt: skip
    smallest, largest = rows[int(order[0])], rows[int(order[-1])]
    good = falling and largest[4] < smallest[4]
    good = good and ("Q8_0" not in found or found["Q8_0"][4] < 1e-2)
    parts = Table(
        "Error by gear, |w - w'| / |w|", (Column("matrix"), *(Column(kind, ".2%") for kind in kinds)),
        tuple((part, *(float(np.mean(errors[kind])) for kind in kinds)) for part, errors in by_part.items()),
    )  # fmt: skip
    totals = Table(
        f"{title(model)}, {len(ids)} tokens, against its own weights in float32",
        (Column("type"), Column("bits", ".2f"), Column("MB", ".2f"), Column("error", ".2%"),
         Column("KL, nats", ".2e"), Column("same top", ".0%"), Column("in its place")), tuple(rows),
    )  # fmt: skip
    return Result(
        Verdict(
            "confirmed" if good else "depends",
            f"from {largest[0]} ({largest[1]:.1f} bits) to {smallest[0]} ({smallest[1]:.1f}) the weights' "
            f"error grows from {largest[3]:.2%} to {smallest[3]:.1%} and the KL from {largest[4]:.1e} to "
            f"{smallest[4]:.1e} nats; the likeliest token stays in {smallest[5]:.0%} of places.",
            f"从 {largest[0]}（{largest[1]:.1f} 比特）到 {smallest[0]}（{smallest[1]:.1f} 比特），权重误差由 "
            f"{largest[3]:.2%} 增至 {smallest[3]:.1%}，KL 由 {largest[4]:.1e} 增至 {smallest[4]:.1e} nat；"
            f"最可能的词元在 {smallest[5]:.0%} 的位置上不变。",
        ),
        (totals, parts),
        (Figure("cost", lambda canvas: _draw(canvas, rows)),),
        {f"{what}_{kind}": row[i] for kind, row in found.items()
         for what, i in (("bits", 1), ("error", 3), ("kl", 4), ("same", 5))},
        (
            "Matrices are quantised as `glassgear convert` writes them, vectors stay as they are; the text "
            "is run in float32, so that only the weights' rounding counts.",
            "Where rows aren't whole blocks another type stands in a type's place.",
            *_stored(tensors),
            *(() if real else ("The model is random: its KL ranks types, but says nothing about texts.",)),
        ),
    )  # fmt: skip


def _draw(canvas: Any, rows: list[tuple[Any, ...]]) -> None:
    left, right = canvas.subplots(1, 2)
    for axes, place, name in ((left, 3, "error of the weights"), (right, 4, "KL, nats")):
        for row in rows:
            axes.semilogy(row[1], max(row[place], 1e-12), "o")
            axes.annotate(row[0], (row[1], max(row[place], 1e-12)), fontsize=8, xytext=(4, 3),
                          textcoords="offset points")  # fmt: skip
        axes.set(xlabel="bits a weight", title=name)


EXPERIMENT = Experiment(
    "quantisation",
    "What do fewer bits a weight cost?",
    Claim(
        "the more bits a weight, the smaller the error; 8 bits are nearly free",
        "how the types of GGUF files are usually ranked",
    ),
    Types,
    run,
)
