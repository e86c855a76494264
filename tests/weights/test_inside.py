"""The model that comes with the package."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import glassgear
from glassgear.errors import FileError, NotFoundError, TokenizerError
from glassgear.weights import inside, pull


@pytest.fixture(scope="module")
def model() -> glassgear.LanguageModel:
    return glassgear.load(inside.DEFAULT)


def test_it_is_there_without_a_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GLASSGEAR_CACHE", str(tmp_path / "empty"))
    path = pull.resolve("tiny-stories")
    assert (path / "model.safetensors").is_file()
    assert pull.pull("tiny-stories") == path
    assert pull.cached() == []
    here, example = pull.present()
    assert (here.name, here.path) == ("tiny-stories", path) and here.nbytes < 4_000_000
    assert (example.name, example.path) == ("worked-example", pull.resolve("worked-example"))
    with pytest.raises(FileError, match="comes with Glassgear"):
        pull.remove("tiny-stories")
    assert path.is_dir()


def test_a_file_of_that_name_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "tiny-stories").write_bytes(b"GGUF")
    monkeypatch.chdir(tmp_path)
    assert pull.resolve("tiny-stories").resolve() == tmp_path / "tiny-stories"


def test_it_tells_a_story(model: glassgear.LanguageModel) -> None:
    told = "".join(map(str, model.generate("Once upon a time", max_tokens=200, temperature=0.8, seed=1)))
    words = told.replace(".", " ").replace(",", " ").lower().split()
    assert len(words) > 40
    assert {"the", "and", "was"} <= set(words)


def test_stories_end(model: glassgear.LanguageModel) -> None:
    ends = []
    for seed in range(4):
        *_, last = model.generate("Once upon a time", max_tokens=480, temperature=0.8, seed=seed)
        ends.append(last.finish_reason)
    assert ends.count("stop") >= 2


@pytest.mark.parametrize("backend", ["reference", "torch"])
def test_all_backends_go_on_alike(model: glassgear.LanguageModel, backend: str) -> None:
    if backend == "torch":
        pytest.importorskip("torch")
    other = glassgear.load("tiny-stories", backend=backend)
    assert greedy(model) == greedy(other)
    ids = model.encode("One day, Lily and Tom went to the park.")
    np.testing.assert_allclose(model.logits(ids), other.logits(ids), atol=1e-3)


def greedy(model: glassgear.LanguageModel) -> list[int]:
    made = model.generate("Once upon a time", max_tokens=64, temperature=0)
    return [token for piece in made for token in piece.ids]


def test_transformers_goes_on_alike(model: glassgear.LanguageModel) -> None:
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    folder = pull.resolve("tiny-stories")
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    ids = tokenizer("Once upon a time").input_ids
    assert ids == model.encode("Once upon a time")
    theirs = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    with torch.no_grad():
        made = theirs.generate(torch.tensor([ids]), max_new_tokens=64, do_sample=False)[0, len(ids) :]
    assert made.tolist() == greedy(model)


def test_run_alone_tells_a_story_with_its_prompt() -> None:
    command = [sys.executable, "-m", "glassgear", "run", "-n", "20", "--seed", "3"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)
    assert done.stdout.startswith("Once upon a time")
    assert len(done.stdout.split()) > 10


def test_the_worked_example_is_a_model_by_name_with_words_of_its_own() -> None:
    model = glassgear.load("worked-example", backend="reference")
    assert model.tokenizer.vocab_size == model.gears.vocab == len(inside.EXAMPLE_WORDS)
    text = "".join(inside.EXAMPLE_WORDS)
    assert model.encode(text) == glassgear.load_tokenizer("worked-example").encode(text) == list(range(6))
    assert model.trace(text).texts == inside.EXAMPLE_WORDS
    copied = Path(__file__).resolve().parents[2] / "examples" / "worked_example.toml"
    with pytest.raises(TokenizerError):  # a model file in general has no words
        _ = glassgear.load(copied, backend="reference").tokenizer


def test_a_path_that_isn_t_there_is_no_repository_of_a_hub() -> None:
    for path in ("examples/a.toml", "models/a.gguf", "a/b.BIN", "./owner/name", "../owner", "/owner/name"):
        with pytest.raises(NotFoundError) as refused:
            pull.resolve(path)
        assert "Hugging Face" not in str(refused.value), path
        with pytest.raises(NotFoundError) as refused:
            pull.pull(path)
        assert "on Hugging Face it is" not in str(refused.value), path
    with pytest.raises(NotFoundError, match=r"on Hugging Face it is hf:owner/Name-2\.5"):
        pull.resolve("owner/Name-2.5")
