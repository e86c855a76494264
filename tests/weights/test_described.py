"""Model files, published configs, and random weights for them."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

import glassgear
from glassgear.errors import FormatError, NotFoundError, SettingError
from glassgear.model.designs import design
from glassgear.model.gears import tensors
from glassgear.weights import described
from glassgear.weights.random_weights import RandomTensor, random_tensors

TEXT = """
dim = 64
vocab = 100
layers = 2
attention.heads = 4
norm = "layernorm"
ffn = { kind = "plain", bias = true }
"""


@pytest.fixture
def model_file(tmp_path: Path) -> Path:
    path = tmp_path / "my.toml"
    path.write_text(TEXT, encoding="utf-8")
    return path


def test_a_model_file_is_opened_by_its_path(model_file: Path) -> None:
    found = described.open_named(model_file)
    assert (found.container, found.path, len(found.tensors)) == ("model file", str(model_file), 0)
    assert found.model.dim == 64


def test_a_published_config_is_opened_by_its_name() -> None:
    found = described.open_named("llama-3-8b")
    assert found.container == "published config of meta-llama/Meta-Llama-3-8B"
    assert len(found.model.blocks) == 32 and not found.tensors


def test_a_path_comes_before_a_published_config(model_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(model_file.parent)
    (model_file.parent / "gpt2").mkdir()
    with pytest.raises(glassgear.GlassgearError, match=r"gpt2"):  # an empty folder is no model
        described.open_named("gpt2")


def test_a_mistyped_name_brings_up_a_near_one() -> None:
    with pytest.raises(NotFoundError, match="there is a published config called deepseek-v3"):
        described.open_named("Deepseek-V2")


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (b"dim = ", "is no TOML: "),
        (b"dim = 1\ndim = 2\n", "is no TOML: "),
        (b"\xff\xfe", "isn't UTF-8 text: byte 0"),
        (b"a = " + b"[" * 100_000, "can't be read as TOML"),
        (b"a = " + b"9" * 100_000, "can't be read as TOML"),
        (b"#" * (1 << 20) + b"\n", "is larger than 1,048,576 bytes"),
        (b"", "`dim` is missing"),
    ],
)
def test_files_that_are_no_models(tmp_path: Path, raw: bytes, message: str) -> None:
    path = tmp_path / "my.toml"
    path.write_bytes(raw)
    with pytest.raises(FormatError, match=message) as caught:
        described.open_named(path)
    assert str(caught.value).startswith(str(path)) and len(str(caught.value)) < 1000


# --------------------------------------------------------------------------------------------
# Random weights


MIXED = {
    "dim": 48, "vocab": 60, "head": "own", "positions": "learned", "token_types": 2,
    "attention": {"heads": 4, "bias": True},
    "blocks": [
        {"norm": "rmsnorm"}, {"norm": {"kind": "rmsnorm", "offset": 1}}, {"norm": "layernorm"},
        {"norm": "scalenorm"}, {"norm": "batchnorm"}, {"norm": "affine"},
        {"ffn": {"experts": {"count": 4, "used": 2, "correction": True}}},
    ],
}  # fmt: skip


def test_weights_are_normal_and_keep_sizes() -> None:
    for path, tensor in random_tensors(design(MIXED, "m"), 3).items():
        values = tensor.float32()
        assert values.shape == tensor.shape and values.dtype == np.float32
        if len(tensor.shape) == 2 and values.size >= 2000:
            assert abs(float(values.std()) * tensor.shape[1] ** 0.5 - 1) < 0.06, path
            assert abs(float(values.mean())) < 0.02, path


def test_norms_begin_as_the_identity_and_biases_at_zero() -> None:
    found = random_tensors(design(MIXED, "m"), 3)

    def value(path: str) -> float:
        values = found[path].float32()
        assert np.ptp(values) == 0
        return float(values[0])

    weights = [value(f"blocks.{i}.ffn_norm.weight") for i in range(6)]
    assert weights == [1, 0, 1, pytest.approx(48**0.5), 1, 1]
    assert value("blocks.4.ffn_norm.variance") == 1
    zeros = ["blocks.2.ffn_norm.bias", "blocks.4.ffn_norm.mean", "blocks.5.ffn_norm.bias",
             "blocks.0.attention.query.bias", "blocks.6.ffn.router.correction"]  # fmt: skip
    assert [value(path) for path in zeros] == [0] * 5


def test_a_seed_gives_the_same_values_everywhere() -> None:
    """Values seen once: should they ever change, models that people named by their seed would, too."""
    tensor = RandomTensor("blocks.0.ffn.up.weight", (3, 4), 7, None)
    expected = [[0.4352940320968628, 0.08436072617769241, 0.2822328805923462, -0.6404232382774353]]
    np.testing.assert_array_equal(tensor.rows(np.array([0])), np.array(expected, np.float32))


def test_values_depend_on_the_seed_and_the_path_alone() -> None:
    small, large = (random_tensors(design(MIXED | {"vocab": vocab}, "m"), 3) for vocab in (60, 99))
    path = "blocks.0.attention.query.weight"
    np.testing.assert_array_equal(small[path].float32(), large[path].float32())
    others = [random_tensors(design(MIXED, "m"), 4)[path], small["blocks.1.attention.query.weight"]]
    assert not any(np.array_equal(small[path].float32(), other.float32()) for other in others)


def test_nothing_is_drawn_before_it_is_read() -> None:
    tensor = RandomTensor("w", (1 << 20, 1 << 20), 0, None)  # 4 TB
    tensor.check_finite()
    assert (tensor.nbytes, tensor.matrix) == (4 << 40, (1 << 20, 1 << 20))


def test_a_random_tensor_does_what_others_do() -> None:
    tensor = RandomTensor("w", (6, 4), 0, None)
    values = tensor.float32()
    np.testing.assert_array_equal(tensor.rows(np.array([5, 0])), values[[5, 0]])
    np.testing.assert_array_equal(tensor.part(2, 3).float32(), values[2:5])
    np.testing.assert_array_equal(tensor.piece(1).float32(), values[1])
    np.testing.assert_array_equal(tensor.transposed().float32(), values.T)
    np.testing.assert_array_equal(tensor.reordered(np.arange(5, -1, -1)).float32(), values[::-1])
    assert not hasattr(tensor, "no_such_attribute")


def test_every_parameter_has_a_tensor() -> None:
    model = design(MIXED, "m")
    found = random_tensors(model, 0)
    assert {path: tensor.shape for path, tensor in found.items()} == tensors(model)


# --------------------------------------------------------------------------------------------
# Loading


@pytest.mark.parametrize("backend", ["reference", "cpu"])
def test_a_model_file_runs_with_random_weights(model_file: Path, backend: str) -> None:
    model = glassgear.load(model_file, backend=backend, random=True, seed=5)  # type: ignore[arg-type]
    again = glassgear.load(model_file, backend="reference", random=True, seed=5)
    ids = [3, 1, 4, 1, 5]
    np.testing.assert_allclose(model.logits(ids), again.logits(ids), atol=1e-4)
    other = glassgear.load(model_file, backend="reference", random=True, seed=6)
    assert np.abs(other.logits(ids) - again.logits(ids)).max() > 0.1
    assert any("random weights (seed 5)" in notice for notice in model.checkpoint.notices)
    pieces = list(model.generate(ids, max_tokens=4, temperature=0))
    assert sum(len(piece.ids) for piece in pieces) == 4


def test_without_random_a_description_has_nothing_to_run(model_file: Path) -> None:
    with pytest.raises(
        NotFoundError, match=r"is a model file, which has no weights: `glassgear run --random` draws some"
    ):
        glassgear.load(model_file)
    with pytest.raises(NotFoundError, match=r"`glassgear pull smollm2-135m` fetches one that has"):
        raise_for_preset("smollm2-135m")


def raise_for_preset(name: str) -> None:
    from glassgear import loading

    raise NotFoundError(name, loading.without_weights(described._preset(name)))


def test_a_model_with_weights_can_have_random_ones_instead(tmp_path: Path) -> None:
    from tests.models import llama2c_file

    llama2c_file(tmp_path / "m.bin")
    stored, random = (
        glassgear.load(tmp_path / "m.bin", backend="reference", random=r).logits([1, 2])
        for r in (False, True)
    )
    assert stored.shape == random.shape and np.abs(stored - random).max() > 0.1


def test_what_doesn_t_fit_into_memory_is_refused_with_figures() -> None:
    with pytest.raises(
        SettingError, match=r"gpt-3-175b need 698\.4 GB of memory in float32, and [\d.,]+ GB are"
    ):
        glassgear.load("gpt-3-175b", backend="reference", random=True)


def test_a_seed_is_checked(model_file: Path) -> None:
    with pytest.raises(SettingError, match="seed"):
        glassgear.load(model_file, random=True, seed=-1)


def test_an_encoder_gives_hidden_states(tmp_path: Path) -> None:
    path = tmp_path / "encoder.toml"
    path.write_text(TEXT + "\nhead = 'none'\nattention.causal = false\n", encoding="utf-8")
    model = glassgear.load(path, backend="reference", random=True)
    hidden = model.hidden([1, 2, 3])
    assert hidden.shape == (3, 64)
    assert np.abs(model.hidden([1, 2, 4])[0] - hidden[0]).max() > 1e-4  # the first token sees the last


def test_a_checkpoint_keeps_all_else(model_file: Path) -> None:
    plain = described.open_named(model_file)
    drawn = described.with_random_weights(plain, 1)
    for field in dataclasses.fields(plain):
        if field.name not in ("tensors", "notices"):
            assert getattr(plain, field.name) == getattr(drawn, field.name)


def test_free_memory_is_a_part_of_all_memory() -> None:
    from glassgear.measure.machine import free_memory, hardware

    free, whole = free_memory(), hardware()["memory_bytes"]
    if free is None or whole is None:
        pytest.skip("this system doesn't tell")
    assert 0 < free <= whole
