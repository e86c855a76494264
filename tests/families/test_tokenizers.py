"""The forms of tokenizer.json in folders of these families, and whole folders: text in, text out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer as Backend

import glassgear
from glassgear.text.pretokenizers import RULES
from tests.families.decoders import SIZES
from tests.families.support import config_of, logits_of, made, save
from tests.text.json_tokenizers import byte_fallback, byte_level, folder, template

TEXTS = st.text(st.sampled_from(" \nhelo wa,.'éé你7<>|▁"), max_size=30)


def qwen2() -> dict[str, Any]:
    """Text is composed first, each digit is a word, and nothing stands in front."""
    kind = byte_level()
    kind["normalizer"] = {"type": "NFC"}
    kind["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] = RULES["qwen2"].steps[0]
    return kind | {"post_processor": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False}}


def glm() -> dict[str, Any]:
    """Two control tokens stand in front."""
    kind = byte_level()
    names = [token["content"] for token in kind["added_tokens"][:2]]
    ids = {token["content"]: token["id"] for token in kind["added_tokens"]}
    single = [
        *({"SpecialToken": {"id": name, "type_id": 0}} for name in names),
        {"Sequence": {"id": "A", "type_id": 0}},
    ]
    framed = template(names[0], ids[names[0]]) | {
        "single": single,
        "special_tokens": {name: {"id": name, "ids": [ids[name]], "tokens": [name]} for name in names},
    }
    byte_step = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": False, "use_regex": True}
    return kind | {"post_processor": {"type": "Sequence", "processors": [byte_step, framed]}}


def gemma() -> dict[str, Any]:
    """Spaces as U+2581 without one in front; a word takes the space behind it before merges."""
    kind = byte_fallback()
    kind["decoder"]["decoders"].pop()  # nothing to strip
    space = {"String": " "}
    return kind | {
        "normalizer": {"type": "Replace", "pattern": space, "content": "▁"},
        "pre_tokenizer": {
            "type": "Split",
            "pattern": space,
            "behavior": "MergedWithPrevious",
            "invert": False,
        },
    }


KINDS = {"qwen2": qwen2(), "glm": glm(), "gemma": gemma(), "mistral": byte_fallback()}
MODELS = {
    "qwen2": ("Qwen2ForCausalLM", "Qwen2Config"),
    "glm": ("GlmForCausalLM", "GlmConfig"),
    "gemma": ("Gemma3ForCausalLM", "Gemma3TextConfig"),
    "mistral": ("MistralForCausalLM", "MistralConfig"),
}


@pytest.mark.parametrize("family", KINDS)
def test_ids_and_text_are_those_of_the_library(family: str, tmp_path: Path) -> None:
    own = glassgear.load_tokenizer(folder(tmp_path, KINDS[family]))
    library = Backend.from_str(json.dumps(KINDS[family]))

    @given(TEXTS)
    def check(text: str) -> None:
        ids = library.encode(text, add_special_tokens=False).ids
        assert own.encode(text) == ids
        assert own.encode(text, add_special=True) == library.encode(text).ids
        decoded = library.decode(ids, skip_special_tokens=True)
        if "\ufffd" not in decoded:
            assert own.decode(ids) == decoded

    check()


def test_composed_and_decomposed_letters_are_one_to_qwen(tmp_path: Path) -> None:
    own = glassgear.load_tokenizer(folder(tmp_path, qwen2()))
    assert own.encode("\u00e9") == own.encode("e\u0301")
    assert own.encode("77") == own.encode("7") * 2


@pytest.mark.parametrize("family", KINDS)
def test_a_folder_with_both_takes_and_gives_text(family: str, tmp_path: Path) -> None:
    model_class, config_class = MODELS[family]
    kind = KINDS[family]
    vocab = max([*kind["model"]["vocab"].values(), *(t["id"] for t in kind["added_tokens"])]) + 5
    theirs = made(model_class, config_of(config_class, **(SIZES | {"vocab_size": vocab})))
    folder(save(theirs, tmp_path), kind)
    model = glassgear.load(tmp_path, backend="reference")
    ids = Backend.from_str(json.dumps(kind)).encode("hello wall").ids
    assert model.encode("hello wall") == ids
    pieces = list(model.generate("hello wall", max_tokens=5, temperature=0, ignore_eos=True))
    for token in (token for piece in pieces for token in piece.ids):
        assert token == int(logits_of(theirs, ids)[-1].argmax())
        ids.append(token)
    assert len(ids) == len(model.encode("hello wall")) + 5
