"""Texts to vectors as transformers' states give them, and guesses for masked words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import glassgear
from glassgear import encode
from glassgear.errors import ContextFullError, NonFiniteError, SettingError, TokenizerError
from tests.families.encoders import WORDS, outputs_of, write_encoder, write_modules
from tests.families.support import BACKENDS
from tests.families.test_bert import as_gguf, make
from tests.families.test_mobilebert import make as make_mobilebert
from tests.models import llama2c_file, llama2c_tokenizer

TEXTS = ("The cats sat on the mat.", "dog", "", "Café? 你好, cats [MASK]")
MEAN = {"word_embedding_dimension": 48, "pooling_mode_mean_tokens": True, "pooling_mode_cls_token": False}


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    folder = tmp_path_factory.mktemp("bert")
    return folder, write_encoder(folder, make("BertForPreTraining"))


@pytest.fixture(scope="module", params=BACKENDS)
def model(request: pytest.FixtureRequest, bert: tuple[Path, Any]) -> glassgear.LanguageModel:
    return glassgear.load(bert[0], backend=request.param)


def ids_of(model: glassgear.LanguageModel, text: str) -> list[int]:
    """By transformers' own tokenizer, which reads `[MASK]` as what it is."""
    transformers = pytest.importorskip("transformers")
    theirs = transformers.BertTokenizerFast(vocab=str(Path(model.checkpoint.path) / "vocab.txt"))
    ids: list[int] = theirs(text)["input_ids"]
    return ids


def expected(bert: Any, model: glassgear.LanguageModel, texts: Any, pooling: str) -> np.ndarray:
    import torch

    rows = []
    for text in texts:
        ids = [i for i in model.tokenizer.encode(text, add_special=True)]
        hidden = outputs_of(bert, ids, [0] * len(ids))["hidden"]
        with torch.no_grad():
            pooled = bert.bert(torch.tensor([ids])).pooler_output[0].numpy()
        states = {"mean": hidden.mean(0), "cls": hidden[0], "last": hidden[-1], "pooler": pooled}
        rows.append(states[pooling])
    return np.stack(rows)


@pytest.mark.parametrize("pooling", ["mean", "cls", "last", "pooler"])
def test_vectors_are_pooled_states(model: glassgear.LanguageModel, bert: Any, pooling: Any) -> None:
    want = expected(bert[1], model, TEXTS, pooling)
    found = model.embed(TEXTS, pooling=pooling, normalize=False)
    assert found.dtype == np.float32 and found.shape == (4, 48)
    assert np.abs(found - want).max() < 1e-4
    unit = model.embed(TEXTS, pooling=pooling)
    assert np.abs(np.linalg.norm(unit, axis=1) - 1).max() < 1e-6
    assert np.abs(unit - want / np.linalg.norm(want, axis=1, keepdims=True)).max() < 1e-4


