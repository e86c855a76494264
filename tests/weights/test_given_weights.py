"""Weights that a model file gives: in it, and in a safetensors file beside it."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import glassgear
from glassgear.errors import FileError, FormatError, GlassgearError
from glassgear.weights import described, safetensors

MODEL = """
dim = 2
vocab = 3
layers = 1
steps = ["ffn"]
norm = "none"
positions = "none"
head = "none"
ffn = { kind = "plain", hidden = 1, activation = "identity" }
"""
WEIGHTS = """
[weights]
"embed.weight" = [[1, 2], [3.5, 4], [-5, 6e0]]
blocks.0.ffn.up.weight = [[2, 1]]
[weights.blocks.0.ffn.down]
weight = [[1], [10]]
"""
ARRAYS = {
    "embed.weight": np.array([[1, 2], [3.5, 4], [-5, 6]], np.float32),
    "blocks.0.ffn.up.weight": np.array([[2, 1]], np.float32),
    "blocks.0.ffn.down.weight": np.array([[1], [10]], np.float32),
}


def write(folder: Path, text: str) -> Path:
    path = folder / "my.toml"
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize("backend", ["cpu", "reference"])
def test_a_model_runs_with_the_weights_in_its_file(tmp_path: Path, backend: str) -> None:
    model = glassgear.load(write(tmp_path, MODEL + WEIGHTS), backend=backend)  # type: ignore[arg-type]
    # By hand: token 0 is (1, 2), up gives 2 + 2 = 4, down (4, 40), the sum (5, 42).
    np.testing.assert_allclose(model.hidden([0, 2]), [[5, 42], [-9, -34]])


def test_the_weights_of_a_file_beside_it(tmp_path: Path) -> None:
    safetensors.write(tmp_path / "w.safetensors", {name: a.astype(np.float16) for name, a in ARRAYS.items()})
    found = described.open_named(write(tmp_path, 'weights = "w.safetensors"\n' + MODEL))
    assert {path: tensor.type for path, tensor in found.tensors.items()} == dict.fromkeys(ARRAYS, "F16")
    for path, tensor in found.tensors.items():
        np.testing.assert_array_equal(tensor.float32(), ARRAYS[path])


def test_the_example_of_the_reference_is_a_model(tmp_path: Path) -> None:
    text = (Path(__file__).resolve().parents[2] / "docs" / "designs.md").read_text(encoding="utf-8")
    (block,) = [b for b in re.findall(r"```toml\n(.*?)```", text, re.DOTALL) if "[weights]" in b]
    np.testing.assert_allclose(glassgear.load(write(tmp_path, block)).hidden([0]), [[5, 42]])


def test_both_ways_give_the_same_model(tmp_path: Path) -> None:
    safetensors.write(tmp_path / "w.safetensors", ARRAYS)
    inside = glassgear.load(write(tmp_path, MODEL + WEIGHTS)).hidden([0, 1, 2])
    beside = glassgear.load(write(tmp_path, 'weights = "w.safetensors"\n' + MODEL)).hidden([0, 1, 2])
    np.testing.assert_array_equal(inside, beside)


def test_random_weights_take_the_place_of_given_ones(tmp_path: Path) -> None:
    path = write(tmp_path, MODEL + WEIGHTS)
    given, drawn = glassgear.load(path), glassgear.load(path, random=True)
    assert not np.allclose(given.hidden([0]), drawn.hidden([0]))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("[[2, 1]]", "[[2, 1, 0]]"), r"`blocks.0.ffn.up.weight` is 1 x 3; the model's sizes ask for 1 x 2"),
        (("[[2, 1]]", "[2, 1]"), "is 2; the model's sizes ask for 1 x 2"),
        (("[[2, 1]]", "[[2, 1], [1]]"), "a list of rows of one length"),
        (("[[2, 1]]", '[["2", 1]]'), "`weights.blocks.0.ffn.up.weight` should be a list of numbers"),
        (("[[2, 1]]", "[[true, 1]]"), "a list of numbers"),
        (("[[2, 1]]", "7"), "a list of numbers"),
        (("[[2, 1]]", "[[1e39, 1]]"), "float32 has no room for"),
        (("[[2, 1]]", f"[[1{'0' * 400}, 1]]"), "float32 has no room for"),
        (("[[2, 1]]", "[[nan, 1]]"), "float32 has no room for"),
        (("blocks.0.ffn.up", "blocks.0.ffn.upp"), "lacks `blocks.0.ffn.up.weight`"),
        (("blocks.0.ffn.up", "gate.weight = [1]\nblocks.0.ffn.up"), "doesn't have: `gate.weight`"),
        (("[weights]", "weights2 = 3\n[weights]"), "`weights.*` is no key|is no key of this table"),
        (("[weights]", "[wieghts]"), "Did you mean `weights`"),
    ],
)  # fmt: skip
def test_weights_that_are_no_weights(tmp_path: Path, change: tuple[str, str], message: str) -> None:
    path = write(tmp_path, (MODEL + WEIGHTS).replace(*change, 1))
    with pytest.raises(FormatError, match=message) as caught:
        described.open_named(path)
    assert str(caught.value).startswith(str(path)) and len(str(caught.value)) < 1000


def test_tables_without_end_are_refused(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="is no tensor of a model"):
        described.open_named(write(tmp_path, f"{MODEL}\n[weights]\n{'a.' * 200}b = [1]\n"))


@pytest.mark.parametrize(
    ("name", "kind", "message"),
    [
        ("../w.safetensors", FormatError, "in the same folder"),
        ("w.bin", FormatError, r"should name a .safetensors file"),
        ("there/is/none.safetensors", FormatError, "in the same folder"),
        ("none.safetensors", FileError, "none.safetensors"),
    ],
)
def test_files_that_cant_be_beside_it(
    tmp_path: Path, name: str, kind: type[GlassgearError], message: str
) -> None:
    with pytest.raises(kind, match=message):
        described.open_named(write(tmp_path, f'weights = "{name}"\n{MODEL}'))


def test_a_number_for_weights_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="`weights` should name a file or be a table, found 3"):
        described.open_named(write(tmp_path, f"weights = 3\n{MODEL}"))


def test_types_that_arent_floats_are_refused(tmp_path: Path) -> None:
    arrays = ARRAYS | {"embed.weight": np.zeros((3, 2), np.int32)}
    safetensors.write(tmp_path / "w.safetensors", arrays)
    with pytest.raises(FileError, match=r"`embed\.weight` is I32; weights are F32, F16 or BF16 here"):
        described.open_named(write(tmp_path, f'weights = "w.safetensors"\n{MODEL}'))
