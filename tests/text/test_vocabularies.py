"""Published vocabularies give the ids that were published with them, or their own library's.

`GLASSGEAR_TOKENIZERS` may name a folder of Hugging Face folders with a `tokenizer.json`; each is
compared with the `tokenizers` library, and as if a GGUF file had brought it.
"""

from __future__ import annotations

import json
import os
import random
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer as Backend

from glassgear.text.base import Tokenizer
from glassgear.text.pretokenizers import RULES
from glassgear.text.sources import tokenizer_from_file, tokenizer_from_metadata
from glassgear.weights import gguf

from .test_spm import random_text

SEPARATOR = "\n__ggml_vocab_test__\n"
NAMES = ("llama-spm", "gpt-2", "bert-bge")
FOLDER = os.environ.get("GLASSGEAR_TOKENIZERS")
PUBLISHED = sorted(path.parent for path in Path(FOLDER).rglob("tokenizer.json")) if FOLDER else []


def from_gguf(path: Path) -> Tokenizer:
    tokenizer = tokenizer_from_metadata(gguf.read(path).metadata, str(path))
    assert tokenizer is not None
    return tokenizer


@pytest.mark.parametrize("name", NAMES)
def test_llama_cpp_s_vocabularies_give_their_ids(name: str, shared: Path) -> None:
    path = shared / f"data/vocab/ggml-vocab-{name}.gguf"
    texts = Path(f"{path}.inp").read_bytes().decode().split(SEPARATOR)
    lines = Path(f"{path}.out").read_text(encoding="utf-8").splitlines()
    assert len(lines) > 40
    assert len(texts) == len(lines) + 1  # a separator ends the file
    tokenizer = from_gguf(path)
    assert tokenizer.warnings == ()
    for text, line in zip(texts, lines, strict=False):
        assert tokenizer.encode(text) == [int(token) for token in line.split()], repr(text)


@pytest.mark.parametrize("name", NAMES[:2])
def test_llama_cpp_s_texts_come_back(name: str, shared: Path) -> None:
    path = shared / f"data/vocab/ggml-vocab-{name}.gguf"
    tokenizer = from_gguf(path)
    for text in Path(f"{path}.inp").read_bytes().decode().split(SEPARATOR):
        assert tokenizer.decode(tokenizer.encode(text)) == text


def test_llama_2_is_the_same_in_all_its_files(shared: Path) -> None:
    one = from_gguf(shared / "data/vocab/ggml-vocab-llama-spm.gguf")
    two = tokenizer_from_file(shared / "data/llama2c/llama2-tokenizer.model")
    assert two is not None
    rng = random.Random(3)
    for _ in range(300):
        text = random_text(rng)
        assert one.encode(text, add_special=True) == two.encode(text, add_special=True)
    assert one.special == two.special
    assert one.end_ids == two.end_ids == {2}
    assert all(one.token_bytes(token) == two.token_bytes(token) for token in range(32000))


def test_smollm2_gives_the_ids_of_transformers(smollm2: Path, shared: Path) -> None:
    tokenizer = from_gguf(smollm2)
    golden = json.loads((shared / "data/smollm2/golden.json").read_text(encoding="utf-8"))
    assert golden
    for entry in golden:
        assert tokenizer.encode(entry["prompt"], parse_special=True) == entry["ids"]
    assert tokenizer.end_ids == {tokenizer.special["<|endoftext|>"], tokenizer.special["<|im_end|>"]}
    assert isinstance(tokenizer.chat_template, str)
    assert tokenizer.special_tokens["bos_token"] == "<|im_start|>"
    assert not tokenizer.adds_bos
    assert tokenizer.warnings == ()


@pytest.fixture(scope="module")
def bert(shared: Path) -> Tokenizer:
    return from_gguf(shared / "data/vocab/ggml-vocab-bert-bge.gguf")


