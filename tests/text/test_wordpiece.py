"""WordPiece from `vocab.txt`, `tokenizer.json` and GGUF: pairs of texts, truncation, and what files say."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from glassgear.errors import FormatError, SettingError, TokenizerError, UnsupportedError
from glassgear.text.base import Tokenizer
from glassgear.text.frames import Frame, framed
from glassgear.text.sources import tokenizer_from_file, tokenizer_from_metadata
from glassgear.weights import gguf

from .json_tokenizers import byte_level, folder, wordpiece

CLS, SEP = 101, 102  # of bert-base-uncased, whose vocabulary the shared GGUF holds
TEXTS = (
    "hello world", "Berlin", "café", "Kantō kantō", "你好 world", "a\tb\nc\rd", "x" * 100, "x" * 101, "",
    "don't, [mask] it! ##ing", "\u00e9\u0301 \u1e9e \u0130", "🦙 llama", "\u200bzero\u00adwidth\x07",
)  # fmt: skip


def vocabulary(shared: Path) -> list[str]:
    """The lines of bert-base-uncased's `vocab.txt`."""
    metadata = gguf.read(shared / "data/vocab/ggml-vocab-bert-bge.gguf").metadata
    kinds = metadata["tokenizer.ggml.token_type"]
    return [
        piece if kind == 3 else piece[1:] if piece.startswith("▁") else f"##{piece}"
        for piece, kind in zip(metadata["tokenizer.ggml.tokens"], kinds, strict=True)
    ]


@pytest.fixture(scope="module")
def vocab_txt(shared: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("bert") / "vocab.txt"
    path.write_text("\n".join(vocabulary(shared)) + "\n", encoding="utf-8", newline="\n")
    return path


@pytest.fixture(scope="module", params=["vocab.txt", "tokenizer.json", "GGUF"])
def bert(request: pytest.FixtureRequest, shared: Path, vocab_txt: Path) -> Tokenizer:
    """One vocabulary in each of its files."""
    if request.param == "GGUF":
        path = shared / "data/vocab/ggml-vocab-bert-bge.gguf"
        found = tokenizer_from_metadata(gguf.read(path).metadata, str(path))
    elif request.param == "vocab.txt":
        found = tokenizer_from_file(vocab_txt)
    else:
        transformers = pytest.importorskip("transformers")
        saved = vocab_txt.parent / "saved"
        transformers.BertTokenizerFast(vocab=str(vocab_txt)).save_pretrained(saved)
        found = tokenizer_from_file(saved / "tokenizer.json")
    assert found is not None
    return found


@pytest.fixture(scope="module")
def theirs(vocab_txt: Path) -> Any:
    transformers = pytest.importorskip("transformers")
    return transformers.BertTokenizerFast(vocab=str(vocab_txt))


def test_all_lines_of_llama_cpp_s_file(bert: Tokenizer, shared: Path) -> None:
    path = shared / "data/vocab/ggml-vocab-bert-bge.gguf"
    texts = Path(f"{path}.inp").read_text(encoding="utf-8").split("\n__ggml_vocab_test__\n")
    lines = Path(f"{path}.out").read_text(encoding="utf-8").splitlines()
    assert len(lines) == 46
    for text, line in zip(texts, lines, strict=False):
        assert bert.encode(text) == list(map(int, line.split()))


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
    ],
)
def test_known_ids(text: str, ids: list[int], bert: Tokenizer) -> None:
    assert bert.encode(text) == ids
    made = bert.framed(bert.encode(text))
    assert made.ids == (CLS, *ids, SEP) == tuple(bert.encode(text, add_special=True))
    assert made.types == (0,) * len(made.ids)


def test_cjk_characters_are_words(bert: Tokenizer) -> None:
    assert len(bert.encode("你好")) == 2
    assert bert.encode("a你b") == [*bert.encode("a"), *bert.encode("你"), *bert.encode("b")]


def test_a_pair_has_types_0_then_1_and_a_separator_after_each(bert: Tokenizer) -> None:
    made = bert.framed(bert.encode("hello world"), bert.encode("Berlin"))
    assert made.ids == (CLS, 7592, 2088, SEP, 4068, SEP)
    assert made.types == (0, 0, 0, 0, 1, 1)
    assert made.dropped == 0
    assert bert.framed([], []).ids == (CLS, SEP, SEP)


