"""Texts to ids: documents, split, windows, and what is taken up instead of made anew."""

from __future__ import annotations

import json
import re
import unicodedata
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from glassgear.errors import FormatError, NotFoundError, SettingError

pytest.importorskip("torch")

from glassgear.train.data import Windows, documents, held_out, prepare
from glassgear.train.settings import DataSettings
from glassgear.train.tokenizer import train_tokenizer
from tests.train.support import corpus, damage


def small(path: Path, **changes: object) -> DataSettings:
    return replace(DataSettings((str(corpus(path / "t.txt")),), tokenizer=320, validation=0.1), **changes)


def test_documents_of_text_and_of_json_lines(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one\n<|endoftext|>\n\n<|endoftext|> two 小 ", encoding="utf-8")
    (tmp_path / "b.jsonl").write_text(
        '{"text": "three"}\n\n{"text": " "}\n{"text": "four"}\n', encoding="utf-8"
    )
    both = DataSettings((str(tmp_path / "a.txt"), str(tmp_path / "b.jsonl")))
    assert list(documents(both)) == ["one", "two 小", "three", "four"]


@pytest.mark.parametrize("line", ["[1]", '{"txt": "a"}', '{"text": 3}', "{"])
def test_a_bad_line_is_named(tmp_path: Path, line: str) -> None:
    (tmp_path / "b.jsonl").write_text('{"text": "fine"}\n' + line, encoding="utf-8")
    with pytest.raises(FormatError, match="line 2"):
        list(documents(DataSettings((str(tmp_path / "b.jsonl"),))))


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (rb'{"text": "\ud800 abc"}', r"line 2: `text` has \\ud800, half of a pair .* without the other half"),
        (rb'{"text": "abc \udc00\ud800"}', r"line 2: `text` has \\udc00, half of a pair"),
        (b'{"text": "abc \xff"}', "line 2 is no UTF-8 text: invalid start byte at byte 15 of it"),
        (b'{"text": "\xed\xa0\x80"}', "line 2 is no UTF-8 text"),
    ],
)
def test_text_that_is_no_unicode_is_named_by_file_and_line(tmp_path: Path, line: bytes, message: str) -> None:
    path = tmp_path / "b.jsonl"
    path.write_bytes(b'{"text": "fine \\ud83d\\udc36"}\n' + line)
    with pytest.raises(FormatError, match=message) as caught:
        list(documents(DataSettings((str(path),))))
    assert str(caught.value).startswith(f"{path}: ")
    path.write_bytes(b'{"text": "fine \\ud83d\\udc36", "other": "\\ud800"}\n')
    assert list(documents(DataSettings((str(path),)))) == ["fine \U0001f436"], "a pair is a character"


@pytest.mark.parametrize(("share", "part"), [(1e-6, "none"), (0.999999, "all")])
def test_a_split_that_leaves_a_part_empty_is_noticed_first_and_says_a_share_that_works(
    tmp_path: Path, share: float, part: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("glassgear.train.data.train_tokenizer", lambda *a: pytest.fail("before the split"))
    few = replace(small(tmp_path), validation=share)
    corpus(tmp_path / "t.txt", documents=23)
    with pytest.raises(SettingError, match=f"{part} of the 23 documents are held out") as caught:
        prepare(few, tmp_path / "d")
    (found,) = re.findall(r"--set data\.validation=(\S+) splits them", str(caught.value))
    held = [held_out(text, float(found)) for text in documents(few)]
    assert any(held) and not all(held)


def test_equal_documents_alone_cannot_be_split(tmp_path: Path) -> None:
    path = tmp_path / "e.txt"
    path.write_text("the same<|endoftext|>" * 9)
    with pytest.raises(SettingError, match=r"of the 9 documents are held out .*: give more documents"):
        prepare(DataSettings((str(path),), tokenizer=320), tmp_path / "d")


def test_files_that_are_not_there_or_no_text_are_said(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError):
        prepare(DataSettings((str(tmp_path / "no.txt"),)), tmp_path / "d")
    (tmp_path / "b.txt").write_bytes(b"abc\xff\xfe")
    with pytest.raises(FormatError, match="no UTF-8"):
        prepare(DataSettings((str(tmp_path / "b.txt"),)), tmp_path / "d")


def test_equal_documents_are_on_one_side_and_no_document_on_both(tmp_path: Path) -> None:
    made = prepare(small(tmp_path), tmp_path / "d")
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(made.tokenizer))
    begin = tokenizer.token_to_id("<s>")

    def texts(ids: np.ndarray) -> set[str]:
        pieces = np.split(ids, np.flatnonzero(ids == begin))
        return {tokenizer.decode(p.tolist()) for p in pieces if len(p)}

    train, validation = texts(np.asarray(made.train)), texts(np.asarray(made.validation))
    assert validation and not train & validation
    assert all(held_out(t, 0.1) for t in validation) and not any(held_out(t, 0.1) for t in train)
    assert train | validation == set(documents(small(tmp_path)))


def test_what_was_made_is_taken_up_and_made_anew_when_the_text_changes(tmp_path: Path) -> None:
    settings = small(tmp_path)
    first = prepare(settings, tmp_path / "d")
    stamp = (tmp_path / "d" / "train.ids").stat().st_mtime_ns
    assert prepare(settings, tmp_path / "d").fingerprint == first.fingerprint
    assert (tmp_path / "d" / "train.ids").stat().st_mtime_ns == stamp
    (tmp_path / "t.txt").write_text((tmp_path / "t.txt").read_text() + "<|endoftext|>One more.")
    assert prepare(settings, tmp_path / "d").fingerprint != first.fingerprint


