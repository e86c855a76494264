"""Tokenizers from one form into another: ids stay, whatever file they come from."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from glassgear.convert.tokenizer_files import (
    gguf_keys,
    llama2c_tokenizer,
    sentencepiece_model,
    templates_by_file,
    tokenizer_config,
    tokenizer_json,
)
from glassgear.convert.vocabularies import Content, check_same_ids, read_content
from glassgear.errors import UnsupportedError
from glassgear.text.base import Tokenizer
from glassgear.text.pretokenizers import RULES
from glassgear.text.sources import tokenizer_from_file, tokenizer_from_metadata
from glassgear.text.vocabulary import Kind
from glassgear.weights import gguf
from tests.text import json_tokenizers
from tests.text.vocabularies import byte_level_metadata, small_llama2c_bin
from tests.text.vocabularies import sentencepiece_model as protobuf

CONTROL = ("<|endoftext|>", "<|im_end|>")


def as_json(content: Content, folder: Path) -> Tokenizer:
    """What a reader makes of the folder's files."""
    folder.mkdir(exist_ok=True)
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer_json(content)), encoding="utf-8")
    (folder / "tokenizer_config.json").write_text(json.dumps(tokenizer_config(content, 64)), encoding="utf-8")
    found = tokenizer_from_file(folder)
    assert found is not None
    return found


def as_gguf(content: Content, rows: int | None = None) -> Tokenizer:
    keys, left = gguf_keys(content, rows or len(content.vocabulary.pieces), content.tokenizer.end_ids)
    assert not left
    found = tokenizer_from_metadata(keys, "made")
    assert found is not None
    return found


def content(source: Any) -> Content:
    found = read_content(source, "test")
    assert found is not None
    return found


def same(ours: Tokenizer, theirs: Tokenizer, texts: list[str]) -> None:
    check_same_ids(ours, theirs, "test")
    for text in texts:
        for special in (False, True):
            ids = ours.encode(text, add_special=special, parse_special=True)
            assert theirs.encode(text, add_special=special, parse_special=True) == ids, text
            assert theirs.decode(ids) == ours.decode(ids)
    assert theirs.end_ids == ours.end_ids
    assert theirs.special == ours.special
    assert (theirs.bos_id, theirs.eos_id) == (ours.bos_id, ours.eos_id)
    assert (theirs.adds_bos, theirs.adds_eos) == (ours.adds_bos, ours.adds_eos)


def texts_of(path: Path) -> list[str]:
    return path.with_name(path.name + ".inp").read_text(encoding="utf-8").split("\n__ggml_vocab_test__\n")


@pytest.mark.parametrize("name", ["ggml-vocab-gpt-2", "ggml-vocab-llama-spm"])
def test_published_vocabularies_survive_as_folder_and_come_back(
    name: str, shared: Path, tmp_path: Path
) -> None:
    path = shared / "data" / "vocab" / f"{name}.gguf"
    before = content(gguf.read(path).metadata)
    folder = as_json(before, tmp_path / "folder")
    texts = texts_of(path)
    for text in texts:
        assert folder.encode(text) == before.tokenizer.encode(text), text
    same(before.tokenizer, as_gguf(content(tmp_path / "folder")), [text for text in texts if text])


def test_llama_2_s_tokenizer_is_written_as_its_own_program_reads_it(shared: Path, tmp_path: Path) -> None:
    sentencepiece = pytest.importorskip("sentencepiece")
    source = shared / "data" / "llama2c" / "llama2-tokenizer.model"
    (tmp_path / "tokenizer.model").write_bytes(source.read_bytes())
    before = content(tmp_path / "tokenizer.model")
    (tmp_path / "made.model").write_bytes(sentencepiece_model(before.vocabulary))
    old, new = (
        sentencepiece.SentencePieceProcessor(model_file=str(p)) for p in (source, tmp_path / "made.model")
    )
    folder = as_json(before, tmp_path / "folder")
    assert llama2c_tokenizer(before, 32000) == (source.parent / "llama2-tokenizer.bin").read_bytes()
    for text in ("Hello, World!", "Zürich  und\n\nCafé 1234", "今日は世界 🦙", "def f(x): return x"):
        ids = old.encode(text)
        assert new.encode(text) == ids
        assert folder.encode(text) == ids
        assert folder.encode(text, add_special=True) == [1, *ids]


def test_transformers_reads_llama_2_s_tokenizer_alike(shared: Path, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    before = content(shared / "data" / "llama2c" / "llama2-tokenizer.model")
    as_json(before, tmp_path / "folder")
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path / "folder")
    for text in ("Hello, World!", "Zürich  und\n\nCafé 1234", "今日は世界 🦙"):
        assert theirs(text)["input_ids"] == before.tokenizer.encode(text, add_special=True)
        assert theirs.decode(theirs(text)["input_ids"], skip_special_tokens=True) == text


