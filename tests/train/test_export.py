"""The model of a run in other programs: the same ids, the same values, the same texts."""

from __future__ import annotations

import random
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import glassgear
from glassgear.convert import convert
from glassgear.convert.vocabularies import read_content
from glassgear.errors import FormatError, NotFoundError
from glassgear.text.spm import SentencePieceTokenizer

torch = pytest.importorskip("torch")

from glassgear.loading import load_tokenizer  # noqa: E402
from glassgear.train import Trainer, TrainSettings, export  # noqa: E402
from glassgear.train.checkpoint import checkpoints  # noqa: E402
from glassgear.weights import safetensors  # noqa: E402
from tests.train.support import settings  # noqa: E402

PROMPT = "One day Lily"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> TrainSettings:
    """A run that has learnt enough for its likeliest tokens to be apart."""
    made = settings(
        tmp_path_factory.mktemp("export"), steps=240, learning_rate=5e-3, evaluate_every=240, save_every=120,
        context=96, log_every=60, accumulate=1, batch=8, warmup=10,
    )  # fmt: skip
    assert Trainer(made).run().model == Path(made.out) / "model"
    return made


def greedy(path: Path, backend: str, tokenizer: Path | None = None) -> list[int]:
    model = glassgear.load(path, backend=backend, tokenizer=tokenizer)  # type: ignore[arg-type]
    ids = model.encode(PROMPT)
    pieces = model.generate(ids, max_tokens=64, temperature=0.0, ignore_eos=True)
    return [token for piece in pieces for token in piece.ids]


def test_every_backend_and_every_container_writes_the_same_64_tokens(
    run: TrainSettings, tmp_path: Path
) -> None:
    folder = Path(run.out) / "model"
    want = greedy(folder, "cpu")
    assert len(want) == 64 and len(set(want)) > 10
    for backend in ("torch", "reference"):
        assert greedy(folder, backend) == want
    for name in ("model.gguf", "model.bin"):
        convert(folder, tmp_path / name)
        assert greedy(tmp_path / name, "cpu") == want, name


def test_transformers_reads_the_folder_and_writes_the_same_64_tokens(run: TrainSettings) -> None:
    transformers = pytest.importorskip("transformers")
    folder = Path(run.out) / "model"
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, torch_dtype=torch.float32)
    ids = tokenizer(PROMPT, return_tensors="pt").input_ids
    made = model.generate(
        ids, max_new_tokens=64, min_new_tokens=64, do_sample=False, eos_token_id=None, pad_token_id=0
    )
    assert made[0, ids.shape[1] :].tolist() == greedy(folder, "cpu")
    assert ids[0].tolist() == glassgear.load(folder).encode(PROMPT)
    assert model.config.eos_token_id == tokenizer.eos_token_id == 2
    assert model.config.tie_word_embeddings


def test_the_folder_holds_the_newest_checkpoint_and_is_written_again_on_demand(run: TrainSettings) -> None:
    folder = Path(run.out) / "model"
    before = safetensors.read(folder / "model.safetensors")["model.embed_tokens.weight"].float32()
    held = safetensors.read(checkpoints(Path(run.out))[-1] / "model.safetensors")["embed.weight"].float32()
    assert np.array_equal(before, held)
    shutil.rmtree(folder)
    assert export(run) == folder
    after = safetensors.read(folder / "model.safetensors")["model.embed_tokens.weight"].float32()
    assert np.array_equal(before, after)


def texts(count: int) -> list[str]:
    """Texts of the corpus's letters, of its pieces, and of what it never saw."""
    draw = random.Random(7)
    kinds = ("abehilnoty .", "aaa nn  hT.,", "One day Lily saw a kite. ", "é小🐶\t\n\x00", "▁<s></s>0x41>")
    return [
        "".join(draw.choice(draw.choice(kinds)) for _ in range(draw.randint(0, 40)))
        if i % 2
        else "".join(draw.choice(kinds[i % 5]) for _ in range(draw.randint(1, 60)))
        for i in range(count)
    ]


