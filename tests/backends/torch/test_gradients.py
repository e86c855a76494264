"""Gradients that are written by hand, against PyTorch's own; and what compiling makes of the module."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch.nn import functional  # noqa: E402

from glassgear.backends.base import Chunk  # noqa: E402
from glassgear.backends.torch import ModelModule, Torch  # noqa: E402
from glassgear.backends.torch.base import Run, Tables, _plainly_turned, rotate  # noqa: E402
from glassgear.backends.torch.norms import NormModule  # noqa: E402
from glassgear.model.gears import RMSNorm, Rope, RopeScaling  # noqa: E402
from glassgear.train.optimizer import initialise  # noqa: E402
from tests.models import random_tensors  # noqa: E402
from tests.trees import TREES, VOCAB  # noqa: E402

IDS = torch.from_numpy(np.random.default_rng(3).integers(0, VOCAB, (2, 24)))


@pytest.mark.parametrize("offset", [0.0, 1.0])
def test_rms_norm_and_its_gradients(offset: float) -> None:
    random = torch.Generator().manual_seed(1)
    x, w, g = (torch.randn(shape, generator=random) for shape in ((2, 5, 48), (48,), (2, 5, 48)))
    module = NormModule(RMSNorm(48, 1e-5, offset), "norm")
    with torch.no_grad():
        module.weight.copy_(w)
    ours, theirs = x.clone().requires_grad_(), x.clone().requires_grad_()
    weight = w.clone().requires_grad_()
    y = module(ours, Run(torch.arange(5)))
    want = functional.rms_norm(theirs, (48,), weight + offset, 1e-5)
    y.backward(g)
    want.backward(g)
    assert torch.allclose(y, want, atol=1e-6)
    assert torch.allclose(ours.grad, theirs.grad, atol=1e-5)
    assert torch.allclose(module.weight.grad, weight.grad, atol=1e-5)


@pytest.mark.parametrize("pairing", ["half", "interleaved"])
@pytest.mark.parametrize(
    "rope",
    [Rope(16, 1e4), Rope(8, 1e4), Rope(16, 1e4, scaling=RopeScaling("yarn", 4.0, original_context=32))],
)
def test_rotations_and_their_gradients(rope: Rope, pairing: str) -> None:
    random = torch.Generator().manual_seed(1)
    x, g = (torch.randn((2, 6, 3, 16), generator=random) for _ in range(2))
    rope = Rope(rope.dim, rope.theta, pairing, rope.scaling)  # type: ignore[arg-type]
    run = Run(torch.arange(40, 46), first=40)
    ours, theirs = x.clone().requires_grad_(), x.clone().requires_grad_()
    cos, sin = (table[:, None] for table in run.rotation(rope))
    y, want = rotate(rope, ours, run), _plainly_turned(theirs, cos, sin, rope.dim, pairing)
    y.backward(g)
    want.backward(g)
    assert torch.allclose(y, want, atol=1e-6) and torch.allclose(ours.grad, theirs.grad, atol=1e-6)
    assert not torch.allclose(y, x, atol=1e-2)


@pytest.mark.parametrize("name", ["llama", "two rotations", "latent attention, queries too"])
def test_the_gradient_of_a_whole_model_is_that_of_finite_differences(name: str) -> None:
    module = ModelModule(TREES[name]())
    initialise(module, 2)
    targets = IDS[:, 1:].flatten()

    def loss() -> torch.Tensor:
        return functional.cross_entropy(module(IDS[:, :-1]).flatten(0, 1).double(), targets)

    loss().backward()
    random = torch.Generator().manual_seed(5)
    direction = [torch.randn(p.shape, generator=random) * p.detach().std() for p in module.parameters()]
    slope = sum(float((p.grad * d).sum()) for p, d in zip(module.parameters(), direction, strict=True))
    step, ends = 1e-3, []
    with torch.no_grad():
        for sign in (1, -2):
            for p, d in zip(module.parameters(), direction, strict=True):
                p.add_(d, alpha=sign * step)
            ends.append(float(loss()))
    assert slope == pytest.approx((ends[0] - ends[1]) / (2 * step), rel=1e-2)


def test_rotation_tables_are_made_once_and_grow() -> None:
    tables, rope, cpu = Tables(), Rope(16, 1e4), torch.device("cpu")
    with torch.inference_mode():
        first = tables.upto(rope, 20, cpu)
    assert tables.upto(rope, 60, cpu)[0] is first[0]
    longer = tables.upto(rope, 200, cpu)
    assert len(longer[0]) >= 200 and torch.equal(longer[0][:20], first[0][:20])
    assert not first[0].is_inference(), "it can take part in training"


def test_a_model_that_has_generated_can_be_trained() -> None:
    model = TREES["llama"]()
    backend = Torch(model, random_tensors(model))
    backend.step([Chunk(backend.open(), IDS[0].tolist(), "all")])
    backend.module(IDS).sum().backward()
    assert all(p.grad is not None for p in backend.module.parameters())


@pytest.mark.parametrize("name", ["llama", "two rotations", "learned positions, LayerNorm, plain FFN"])
def test_a_step_is_one_graph_for_the_compiler_and_gives_the_same(name: str) -> None:
    dynamo = pytest.importorskip("torch._dynamo")
    module = ModelModule(TREES[name]())
    initialise(module, 1)
    want = module(IDS)
    want.sum().backward()
    gradients = [p.grad.clone() for p in module.parameters()]
    module.zero_grad()
    dynamo.reset()
    assert dynamo.explain(module)(IDS).graph_break_count == 0
    dynamo.reset()
    found = torch.compile(module, backend="eager")(IDS)
    found.sum().backward()
    assert torch.allclose(found, want, atol=1e-5)
    for a, p in zip(gradients, module.parameters(), strict=True):
        assert torch.allclose(a, p.grad, atol=1e-4 * max(1.0, float(a.abs().max())))