@pytest.mark.parametrize("rule", list(RULES))
def test_every_rule_for_words_survives_as_tokenizer_json(rule: str, tmp_path: Path) -> None:
    before = content(byte_level_metadata(pre=rule))
    folder = as_json(before, tmp_path / "folder")
    same(before.tokenizer, folder, ["hello world<|im_end|>", "12345  it's\n\n été, 世界"])
    after = content(tmp_path / "folder")
    found, wanted = RULES[after.rule], RULES[rule]
    assert (found.steps, found.composes, found.whole_words) == (
        wanted.steps, wanted.composes, wanted.whole_words,
    )  # fmt: skip
    same(before.tokenizer, as_gguf(after), ["hello world<|im_end|>"])


@pytest.mark.parametrize("adds", [{"add_bos_token": True}, {"add_eos_token": True}, {}])
def test_what_stands_around_a_text_survives(adds: dict[str, bool], tmp_path: Path) -> None:
    before = content(byte_level_metadata(bos_token_id=261, eos_token_id=262, **adds))
    folder = as_json(before, tmp_path / "folder")
    same(before.tokenizer, folder, ["hello"])
    same(before.tokenizer, as_gguf(content(tmp_path / "folder")), ["hello"])


@given(text=st.text(alphabet=st.characters(exclude_categories=("Cs",)), max_size=40))
def test_any_text_has_the_same_ids(text: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.getbasetemp() / "any"
    before = content(byte_level_metadata())
    made = as_json(before, folder) if not folder.exists() else tokenizer_from_file(folder)
    assert made is not None
    assert made.encode(text) == before.tokenizer.encode(text)


@pytest.mark.parametrize(
    "description", [json_tokenizers.byte_level(ignore_merges=True), json_tokenizers.byte_fallback()]
)
def test_a_tokenizer_json_survives_as_gguf(description: dict[str, Any], tmp_path: Path) -> None:
    json_tokenizers.folder(tmp_path / "in", description, config={"bos_token": "<s>", "eos_token": "</s>"})
    before = content(tmp_path / "in")
    after = as_gguf(before)
    for text in ("hello world", "hell o", "héllo\n", "  a b  "):
        assert after.encode(text, add_special=True) == before.tokenizer.encode(text, add_special=True)


def test_spare_rows_get_pieces_that_mean_nothing() -> None:
    before = content(byte_level_metadata())
    keys, _ = gguf_keys(before, 300, frozenset())
    count = len(before.vocabulary.pieces)
    assert keys["tokenizer.ggml.tokens"][count:] == [f"[PAD{token}]" for token in range(count, 300)]
    assert set(keys["tokenizer.ggml.token_type"][count:].tolist()) == {Kind.UNUSED}
    same(before.tokenizer, as_gguf(before, 300), ["hello [PAD270]"])


def test_end_ids_that_names_do_not_tell_get_roles() -> None:
    before = content(byte_level_metadata(eos_token_id=262))
    keys, left = gguf_keys(before, len(before.vocabulary.pieces), frozenset({3, 4, 5, 262}))
    assert (keys["tokenizer.ggml.eos_token_id"], keys["tokenizer.ggml.eot_token_id"]) == (262, 3)
    assert (keys["tokenizer.ggml.eom_token_id"], left) == (4, [5])


def test_a_bin_tokenizer_comes_back_byte_for_byte(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.bin").write_bytes(small_llama2c_bin())
    before = content(tmp_path / "tokenizer.bin")
    assert llama2c_tokenizer(before, len(before.vocabulary.pieces)) == small_llama2c_bin()
    same(before.tokenizer, as_json(before, tmp_path / "folder"), ["a b ab", "é\n"])
    after = content(tmp_path / "folder")
    assert after.tokenizer.encode("a b") == before.tokenizer.encode("a b")


def test_several_chat_templates_come_along() -> None:
    templates = {"tokenizer.chat_template": "{{ 1 }}", "tokenizer.chat_template.tool_use": "{{ 2 }}"}
    before = content(byte_level_metadata() | templates)
    assert as_gguf(before).chat_template == {"default": "{{ 1 }}", "tool_use": "{{ 2 }}"}


@pytest.mark.parametrize(
    ("metadata", "words"),
    [
        (byte_level_metadata(pre="something new"), "how text is cut into words"),
        (byte_level_metadata(pre=None), "how text is cut into words"),
    ],
)
def test_an_unknown_rule_for_words_is_refused(metadata: dict[str, Any], words: str) -> None:
    with pytest.raises(UnsupportedError, match=words):
        read_content(metadata, "m.gguf")


def test_a_rule_without_a_name_is_refused(tmp_path: Path) -> None:
    description = json_tokenizers.byte_level()
    description["pre_tokenizer"]["pretokenizers"][0]["pattern"] = {"Regex": r"\w+|\W"}
    json_tokenizers.folder(tmp_path / "in", description)
    with pytest.raises(UnsupportedError, match="by a rule that GGUF files have no name for"):
        read_content(tmp_path / "in", "in")


def test_kinds_that_cannot_be_written_anew_are_named(tmp_path: Path) -> None:
    json_tokenizers.folder(tmp_path / "in", json_tokenizers.unigram())
    with pytest.raises(UnsupportedError, match="of the kind Unigram"):
        read_content(tmp_path / "in", "in")


def test_other_ids_are_noticed() -> None:
    one, two = content(byte_level_metadata()), content(byte_level_metadata(merges=("h e",)))
    with pytest.raises(UnsupportedError, match="would give other ids"):
        check_same_ids(one.tokenizer, two.tokenizer, "m.gguf")


@pytest.mark.parametrize(
    ("changes", "words"),
    [({"bos": 2, "eos": 1}, "0, 1 and 2"), ({"dummy_prefix": False}, "BOS and a space")],
)
def test_vocabularies_that_llama2_c_would_misread_are_refused(
    changes: dict[str, Any], words: str, tmp_path: Path
) -> None:
    from tests.text.vocabularies import BYTES, HEAD

    (tmp_path / "tokenizer.model").write_bytes(protobuf([*HEAD, *BYTES, ("▁", -1.0, 1)], **changes))
    found = content(tmp_path / "tokenizer.model")
    with pytest.raises(UnsupportedError, match=words):
        llama2c_tokenizer(found, len(found.vocabulary.pieces))


def test_a_published_wordpiece_vocabulary_survives_as_folder_and_comes_back(
    shared: Path, tmp_path: Path
) -> None:
    path = shared / "data" / "vocab" / "ggml-vocab-bert-bge.gguf"
    before = content(gguf.read(path).metadata)
    folder = as_json(before, tmp_path / "folder")
    after = as_gguf(content(tmp_path / "folder"))
    for text in texts_of(path):
        ids = before.tokenizer.encode(text, add_special=True)
        assert folder.encode(text, add_special=True) == ids, text
        assert after.encode(text, add_special=True) == ids, text


@pytest.mark.parametrize("lowercase", [True, False])
def test_a_wordpiece_tokenizer_json_survives_as_gguf(lowercase: bool, tmp_path: Path) -> None:
    names = {"cls_token": "[CLS]", "sep_token": "[SEP]", "unk_token": "[UNK]", "pad_token": "[PAD]"}
    description = json_tokenizers.wordpiece(lowercase=lowercase)
    json_tokenizers.folder(tmp_path / "in", description, config=names)
    before = content(tmp_path / "in")
    for text in ("hello worlds, don't", "Hello Café 你 [CLS]", "unknown"):
        for special in (False, True):
            ids = before.tokenizer.encode(text, add_special=special)
            assert as_gguf(before).encode(text, add_special=special) == ids
            assert as_json(before, tmp_path / "out").encode(text, add_special=special) == ids


def test_other_ways_to_clean_text_are_refused(tmp_path: Path) -> None:
    description = json_tokenizers.wordpiece()
    description["normalizer"]["strip_accents"] = False
    json_tokenizers.folder(tmp_path / "in", description)
    with pytest.raises(UnsupportedError, match="cleans text in a way that can't be written anew"):
        read_content(tmp_path / "in", "in")


@pytest.mark.parametrize("name", ["../../evil", "a/b", "", "x" * 99, "c:d"])
def test_a_template_s_name_never_leads_out_of_the_folder(name: str, tmp_path: Path) -> None:
    metadata = byte_level_metadata() | {f"tokenizer.chat_template.{name}": "{{ 1 }}"}
    with pytest.raises(UnsupportedError, match="which can't be a file's name"):
        templates_by_file(content(metadata).vocabulary)


def test_ids_far_apart_are_refused_before_a_list_is_made(tmp_path: Path) -> None:
    description = json_tokenizers.byte_level()
    description["model"]["vocab"]["zz"] = 1 << 30
    description["post_processor"] = None
    json_tokenizers.folder(tmp_path / "in", description)
    with pytest.raises(UnsupportedError, match="ids must be close"):
        read_content(tmp_path / "in", "in")