def test_a_text_s_vector_does_not_depend_on_its_neighbours(
    model: glassgear.LanguageModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    together = model.embed(TEXTS)
    alone = np.concatenate([model.embed(text) for text in TEXTS])
    assert np.abs(together - alone).max() < 1e-6
    monkeypatch.setattr(encode, "AT_ONCE", 9)
    assert np.abs(together - model.embed(TEXTS)).max() < 1e-6
    assert model.embed([]).shape == (0, 48)


def test_ids_are_taken_as_they_are(model: glassgear.LanguageModel) -> None:
    ids = model.tokenizer.encode(TEXTS[0], add_special=True)
    want = model.embed(TEXTS[0])
    for given in (ids, [ids], np.array(ids), [tuple(ids)]):
        assert np.array_equal(model.embed(given), want)  # type: ignore[arg-type]
    for wrong, message in (([[3, 100]], "id 100 is outside"), ([[]], "text 1 is empty"), (5, "found 5")):
        with pytest.raises(SettingError, match=message):
            model.embed(wrong)  # type: ignore[arg-type]


def test_pages_are_given_back(model: glassgear.LanguageModel) -> None:
    before = model.backend._pages.count  # type: ignore[attr-defined]
    for _ in range(3):
        model.embed(["cat " * 30] * 5)
    once = model.backend._pages.count  # type: ignore[attr-defined]
    model.embed(["cat " * 30] * 5)
    assert before <= model.backend._pages.count == once  # type: ignore[attr-defined]


def test_too_long_a_text_is_refused_or_cut_and_said(model: glassgear.LanguageModel) -> None:
    long = "cat " * 100
    with pytest.raises(ContextFullError, match=r"text 2 is 102 tokens, the model takes 64.*truncate"):
        model.embed(["dog", long])
    said: list[str] = []
    found = model.embed(["dog", long, long], truncate=True, notice=said.append)
    assert said == ["2 texts were longer than 64 tokens: only the beginning counts"]
    frame = [WORDS.index("[CLS]"), *[WORDS.index("cat")] * 62, WORDS.index("[SEP]")]
    exact = model.embed([[model.tokenizer.special["[CLS]"], *frame[1:-1], model.tokenizer.special["[SEP]"]]])
    assert np.abs(found[1] - exact[0]).max() < 1e-6 and np.array_equal(found[1], found[2])


@pytest.mark.parametrize(
    ("options", "message"),
    [({"pooling": "max"}, "'max' isn't one of mean, cls, last, pooler"), ({"pooling": 3}, "isn't one of")],
)
def test_wrong_options_are_named(model: glassgear.LanguageModel, options: Any, message: str) -> None:
    with pytest.raises(SettingError, match=message):
        model.embed("cat", **options)


def test_a_model_without_a_pooler_says_so(tmp_path: Path) -> None:
    write_encoder(tmp_path, make("BertForMaskedLM"))
    model = glassgear.load(tmp_path, backend="reference")
    with pytest.raises(SettingError, match="no pooler: choose mean, cls or last"):
        model.embed("cat", pooling="pooler")


@pytest.mark.parametrize(
    ("kinds", "pooling", "same"),
    [
        (("Transformer", "Pooling"), MEAN, {"pooling": "mean", "normalize": False}),
        (("Transformer", "Pooling", "Normalize"), MEAN, {"pooling": "mean", "normalize": True}),
        (("Transformer", "Pooling", "Normalize"), {"pooling_mode_cls_token": True}, {"pooling": "cls"}),
        (("Transformer", "Pooling"), {"pooling_mode": "lasttoken"}, {"pooling": "last", "normalize": False}),
    ],
)
def test_a_folder_of_sentence_transformers_says_how(
    tmp_path: Path, kinds: tuple[str, ...], pooling: Any, same: Any
) -> None:
    write_encoder(tmp_path, make("BertModel"))
    model = glassgear.load(tmp_path, backend="reference")
    want = model.embed(TEXTS, **same)
    write_modules(tmp_path, *kinds, pooling=pooling)
    assert np.array_equal(model.embed(TEXTS), want)
    other = model.embed(TEXTS, pooling="pooler", normalize=not same.get("normalize", True))
    assert np.abs(other - want).max() > 0.01  # what the caller says comes first


def test_length_case_and_prompt_as_the_folder_says(tmp_path: Path) -> None:
    write_encoder(tmp_path, make("BertModel"), do_lower_case=False)
    write_modules(
        tmp_path, "Transformer", "Pooling", pooling=MEAN,
        sentence_bert_config={"max_seq_length": 8, "do_lower_case": True},
        config_sentence_transformers={"prompts": {"query": "the cat "}, "default_prompt_name": "query"},
    )  # fmt: skip
    model = glassgear.load(tmp_path, backend="reference")
    ids = model.tokenizer.encode("the cat dog dog", add_special=True)
    assert np.array_equal(model.embed("DOG Dog"), model.embed([ids]))
    with pytest.raises(ContextFullError, match="the model takes 8"):
        model.embed("dog " * 5)
    assert model.embed("dog " * 5, truncate=True).shape == (1, 48)


@pytest.mark.parametrize(
    ("kinds", "pooling", "message"),
    [
        (("Transformer", "Pooling", "Dense"), MEAN, "puts a module `Dense` behind it"),
        (("Transformer", "Pooling"), {"pooling_mode_max_tokens": True}, "`pooling_mode_max_tokens`"),
        (("Transformer", "Pooling"), MEAN | {"pooling_mode_cls_token": True}, "joined of"),
        (("Transformer", "Pooling"), {}, "joined of nothing"),
    ],
)
def test_what_isn_t_run_here_is_named_and_a_choice_goes_without_it(
    tmp_path: Path, kinds: tuple[str, ...], pooling: Any, message: str
) -> None:
    write_encoder(tmp_path, make("BertModel"))
    write_modules(tmp_path, *kinds, pooling=pooling)
    model = glassgear.load(tmp_path, backend="reference")
    with pytest.raises(SettingError, match=message):
        model.embed("cat")
    assert model.embed("cat", pooling="mean").shape == (1, 48)


@pytest.mark.parametrize(("kind", "pooling"), [(0, "mean"), (1, "mean"), (2, "cls"), (3, "last")])
def test_a_gguf_says_how(tmp_path: Path, kind: int, pooling: Any) -> None:
    spelled = [word[2:] if word.startswith("##") else f"▁{word}" for word in WORDS]
    tokens = WORDS[:5] + spelled[5:]
    extra = {
        "bert.pooling_type": kind, "tokenizer.ggml.model": "bert", "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [3 if i < 5 else 1 for i in range(len(tokens))],
        "tokenizer.ggml.cls_token_id": 2, "tokenizer.ggml.seperator_token_id": 3,
        "tokenizer.ggml.unknown_token_id": 1, "tokenizer.ggml.mask_token_id": 4,
        "tokenizer.ggml.padding_token_id": 0,
    }  # fmt: skip
    bert = make("BertModel")
    write_encoder(tmp_path / "folder", bert)
    model = glassgear.load(as_gguf(tmp_path, bert, **extra), backend="reference")
    folder = glassgear.load(tmp_path / "folder", backend="reference")
    assert model.tokenizer.kind == "wordpiece"
    want = folder.embed(TEXTS, pooling=pooling, normalize=True)
    assert np.abs(model.embed(TEXTS) - want).max() < 1e-5


def test_a_reranker_is_no_embedder(tmp_path: Path) -> None:
    model = glassgear.load(
        as_gguf(tmp_path, make("BertModel"), **{"bert.pooling_type": 4}), backend="reference"
    )
    with pytest.raises(SettingError, match="reranker"):
        model.embed([[5, 6]])


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_decoder_embeds_by_its_last_state(tmp_path: Path, backend: Any) -> None:
    llama2c_file(tmp_path / "m.bin")
    llama2c_tokenizer(tmp_path / "tokenizer.bin")
    model = glassgear.load(tmp_path / "m.bin", backend=backend)
    ids = model.tokenizer.encode("the cab", add_special=True)
    hidden = model.hidden(ids)
    assert np.abs(model.embed("the cab", normalize=False)[0] - hidden[-1]).max() < 1e-5
    mean = model.embed("the cab", pooling="mean", normalize=False)[0]
    assert np.abs(mean - hidden.mean(0)).max() < 1e-5
    assert abs(np.linalg.norm(model.embed("the cab")) - 1) < 1e-6


def test_states_that_are_not_finite_are_an_error(
    model: glassgear.LanguageModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(encode, "_states", lambda *_: [np.full((1, 48), np.nan, np.float32)])
    with pytest.raises(NonFiniteError):
        model.embed("cat")


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("maker", [make, make_mobilebert], ids=["bert", "mobilebert"])
def test_guesses_are_those_of_transformers(tmp_path: Path, maker: Any, backend: Any) -> None:
    theirs = write_encoder(tmp_path, maker())
    model = glassgear.load(tmp_path, backend=backend)
    text = "The [MASK] sat on the [MASK]s."
    ids = ids_of(model, text)
    logits = outputs_of(theirs, ids, [0] * len(ids))["logits"].astype(np.float64)
    gaps = model.fill(text, top=7)
    assert [gap.position for gap in gaps] == [
        i for i, token in enumerate(ids) if token == model.tokenizer.mask_id
    ]
    for gap in gaps:
        shares = np.exp(logits[gap.position] - logits[gap.position].max())
        shares /= shares.sum()
        best = np.argsort(-shares, kind="stable")[:7]
        assert [one.id for one in gap.candidates] == best.tolist()
        assert [one.probability for one in gap.candidates] == pytest.approx(shares[best], abs=1e-4)
        for one in gap.candidates:
            if one.id < model.tokenizer.vocab_size:
                assert one.text == model.tokenizer.piece(one.id)
            else:
                assert one.text == ""


def test_only_the_mask_counts_as_a_control_token(model: glassgear.LanguageModel) -> None:
    gaps = model.fill("[MASK] [SEP] [CLS] dog")
    plain = len(model.tokenizer.encode("[SEP] [CLS] dog"))
    assert [gap.position for gap in gaps] == [1] and plain > 3
    assert len(model.fill("[MASK] cat", top=10**6)[0].candidates) == 100


@pytest.mark.parametrize("text", ["The cat", "", "the [mask] cat"])
def test_a_text_without_a_mask_is_an_error(model: glassgear.LanguageModel, text: str) -> None:
    with pytest.raises(SettingError, match=r"the text has no \[MASK\]"):
        model.fill(text)
    with pytest.raises(SettingError, match="top must be 1 or more"):
        model.fill("[MASK]", top=0)
    with pytest.raises(SettingError, match="fill takes a text"):
        model.fill([5, 4])  # type: ignore[arg-type]
    with pytest.raises(ContextFullError):
        model.fill("[MASK]" + " cat" * 70)


def test_models_that_can_t_fill_say_why(tmp_path: Path) -> None:
    write_encoder(tmp_path / "bare", make("BertModel"))
    with pytest.raises(SettingError, match="no head that guesses words"):
        glassgear.load(tmp_path / "bare", backend="reference").fill("[MASK]")
    llama2c_file(tmp_path / "m.bin")
    llama2c_tokenizer(tmp_path / "tokenizer.bin")
    with pytest.raises(SettingError, match="reads from left to right"):
        glassgear.load(tmp_path / "m.bin", backend="reference").fill("[MASK]")
    folder = tmp_path / "unmasked"
    write_encoder(folder, make("BertForMaskedLM"))
    lines = (folder / "vocab.txt").read_text(encoding="utf-8").replace("[MASK]\n", "masked\n")
    (folder / "vocab.txt").write_text(lines, encoding="utf-8")
    with pytest.raises(SettingError, match="no mask token"):
        glassgear.load(folder, backend="reference").fill("[MASK]")
    (folder / "vocab.txt").unlink()
    model = glassgear.load(folder, backend="reference")
    with pytest.raises(TokenizerError, match="has no tokenizer"):
        model.fill("[MASK]")
    assert model.embed([[2, 5, 3]]).shape == (1, 48)


def test_an_encoder_neither_continues_nor_scores_and_says_what_it_does(
    model: glassgear.LanguageModel,
) -> None:
    message = "neither continue nor score.*embed.*fill"
    with pytest.raises(SettingError, match=message):
        model.generate("the cat")
    with pytest.raises(SettingError, match=message):
        model.generate(["the cat", "dog"])
    with pytest.raises(SettingError, match=message):
        model.chat([{"role": "user", "content": "hi"}])
    with pytest.raises(SettingError, match=message):
        model.session()
    with pytest.raises(SettingError, match=message):
        model.score("the cat")
