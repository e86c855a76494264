"""Byte-level BPE from GGUF metadata: words, merges, control tokens."""

from __future__ import annotations

import json
import time
import unicodedata
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer as Backend

from glassgear.errors import FormatError, TokenizerError
from glassgear.text.base import Tokenizer
from glassgear.text.byte_letters import BYTE_OF, LETTER_OF, letters_to_bytes
from glassgear.text.pretokenizers import RULES, pre_tokenizer
from glassgear.text.sources import tokenizer_from_metadata

from .test_spm import unicode_text
from .vocabularies import byte_level_metadata

LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|"
    r"\s+(?!\S)|\s+"
)
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
QWEN35 = QWEN2.replace(r"\p{L}+", r"[\p{L}\p{M}]+").replace(r"[^\s\p{L}\p{N}]+", r"[^\s\p{L}\p{M}\p{N}]+")
TEKKEN = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|"
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|"
    r"\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
GPT4O = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
    r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
DEEPSEEK_LETTERS = (
    "A-Zａ-ｚＡ-Ｚa-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕ"
    "ἠ-ὅὈ-Ὅὐ-ὗὙὛὝὟ-\u1f7dᾀ-ᾴᾶ-ᾼ\u1fbeῂ-ῄῆ-ῌῐ-\u1fd3ῖ-\u1fdbῠ-Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤ\u2126ℨ\u212a-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄ"
    "Ⰰ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗ𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃"
)
DEEPSEEK_CJK = "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+"


def split(regex: str) -> dict[str, Any]:
    return {"type": "Split", "pattern": {"Regex": regex}, "behavior": "Isolated", "invert": False}


