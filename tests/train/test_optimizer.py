"""What weights begin with, and which of them decay."""

from __future__ import annotations

import math

import pytest

torch = pytest.importorskip("torch")

from glassgear.backends.torch import ModelModule  # noqa: E402
from glassgear.model.families.llama import LlamaConfig, llama  # noqa: E402
from glassgear.model.gears import Norm, Rope, walk  # noqa: E402
from glassgear.train.optimizer import adamw, initialise  # noqa: E402
from tests.trees import TREES  # noqa: E402

SIZES = LlamaConfig(192, 512, 8, 6, 2, 32, 300, 64, 1e-5, Rope(32, 1e4), True)


@pytest.mark.parametrize("name", TREES)
def test_every_gear_gets_values_and_the_same_ones_for_a_seed(name: str) -> None:
    first, again, other = (ModelModule(TREES[name]()) for _ in range(3))
    with torch.no_grad():
        for value in first.parameters():
            value.fill_(math.nan)
    for module, seed in ((first, 4), (again, 4), (other, 5)):
        initialise(module, seed)
    norms = {path for path, gear in walk(first.gears) if isinstance(gear, Norm)}
    for (path, a), b, c in zip(first.named_parameters(), again.parameters(), other.parameters(), strict=True):
        assert torch.equal(a, b), path
        drawn = path.rpartition(".")[0] not in norms and not path.endswith("bias")
        assert torch.equal(a, c) != drawn, path
    ids = torch.arange(12)[None]
    assert torch.isfinite(first(ids, output="logits" if first.gears.head else "hidden")).all()


def test_what_is_added_to_the_stream_begins_smaller_the_deeper_a_model_is() -> None:
    module = ModelModule(llama(SIZES))
    initialise(module, 1)
    spreads = {name: float(p.detach().std()) for name, p in module.named_parameters() if p.dim() == 2}
    plain, wide = math.sqrt(2 / (5 * 192)), math.sqrt(2 / (5 * 512))
    for block in (0, 7):
        path = f"blocks.{block}"
        for name in ("attention.query", "attention.key", "ffn.gate", "ffn.up"):
            assert spreads[f"{path}.{name}.weight"] == pytest.approx(plain, rel=0.05)
        assert spreads[f"{path}.attention.output.weight"] == pytest.approx(plain / 4, rel=0.05)
        assert spreads[f"{path}.ffn.down.weight"] == pytest.approx(wide / 4, rel=0.05)
    assert spreads["embed.weight"] == pytest.approx(0.02, rel=0.05)
    assert (module.blocks[3].attention_norm.weight == 1).all()


def test_norms_that_are_stored_less_one_begin_at_nothing() -> None:
    module = ModelModule(TREES["two rotations"]())
    initialise(module, 1)
    assert (module.norm.weight == 0).all()


def test_matrices_decay_and_vectors_do_not() -> None:
    module = ModelModule(TREES["biases, untied, whole-width q and k norms"]())
    initialise(module, 1)
    optimizer = adamw(module, rate=0.1, betas=(0.9, 0.95), eps=1e-8, decay=0.5, fused=True)
    before = {name: p.detach().clone() for name, p in module.named_parameters()}
    for p in module.parameters():
        p.grad = torch.zeros_like(p)
    optimizer.step()
    for name, p in module.named_parameters():
        factor = 0.95 if p.dim() == 2 else 1.0  # 1 - rate * decay
        assert torch.allclose(p, before[name] * factor), name
    assert {p.dim() for p in module.parameters()} == {1, 2}