# The vocabulary is that of bert-base-uncased.
@pytest.mark.parametrize(
    ("text", "ids"),
    [
        ("hello world", [7592, 2088]),
        ("café", [7668]),
        ("Berlin", [4068]),
        ("", []),
        ("hello\t\nworld", [7592, 2088]),
        ("hel\x00lo", [7592]),
        ("x" * 101, [100]),
        ("[MASK]", [1031, 7308, 1033]),
    ],
)
def test_bert_gives_the_known_ids(text: str, ids: list[int], bert: Tokenizer) -> None:
    assert bert.encode(text) == ids
    assert bert.encode(text, add_special=True) == [101, *ids, 102]


def test_bert_s_letters(bert: Tokenizer) -> None:
    assert bert.encode("Kantō") == bert.encode("kanto")
    assert len(bert.encode("你好")) == 2
    assert bert.encode("[MASK]", parse_special=True) == [103]
    assert bert.encode("[CLS]hello[SEP]", add_special=True, parse_special=True) == [101, 7592, 102]


def test_bert_s_text(bert: Tokenizer) -> None:
    assert not bert.joins
    assert (
        bert.decode(bert.encode("Hello, worldly tokenizers!", add_special=True))
        == "hello, worldly tokenizers!"
    )
    assert bert.token_bytes(7592) == b" hello"
    assert bert.piece(7592) == "▁hello"


def as_metadata(folder: Path, pre: str) -> dict[str, Any]:
    """What a converter makes of a folder."""
    description = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    vocab = dict(description["model"]["vocab"])
    kinds = {}
    for entry in description["added_tokens"]:
        vocab.setdefault(entry["content"], entry["id"])
        kinds[vocab[entry["content"]]] = 3 if entry["special"] else 4
    tokens = [f"[PAD{token}]" for token in range(max(vocab.values()) + 1)]
    for text, token in vocab.items():
        tokens[token] = text
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": pre,
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [kinds.get(token, 1) for token in range(len(tokens))],
        "tokenizer.ggml.merges": description["model"]["merges"],
    }


def rule_of(folder: Path) -> str | None:
    """The name of the rule that the folder's pre-tokenizer is, if its regular expression is known."""
    description = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    steps = (description["pre_tokenizer"] or {}).get("pretokenizers") or []
    first = next((step["pattern"].get("Regex") for step in steps if step["type"] == "Split"), None)
    return next((name for name, rule in RULES.items() if first is not None and rule.steps[0] == first), None)


@pytest.mark.skipif(not PUBLISHED, reason="GLASSGEAR_TOKENIZERS names no folder of tokenizers")
@pytest.mark.parametrize("folder", PUBLISHED, ids=lambda path: "/".join(path.parts[-2:]))
def test_published_tokenizers_give_the_library_s_ids(folder: Path) -> None:
    own = tokenizer_from_file(folder)
    assert own is not None
    library = Backend.from_file(str(folder / "tokenizer.json"))
    library.encode_special_tokens = True
    others = [own]
    if pre := rule_of(folder):
        converted = tokenizer_from_metadata(as_metadata(folder, pre), "converted")
        assert converted is not None
        others.append(converted)
    rng = random.Random(11)
    for _ in range(1000):
        text = random_text(rng)
        ids = library.encode(text, add_special_tokens=False).ids
        for tokenizer in others:
            assert tokenizer.encode(text) == ids, ascii(text)
        if own.joins and not own.normalises:
            assert own.decode(ids) == text


@pytest.mark.skipif(not PUBLISHED, reason="GLASSGEAR_TOKENIZERS names no folder of tokenizers")
def test_llama_3_gives_the_known_ids() -> None:
    folder = next((path for path in PUBLISHED if "llama3" in str(path).lower()), None)
    if folder is None:
        pytest.skip("no Llama 3 among them")
    tokenizer = tokenizer_from_file(folder)
    assert tokenizer is not None
    assert tokenizer.encode(" Việt") == [101798]
    assert tokenizer.encode("\n\n") == [271]
    assert tokenizer.encode("example\n\nexample") == [8858, 271, 8858]
    assert tokenizer.decode([15339, 758]) == "hello !"
    assert tokenizer.decode(tokenizer.encode("x != y")) == "x != y"
    assert [tokenizer.token_bytes(token) for token in (15722, 103)] == [b"\xe6\xad", b"\xaa"]
