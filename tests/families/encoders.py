"""What the tests of encoders share: all that transformers gives for a text, with token types."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glassgear.backends.base import Chunk
from glassgear.weights.open import open_checkpoint
from tests.families.support import IDS, TOLERANCE, backend_of, save

Floats = NDArray[np.float32]

TYPES = (0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1)
SHORT = (7, 77, 1)


def outputs_of(model: Any, ids: Sequence[int], types: Sequence[int]) -> dict[str, Floats]:
    """`hidden` [T, dim], and `pooled` [1, dim] and `logits` [T, vocab] where the model has them."""
    import torch

    with torch.no_grad():
        found = model(
            torch.tensor([list(ids)]),
            token_type_ids=torch.tensor([list(types)]),
            output_hidden_states=True,
        )
    made = {"hidden": found.hidden_states[-1][0]}
    for name in ("logits", "prediction_logits"):
        if getattr(found, name, None) is not None:
            made["logits"] = getattr(found, name)[0]
    if getattr(found, "pooler_output", None) is not None:
        made["pooled"] = found.pooler_output
    return {name: value.float().numpy() for name, value in made.items()}


def check_outputs(path: Path, model: Any, backend: str) -> None:
    """Hold everything an encoder gives to transformers: one text, and two of different lengths at once."""
    runner = backend_of(backend, open_checkpoint(path))
    texts = [(IDS, TYPES), (SHORT, (0, 1, 1)), (IDS[4:], (0,) * 8)]
    for output in ("hidden", "pooled", "logits"):
        for batch in (texts[:1], texts):
            wants = [outputs_of(model, ids, types) for ids, types in batch]
            if output not in wants[0]:
                continue
            rows = "first" if output == "pooled" else "all"
            chunks = [Chunk(runner.open(), ids, rows, types) for ids, types in batch]
            found = runner.step(chunks, output=output)
            for chunk in chunks:
                runner.close(chunk.track)
            for got, want in zip(found, wants, strict=True):
                assert got.shape == want[output].shape
                assert np.abs(got - want[output]).max() < TOLERANCE, output


WORDS = [
    "[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefghijklmnopqrstuvwxyz",
    *(f"##{c}" for c in "abcdest"), "the", "cat", "dog", "sat", "on", "mat", "paris", "is", "of",
    "france", ".", ",", "?", "[", "]", "mask", "cafe", "你", "好",
]  # fmt: skip


def write_encoder(folder: Path, model: Any, **tokenizer_config: Any) -> Any:
    """A folder with a model, whose table has rows enough, and a `vocab.txt` made by hand."""
    assert len(WORDS) <= model.config.vocab_size
    save(model, folder)
    (folder / "vocab.txt").write_text("\n".join(WORDS) + "\n", encoding="utf-8")
    if tokenizer_config:
        (folder / "tokenizer_config.json").write_text(json.dumps(tokenizer_config), encoding="utf-8")
    return model


def write_modules(folder: Path, *kinds: str, pooling: dict[str, Any] | None = None, **files: Any) -> None:
    """What sentence-transformers writes beside a model; `files` by the stem of their name."""
    modules = []
    for i, kind in enumerate(kinds):
        place = "" if kind == "Transformer" else f"{i}_{kind}"
        home = f"sentence_transformers.models.{kind}"
        modules.append({"idx": i, "name": str(i), "path": place, "type": home})
    (folder / "modules.json").write_text(json.dumps(modules), encoding="utf-8")
    if pooling is not None:
        inside = folder / f"{kinds.index('Pooling')}_Pooling"
        inside.mkdir(exist_ok=True)
        (inside / "config.json").write_text(json.dumps(pooling), encoding="utf-8")
    for name, content in files.items():
        (folder / f"{name}.json").write_text(json.dumps(content), encoding="utf-8")
