"""Texts to ids: documents, split, windows, and what is taken up instead of made anew."""

from __future__ import annotations

import json
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
from tests.train.support import corpus


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


def test_data_that_are_too_small_are_refused_in_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "e.txt").write_text("")
    with pytest.raises(SettingError, match="0 documents"):
        prepare(DataSettings((str(tmp_path / "e.txt"),), tokenizer=320), tmp_path / "d")
    with pytest.raises(SettingError, match="windows of 64 need at least 129"):
        Windows(np.zeros(100, np.uint16), 64, 0)
    with pytest.raises(SettingError, match="the text fills"):
        prepare(small(tmp_path, tokenizer=30_000), tmp_path / "d")
    with pytest.raises(SettingError, match="too small"):
        train_tokenizer(iter(["abc"]), 100, tmp_path / "t.json")


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
