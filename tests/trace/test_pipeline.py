"""From messages to ids: the ids of a run, each step, and a warning for each thing that may go wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from glassgear.errors import SettingError
from glassgear.loading import load_tokenizer
from glassgear.text.base import Tokenizer
from glassgear.text.chat import ChatTemplate, encode_chat, template_for
from glassgear.trace.pipeline import pipeline, text_of
from tests.cli.speaking import END, IDS, START, write_speaker


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    path = tmp_path_factory.mktemp("pipeline") / "speaker.gguf"
    write_speaker(path)
    return load_tokenizer(str(path))


@pytest.fixture(scope="module")
def llama2c(shared: Path) -> Tokenizer:
    return load_tokenizer(str(shared / "data" / "llama2c" / "tok512.bin"))


def test_a_text_becomes_pieces_and_ids(tokenizer: Tokenizer) -> None:
    made = pipeline(tokenizer, "a zq\u00e9")
    assert made.ids == tokenizer.encode("a zq\u00e9", add_special=True)
    assert [piece.text for piece in made.pieces] == ["a", " ", "zq", "<C3>", "<A9>"]
    assert made.rendered is None and made.warnings == ()
    assert made.to_json()["pieces"][2] == {"id": IDS["zq"], "text": "zq", "piece": "zq", "special": False}


def test_a_message_goes_through_the_template(tokenizer: Tokenizer) -> None:
    messages = [{"role": "system", "content": "b"}, {"role": "user", "content": "a"}]
    template = template_for(tokenizer)
    made = pipeline(tokenizer, messages, template=template)
    assert made.ids == encode_chat(tokenizer, template, messages)
    assert made.rendered == template.render(messages)
    told = made.to_json()
    assert [m["role"] for m in told["messages"]] == ["system", "user"]
    assert [s["text"] for s in told["specials"]] == [START, END, START, END, START]
    assert all(made.pieces[s["index"]].id == s["id"] for s in told["specials"])
    with pytest.raises(SettingError, match="template"):
        pipeline(tokenizer, messages)


def test_control_tokens_in_a_user_s_text_are_warned_of(tokenizer: Tokenizer) -> None:
    template = template_for(tokenizer)
    made = pipeline(tokenizer, [{"role": "user", "content": f"a{END}"}], template=template)
    assert len(made.warnings) == 1 and END in made.warnings[0] and "message 1 (user)" in made.warnings[0]
    assert sum(piece.id == IDS[END] for piece in made.pieces) == 1  # the template's alone
    plain = pipeline(tokenizer, f"a{END}")
    assert END in plain.warnings[0] and not any(piece.special for piece in plain.pieces)
    trusted = pipeline(tokenizer, f"a{END}", parse_special=True)
    assert trusted.warnings == () and trusted.ids == [97, IDS[END]]


def test_a_doubled_first_token_is_warned_of(llama2c: Tokenizer) -> None:
    assert llama2c.bos_id is not None
    assert pipeline(llama2c, "a").warnings == ()
    bos = llama2c.piece(llama2c.bos_id)
    template = ChatTemplate("{{ bos_token }}{{ bos_token }}{{ messages[0].content }}", bos_token=bos)
    made = pipeline(llama2c, [{"role": "user", "content": "a"}], template=template)
    if made.ids[:2] != [llama2c.bos_id] * 2:
        pytest.skip("this vocabulary has no control token for its BOS")
    assert "2 times" in made.warnings[0] and "BOS" in made.warnings[0]


class Doubling(Tokenizer):
    """Letters; its BOS is 0, which it puts in front twice."""

    kind, vocab_size, bos_id, special = "test", 256, 0, {}
    warnings = ("the words are cut by a guess",)

    def encode(self, text: str, add_special: bool = False, parse_special: bool = False) -> list[int]:
        return [0, 0] * add_special + list(text.encode())

    def token_bytes(self, token: int) -> bytes:
        return bytes([token]) if token else b""

    def piece(self, token: int) -> str:
        return chr(token) if token else "<s>"


def test_warnings_of_the_tokenizer_and_of_its_ids_come_together() -> None:
    made = pipeline(Doubling(), "ab")
    assert made.ids == [0, 0, 97, 98]
    assert made.warnings == (
        "the words are cut by a guess",
        "the text begins with <s> (BOS) 2 times: models are trained to see it once",
    )
    assert pipeline(Doubling(), "ab", add_special=False).warnings == ("the words are cut by a guess",)


def test_an_unknown_pre_tokenizer_is_warned_of(tmp_path: Path) -> None:
    path = tmp_path / "odd.gguf"
    write_speaker(path, **{"tokenizer.ggml.pre": "no-such-rule"})
    made = pipeline(load_tokenizer(str(path)), "a")
    assert any("no-such-rule" in warning for warning in made.warnings)


def test_what_is_cut_off_is_said(tokenizer: Tokenizer) -> None:
    made = pipeline(tokenizer, "abcdef", most=4)
    assert made.ids == [97, 98, 99, 100]
    assert made.warnings == ("truncated: 2 tokens left out, 4 tokens kept",)
    assert pipeline(tokenizer, "abcd", most=4).warnings == ()


def test_what_the_context_has_no_room_for_is_said(tokenizer: Tokenizer) -> None:
    assert pipeline(tokenizer, "abc", context=3).warnings == ()
    (warning,) = pipeline(tokenizer, "abcd", context=3).warnings
    assert "4 tokens" in warning and "context holds 3" in warning


def test_half_a_character_is_refused(tokenizer: Tokenizer) -> None:
    for prompt in ("a\ud800", [{"role": "user", "content": "\udc80"}]):
        with pytest.raises(SettingError, match="surrogate"):
            pipeline(tokenizer, prompt, template=template_for(tokenizer))


def test_bytes_that_are_no_character_are_shown_as_such(tokenizer: Tokenizer) -> None:
    assert text_of(tokenizer, 195) == "<C3>" and text_of(tokenizer, IDS["zq"]) == "zq"
