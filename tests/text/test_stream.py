from __future__ import annotations

import random
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import glassgear
from glassgear.errors import SettingError
from glassgear.text.base import Tokenizer
from glassgear.text.stream import TextStream

from .fake_tokenizers import Pieces, byte_tokenizer

LLAMA = b"\xf0\x9f\xa6\x99"
FAMILY = "👨‍👩‍👧‍👦"


def run(stream: TextStream, ids: Sequence[int]) -> tuple[list[str], str]:
    """The pieces as they come, and what `finish` adds."""
    pieces = []
    for token in ids:
        pieces.append(stream.push(token))
        if stream.stopped is not None:
            break
    return pieces, stream.finish()


def shown(pieces: Sequence[str], stop: str | Sequence[str], **kw: bool) -> tuple[str, str | None]:
    stream = TextStream(Pieces(list(dict.fromkeys(pieces))), stop, **kw)
    ids = [list(dict.fromkeys(pieces)).index(piece) for piece in pieces]
    out, rest = run(stream, ids)
    return "".join(out) + rest, stream.stopped


# --- stop strings


@pytest.mark.parametrize(
    ("pieces", "stop", "text", "found"),
    [
        (["DEF", "G", "HI", "J"], "DEFGHIJ", "", "DEFGHIJ"),
        (["DEF", "G", "HI", "J"], "DEFX", "DEFGHIJ", None),
        (["The quick br", "own", " fox"], "own fox", "The quick br", "own fox"),
        (["ple", "as"], "<x>assistant", "pleas", None),
        (["a.b"], ".", "a", "."),
        (["one\ntwo"], "\n", "one", "\n"),
        (["x", "ab", "c"], ["ab", "abc"], "x", "ab"),
        (["x", "ab", "c"], ["abc", "ab"], "x", "ab"),
        (["xabc"], ["bc", "abcd"], "xa", "bc"),  # the longer one never completes
        (["xabcd"], ["bc", "abcd"], "x", "abcd"),  # the one that begins first wins
        (["x", "a", "b", "c", "d"], ["bc", "abcd"], "x", "abcd"),
        (["aaab"], "aab", "a", "aab"),
        (["a", "a", "a", "b"], "aab", "a", "aab"),
        (["nothing"], [], "nothing", None),
        (["<", "/s"], "</s>", "</s", None),
    ],
)
def test_stop_strings_over_token_borders(
    pieces: list[str], stop: str | list[str], text: str, found: str | None
) -> None:
    assert shown(pieces, stop) == (text, found)


def test_an_end_token_releases_held_text() -> None:
    stream = TextStream(Pieces(["ple", "<x>a", "<end>"], ["<end>"]), "<x>assistant")
    assert [stream.push(token) for token in (0, 1, 2)] == ["ple", "", ""]
    assert stream.finish() == "<x>a"
    assert stream.stopped is None


def test_only_what_may_begin_a_stop_string_is_held() -> None:
    stream = TextStream(Pieces(["DEF", "X", "pleas"]), "DEFGHIJ")
    assert stream.push(0) == ""
    assert stream.push(1) == "DEFX"
    assert stream.push(2) == "pleas"


def test_a_stop_string_in_the_prompt_has_no_effect() -> None:
    assert shown(["new text"], "prompt") == ("new text", None)


@pytest.mark.parametrize("stop", [[""], "", ["a", ""]])
def test_an_empty_stop_string_is_refused(stop: str | list[str]) -> None:
    with pytest.raises(SettingError, match="empty"):
        TextStream(Pieces([]), stop)


@pytest.mark.parametrize("stop", [[3], [None], [b"x"]])
def test_stop_strings_must_be_text(stop: list[object]) -> None:
    with pytest.raises(SettingError, match="must be text"):
        TextStream(Pieces([]), stop)  # type: ignore[arg-type]


def test_no_stop_strings_at_all() -> None:
    assert TextStream(Pieces(["a"]), None).push(0) == "a"


def test_endless_stop_strings_are_refused() -> None:
    with pytest.raises(SettingError, match="characters long"):
        TextStream(Pieces([]), ["x" * 40_000, "y" * 40_000])


def test_nothing_comes_after_a_stop() -> None:
    stream = TextStream(Pieces(["a", "."]), ".")
    assert [stream.push(0), stream.push(1), stream.push(0), stream.finish()] == ["a", "", "", ""]


words = st.text("ab", min_size=1, max_size=4)