def letters(words: bool = False) -> dict[str, Any]:
    return {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": words}


def digits(single: bool) -> dict[str, Any]:
    return {"type": "Digits", "individual_digits": single}


# `pre_tokenizer` of published `tokenizer.json` files, by the name that GGUF files use.
PUBLISHED: dict[str, list[dict[str, Any]]] = {
    "gpt-2": [letters(words=True)],  # openai-community/gpt2
    "mpt": [letters(words=True)],  # EleutherAI/gpt-neox-20b
    "smollm": [digits(True), letters(words=True)],  # HuggingFaceTB/SmolLM2-135M
    "starcoder": [digits(True), letters(words=True)],  # bigcode/starcoder
    "refact": [digits(True), letters(words=True)],  # smallcloudai/Refact-1_6B-fim
    "command-r": [digits(True), letters(words=True)],  # CohereForAI/c4ai-command-r-v01
    "llama-bpe": [split(LLAMA3), letters()],  # meta-llama/Meta-Llama-3-8B
    "glm4": [split(LLAMA3), letters()],  # zai-org/glm-4-9b-chat-hf
    "qwen2": [split(QWEN2), letters()],  # Qwen/Qwen2.5-7B
    "qwen35": [split(QWEN35), letters()],  # Qwen/Qwen3.5-9B
    "tekken": [split(TEKKEN), letters()],  # mistralai/Mistral-Nemo-Instruct-2407
    "gpt-4o": [split(GPT4O), letters()],  # openai/gpt-oss-20b
    "deepseek-llm": [  # deepseek-ai/deepseek-llm-7b-base
        split("[\r\n]"), split(rf"\s?[{DEEPSEEK_LETTERS}]+"),
        split("\\s?[!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002]+"), split(r"\s+$"),
        split(DEEPSEEK_CJK), digits(True), letters(),
    ],
    "deepseek-coder": [  # deepseek-ai/deepseek-coder-6.7b-instruct
        split("[\r\n]"), split(r"\s?\p{L}+"), split(r"\s?\p{P}+"), split(DEEPSEEK_CJK), digits(True),
        letters(),
    ],
    "deepseek-v3": [  # deepseek-ai/DeepSeek-V3
        split(r"\p{N}{1,3}"), split("[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+"),
        split("[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+|"
              " ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+"),
        letters(),
    ],
    "falcon": [  # tiiuae/falcon-7b
        {"type": "Punctuation", "behavior": "Contiguous"}, letters(words=True), digits(False),
        split("[0-9][0-9][0-9]"),
    ],
}  # fmt: skip
SAME = {"llama3": "llama-bpe", "llama-v3": "llama-bpe", "chatglm-bpe": "glm4"}

# Where the published normaliser is NFC.
COMPOSES = {"mpt", "olmo", "command-r", "qwen2", "qwen35"}

# Texts in which the rules differ from each other.
TELLING = (
    "3333+777", "I'LL we'll 'S", "a\n\nb", "x   y", "  \n \t\n", "Größe ÉCOLE iPhone HTTPServer",
    "e\u0301\u0327a", "今天天气怎么样ひらがなカタカナ한국어", "١٢٣٤ ½ ² 12½3456", "😀🏽‍👩‍👧 ✅!!!",
    "<|x|> a.b/c//\n", "$1,000.00 ~^`=+", "don’t «ok» … — 。，！", "м and мир 999 x²y", "   trailing   ",
    "\u3000\u00a0\u2028x",
    "#!/usr/bin/env\r\n\r\n",
)  # fmt: skip

TEXTS = st.one_of(
    unicode_text(max_size=40),
    st.lists(st.sampled_from(TELLING), max_size=4).map("".join),
    st.text(st.sampled_from(" \n\t\r\u3000aA1'.!éß中ก٣½²\u0301s"), max_size=40),
)  # fmt: skip


def made(metadata: dict[str, Any]) -> Tokenizer:
    tokenizer = tokenizer_from_metadata(metadata, "model.gguf")
    assert tokenizer is not None
    return tokenizer


def words(pre: str, text: str) -> list[str]:
    """The words of a text, as text."""
    found = pre_tokenizer(RULES[pre]).pre_tokenize_str(text)
    return [(letters_to_bytes(word) or b"").decode() for word, _ in found]


@pytest.mark.parametrize("pre", PUBLISHED)
def test_words_are_those_of_the_published_tokenizer(pre: str) -> None:
    description = {
        "version": "1.0",
        "added_tokens": [],
        "model": {"type": "BPE", "vocab": {}, "merges": []},
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": PUBLISHED[pre]},
    }
    published = Backend.from_str(json.dumps(description)).pre_tokenizer
    own = pre_tokenizer(RULES[pre])

    @given(TEXTS)
    def check(text: str) -> None:
        assert own.pre_tokenize_str(text) == published.pre_tokenize_str(text)

    for text in TELLING:
        assert own.pre_tokenize_str(text) == published.pre_tokenize_str(text)
    check()


def test_other_names_for_a_rule_mean_the_same() -> None:
    for name, same in SAME.items():
        assert RULES[name].steps == RULES[same].steps


def test_composing_is_as_published() -> None:
    assert {name for name in (*PUBLISHED, "olmo") if RULES[name].composes} == COMPOSES


# Pieces that people reported, and those that the others must have.
@pytest.mark.parametrize(
    ("pre", "text", "expected"),
    [
        ("llama-bpe", "3333+777", "333|3|+|777"),
        ("qwen2", "3333+777", "3|3|3|3|+|7|7|7"),
        ("gpt-2", "3333+777", "3333|+|777"),
        ("smollm", "3333+777", "3|3|3|3|+|7|7|7"),
        ("deepseek-v3", "3333+777", "333|3|+|777"),
        ("falcon", "3333+777", "333|3|+|777"),
        ("default", "3333+777", "333|3|+|777"),
        ("tekken", "3333+777", "3|3|3|3|+|7|7|7"),
        ("llama-bpe", "I'LL", "I|'LL"),
        ("gpt-2", "I'LL", "I|'|LL"),
        ("gpt-4o", "I'LL", "I'LL"),
        ("llama-bpe", "a\n\nb", "a|\n\n|b"),
        ("gpt-2", "a\n\nb", "a|\n|\n|b"),
        ("deepseek-llm", "a\n\nb", "a|\n|\n|b"),
        *((pre, "x   y", "x|  | y") for pre in ("llama-bpe", "gpt-2", "qwen2", "tekken", "deepseek-v3")),
        ("tekken", "HTTPServer", "HTTPServer"),
        ("tekken", "helloWorld", "hello|World"),
        ("qwen2", "e\u0301a", "e|\u0301a"),
        ("qwen35", "e\u0301a", "e\u0301a"),
        ("falcon", "a?!b", "a|?!|b"),
    ],
)
def test_words_of_telling_texts(pre: str, text: str, expected: str) -> None:
    assert "|".join(words(pre, text)) == expected


@pytest.mark.parametrize("pre", RULES)
def test_no_rule_loses_text(pre: str) -> None:
    @given(TEXTS)
    def check(text: str) -> None:
        found = pre_tokenizer(RULES[pre]).pre_tokenize_str(text)
        assert b"".join(letters_to_bytes(word) or b"?" for word, _ in found) == text.encode()

    check()


def test_the_alphabet_is_gpt_2_s() -> None:
    assert len(BYTE_OF) == 256
    assert "".join(LETTER_OF[byte] for byte in b"\x00 \n!~\x7f\xa0\xad\xff") == "ĀĠĊ!~ġłŃÿ"
    assert letters_to_bytes("Ġa") == b" a"
    assert letters_to_bytes("日") is None
    assert letters_to_bytes("\x7f") is None


def test_merges_join_in_their_order() -> None:
    tokenizer = made(byte_level_metadata())
    ids = tokenizer.encode("hello hell w")
    assert [tokenizer.piece(token) for token in ids] == ["hello", "Ġ", "hell", "Ġw"]
    assert tokenizer.decode(ids) == "hello hell w"
    assert tokenizer.token_bytes(ids[-1]) == b" w"


def test_merges_may_be_texts_or_pairs() -> None:
    texts = ["h e", "l l", "he ll", "hell o", "Ġ w"]
    pairs = [tuple(text.split(" ")) for text in texts]
    one, two = made(byte_level_metadata(texts)), made(byte_level_metadata(pairs))
    assert one.encode("hello world, hell") == two.encode("hello world, hell")


def test_a_merged_piece_may_hold_a_space() -> None:
    spaced = [("a", "b"), ("a b", "c")]
    metadata = byte_level_metadata([("a", "b")], more=["a b", "a bc"])
    metadata["tokenizer.ggml.merges"] = spaced
    assert made(metadata).encode("ab") == [metadata["tokenizer.ggml.tokens"].index("ab")]
    metadata["tokenizer.ggml.merges"] = ["a b", "a b c"]  # as text it can't be told apart from `a` and `b c`
    tokenizer = made(metadata)
    assert tokenizer.encode("ab") == [metadata["tokenizer.ggml.tokens"].index("ab")]
    assert "1 of 2 merges name pieces that aren't there" in " ".join(tokenizer.warnings)


@pytest.mark.parametrize("merges", [None, []])
def test_a_vocabulary_without_merges_is_refused(merges: list[str] | None) -> None:
    metadata = byte_level_metadata()
    metadata["tokenizer.ggml.merges"] = merges
    with pytest.raises(FormatError, match=r"model\.gguf: holds a BPE vocabulary without merges"):
        made(metadata)


@pytest.mark.parametrize("merge", ["ab", 5, None, ("a",), ("a", 1)])
def test_a_merge_that_is_none_is_refused_by_its_number(merge: Any) -> None:
    metadata = byte_level_metadata()
    metadata["tokenizer.ggml.merges"] = ["h e", merge]
    with pytest.raises(FormatError, match="merge 1 should be two pieces"):
        made(metadata)


def test_merges_of_other_pieces_alone_are_refused() -> None:
    metadata = byte_level_metadata()
    metadata["tokenizer.ggml.merges"] = ["日 本"]
    with pytest.raises(FormatError, match="none of them joins pieces"):
        made(metadata)


def test_a_word_of_the_vocabulary_is_one_token_where_the_family_has_it_so() -> None:
    # ` Việt` in Llama 3: a piece that its merges can't make.
    piece = "ĠViá»ĩt"
    whole = made(byte_level_metadata(["á »"], pre="llama-bpe", more=[piece]))
    assert [whole.piece(token) for token in whole.encode(" Việt")] == [piece]
    merged = made(byte_level_metadata(["á »"], pre="qwen2", more=[piece]))
    assert [merged.piece(token) for token in merged.encode(" Việt")] == ["Ġ", "V", "i", "á»", "ĩ", "t"]


@pytest.mark.parametrize("pre", RULES)
def test_any_text_comes_back(pre: str) -> None:
    tokenizer = made(byte_level_metadata(pre=pre))

    @given(TEXTS)
    def check(text: str) -> None:
        kept = unicodedata.normalize("NFC", text) if RULES[pre].composes else text
        assert tokenizer.decode(tokenizer.encode(text)) == kept

    check()
    assert bool(tokenizer.normalises) == RULES[pre].composes


def test_qwen_composes_characters() -> None:
    tokenizer = made(byte_level_metadata(pre="qwen2"))
    assert tokenizer.encode("e\u0301") == tokenizer.encode("é")
    assert "NFC" in tokenizer.normalises


@pytest.mark.parametrize("pre", ["llama-bpe", "gpt-2", "qwen2", "deepseek-llm"])
def test_control_tokens_are_read_only_from_trusted_text(pre: str) -> None:
    tokenizer = made(
        byte_level_metadata(pre=pre, eos_token_id=261, control=("<|endoftext|>", "<|im_end|>", "PAD"))
    )
    end = tokenizer.special["<|im_end|>"]
    text = "hi<|im_end|> PAD PAD"
    plain = tokenizer.encode(text)
    assert not any(map(tokenizer.is_special, plain))
    assert tokenizer.decode(plain) == text
    trusted = tokenizer.encode(text, parse_special=True)
    assert [token for token in trusted if tokenizer.is_special(token)] == [end] + [
        tokenizer.special["PAD"]
    ] * 2
    assert tokenizer.decode(trusted) == "hi  "
    assert tokenizer.decode(trusted, skip_special=False) == text


def test_a_control_token_is_no_word_even_where_words_are_looked_up_whole() -> None:
    tokenizer = made(byte_level_metadata(pre="llama-bpe", control=("stop",)))
    assert not any(map(tokenizer.is_special, tokenizer.encode("stop")))
    assert tokenizer.encode("stop", parse_special=True) == [tokenizer.special["stop"]]


def test_trust_ends_where_a_part_ends() -> None:
    tokenizer = made(byte_level_metadata())
    end = tokenizer.special["<|im_end|>"]
    parts = [("<|im_end|>he", True), ("llo<|im_end|><|im_", False), ("end|>", True), ("<|im_end|>", True)]
    ids = tokenizer.encode_parts(parts)
    assert [place for place, token in enumerate(ids) if token == end] == [0, len(ids) - 1]
    assert tokenizer.piece(ids[1]) == "hello"  # text is encoded across the border
    assert tokenizer.decode(ids) == "hello<|im_end|><|im_end|>"


def test_user_defined_tokens_are_found_everywhere_the_longest_first() -> None:
    tokenizer = made(byte_level_metadata(user_defined=("<think>", "  ", "    ", "<thinking>")))
    ids = tokenizer.encode("     a<thinking><think>")
    assert [tokenizer.piece(token) for token in ids] == ["    ", "Ġ", "a", "<thinking>", "<think>"]
    assert tokenizer.decode(ids) == "     a<thinking><think>"
    assert not any(map(tokenizer.is_special, ids))


def test_bos_comes_once() -> None:
    metadata = byte_level_metadata(pre="llama-bpe", control=("<s>", "</s>"))
    bos = metadata["tokenizer.ggml.tokens"].index("<s>")
    metadata |= {"tokenizer.ggml.bos_token_id": bos, "tokenizer.ggml.eos_token_id": bos + 1}
    tokenizer = made(metadata)
    assert tokenizer.adds_bos  # Llama 3 means so where the file doesn't say
    hi = tokenizer.encode("hi")
    assert tokenizer.encode("hi", add_special=True) == [bos, *hi]
    assert tokenizer.encode("<s>hi", add_special=True, parse_special=True) == [bos, *hi]
    assert tokenizer.encode("", add_special=True) == [bos]
    silent = made(metadata | {"tokenizer.ggml.add_bos_token": False, "tokenizer.ggml.add_eos_token": True})
    assert silent.encode("hi", add_special=True) == [*hi, bos + 1]
    assert silent.encode("hi</s>", add_special=True, parse_special=True) == [*hi, bos + 1]
    other = made(metadata | {"tokenizer.ggml.pre": "gpt-2"})
    assert other.encode("hi", add_special=True) == hi


def test_an_unknown_rule_is_a_warning_that_names_it() -> None:
    tokenizer = made(byte_level_metadata(pre="my-own-rule"))
    assert any("'my-own-rule'" in warning for warning in tokenizer.warnings)
    assert tokenizer.encode("a12345") == made(byte_level_metadata(pre="default")).encode("a12345")


@pytest.mark.parametrize("pre", [None, ""])
def test_a_missing_rule_is_a_warning(pre: str | None) -> None:
    tokenizer = made(byte_level_metadata(pre=pre))
    assert any("no `tokenizer.ggml.pre`" in warning for warning in tokenizer.warnings)


def test_a_known_rule_is_no_warning() -> None:
    assert made(byte_level_metadata()).warnings == ()


def test_every_way_to_end_an_answer_counts() -> None:
    control = ("<|end_of_text|>", "<|eot_id|>", "<|eom_id|>", "</s>", "<|im_start|>", "<bye>")
    metadata = byte_level_metadata(control=control)
    ids = {text: metadata["tokenizer.ggml.tokens"].index(text) for text in control}
    tokenizer = made(metadata | {"tokenizer.ggml.eot_token_id": ids["<bye>"]})
    assert tokenizer.end_ids == frozenset(ids.values()) - {ids["<|im_start|>"]}
    assert tokenizer.eos_id is None


def test_what_looks_like_text_ends_nothing() -> None:
    # In HTML `</s>` closes struck-out text, and some vocabularies have it as a piece.
    metadata = byte_level_metadata(control=(), user_defined=("</s>", "<eos>"))
    assert made(metadata).end_ids == frozenset()


def test_an_end_token_that_the_file_calls_text_is_a_control_token_all_the_same() -> None:
    tokenizer = made(byte_level_metadata(control=(), user_defined=("<|im_end|>",)))
    end = tokenizer.special["<|im_end|>"]
    assert tokenizer.end_ids == {end}
    assert end not in tokenizer.encode("<|im_end|>")
    assert any("<|im_end|>" in warning for warning in tokenizer.warnings)


def test_messages_inside_one_answer_don_t_end_it() -> None:
    control = ("<|return|>", "<|call|>", "<|end|>", "<|channel|>")
    tokenizer = made(byte_level_metadata(control=control))
    assert tokenizer.end_ids == {tokenizer.special["<|return|>"], tokenizer.special["<|call|>"]}
    assert made(byte_level_metadata(control=("<|end|>",))).end_ids


def test_the_first_of_equal_tokens_counts() -> None:
    metadata = byte_level_metadata()
    tokens = [*metadata["tokenizer.ggml.tokens"], "hello"]
    metadata["tokenizer.ggml.tokens"] = tokens
    metadata["tokenizer.ggml.token_type"].append(1)
    tokenizer = made(metadata)
    assert tokenizer.encode("hello") == [tokens.index("hello")]
    assert tokenizer.token_bytes(len(tokens) - 1) == b"hello"


def test_ids_outside_the_vocabulary_are_refused() -> None:
    tokenizer = made(byte_level_metadata())
    for token in (-1, tokenizer.vocab_size):
        with pytest.raises(TokenizerError, match="outside the vocabulary"):
            tokenizer.decode([token])


def test_a_role_outside_the_vocabulary_is_ignored_aloud() -> None:
    tokenizer = made(byte_level_metadata(bos_token_id=10**6, eos_token_id=-1))
    assert tokenizer.bos_id is None and tokenizer.eos_id is None
    assert any("1000000" in warning for warning in tokenizer.warnings)


def test_a_byte_that_has_no_piece_is_refused_not_lost() -> None:
    metadata = byte_level_metadata()
    place = metadata["tokenizer.ggml.tokens"].index(LETTER_OF[ord("z")])
    metadata["tokenizer.ggml.tokens"][place] = "[GAP]"
    tokenizer = made(metadata)
    assert tokenizer.decode(tokenizer.encode("abc")) == "abc"
    with pytest.raises(TokenizerError, match="no piece for the byte 0x7A"):
        tokenizer.encode("fuzz")


def test_half_a_surrogate_pair_is_refused_in_words() -> None:
    with pytest.raises(TokenizerError, match=r"character 1 of the text, U\+DC00"):
        made(byte_level_metadata()).encode("a\udc00")


def test_settings_come_through() -> None:
    metadata = byte_level_metadata(padding_token_id=0) | {
        "tokenizer.chat_template": "main",
        "tokenizer.chat_template.tool_use": "tools",
    }
    tokenizer = made(metadata)
    assert tokenizer.chat_template == {"default": "main", "tool_use": "tools"}
    assert tokenizer.special_tokens == {"pad_token": metadata["tokenizer.ggml.tokens"][0]}
    assert made(byte_level_metadata() | {"tokenizer.chat_template": "main"}).chat_template == "main"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"tokens": []}, "holds no `tokenizer.ggml.tokens`"),
        ({"tokens": "abc"}, "list of texts"),
        ({"tokens": ["a", 5]}, "list of texts"),
        ({"token_type": [1]}, "one entry for each"),
        ({"token_type": ["1"] * 300}, "list of numbers"),
        ({"token_type": [1.5] * 300}, "list of numbers"),
        ({"merges": "h e"}, "should be a list"),
        ({"scores": [0.0]}, "one entry for each"),
        ({"add_bos_token": "yes"}, "true or false"),
    ],
)
def test_lists_that_don_t_fit_are_refused_in_words(change: dict[str, Any], message: str) -> None:
    metadata = byte_level_metadata() | {f"tokenizer.ggml.{key}": value for key, value in change.items()}
    with pytest.raises(FormatError, match=message):
        made(metadata)


LONG = {
    "one letter": "a" * 100_000,
    "spaces": " " * 100_000,
    "spaces and a letter": " " * 100_000 + "x",
    "line ends": "\n" * 100_000,
    "one CJK line": "今天天气怎么样株式会社人工" * 7_700,
    "emoji": "😀🦙🐶🚀✅" * 10_000,
    "English": "It was a dark and stormy night; the rain fell in torrents. " * 1_700,
}


@pytest.mark.parametrize(
    "pre", ["gpt-2", "smollm", "llama-bpe", "qwen2", "tekken", "deepseek-llm", "default"]
)
def test_long_texts_take_seconds(pre: str) -> None:
    tokenizer = made(byte_level_metadata([*("Ġ Ġ", "ĠĠ ĠĠ", "a a", "aa aa", "Ċ Ċ", "h e", "Ġ t")], pre=pre))
    for name, text in LONG.items():
        start = time.process_time()
        ids = tokenizer.encode(text)
        assert time.process_time() - start < 5, name
        assert tokenizer.decode(ids) == text
