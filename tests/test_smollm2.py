"""A published model, whole: ids, greedy texts and answers as transformers gives them in float32."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import glassgear


@pytest.fixture(scope="module")
def model(smollm2: Path) -> glassgear.LanguageModel:
    return glassgear.load(smollm2, backend="reference")


@pytest.fixture(scope="module")
def golden(shared: Path) -> list[dict[str, Any]]:
    return json.loads((shared / "data/smollm2/golden.json").read_text(encoding="utf-8"))  # type: ignore[no-any-return]


def test_prompts_become_the_same_ids(model: glassgear.LanguageModel, golden: list[dict[str, Any]]) -> None:
    for case in golden:
        assert model.encode(case["prompt"], parse_special=True) == case["ids"]
        assert model.tokenizer.decode(case["ids"], skip_special=False) == case["prompt"]


def test_greedy_texts_are_the_same_to_their_end_as_one_batch(
    model: glassgear.LanguageModel, golden: list[dict[str, Any]]
) -> None:
    prompts = [case["prompt"] for case in golden]
    pieces = list(model.generate(prompts, max_tokens=48, temperature=0, parse_special=True))
    for index, case in enumerate(golden):
        own = [p for p in pieces if p.index == index]
        assert [i for p in own for i in p.ids] == case["greedy_f32"]
        assert own[-1].finish_reason == ("length" if len(case["greedy_f32"]) == 48 else "stop")


def test_the_capital_of_france_is_paris(model: glassgear.LanguageModel) -> None:
    question = [{"role": "user", "content": "What is the capital of France?"}]
    assert (
        "".join(map(str, model.chat(question, max_tokens=30, temperature=0)))
        == "The capital of France is Paris."
    )


def test_a_conversation_reuses_its_cache(model: glassgear.LanguageModel) -> None:
    session = model.session()
    talk = [{"role": "user", "content": "What is the capital of France?"}]
    answer = "".join(map(str, session.chat(talk, max_tokens=30, temperature=0)))
    held = session.cached
    talk += [{"role": "assistant", "content": answer}, {"role": "user", "content": "And of Italy?"}]
    warm = "".join(map(str, session.chat(talk, max_tokens=12, temperature=0)))
    assert held > 40 and session.cached > held
    assert warm == "".join(map(str, model.chat(talk, max_tokens=12, temperature=0)))


def test_the_ledger_counts_what_the_authors_say(model: glassgear.LanguageModel) -> None:
    counted = model.ledger()
    assert counted.parameters == 134_515_008
    assert 90e6 < counted.nbytes < 98e6