@given(st.lists(words, max_size=12), st.lists(words, min_size=1, max_size=4))
def test_stops_do_not_depend_on_where_tokens_are_cut(pieces: list[str], stops: list[str]) -> None:
    whole = "".join(pieces)
    at = [(whole.find(stop), len(stop), stop) for stop in stops if stop in whole]
    text, found = shown(pieces, stops)
    assert text == (whole[: min(at)[0]] if at else whole)
    assert found == (min(at)[2] if at else None)
    assert shown(list(whole), stops) == (text, found)


@given(st.lists(words, max_size=12), st.lists(words, min_size=1, max_size=3))
def test_nothing_shown_is_ever_taken_back(pieces: list[str], stops: list[str]) -> None:
    names = list(dict.fromkeys(pieces))
    stream = TextStream(Pieces(names), stops)
    so_far = ""
    for piece in pieces:
        so_far += stream.push(names.index(piece))
    final = so_far + stream.finish()
    assert final.startswith(so_far)
    assert not any(stop in final for stop in stops)


# --- characters


def test_a_character_in_several_tokens_comes_whole() -> None:
    tokenizer = byte_tokenizer()
    pieces, rest = run(TextStream(tokenizer), list("歪".encode()))
    assert (pieces, rest) == (["", "", "歪"], "")
    pieces, rest = run(TextStream(tokenizer), list(LLAMA))
    assert (pieces, rest) == (["", "", "", "🦙"], "")


def test_a_character_cut_off_at_the_end_is_one_replacement() -> None:
    for count in (1, 2, 3):
        pieces, rest = run(TextStream(byte_tokenizer()), list(LLAMA[:count]))
        assert ("".join(pieces), rest) == ("", "\ufffd")


def test_a_lone_invalid_byte_is_shown_and_delays_nothing() -> None:
    stream = TextStream(byte_tokenizer())
    assert [stream.push(0x80), stream.push(ord("A"))] == ["\ufffd", "A"]
    stream = TextStream(byte_tokenizer())
    assert [stream.push(0xE6), stream.push(ord("A"))] == ["", "\ufffdA"]


def test_joined_emoji_come_whole_and_in_order() -> None:
    pieces, rest = run(TextStream(byte_tokenizer()), list(FAMILY.encode()))
    assert "".join(pieces) + rest == FAMILY
    assert "\ufffd" not in "".join(pieces)


@given(st.lists(st.integers(0, 255), max_size=200))
def test_pieces_of_random_bytes_join_to_the_decoded_text(ids: list[int]) -> None:
    tokenizer = byte_tokenizer()
    pieces, rest = run(TextStream(tokenizer), ids)
    assert "".join(pieces) + rest == tokenizer.decode(ids)


@given(st.text(max_size=30))
def test_valid_text_never_shows_a_replacement(text: str) -> None:
    pieces, rest = run(TextStream(byte_tokenizer()), list(text.encode()))
    assert "".join(pieces) == text
    assert rest == ""


# --- spaces and control tokens


def test_the_leading_space_goes_once_and_only_at_the_start() -> None:
    tokenizer = Pieces([" Hello", " world", "<s>", '{"', " "], ["<s>"], leading_space=True)
    assert [*run(TextStream(tokenizer), [0, 1])[0]] == ["Hello", " world"]
    assert [*run(TextStream(tokenizer), [2, 0, 1])[0]] == ["", "Hello", " world"]
    assert [*run(TextStream(tokenizer), [4, 4, 0])[0]] == ["", " ", " Hello"]
    assert [*run(TextStream(tokenizer), [2, 3])[0]] == ["", '{"']
    assert [*run(TextStream(tokenizer, continuing=True), [0, 1])[0]] == [" Hello", " world"]
    plain = Pieces([" Hello"])
    assert run(TextStream(plain), [0])[0] == [" Hello"]


def test_control_tokens_are_hidden_and_disturb_nothing() -> None:
    tokenizer = byte_tokenizer(words=["own"])
    end = tokenizer.special["<|im_end|>"]
    ids = [0xE6, end, 0xAD, 0xAA, end, ord("!")]
    pieces, rest = run(TextStream(tokenizer), ids)
    assert "".join(pieces) + rest == tokenizer.decode(ids) == "歪!"
    stream = TextStream(tokenizer, "own fox")
    out, rest = run(stream, [256, end, *b" fox"])
    assert ("".join(out) + rest, stream.stopped) == ("", "own fox")


def test_every_id_is_accounted_for_once() -> None:
    tokenizer = byte_tokenizer()
    stream = TextStream(tokenizer, "END")
    ids = [*"aE歪b".encode(), tokenizer.special["<|im_end|>"], *b"EN"]
    covered: list[tuple[str, tuple[int, ...]]] = []
    for token in ids:
        if text := stream.push(token):
            covered.append((text, stream.take_ids()))
    covered.append((stream.finish(), stream.take_ids()))
    assert covered == [
        ("a", (ord("a"),)),
        ("E歪", tuple("E歪".encode())),
        ("b", (ord("b"),)),
        ("EN", (tokenizer.special["<|im_end|>"], *b"EN")),
    ]