def pair_of(theirs: Any, first: str, second: str, **options: Any) -> dict[str, list[int]]:
    """Given as lists, for an empty second text counts as none otherwise."""
    return {name: rows[0] for name, rows in theirs([first], [second], **options).items()}


def test_pairs_are_those_of_transformers(bert: Tokenizer, theirs: Any) -> None:
    for first in TEXTS:
        for second in TEXTS:
            want = pair_of(theirs, first, second)
            made = bert.framed(bert.encode(first), bert.encode(second))
            assert list(made.ids) == want["input_ids"], (first, second)
            assert list(made.types) == want["token_type_ids"], (first, second)


def test_truncation_keeps_the_frame(bert: Tokenizer) -> None:
    long = bert.encode("hello " * 600)
    made = bert.framed(long, most=512)
    assert len(made.ids) == 512 and made.dropped == 600 - 510
    assert made.ids[0] == CLS and made.ids[-1] == SEP and set(made.ids[1:-1]) == {7592}
    whole = bert.framed(long[:510], most=512)
    assert len(whole.ids) == 512 and whole.dropped == 0
    with pytest.raises(SettingError, match="1 ids are too few: 2 of them"):
        bert.framed(long, most=1)
    assert bert.framed(long, most=2).ids == (CLS, SEP)


@pytest.mark.parametrize("most", [3, 4, 5, 8, 9, 16, 17, 40])
def test_truncation_of_pairs_is_that_of_transformers(most: int, bert: Tokenizer, theirs: Any) -> None:
    for lengths in ((2, 30), (30, 2), (9, 9), (30, 31), (0, 20), (20, 0), (6, 3)):
        first, second = ("hello " * lengths[0], "world " * lengths[1])
        want = pair_of(theirs, first, second, truncation="longest_first", max_length=most)
        made = bert.framed(bert.encode(first), bert.encode(second), most=most)
        assert list(made.ids) == want["input_ids"], lengths
        assert list(made.types) == want["token_type_ids"], lengths
        assert made.dropped == sum(lengths) + 3 - len(made.ids)


def test_vocab_txt_encodes_as_transformers(vocab_txt: Path, theirs: Any) -> None:
    ours = tokenizer_from_file(vocab_txt)
    assert ours is not None and ours.vocab_size == len(theirs)
    rng = random.Random(0)
    letters = "abcXYZ  .,'#[]éÅ你好\t\n\u0301ß🦙"
    for text in [*TEXTS, *("".join(rng.choices(letters, k=rng.randrange(20))) for _ in range(300))]:
        want = theirs(text)["input_ids"]
        assert ours.encode(text, add_special=True) == want, text
    assert ours.encode("[CLS] [MASK]", parse_special=True) == [CLS, 103]
    assert CLS not in ours.encode("[CLS] [MASK]")


def test_pieces_of_vocab_txt_are_as_the_file_spells_them(vocab_txt: Path) -> None:
    tokenizer = tokenizer_from_file(vocab_txt)
    assert tokenizer is not None
    ids = tokenizer.encode("tokenizers!")
    assert [tokenizer.piece(token) for token in ids] == ["token", "##izer", "##s", "!"]
    assert b"".join(map(tokenizer.token_bytes, ids)) == b" tokenizers !"
    assert tokenizer.decode(ids) == "tokenizers!"


def test_the_id_of_the_mask(bert: Tokenizer) -> None:
    assert bert.mask_id == 103
    assert bert.encode_parts([("Paris is the ", False), ("[MASK]", True), (" [MASK]", False)])[3:] == [
        103, 1031, 7308, 1033,
    ]  # fmt: skip


SMALL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "Cafe", "cafe", "café", "Café", "##s"]
SMALL += ["你", "好", "你好"]


def written(path: Path, pieces: list[str] = SMALL, **config: Any) -> Path:
    path.mkdir(exist_ok=True)
    (path / "vocab.txt").write_text("\n".join(pieces), encoding="utf-8")
    if config:
        (path / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({}, ["cafe", "cafe", "你", "好"]),
        ({"do_lower_case": True}, ["cafe", "cafe", "你", "好"]),
        ({"do_lower_case": False}, ["Café", "café", "你", "好"]),
        ({"do_lower_case": False, "strip_accents": True}, ["Cafe", "cafe", "你", "好"]),
        ({"do_lower_case": True, "strip_accents": False}, ["café", "café", "你", "好"]),
        ({"tokenize_chinese_chars": False}, ["cafe", "cafe", "你好"]),
    ],
)
def test_case_accents_and_cjk_as_the_config_says(tmp_path: Path, config: Any, words: list[str]) -> None:
    tokenizer = tokenizer_from_file(written(tmp_path, **config))
    assert tokenizer is not None
    assert [tokenizer.piece(token) for token in tokenizer.encode("Café café 你好")] == words
    transformers = pytest.importorskip("transformers")
    theirs = transformers.BertTokenizerFast(vocab=str(tmp_path / "vocab.txt"), **config)
    assert theirs("Café café 你好")["input_ids"] == tokenizer.encode("Café café 你好", add_special=True)


