"""Every example is shown, counted and run, and says of itself what holds."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import numpy as np
import pytest

import glassgear
from glassgear.model.designs import design
from glassgear.model.gears import FFN, GatedFFN, LatentAttention, Model
from glassgear.model.ledger import ledger
from tests.cli.conftest import Call

FOLDER = Path(__file__).resolve().parents[2] / "examples"
EXAMPLES = sorted(path for path in FOLDER.glob("*.toml") if not path.name.startswith("train_"))
IDS = [3, 14, 15, 92, 65, 35, 89, 79, 32, 38, 46, 26]


def read(name: str) -> Model:
    path = FOLDER / f"{name}.toml"
    return design(tomllib.loads(path.read_text(encoding="utf-8")), str(path))


def test_there_are_some() -> None:
    assert len(EXAMPLES) >= 5


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_every_example_is_shown_counted_and_run(call: Call, path: Path) -> None:
    shown, counted = call("show", path), call("params", path, "--json")
    run = call("run", path, "1 2 3", "--random", "--backend", "reference", "-n", 4)
    assert [r.exit_code for r in (shown, counted, run)] == [0, 0, 0], run.stderr
    total = json.loads(counted.stdout)["parameters"]
    assert f"parameters     {total:,}" in shown.stdout
    assert len(run.stdout.split()) >= 4


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_both_backends_agree_on_every_example(path: Path) -> None:
    cpu, reference = (
        glassgear.load(path, backend=b, random=True, seed=1)  # type: ignore[arg-type]
        for b in ("cpu", "reference")
    )
    ids = [i % cpu.gears.vocab for i in IDS]
    np.testing.assert_allclose(cpu.hidden(ids), reference.hidden(ids), atol=1e-4)
    if reference.gears.head is not None:
        np.testing.assert_allclose(cpu.logits(ids), reference.logits(ids), atol=1e-4)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_the_commands_in_the_comments_name_the_file(path: Path) -> None:
    commands = [line for line in path.read_text(encoding="utf-8").splitlines() if "glassgear " in line]
    assert commands and all(f"examples/{path.name}" in line for line in commands)


def test_the_classic_network_holds_what_its_comment_says() -> None:
    model = read("classic_ffn")
    gear = model.blocks[0].steps[0].gear
    assert isinstance(gear, FFN) and (gear.up.inputs, gear.up.outputs, gear.down.outputs) == (512, 2048, 512)
    assert gear.activation == "relu" and not model.blocks[0].steps[0].skip
    assert ledger(model).parameters - 1000 * 512 == 2_099_712


def test_the_classic_network_is_what_numpy_makes_of_it() -> None:
    model = glassgear.load(FOLDER / "classic_ffn.toml", backend="reference", random=True, seed=2)
    held = {path: tensor.float32() for path, tensor in model.checkpoint.tensors.items()}
    x = held["embed.weight"][IDS]
    wide = np.maximum(x @ held["blocks.0.ffn.up.weight"].T, 0)
    np.testing.assert_allclose(model.hidden(IDS), wide @ held["blocks.0.ffn.down.weight"].T, atol=1e-5)


def test_the_encoder_layer_is_pre_norm_with_a_gated_network_and_residuals() -> None:
    model = read("encoder_layer")
    for step in model.blocks[0].steps:
        assert step.norm is not None and step.post_norm is None and step.sum_norm is None and step.skip
    network = model.blocks[0].steps[1].gear
    assert isinstance(network, GatedFFN) and network.activation == "silu" and not model.causal


def test_latent_attention_caches_what_its_comment_says() -> None:
    gear = read("latent_attention").blocks[0].steps[0].gear
    assert isinstance(gear, LatentAttention)
    assert gear.cache_dim == 64 + 16 and 2 * gear.heads * gear.head_dim == 768


def test_experts_use_a_part_of_what_they_hold() -> None:
    counted = ledger(read("experts"))
    assert counted.active < counted.parameters / 2.5
