"""Small `tokenizer.json` descriptions of each kind, as model folders have them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from glassgear.text.byte_letters import LETTER_OF

LLAMA3_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|"
    r"\s+(?!\S)|\s+"
)


def added(token: int, content: str, special: bool = True, **options: bool) -> dict[str, Any]:
    plain = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    return {"id": token, "content": content, **plain, "special": special, **options}


def byte_level(
    *, merges: Any = ("h e", "l l", "he ll", "hell o", "Ġ w"), extra: tuple[str, ...] = (), **model: Any
) -> dict[str, Any]:
    """Llama 3's kind: byte-level BPE with control tokens beside the vocabulary."""
    made = ["".join(merge.split(" ") if isinstance(merge, str) else merge) for merge in merges]
    vocab = {piece: token for token, piece in enumerate(dict.fromkeys([*LETTER_OF.values(), *made, *extra]))}
    first = len(vocab)
    names = ("<|begin|>", "<|end_of_text|>", "<|eot_id|>")
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [added(first + place, name) for place, name in enumerate(names)]
        + [added(first + len(names), "<think>", special=False)],
        "normalizer": None,
        "pre_tokenizer": {
            "type": "Sequence",
            "pretokenizers": [
                {
                    "type": "Split",
                    "pattern": {"Regex": LLAMA3_WORDS},
                    "behavior": "Isolated",
                    "invert": False,
                },
                {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False},
            ],
        },
        "post_processor": template("<|begin|>", first),
        "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
        "model": {"type": "BPE", "vocab": vocab, "merges": list(merges), **model},
    }


def template(name: str, token: int) -> dict[str, Any]:
    """A post-processor that puts one token in front."""
    return {
        "type": "TemplateProcessing",
        "single": [{"SpecialToken": {"id": name, "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {name: {"id": name, "ids": [token], "tokens": [name]}},
    }


def byte_fallback(*, first_only: bool = False) -> dict[str, Any]:
    """Llama 2's kind: spaces as U+2581, bytes for what has no piece.

    `first_only` is the newer spelling, with a space in front of a text's start alone.
    """
    pieces = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    pieces += ["▁", "h", "e", "l", "o", "▁h", "▁he", "ll", "▁hell", "▁hello", "a", "b"]
    merges = ["▁ h", "▁h e", "l l", "▁he ll", "▁hell o"]
    steps = [
        {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
        {"type": "ByteFallback"},
        {"type": "Fuse"},
        {"type": "Strip", "content": " ", "start": 1, "stop": 0},
    ]
    old = {
        "type": "Sequence",
        "normalizers": [
            {"type": "Prepend", "prepend": "▁"},
            {"type": "Replace", "pattern": {"String": " "}, "content": "▁"},
        ],
    }
    new = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": False}
    return {
        "version": "1.0",
        "added_tokens": [added(place, name) for place, name in enumerate(pieces[:3])],
        "normalizer": None if first_only else old,
        "pre_tokenizer": new if first_only else None,
        "post_processor": template("<s>", 1),
        "decoder": {"type": "Sequence", "decoders": steps},
        "model": {
            "type": "BPE",
            "unk_token": "<unk>",
            "fuse_unk": True,
            "byte_fallback": True,
            "vocab": {piece: token for token, piece in enumerate(pieces)},
            "merges": merges,
        },
    }


def wordpiece(*, lowercase: bool = True, cleanup: bool = True) -> dict[str, Any]:
    """BERT's kind."""
    pieces = [
        "[PAD]",
        "[UNK]",
        "[CLS]",
        "[SEP]",
        "[MASK]",
        "hello",
        "world",
        "##s",
        "##ly",
        ",",
        ".",
        "[",
        "]",
    ]
    pieces += ["cafe", "kanto", "don", "t", "'", "你", "cls", "sep"]
    single = [{"SpecialToken": {"id": "[CLS]", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}]
    single += [{"SpecialToken": {"id": "[SEP]", "type_id": 0}}]
    return {
        "version": "1.0",
        "added_tokens": [added(place, name) for place, name in enumerate(pieces[:5])],
        "normalizer": {
            "type": "BertNormalizer",
            "clean_text": True,
            "handle_chinese_chars": True,
            "strip_accents": None,
            "lowercase": lowercase,
        },
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": {
            "type": "TemplateProcessing",
            "single": single,
            "pair": [*single, {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {
                name: {"id": name, "ids": [token], "tokens": [name]}
                for token, name in ((2, "[CLS]"), (3, "[SEP]"))
            },
        },
        "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": cleanup},
        "model": {
            "type": "WordPiece",
            "unk_token": "[UNK]",
            "continuing_subword_prefix": "##",
            "max_input_chars_per_word": 100,
            "vocab": {piece: token for token, piece in enumerate(pieces)},
        },
    }


def unigram() -> dict[str, Any]:
    """T5's kind: the best sum of scores, where control tokens have the best of all."""
    pieces = [("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0), ("▁", -2.0), ("▁hi", -1.0)]
    pieces += [(letter, -5.0) for letter in "<>/shi"]
    space = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True}
    return {
        "version": "1.0",
        "added_tokens": [added(place, name) for place, (name, _) in enumerate(pieces[:3])],
        "normalizer": None,
        "pre_tokenizer": space,
        "post_processor": None,
        "decoder": space,
        "model": {"type": "Unigram", "unk_id": 2, "vocab": [list(piece) for piece in pieces]},
    }


def folder(path: Path, description: dict[str, Any], **files: dict[str, Any] | str) -> Path:
    """Write a folder; `config=` and so on name further files, `template=` the chat template."""
    names = {
        "config": "tokenizer_config.json",
        "special": "special_tokens_map.json",
        "more": "added_tokens.json",
        "template": "chat_template.jinja",
    }
    path.mkdir(parents=True, exist_ok=True)
    (path / "tokenizer.json").write_text(json.dumps(description, ensure_ascii=False), encoding="utf-8")
    for name, content in files.items():
        text = content if isinstance(content, str) else json.dumps(content)
        (path / names[name]).write_text(text, encoding="utf-8")
    return path