# --- tokenizers that decode in their own way


class Words(Tokenizer):
    """Like WordPiece: a space before each word but `##` continuations, none before a full stop."""

    joins = False

    def __init__(self, words: Sequence[str]) -> None:
        self.words = list(words)
        self.vocab_size = len(self.words)
        self.special = {"[SEP]": self.words.index("[SEP]")}
        self.decoded = 0

    def encode(self, text: str, add_special: bool = False, parse_special: bool = False) -> list[int]:
        return [self.words.index(word) for word in text.split()]

    def token_bytes(self, token: int) -> bytes:
        return self.words[token].encode()

    def piece(self, token: int) -> str:
        return self.words[token]

    def decode(self, ids: Sequence[int], skip_special: bool = True) -> str:
        self.decoded += len(ids)
        words = [self.words[i] for i in ids if not (skip_special and self.is_special(i))]
        return " ".join(words).replace(" ##", "").replace(" .", ".")


def test_a_tokenizer_with_its_own_decoding_streams_the_same_text() -> None:
    tokenizer = Words(["play", "##ing", "is", "fun", ".", "[SEP]"])
    ids = [0, 1, 2, 3, 4, 5, 0, 1]
    pieces, rest = run(TextStream(tokenizer), ids)
    assert pieces == ["play", "ing", " is", " fun", ".", "", " play", "ing"]
    assert "".join(pieces) + rest == tokenizer.decode(ids)


def test_its_stop_strings_work_too() -> None:
    tokenizer = Words(["play", "##ing", "is", "[SEP]"])
    stream = TextStream(tokenizer, "ing is")
    pieces, rest = run(stream, [0, 1, 2])
    assert ("".join(pieces) + rest, stream.stopped) == ("play", "ing is")


def test_its_windows_stay_short() -> None:
    tokenizer = Words(["a", "", "[SEP]"])
    ids = [0, 1, 2] * 300 + [1] * 300
    pieces, rest = run(TextStream(tokenizer), ids)
    assert tokenizer.decoded < 20 * len(ids)
    assert "".join(pieces) + rest == "a" + (" " + " a") * 299 + " " * 301


# --- cost


@pytest.mark.parametrize("stop", [(), "zzzz", ["ab" * 50 + "c"]])
def test_a_token_costs_the_same_however_long_the_text(stop: str | Sequence[str]) -> None:
    tokenizer = Pieces(["ab"])

    def seconds(count: int) -> float:
        best = 1e9
        for _ in range(3):
            stream = TextStream(tokenizer, stop)
            start = time.process_time()
            for _ in range(count):
                stream.push(0)
            best = min(best, time.process_time() - start)
        return best

    assert seconds(40_000) < 8 * seconds(10_000) + 0.05


# --- a published vocabulary


@pytest.fixture(scope="module")
def llama2(shared: Path) -> Tokenizer:
    return glassgear.load_tokenizer(shared / "data" / "llama2c" / "llama2-tokenizer.model")


def test_llama2_byte_tokens_become_one_character(llama2: Tokenizer) -> None:
    assert run(TextStream(llama2), [29871, 243, 162, 169, 156]) == (["", "", "", "", "🦙"], "")
    assert run(TextStream(llama2), [29871, 243, 162]) == (["", "", ""], "\ufffd")


def test_llama2_lone_byte_does_not_delay_what_follows(llama2: Tokenizer) -> None:
    assert run(TextStream(llama2), [131, *llama2.encode("A")]) == (["\ufffd", " A"], "")


def test_llama2_spaces_at_the_start(llama2: Tokenizer) -> None:
    assert run(TextStream(llama2), [15043, 3186]) == (["Hello", " world"], "")
    assert run(TextStream(llama2), [1, 22172]) == (["", "hello"], "")
    assert run(TextStream(llama2), [6377]) == (['{"'], "")
    assert run(TextStream(llama2), [1, 6377]) == (["", '{"'], "")
    assert run(TextStream(llama2, continuing=True), [3186]) == ([" world"], "")


@given(seed=st.integers(0, 10**6))
def test_llama2_random_ids_join_to_the_decoded_text(llama2: Tokenizer, seed: int) -> None:
    rng = random.Random(seed)
    ids = [rng.choice((rng.randrange(3, 259), rng.randrange(llama2.vocab_size))) for _ in range(200)]
    pieces, rest = run(TextStream(llama2), ids)
    assert "".join(pieces) + rest == llama2.decode(ids)
