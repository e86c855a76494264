"""Texts to vectors, and masked words to guesses: what encoders are for.

In: a loaded model and texts. Out: one vector for each text, or for each masked word the likeliest tokens.
How vectors are made is what the checkpoint says (`weights/pooling.py`), or what the caller asks for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from glassgear import arguments
from glassgear.backends.base import Chunk, Output
from glassgear.errors import ContextFullError, NonFiniteError, SettingError
from glassgear.sampling import logprobs
from glassgear.text.frames import Inputs
from glassgear.weights.pooling import Pooling, PoolingSettings, pooling_settings

if TYPE_CHECKING:
    from glassgear.language_model import LanguageModel

__all__ = ["Candidate", "Gap", "Method", "Pooling", "embed", "fill", "method_of"]

Floats = NDArray[np.float32]
Rows = Literal["first", "last", "all"]

AT_ONCE = 2048  # tokens of a batch: texts are joined up to this
SMALLEST = 1e-12  # a vector shorter than this is divided by this, as in PyTorch
ROWS: dict[Pooling, tuple[Rows, Output]] = {
    "mean": ("all", "hidden"),
    "cls": ("first", "hidden"),
    "last": ("last", "hidden"),
    "pooler": ("first", "pooled"),
}


@dataclass(frozen=True)
class Method:
    """How texts become vectors.

    Attributes:
        pooling: `mean` of all final hidden states, the one of the first token (`cls`) or of the `last`
            one, or what the model's `pooler` makes of the first.
        normalize: whether the vector is divided by its length.
        most: tokens of a text, the ones around it included.
        lowercase: texts are lower-cased first.
        prompt: put in front of every text.
    """

    pooling: Pooling
    normalize: bool
    most: int
    lowercase: bool = False
    prompt: str = ""


@dataclass(frozen=True)
class Candidate:
    """A token that may stand in a gap.

    Attributes:
        id: its id.
        text: its text; one that goes on with the word before it begins with `##`.
        probability: of all tokens there, the other gaps being open.
    """

    id: int
    text: str
    probability: float


@dataclass(frozen=True)
class Gap:
    """A masked word.

    Attributes:
        position: of the mask among the ids.
        candidates: the likeliest tokens, best first.
    """

    position: int
    candidates: tuple[Candidate, ...]


def method_of(model: LanguageModel, pooling: Pooling | None = None, normalize: bool | None = None) -> Method:
    """What the checkpoint says, where the caller doesn't.

    A silent one: `mean` of an encoder's states, the `last` one of a decoder, which alone has seen the
    whole text; and vectors of length 1.

    Raises:
        SettingError: a pooling that isn't known, or a pooler that the model doesn't have.
        SettingError: the checkpoint wants something that isn't run here, and the caller didn't choose.
    """
    said = pooling_settings(model.checkpoint)
    chosen = _chosen(model, said, pooling)
    if chosen == "pooler" and model.gears.pooler is None:
        raise SettingError("this model has no pooler: choose mean, cls or last")
    if normalize is None:
        normalize = True if said.normalize is None else said.normalize
    most = model.context if said.most is None else min(model.context, said.most)
    return Method(chosen, normalize, most, said.lowercase, said.prompt)


def _chosen(model: LanguageModel, said: PoolingSettings, pooling: Pooling | None) -> Pooling:
    if pooling is not None:
        if pooling not in ROWS:
            raise SettingError(f"pooling {pooling!r:.40} isn't one of {', '.join(get_args(Pooling))}")
        return pooling
    if said.trouble:
        raise SettingError(
            f"{model.checkpoint.path} can't embed as it was made to: {said.trouble}. "
            "A pooling of your own choice (--pooling, pooling=) goes without it"
        )
    return said.pooling or ("last" if model.gears.causal else "mean")


def embed(
    model: LanguageModel,
    texts: str | Sequence[str] | Sequence[Sequence[int]],
    *,
    pooling: Pooling | None = None,
    normalize: bool | None = None,
    truncate: bool = False,
    notice: Callable[[str], None] | None = None,
) -> Floats:
    """One vector for each text: float32 [texts, dim]; see `LanguageModel.embed`."""
    method = method_of(model, pooling, normalize)
    inputs = _fitting(model, method, _texts(texts), truncate, notice)
    rows, output = ROWS[method.pooling]
    found = np.zeros((len(inputs), model.gears.dim), np.float32)
    for place, states in enumerate(_states(model, inputs, rows, output)):
        found[place] = states.mean(axis=0, dtype=np.float64)
    if not np.isfinite(found).all():
        raise NonFiniteError("the model gives NaN or infinite states for these texts")
    if method.normalize:
        found /= np.maximum(np.linalg.norm(found, axis=1, keepdims=True), np.float32(SMALLEST))
    return found


def _texts(texts: object) -> Sequence[str | Sequence[int]]:
    """Several texts, whether one was given, or several."""
    if isinstance(texts, str):
        return [texts]
    if not isinstance(texts, Iterable) or isinstance(texts, bytes | dict):
        raise SettingError(f"texts are a list of texts, or of lists of ids, found {texts!r:.60}")
    found = list(texts)
    if found and not isinstance(found[0], str | Iterable):
        return [found]  # the ids of one text
    return found


def _fitting(
    model: LanguageModel,
    method: Method,
    texts: Sequence[str | Sequence[int]],
    truncate: bool,
    notice: Callable[[str], None] | None,
) -> list[Inputs]:
    """What the model takes in of each text; too much is an error, or cut."""
    inputs, cut = [], 0
    for place, text in enumerate(texts):
        whole = _inputs(model, method, text)
        size = len(whole.ids)
        if not size:
            raise SettingError(f"text {place + 1} is empty: there is nothing to embed")
        if size > method.most:
            if not truncate:
                raise ContextFullError(
                    f"text {place + 1} is {size:,} tokens, the model takes {method.most:,}: shorten it, or "
                    "let it be truncated (--truncate, truncate=True)"
                )
            whole = _inputs(model, method, text, method.most)
            cut += 1
        inputs.append(whole)
    if cut and notice is not None:
        what = "1 text was" if cut == 1 else f"{cut:,} texts were"
        notice(f"{what} longer than {method.most:,} tokens: only the beginning counts")
    return inputs


def _inputs(
    model: LanguageModel, method: Method, text: str | Sequence[int], most: int | None = None
) -> Inputs:
    """Ids and types of one text; ids that are given are taken as they are."""
    if not isinstance(text, str):
        ids = tuple(model.encode(arguments.ids(text)))[:most]
        return Inputs(ids, (0,) * len(ids))
    text = method.prompt + (text.lower() if method.lowercase else text)
    return model.tokenizer.framed(model.tokenizer.encode(text), most=most)


def _states(model: LanguageModel, inputs: Sequence[Inputs], rows: Rows, output: Output) -> Iterator[Floats]:
    """The wanted rows of each text, in order; several texts are run at once."""
    for batch in _batches(inputs):
        tracks = [model.backend.open() for _ in batch]
        try:
            chunks = [
                Chunk(track, one.ids, rows, one.types if model.gears.token_types else None)
                for track, one in zip(tracks, batch, strict=True)
            ]
            yield from model.backend.step(chunks, output=output)
        finally:
            for track in tracks:
                model.backend.close(track)


def _batches(inputs: Sequence[Inputs]) -> Iterator[list[Inputs]]:
    batch: list[Inputs] = []
    size = 0
    for one in inputs:
        if batch and size + len(one.ids) > AT_ONCE:
            yield batch
            batch, size = [], 0
        batch.append(one)
        size += len(one.ids)
    if batch:
        yield batch


def fill(model: LanguageModel, text: str, top: int = 5) -> list[Gap]:
    """The likeliest tokens for each masked word of a text; see `LanguageModel.fill`."""
    top = arguments.whole("top", top, 1)
    mask = _mask_of(model)
    if not isinstance(text, str):
        raise SettingError(f"fill takes a text, found {text!r:.60}")
    written = model.tokenizer.piece(mask)
    pieces = text.split(written)
    if len(pieces) == 1:
        raise SettingError(f"the text has no {written}: write it where a word is to be guessed")
    # The mask counts as what it is; any other control token that the text spells stays text.
    parts = [(pieces[0], False)]
    for piece in pieces[1:]:
        parts += [(written, True), (piece, False)]
    inputs = model.tokenizer.framed(model.tokenizer.encode_parts(parts))
    model.check_length(len(inputs.ids))
    logits = next(_states(model, [inputs], "all", "logits"))
    masked = [place for place, token in enumerate(inputs.ids) if token == mask]
    return [Gap(place, _best(model, logits[place], top)) for place in masked]


def _mask_of(model: LanguageModel) -> int:
    if model.gears.causal:
        raise SettingError(
            f"{model.gears.family} reads from left to right and can't fill gaps; "
            "it can continue a text (model.generate, `glassgear run`)"
        )
    if model.gears.head is None:
        raise SettingError(
            "this model has no head that guesses words: it was saved without one. It can embed texts "
            "(model.embed, `glassgear embed`)"
        )
    mask = model.tokenizer.mask_id
    if mask is None:
        raise SettingError("the model's tokenizer has no mask token, so no word can be left out")
    return mask


def _best(model: LanguageModel, logits: Floats, top: int) -> tuple[Candidate, ...]:
    found = logprobs(logits)
    best = np.argsort(-found, kind="stable")[:top]
    known = model.tokenizer.vocab_size  # the model's table may have more rows
    return tuple(
        Candidate(
            int(token),
            model.tokenizer.decode([int(token)], skip_special=False) if token < known else "",
            float(np.exp(found[token])),
        )
        for token in best
    )
