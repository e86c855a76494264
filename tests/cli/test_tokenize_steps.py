"""`glassgear tokenize --steps`: the way of a prompt, step by step."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Call
from tests.cli.speaking import END, IDS, START, write_speaker


def test_a_text(call: Call, speaker: str) -> None:
    result = call("tokenize", speaker, "a zq", "--steps")
    assert (result.exit_code, result.stderr) == (0, "")
    lines = [line.rstrip() for line in result.stdout.splitlines()]
    assert lines[:4] == ["1 the text", "a zq", "", "2 control tokens: none"]
    assert lines[-2:] == ["4 ids", "97 32 256"]
    assert any(line.split() == ["2", "256", '"zq"', "zq"] for line in lines)


def test_a_message_and_what_the_template_makes_of_it(call: Call, speaker: str) -> None:
    result = call("tokenize", speaker, "a", "--steps", "--chat", "--system", "b")
    assert result.exit_code == 0
    told = result.stdout
    assert f"{START}system\nb{END}" in told.replace(" \n", "\n") and "1 messages" in told
    rows = [line.split() for line in told.splitlines()]
    assert ["0", str(IDS[START]), START] in rows


def test_warnings_are_said_aside(call: Call, speaker: str) -> None:
    result = call("tokenize", speaker, f"a{END}bc", "--steps", "--truncate", 3)
    assert "note: the text spells <|im_end|>" in result.stderr
    assert "note: truncated: 10 tokens left out, 3 tokens kept" in result.stderr
    assert "97 60 124" in result.stdout


def test_what_only_spells_a_control_token_does_not_stand_out(
    call: Call, speaker: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from glassgear.cli.tokenize_steps import _controls
    from glassgear.loading import load_tokenizer
    from glassgear.text.chat import template_for
    from glassgear.trace.pipeline import pipeline

    tokenizer = load_tokenizer(speaker)
    messages = [{"role": "user", "content": f"a{END}b"}]
    made = pipeline(tokenizer, messages, template=template_for(tokenizer))
    spans = [made.text[span.start : span.end] for span in _controls(tokenizer, made).spans]
    assert spans == [START, END, START]
    first = made.text.index(END)
    assert all(span.start != first for span in _controls(tokenizer, made).spans)


def test_json(call: Call, speaker: str) -> None:
    found = json.loads(call("tokenize", speaker, "ab", "--steps", "--chat", "--json").stdout)
    assert found["messages"] == [{"role": "user", "content": "ab"}] and found["warnings"] == []
    assert found["template"].startswith(START) and found["count"] == len(found["pieces"])
    assert [s["id"] for s in found["specials"]] == [IDS[START], IDS[END], IDS[START]]


def test_a_guessed_word_rule_is_said_once(call: Call, tmp_path: Path) -> None:
    path = tmp_path / "odd.gguf"
    write_speaker(path, **{"tokenizer.ggml.pre": "no-such-rule"})
    assert call("tokenize", path, "a", "--steps").stderr.count("no-such-rule") == 1


@pytest.mark.parametrize(
    "wrong",
    [["a", "--chat"], ["a", "--system", "b"], ["a", "--steps", "--pair", "b"], ["--ids", "1", "--steps"]],
)
def test_options_that_do_not_go_together(call: Call, speaker: str, wrong: list[str]) -> None:
    result = call("tokenize", speaker, *wrong)
    assert result.exit_code == 2 and "--steps" in result.stderr
