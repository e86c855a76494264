"""Hugging Face's `tokenizer.json`: ids of the library, control tokens only from trusted text."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer as Backend
from transformers import PreTrainedTokenizerFast

from glassgear.errors import FormatError, TokenizerError, UnsupportedError
from glassgear.text.base import Tokenizer
from glassgear.text.json_decoding import changes, spelling
from glassgear.text.sources import tokenizer_from_file

from .json_tokenizers import added, byte_fallback, byte_level, folder, template, unigram, wordpiece
from .test_spm import unicode_text

TEXTS = st.one_of(
    unicode_text(max_size=40), st.text(st.sampled_from(" \nhelo wa,.'é你<>/s|begin_of▁"), max_size=40)
)

KINDS: dict[str, dict[str, Any]] = {
    "byte-level": byte_level(),
    "byte-fallback": byte_fallback(),
    "space at the start only": byte_fallback(first_only=True),
    "WordPiece": wordpiece(),
}


def loaded(path: Path) -> Tokenizer:
    tokenizer = tokenizer_from_file(path)
    assert tokenizer is not None
    return tokenizer


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> dict[str, Any]:
    return KINDS[request.param]


def test_ids_and_text_are_the_library_s(kind: dict[str, Any], tmp_path: Path) -> None:
    own = loaded(folder(tmp_path, kind))
    library = Backend.from_str(json.dumps(kind))
    library.encode_special_tokens = True

    @given(TEXTS)
    def check(text: str) -> None:
        ids = library.encode(text, add_special_tokens=False).ids
        assert own.encode(text) == ids
        assert own.encode(text, add_special=True) == library.encode(text).ids
        decoded = library.decode(ids, skip_special_tokens=True)
        if "\ufffd" not in decoded:  # the library writes more of them than Unicode recommends
            assert own.decode(ids) == decoded

    check()


def test_trusted_text_gives_what_transformers_gives(kind: dict[str, Any], tmp_path: Path) -> None:
    own = loaded(folder(tmp_path, kind))
    reference = PreTrainedTokenizerFast(tokenizer_file=str(tmp_path / "tokenizer.json"))
    names = [*own.special, "<think>"]

    @given(st.lists(st.one_of(st.sampled_from(names), TEXTS), max_size=6).map("".join))
    def check(text: str) -> None:
        assert own.encode(text, parse_special=True) == reference.encode(text, add_special_tokens=False)

    check()


def test_any_text_comes_back(tmp_path: Path) -> None:
    letters = loaded(folder(tmp_path / "letters", byte_level()))
    spaces = loaded(folder(tmp_path / "spaces", byte_fallback()))
    first = loaded(folder(tmp_path / "first", byte_fallback(first_only=True)))

    @given(TEXTS)
    def check(text: str) -> None:
        assert letters.decode(letters.encode(text)) == text
        assert spaces.decode(spaces.encode(text)) == text.replace("▁", " ")
        # A space that the text begins with is taken for the one that encoding would put there.
        if not text.startswith((" ", "▁")):
            assert first.decode(first.encode(text)) == text.replace("▁", " ")

    check()
    assert letters.normalises == ""
    assert "U+2581" in spaces.normalises
    assert "U+2581" in first.normalises


@pytest.mark.parametrize("name", [*KINDS, "Unigram", "words looked up whole"])
def test_no_control_token_comes_of_plain_text(name: str, tmp_path: Path) -> None:
    whole = byte_level(extra=("<|begin|>", "PAD"), ignore_merges=True)
    ids = whole["model"]["vocab"]
    whole["added_tokens"] += [added(ids["PAD"], "PAD")]
    description = KINDS.get(name) or {"Unigram": unigram(), "words looked up whole": whole}[name]
    tokenizer = loaded(folder(tmp_path, description))
    for text in [*tokenizer.special, "PADPAD PAD", "a" + "".join(tokenizer.special), "hi </s></s> hello<s>"]:
        found = tokenizer.encode(text)
        unknown = {token for token in found if tokenizer.piece(token) in ("<unk>", "[UNK]")}
        assert not {token for token in found if tokenizer.is_special(token)} - unknown
        if tokenizer.kind != "wordpiece" and not unknown:
            assert tokenizer.decode(found) == text


def test_a_chat_message_can_t_close_its_turn(tmp_path: Path) -> None:
    tokenizer = loaded(folder(tmp_path, byte_level()))
    end = tokenizer.special["<|eot_id|>"]
    ids = tokenizer.encode_parts([("<|begin|>he", True), ("llo<|eot_id|>", False), ("<|eot_id|>", True)])
    assert [place for place, token in enumerate(ids) if token == end] == [len(ids) - 1]
    assert tokenizer.piece(ids[1]) == "hello"
    assert tokenizer.decode(ids) == "hello<|eot_id|>"


def test_merges_may_be_texts_or_pairs(tmp_path: Path) -> None:
    pairs = [("h", "e"), ("l", "l"), ("he", "ll"), ("hell", "o"), ("Ġ", "w")]
    one = loaded(folder(tmp_path / "a", byte_level()))
    two = loaded(folder(tmp_path / "b", byte_level(merges=[list(pair) for pair in pairs])))
    assert one.encode("hello world") == two.encode("hello world")
    assert len(one.encode("hello")) == 1


def test_a_merged_piece_may_hold_a_space(tmp_path: Path) -> None:
    description = byte_fallback()
    description["normalizer"] = None
    description["model"]["vocab"] |= {" ": 300, "b a": 301, " a": 302}
    description["model"]["merges"] = [[" ", "a"], ["b", " a"]]
    tokenizer = loaded(folder(tmp_path, description))
    assert tokenizer.encode("b a") == [301]


def test_a_model_without_merges_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match=r"tokenizer\.json: holds a BPE model without merges"):
        loaded(folder(tmp_path, byte_level(merges=())))


def test_bos_comes_once(tmp_path: Path) -> None:
    tokenizer = loaded(folder(tmp_path, byte_level()))
    bos = tokenizer.special["<|begin|>"]
    hi = tokenizer.encode("hi")
    assert tokenizer.adds_bos and tokenizer.bos_id == bos
    assert tokenizer.encode("hi", add_special=True) == [bos, *hi]
    assert tokenizer.encode("<|begin|>hi", add_special=True, parse_special=True) == [bos, *hi]
    assert tokenizer.encode("", add_special=True) == [bos]


@pytest.mark.parametrize("says", [True, False, None])
def test_the_config_decides_about_bos(says: bool | None, tmp_path: Path) -> None:
    config = {"bos_token": "<|begin|>", "eos_token": {"content": "<|end_of_text|>"}}
    if says is not None:
        config["add_bos_token"] = says
    description = byte_level()
    if says:
        description["post_processor"] = None
    tokenizer = loaded(folder(tmp_path, description, config=config))
    assert tokenizer.adds_bos is (says is not False)
    assert len(tokenizer.encode("", add_special=True)) == (says is not False)
    assert tokenizer.eos_id == tokenizer.special["<|end_of_text|>"]


def test_both_frames_of_bert(tmp_path: Path) -> None:
    tokenizer = loaded(folder(tmp_path, wordpiece()))
    assert tokenizer.encode("Hello worlds", add_special=True) == [2, 5, 6, 7, 3]
    assert tokenizer.encode("", add_special=True) == [2, 3]
    assert not tokenizer.adds_bos


def test_bert_s_text(tmp_path: Path) -> None:
    tokenizer = loaded(folder(tmp_path, wordpiece()))
    assert tokenizer.kind == "wordpiece" and not tokenizer.joins
    assert tokenizer.decode(tokenizer.encode("hello , worldsly.")) == "hello, worldsly."
    assert tokenizer.decode([2, 5, 3]) == "hello"
    assert tokenizer.decode([2, 5, 3], skip_special=False) == "[CLS] hello [SEP]"
    assert [tokenizer.token_bytes(token) for token in (5, 7, 2)] == [b" hello", b"s", b"[CLS]"]
    assert tokenizer.encode("café Kantō") == tokenizer.encode("cafe kanto") == [13, 14]
    assert tokenizer.encode("你") == [18]
    assert "lower case" in tokenizer.normalises
    assert 2 not in tokenizer.encode("[CLS]")


def test_clean_up_never_eats_spaces(tmp_path: Path) -> None:
    config = {"clean_up_tokenization_spaces": True}
    tokenizer = loaded(folder(tmp_path, byte_level(), config=config))
    for text in ("hello !", "x != y", "a , b . c ? I 'm don 't"):
        assert tokenizer.decode(tokenizer.encode(text)) == text


def test_a_space_goes_in_front_of_the_start_alone(tmp_path: Path) -> None:
    old = loaded(folder(tmp_path / "old", byte_fallback()))
    new = loaded(folder(tmp_path / "new", byte_fallback(first_only=True)))
    for tokenizer in (old, new):
        assert tokenizer.leading_space
        assert [tokenizer.piece(token) for token in tokenizer.encode("hello")] == ["▁hello"]
        assert tokenizer.decode(tokenizer.encode("hello", add_special=True)) == "hello"
    trusted = "</s>hello"
    assert [old.piece(t) for t in old.encode(trusted, parse_special=True)] == ["</s>", "▁hello"]
    assert [new.piece(t) for t in new.encode(trusted, parse_special=True)] == ["</s>", "h", "e", "ll", "o"]


def test_byte_tokens_are_bytes(tmp_path: Path) -> None:
    tokenizer = loaded(folder(tmp_path, byte_fallback()))
    assert tokenizer.decode([13]) == "\n"
    assert [tokenizer.token_bytes(3 + byte) for byte in range(256)] == [bytes([byte]) for byte in range(256)]
    assert tokenizer.decode(tokenizer.encode("🦙")) == "🦙"


def test_white_space_that_a_control_token_swallows(tmp_path: Path) -> None:
    description = byte_level()
    description["added_tokens"][1] |= {"lstrip": True, "rstrip": True}
    description["added_tokens"][2] |= {"single_word": True}
    tokenizer = loaded(folder(tmp_path, description))
    end, turn = tokenizer.special["<|end_of_text|>"], tokenizer.special["<|eot_id|>"]
    assert tokenizer.encode("w \n<|end_of_text|>  w", parse_special=True) == [
        *tokenizer.encode("w"), end, *tokenizer.encode("w"),
    ]  # fmt: skip
    assert turn not in tokenizer.encode("w<|eot_id|>", parse_special=True)
    assert tokenizer.encode(" <|eot_id|>.", parse_special=True)[1] == turn


def test_added_tokens_that_are_text_are_found_everywhere(tmp_path: Path) -> None:
    description = byte_level()
    count = len(description["model"]["vocab"])
    tokenizer = loaded(folder(tmp_path, description, more={"<tool>": count + 4}))
    assert [tokenizer.piece(t) for t in tokenizer.encode("<think><tool>")] == ["<think>", "<tool>"]
    assert tokenizer.decode([count + 4]) == "<tool>"
    assert tokenizer.vocab_size == count + 5
    assert not tokenizer.is_special(count + 4)


def test_tokens_that_only_the_config_knows(tmp_path: Path) -> None:
    description = byte_level()
    count = len(description["model"]["vocab"]) + 4
    config = {
        "added_tokens_decoder": {str(count): {"content": "<|tool|>", "special": True}},
        "additional_special_tokens": ["<think>"],
    }
    tokenizer = loaded(folder(tmp_path, description, config=config))
    assert tokenizer.special["<|tool|>"] == count
    assert count not in tokenizer.encode("<|tool|>")
    assert tokenizer.encode("<|tool|>", parse_special=True) == [count]
    # What any of the files calls special isn't read from plain text.
    assert not any(map(tokenizer.is_special, tokenizer.encode("<think>")))
    assert tokenizer.decode(tokenizer.encode("<think>")) == "<think>"


def test_what_a_config_calls_special_is_special_wherever_it_stands(tmp_path: Path) -> None:
    description = byte_fallback()
    description["added_tokens"] = []
    tokenizer = loaded(folder(tmp_path, description, special={"eos_token": "</s>"}))
    assert tokenizer.special == {"</s>": 2}
    assert tokenizer.encode("a</s>", parse_special=True)[-1] == 2
    assert tokenizer.end_ids == {2}


def test_special_tokens_and_templates_come_through(tmp_path: Path) -> None:
    config = {"bos_token": "<|begin|>", "pad_token": None, "chat_template": "inline"}
    special = {"eos_token": {"content": "<|eot_id|>"}, "bos_token": "other"}
    tokenizer = loaded(folder(tmp_path, byte_level(), config=config, special=special))
    assert tokenizer.special_tokens == {"bos_token": "<|begin|>", "eos_token": "<|eot_id|>"}
    assert tokenizer.chat_template == "inline"
    named = [{"name": "default", "template": "one"}, {"name": "tool_use", "template": "two"}]
    several = loaded(folder(tmp_path / "b", byte_level(), config={"chat_template": named}))
    assert several.chat_template == {"default": "one", "tool_use": "two"}
    own = loaded(folder(tmp_path / "c", byte_level(), config={"chat_template": "inline"}, template="file"))
    assert own.chat_template == "file"
    (tmp_path / "c/additional_chat_templates").mkdir()
    (tmp_path / "c/additional_chat_templates/rag.jinja").write_text("search", encoding="utf-8")
    assert loaded(tmp_path / "c").chat_template == {"default": "file", "rag": "search"}
    assert loaded(folder(tmp_path / "d", byte_level())).chat_template is None


def test_every_way_to_end_an_answer_counts(tmp_path: Path) -> None:
    tokenizer = loaded(folder(tmp_path, byte_level(), config={"eos_token": "<|end_of_text|>"}))
    assert tokenizer.end_ids == {tokenizer.special["<|end_of_text|>"], tokenizer.special["<|eot_id|>"]}


def test_padding_and_truncation_in_the_file_are_not_applied(tmp_path: Path) -> None:
    description = byte_level()
    description["padding"] = {
        "strategy": {"Fixed": 10**9}, "direction": "Right", "pad_to_multiple_of": None, "pad_id": 0,
        "pad_type_id": 0, "pad_token": "!",
    }  # fmt: skip
    description["truncation"] = {
        "direction": "Right", "max_length": 2, "strategy": "LongestFirst", "stride": 0,
    }  # fmt: skip
    assert loaded(folder(tmp_path, description)).encode("abcdef") == [64 + n for n in range(6)]


def test_ids_outside_the_vocabulary_are_refused(tmp_path: Path) -> None:
    for name, description in KINDS.items():
        tokenizer = loaded(folder(tmp_path / name, description))
        for token in (-1, tokenizer.vocab_size, 10**12):
            with pytest.raises(TokenizerError, match=f"has no id {token}"):
                tokenizer.decode([token])


def test_half_a_surrogate_pair_is_refused_in_words(tmp_path: Path) -> None:
    with pytest.raises(TokenizerError, match="half of a surrogate"):
        loaded(folder(tmp_path, byte_level())).encode("\ud800")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "isn't JSON: .* at line 1"),
        ("[1]", "fit neither a tokenizer"),
        ("{}", "has no `model`"),
        ('{"model": 5}', "has no `model`"),
        ('{"model": {"type": "BPE", "merges": ["a b"]}}', "can't be used"),
        ('{"model": {"type": "Other", "vocab": {}}}', "can't be used"),
        ("{" * 100_000, "isn't JSON|nested too deep"),
        ('{"a":' * 100_000, "isn't JSON|nested too deep"),
        ("<!DOCTYPE html><html>", "is a web page"),
        ("version https://git-lfs.github.com/spec/v1\noid", "Git LFS pointer"),
        ("", "is empty"),
    ],
)
def test_other_files_are_refused_in_words(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(FormatError, match=message) as caught:
        tokenizer_from_file(path)
    assert str(path) in str(caught.value)


def test_a_damaged_file_beside_it_is_named(tmp_path: Path) -> None:
    folder(tmp_path, byte_level(), config="{")
    with pytest.raises(FormatError, match=r"tokenizer_config\.json: isn't JSON"):
        tokenizer_from_file(tmp_path)
    folder(tmp_path, byte_level(), config='{"added_tokens_decoder": {"300": {"content": "\\ud800"}}}')
    with pytest.raises(FormatError, match=r"tokenizer_config\.json: holds half of a surrogate pair"):
        tokenizer_from_file(tmp_path)
    folder(tmp_path, byte_level(), config={"added_tokens_decoder": {"x": {"content": "y"}}})
    with pytest.raises(FormatError, match="should be a number, found 'x'"):
        tokenizer_from_file(tmp_path)


def test_a_folder_without_a_tokenizer_has_none(tmp_path: Path) -> None:
    assert tokenizer_from_file(tmp_path) is None
    (tmp_path / "vocab.json").write_text("{}", encoding="utf-8")
    with pytest.raises(UnsupportedError, match=r"vocab\.json only: make a tokenizer\.json"):
        tokenizer_from_file(tmp_path)


def test_decoders_that_do_more_than_joining_are_left_to_the_library() -> None:
    assert spelling({"decoder": None}) is None
    assert spelling({"decoder": {"type": "BPEDecoder", "suffix": "</w>"}}) is None
    assert spelling({"decoder": {"type": "Strip", "content": " ", "start": 1, "stop": 0}}) is None
    found = spelling({"decoder": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "never"}})
    assert found is not None and not found.takes_first_space and found.plain("▁a▁b") == b" a b"


def test_what_normalisers_change_is_said() -> None:
    steps = [
        {"type": "NFKC"},
        {"type": "Lowercase"},
        {"type": "Replace", "pattern": {"String": "a"}, "content": "b"},
    ]
    said = changes({"normalizer": {"type": "Sequence", "normalizers": steps}})
    assert said == "characters become plain ones and are composed (NFKC); lower case; 'a' becomes 'b'"
    assert changes({"normalizer": None}) == ""


def test_the_frame_is_found_for_either_side(tmp_path: Path) -> None:
    description = byte_level()
    first = len(description["model"]["vocab"])
    description["post_processor"] = {
        "type": "Sequence",
        "processors": [
            {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": False, "use_regex": True},
            template("<|begin|>", first),
        ],
    }
    tokenizer = loaded(folder(tmp_path, description))
    assert tokenizer.encode("a", add_special=True) == [first, *tokenizer.encode("a")]