def test_converted_tokenizers_give_the_ids_of_the_trained_one(run: TrainSettings, tmp_path: Path) -> None:
    from tokenizers import Tokenizer

    folder = Path(run.out) / "model"
    convert(folder, tmp_path / "model.gguf")
    convert(folder, tmp_path / "model.bin")
    theirs = Tokenizer.from_file(str(Path(run.out) / "data" / "tokenizer.json"))
    theirs.encode_special_tokens = True  # control tokens in a text are text
    content = read_content(Path(run.out) / "data", "data")
    assert content is not None
    ours = {
        "scores": SentencePieceTokenizer(content.vocabulary),
        "folder": load_tokenizer(folder),
        "gguf": load_tokenizer(tmp_path / "model.gguf"),
    }
    llama2c = load_tokenizer(tmp_path / "tokenizer.bin")
    for text in texts(3000):
        want = theirs.encode(text, add_special_tokens=False).ids
        for name, tokenizer in ours.items():
            assert tokenizer.encode(text, add_special=False) == want, (name, text)
        if text and "▁" not in text and "\x00" not in text:  # a tokenizer.bin has real spaces
            assert llama2c.encode(text, add_special=False) == want, text


DESIGN = """
dim = 32
layers = 2
[norm]
kind = "layernorm"
place = "sandwich"
[attention]
heads = 4
query_key_norm = "head"
[ffn]
kind = "plain"
activation = "relu"
[[blocks]]
count = 1
[[blocks]]
count = 1
[blocks.attention]
window = 8
"""


def test_a_design_that_no_family_has_is_written_as_itself(tmp_path: Path) -> None:
    (tmp_path / "d.toml").write_text(DESIGN.replace("layers = 2\n", ""), encoding="utf-8")
    made = settings(tmp_path, model={"design": str(tmp_path / "d.toml")}, steps=4)
    outcome = Trainer(made).run()
    assert outcome.model == Path(made.out) / "model" / "model.toml"
    trainer = Trainer(made)
    trainer._prepare()
    trainer._taken_up()
    model = glassgear.load(outcome.model, tokenizer=outcome.model.with_name("tokenizer.json"))
    ids = model.encode(PROMPT)
    with torch.no_grad():
        want = trainer.plain.eval()(torch.tensor([ids]))[0].numpy()
    np.testing.assert_allclose(model.logits(ids), want, atol=1e-4)


def test_a_design_that_is_a_llama_becomes_a_folder(tmp_path: Path) -> None:
    (tmp_path / "d.toml").write_text("dim = 32\nlayers = 2\n[attention]\nheads = 4\n", encoding="utf-8")
    made = settings(tmp_path, model={"design": str(tmp_path / "d.toml")}, steps=2)
    assert Trainer(made).run().model == Path(made.out) / "model"
    assert (Path(made.out) / "model" / "config.json").is_file()


def test_a_given_tokenizer_goes_along(run: TrainSettings, tmp_path: Path) -> None:
    given = Path(run.out) / "data" / "tokenizer.json"
    made = settings(tmp_path, steps=2)
    made = replace(made, data=replace(made.data, tokenizer=str(given)))
    folder = Trainer(made).run().model
    assert folder is not None
    assert glassgear.load(folder).encode(PROMPT) == glassgear.load(Path(run.out) / "model").encode(PROMPT)


def test_a_byte_level_tokenizer_is_taken_too(tmp_path: Path) -> None:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=300, special_tokens=["<|endoftext|>"], show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )  # fmt: skip
    made = settings(tmp_path, steps=2)
    tokenizer.train_from_iterator([Path(made.data.files[0]).read_text()], trainer)
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    made = replace(made, data=replace(made.data, tokenizer=str(tmp_path / "tokenizer.json")))
    folder = Trainer(made).run().model
    assert folder is not None
    model = glassgear.load(folder)
    assert model.encode(PROMPT) == tokenizer.encode(PROMPT).ids
    assert model.checkpoint.end_ids == {tokenizer.token_to_id("<|endoftext|>")}


def test_what_cannot_be_exported_is_said(run: TrainSettings, tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="no prepared text"):
        export(settings(tmp_path))
    shutil.copytree(run.out, tmp_path / "copy")
    copied = replace(run, out=str(tmp_path / "copy"))
    with pytest.raises(FormatError, match="another model"):
        export(replace(copied, model={"dim": 32, "layers": 3, "heads": 4}))
    newest, oldest = reversed(checkpoints(tmp_path / "copy"))
    _flip(newest / "model.safetensors")
    export(copied)
    held = safetensors.read(oldest / "model.safetensors")["embed.weight"].float32()
    written = safetensors.read(tmp_path / "copy" / "model" / "model.safetensors")
    assert np.array_equal(written["model.embed_tokens.weight"].float32(), held)
    _flip(oldest / "model.safetensors")
    with pytest.raises(FormatError, match="no checkpoint that is whole"):
        export(copied)
    for path in (newest, oldest):
        shutil.rmtree(path)
    with pytest.raises(NotFoundError, match="no checkpoint yet"):
        export(copied)


def _flip(path: Path) -> None:
    """Change the last byte."""
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(bytes(data))