WHOLE = {"train.ids", "validation.ids", "validation.sizes", "tokenizer.json", "data.json"}
HALF = "has {half:,} bytes, not the {whole:,} that were written"
OTHER, MISSING = "isn't what was written: its SHA-256 is another", "isn't there"


def bytes_of(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.name in WHOLE}


@pytest.mark.parametrize(
    ("name", "how", "found"),
    [
        ("train.ids", "cut", HALF),
        ("train.ids", "empty", "has 0 bytes, not the {whole:,} that were written"),
        ("train.ids", "flipped", OTHER),
        ("validation.ids", "flipped", OTHER),
        ("validation.ids", "missing", MISSING),
        ("validation.sizes", "cut", HALF),
        ("tokenizer.json", "flipped", OTHER),
        ("tokenizer.json", "missing", MISSING),
        ("data.json", "cut", "isn't what was written"),
    ],
)
def test_what_is_damaged_is_said_and_made_anew(tmp_path: Path, name: str, how: str, found: str) -> None:
    said: list[str] = []
    prepare(small(tmp_path), tmp_path / "d", damaged=said.append)
    before, path = bytes_of(tmp_path / "d"), tmp_path / "d" / name
    assert before.keys() == WHOLE
    damage(path, how)
    prepare(small(tmp_path), tmp_path / "d", damaged=said.append)
    whole = len(before[name])
    assert said == [f"{path} {found.format(half=whole // 2, whole=whole)}"]
    assert bytes_of(tmp_path / "d") == before
    prepare(small(tmp_path), tmp_path / "d", damaged=said.append)
    assert len(said) == 1


@pytest.mark.parametrize("text", ["[]", "3", '{"vocab": "x"}', '{"vocab": 320, "tokens": 3}', "[" * 100_000])
def test_a_description_that_is_none_is_said_and_made_anew(tmp_path: Path, text: str) -> None:
    said: list[str] = []
    first = prepare(small(tmp_path), tmp_path / "d")
    (tmp_path / "d" / "data.json").write_text(text)
    assert prepare(small(tmp_path), tmp_path / "d", damaged=said.append).fingerprint == first.fingerprint
    assert said == [f"{tmp_path / 'd' / 'data.json'} isn't what was written"]


def test_ids_of_other_texts_are_no_damage(tmp_path: Path) -> None:
    said: list[str] = []
    prepare(small(tmp_path), tmp_path / "d")
    damage(tmp_path / "d" / "train.ids", "cut")
    prepare(small(tmp_path, validation=0.2), tmp_path / "d", damaged=said.append)
    assert not said


def test_data_that_are_too_small_are_refused_in_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "e.txt").write_text("")
    with pytest.raises(SettingError, match="0 documents"):
        prepare(DataSettings((str(tmp_path / "e.txt"),), tokenizer=320), tmp_path / "d")
    with pytest.raises(SettingError, match="windows of 64 need at least 129"):
        Windows(np.zeros(100, np.uint16), 64, 0)
    with pytest.raises(SettingError, match="the text fills"):
        prepare(small(tmp_path, tokenizer=30_000), tmp_path / "d")
    with pytest.raises(SettingError, match="266 entries is too small: at least 267 are needed, of which 259"):
        train_tokenizer(iter(["abc"]), 266, tmp_path / "t.json")


def test_the_smallest_tokenizer_that_is_asked_for_can_be_made(tmp_path: Path) -> None:
    made = prepare(small(tmp_path, tokenizer=267), tmp_path / "d")
    assert made.vocab == 267 and len(made.train) > 1000


@given(st.integers(33, 2000), st.integers(1, 16), st.integers(0, 3))
def test_an_epoch_sees_every_window_once_and_a_rerun_the_same_ones(
    count: int, length: int, seed: int
) -> None:
    windows = Windows(np.arange(count), length, seed)
    starts = [int(windows[i][0]) for i in range(windows.epoch)]
    assert len(set(starts)) == windows.epoch
    assert all(np.array_equal(windows[i], np.arange(s, s + length + 1)) for i, s in enumerate(starts))
    assert all((a - starts[0]) % length == 0 for a in starts)
    again = Windows(np.arange(count), length, seed)
    assert [int(again[i][0]) for i in (windows.epoch, 0, 1)] == [
        int(windows[i][0]) for i in (windows.epoch, 0, 1)
    ]


def test_bytes_are_ordinary_entries_and_every_text_comes_back(tmp_path: Path) -> None:
    from tokenizers import Tokenizer

    made = prepare(small(tmp_path), tmp_path / "d")
    tokenizer = Tokenizer.from_file(str(made.tokenizer))
    assert tokenizer.get_vocab_size() == 320
    for text in ("One day Lily", "小狗🐶 says", "<0x41> x", "two  spaces\n"):
        assert tokenizer.decode(tokenizer.encode(text).ids) == text
    added = json.loads(made.tokenizer.read_text())["added_tokens"]
    assert [entry["content"] for entry in added] == ["<unk>", "<s>", "</s>"]


def test_entries_hold_letters_digits_or_other_signs_and_never_two_of_these(tmp_path: Path) -> None:
    def kind(character: str) -> str:
        first = unicodedata.category(character)[0]
        return "letter" if first in "LM" or character in "'’" else "digit" if first == "N" else "sign"

    texts = ["It was time, and Tim's 7 cats ate 12, not 7: no! Time, said Tim, 12 times."] * 50
    train_tokenizer(iter(texts), 300, tmp_path / "tokenizer.json")
    vocabulary = json.loads((tmp_path / "tokenizer.json").read_text(encoding="utf-8"))["model"]["vocab"]
    merged = [text for text in vocabulary if not text.startswith("<") and len(text.strip("▁")) > 1]
    assert {"time", "12"} <= {text.strip("▁") for text in merged}
    assert all(len({kind(c) for c in text if c != "▁"}) == 1 for text in merged)