def test_control_tokens_by_other_names_and_added_ones(tmp_path: Path) -> None:
    pieces = ["<pad>", "[UNK]", "<s>", "</s>", "<mask>", "cafe"]
    roles = {"cls_token": "<s>", "sep_token": "</s>", "mask_token": {"content": "<mask>"}}
    added = {"6": {"content": "[NEW]", "special": True}}
    written(tmp_path, pieces, pad_token="<pad>", added_tokens_decoder=added, **roles)
    tokenizer = tokenizer_from_file(tmp_path)
    assert tokenizer is not None and tokenizer.mask_id == 4 and tokenizer.vocab_size == 7
    assert tokenizer.encode("cafe[NEW]", add_special=True, parse_special=True) == [2, 5, 6, 3]
    assert 6 not in tokenizer.encode("cafe[NEW]")


def test_line_ends_of_windows_and_odd_pieces(tmp_path: Path) -> None:
    (tmp_path / "vocab.txt").write_bytes("[UNK]\r\n[CLS]\r\n[SEP]\r\n\u2028\r\nyes\r\n".encode())
    tokenizer = tokenizer_from_file(tmp_path)
    assert tokenizer is not None and tokenizer.vocab_size == 5
    assert tokenizer.encode("yes", add_special=True) == [1, 4, 2]


@pytest.mark.parametrize(
    ("pieces", "config", "error", "message"),
    [
        ([*SMALL, "cafe"], {}, FormatError, "'cafe' twice"),
        (SMALL, {"tokenizer_class": "BertJapaneseTokenizer"}, UnsupportedError, "BertJapaneseTokenizer"),
        (SMALL, {"do_lower_case": "no"}, FormatError, "`do_lower_case` should be true or false"),
        (SMALL, {"added_tokens_decoder": {"99": {"content": "[X]"}}}, FormatError, "whose id is 99"),
        (SMALL[2:], {}, FormatError, "is no tokenizer"),
    ],
)
def test_files_that_can_t_be_right_are_refused(
    tmp_path: Path, pieces: list[str], config: Any, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        tokenizer_from_file(written(tmp_path, pieces, **config))


def test_a_vocab_txt_that_is_not_unicode(tmp_path: Path) -> None:
    (tmp_path / "vocab.txt").write_bytes(b"[PAD]\n[UNK]\n\xff\n")
    with pytest.raises(FormatError, match="isn't UTF-8 text: byte 12"):
        tokenizer_from_file(tmp_path)


def test_a_json_tokenizer_without_separators_joins_pairs_as_the_library_does(tmp_path: Path) -> None:
    tokenizer = tokenizer_from_file(folder(tmp_path, wordpiece()))
    assert tokenizer is not None
    made = tokenizer.framed(tokenizer.encode("hello"), tokenizer.encode("world"))
    assert made.ids == (2, 5, 3, 6) and made.types == (0, 0, 0, 1)  # as its template for pairs says


def test_a_tokenizer_with_a_frame_of_its_own_config_has_no_form_for_pairs(tmp_path: Path) -> None:
    tokenizer = tokenizer_from_file(folder(tmp_path, byte_level(), config={"add_bos_token": False}))
    assert tokenizer is not None
    with pytest.raises(TokenizerError, match="no form for pairs"):
        tokenizer.framed([1], [2])


def test_lengths_by_hand() -> None:
    """`longest_first`: only the longer text loses, until both are alike."""
    frame = Frame(head=((9, 0),), middle=((8, 0),), tail=((8, 1),))
    made = framed(frame, [1, 2, 3, 4, 5], [6, 7], most=7)
    assert made.ids == (9, 1, 2, 8, 6, 7, 8) and made.dropped == 3
    assert made.types == (0, 0, 0, 0, 1, 1, 1)
