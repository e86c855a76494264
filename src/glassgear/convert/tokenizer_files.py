"""Tokenizers as targets hold them: GGUF keys, tokenizer.json and tokenizer.model, tokenizer.bin.

In: `Content`. Out: dicts and bytes; nothing is written here.
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from glassgear.convert.vocabularies import Content, Merge
from glassgear.errors import UnsupportedError
from glassgear.text.ends import end_ids
from glassgear.text.pretokenizers import RULES, pre_tokenizer
from glassgear.text.spm import SPACE
from glassgear.text.vocabulary import Kind, Vocabulary
from glassgear.text.wordpiece import GOES_ON

__all__ = [
    "gguf_keys",
    "llama2c_tokenizer",
    "sentencepiece_model",
    "templates_by_file",
    "tokenizer_config",
    "tokenizer_json",
]

_ROLE_KEYS = {
    "bos": "bos_token_id", "eos": "eos_token_id", "unk": "unknown_token_id", "pad": "padding_token_id",
    "cls": "cls_token_id", "sep": "seperator_token_id", "mask": "mask_token_id", "eot": "eot_token_id",
    "eom": "eom_token_id",
}  # fmt: skip


def gguf_keys(content: Content, rows: int, ends: frozenset[int]) -> tuple[dict[str, Any], list[int]]:
    """The keys under `tokenizer.`, and those end ids that no key has room for.

    Args:
        content: the tokenizer.
        rows: of the embedding table; files list a piece for each, whatever it is.
        ends: the ids that end an answer.
    """
    vocabulary = content.vocabulary
    spare = range(len(vocabulary.pieces), rows)
    keys: dict[str, Any] = {
        "tokenizer.ggml.model": {"spm": "llama", "bpe": "gpt2", "wordpiece": "bert"}[content.kind],
        "tokenizer.ggml.pre": content.rule if content.kind == "bpe" else "default",
        "tokenizer.ggml.tokens": [*vocabulary.pieces, *(f"[PAD{token}]" for token in spare)],
        "tokenizer.ggml.token_type": np.array([*vocabulary.kinds, *(Kind.UNUSED for _ in spare)], np.int32),
    }
    if content.kind == "spm":
        scores = list(vocabulary.scores) or [0.0] * len(vocabulary.pieces)
        keys["tokenizer.ggml.scores"] = np.array([*scores, *(-1e4 for _ in spare)], np.float32)
        keys["tokenizer.ggml.add_space_prefix"] = vocabulary.space_prefix
        keys["tokenizer.ggml.remove_extra_whitespaces"] = vocabulary.squeezes_spaces
    elif content.kind == "bpe":
        keys["tokenizer.ggml.merges"] = [_as_text(merge) for merge in content.merges]
    else:
        keys["tokenizer.ggml.token_type_count"] = 2
        keys["tokenizer.ggml.normalizer.lowercase"] = content.lowercase
    roles, left = _roles(vocabulary, ends)
    keys |= {
        f"tokenizer.ggml.{_ROLE_KEYS[role]}": token for role, token in roles.items() if role in _ROLE_KEYS
    }
    if content.kind != "wordpiece":  # whose texts stand between [CLS] and [SEP] without being told
        keys["tokenizer.ggml.add_bos_token"] = vocabulary.adds_bos
        keys["tokenizer.ggml.add_eos_token"] = vocabulary.adds_eos
    return keys | _templates(vocabulary), left


def _as_text(merge: Merge) -> str:
    return f"{merge[0]} {merge[1]}"


def _roles(vocabulary: Vocabulary, ends: frozenset[int]) -> tuple[dict[str, int], list[int]]:
    """Roles with room made for end ids that readers wouldn't find by their names."""
    roles = dict(vocabulary.roles)
    control = vocabulary.of_kind(Kind.CONTROL, Kind.UNKNOWN)
    special = {vocabulary.pieces[token]: token for token in control}
    left = sorted(ends - end_ids(special, roles))
    for role in ("eos", "eot", "eom"):
        if left and role not in roles:
            roles[role] = left.pop(0)
    return roles, left


def _templates(vocabulary: Vocabulary) -> dict[str, str]:
    template = vocabulary.chat_template
    if template is None:
        return {}
    named = {"default": template} if isinstance(template, str) else dict(template)
    prefix = "tokenizer.chat_template"
    return {prefix if name == "default" else f"{prefix}.{name}": text for name, text in named.items()}


# --------------------------------------------------------------------------------------------
# Folders


def tokenizer_json(content: Content) -> dict[str, Any]:
    """What a `tokenizer.json` says.

    Raises:
        UnsupportedError: a setting that the format has no place for.
    """
    vocabulary = content.vocabulary
    if vocabulary.squeezes_spaces:
        raise UnsupportedError(
            vocabulary.path, "squeezes runs of spaces, which can't be written as tokenizer.json"
        )
    if content.kind == "wordpiece":
        shape = _wordpiece_json(content)
    else:
        shape = _spm_json(vocabulary) if content.kind == "spm" else _byte_level_json(content)
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": _added(vocabulary),
        **shape,
        "post_processor": _frame(content),
    }


def _added(vocabulary: Vocabulary) -> list[dict[str, Any]]:
    plain = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    return [
        {
            "id": token,
            "content": vocabulary.pieces[token],
            **plain,
            "special": vocabulary.kinds[token] != Kind.USER_DEFINED,
        }
        for token in vocabulary.of_kind(Kind.CONTROL, Kind.UNKNOWN, Kind.USER_DEFINED)
        if vocabulary.pieces[token]
    ]


def _frame(content: Content) -> dict[str, Any] | None:
    """What puts BOS and EOS around a text, or [CLS] and [SEP]."""
    vocabulary, roles = content.vocabulary, content.vocabulary.roles
    first, last = ("cls", "sep") if content.kind == "wordpiece" else ("bos", "eos")
    always = content.kind == "wordpiece"
    before = [vocabulary.pieces[roles[first]]] if first in roles and (always or vocabulary.adds_bos) else []
    after = [vocabulary.pieces[roles[last]]] if last in roles and (always or vocabulary.adds_eos) else []
    if not before + after:
        return None

    def part(kind: str, name: str, number: int) -> dict[str, Any]:
        return {kind: {"id": name, "type_id": number}}

    def framed(name: str, number: int, opened: list[str]) -> list[dict[str, Any]]:
        tokens = [part("SpecialToken", token, number) for token in opened]
        return [*tokens, part("Sequence", name, number), *(part("SpecialToken", t, number) for t in after)]

    ids = {roles[role]: vocabulary.pieces[roles[role]] for role in (first, last) if role in roles}
    return {
        "type": "TemplateProcessing",
        "single": framed("A", 0, before),
        "pair": framed("A", 0, before) + framed("B", 1, [] if always else before),
        "special_tokens": {
            piece: {"id": piece, "ids": [token], "tokens": [piece]}
            for token, piece in ids.items()
            if piece in before + after
        },
    }


def _vocab(vocabulary: Vocabulary) -> dict[str, int]:
    """Piece -> id; the first of equal pieces counts, and spare ones are left out."""
    found: dict[str, int] = {}
    for token, (piece, kind) in enumerate(zip(vocabulary.pieces, vocabulary.kinds, strict=True)):
        if piece and kind != Kind.UNUSED:
            found.setdefault(piece, token)
    return found


def _model(vocab: dict[str, int], merges: Iterable[Merge], **settings: Any) -> dict[str, Any]:
    return {
        "type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
        "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
        **settings, "vocab": vocab, "merges": [list(merge) for merge in merges],
    }  # fmt: skip


def _byte_level_json(content: Content) -> dict[str, Any]:
    from tokenizers import Tokenizer, models

    rule = RULES[content.rule]
    shell = Tokenizer(models.BPE())
    shell.pre_tokenizer = pre_tokenizer(rule)
    vocab = _vocab(content.vocabulary)
    merges = [(a, b) for a, b in content.merges if a in vocab and b in vocab and a + b in vocab]
    return {
        "normalizer": {"type": "NFC"} if rule.composes else None,
        "pre_tokenizer": json.loads(shell.to_str())["pre_tokenizer"],
        "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
        "model": _model(vocab, merges, ignore_merges=rule.whole_words),
    }


def _wordpiece_json(content: Content) -> dict[str, Any]:
    """As published for BERT."""
    vocabulary = content.vocabulary
    vocab: dict[str, int] = {}
    for token, (piece, kind) in enumerate(zip(vocabulary.pieces, vocabulary.kinds, strict=True)):
        if kind == Kind.NORMAL:
            piece = piece.removeprefix(SPACE) if piece.startswith(SPACE) else GOES_ON + piece  # noqa: PLW2901
        if kind != Kind.UNUSED:
            vocab.setdefault(piece, token)
    return {
        "normalizer": {
            "type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True,
            "strip_accents": None, "lowercase": content.lowercase,
        },
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "decoder": {"type": "WordPiece", "prefix": GOES_ON, "cleanup": True},
        "model": {
            "type": "WordPiece", "unk_token": vocabulary.pieces[vocabulary.roles["unk"]],
            "continuing_subword_prefix": GOES_ON, "max_input_chars_per_word": 100, "vocab": vocab,
        },
    }  # fmt: skip


def _spm_json(vocabulary: Vocabulary) -> dict[str, Any]:
    """As published for Llama 2: spaces become U+2581, one is put in front, bytes spell the rest."""
    prefix = vocabulary.space_prefix
    normalizers: list[dict[str, Any]] = [{"type": "Prepend", "prepend": SPACE}] if prefix else []
    normalizers.append({"type": "Replace", "pattern": {"String": " "}, "content": SPACE})
    decoders: list[dict[str, Any]] = [
        {"type": "Replace", "pattern": {"String": SPACE}, "content": " "},
        {"type": "ByteFallback"},
        {"type": "Fuse"},
    ]
    if prefix:
        decoders.append({"type": "Strip", "content": " ", "start": 1, "stop": 0})
    unknown = vocabulary.roles.get("unk")
    return {
        "normalizer": {"type": "Sequence", "normalizers": normalizers},
        "pre_tokenizer": None,
        "decoder": {"type": "Sequence", "decoders": decoders},
        "model": _model(
            _vocab(vocabulary),
            _merges(vocabulary),
            unk_token=None if unknown is None else vocabulary.pieces[unknown],
            fuse_unk=True,
            byte_fallback=bool(vocabulary.of_kind(Kind.BYTE)),
        ),
    }


def _merges(vocabulary: Vocabulary) -> list[Merge]:
    """Every way to put a piece together from two, the pieces with the best scores first."""
    usable = (Kind.NORMAL, Kind.USER_DEFINED)
    ids = {
        p: t for t, (p, k) in enumerate(zip(vocabulary.pieces, vocabulary.kinds, strict=True)) if k in usable
    }
    scores = vocabulary.scores or [0.0] * len(vocabulary.pieces)
    merges: list[Merge] = []
    for token in sorted(ids.values(), key=lambda token: (-scores[token], token)):
        piece = vocabulary.pieces[token]
        pairs = [(piece[:cut], piece[cut:]) for cut in range(1, len(piece))]
        found = [(a, b) for a, b in pairs if a in ids and b in ids]
        merges += sorted(found, key=lambda pair: (ids[pair[0]], ids[pair[1]]))
    return merges


def tokenizer_config(content: Content, context: int) -> dict[str, Any]:
    """What a `tokenizer_config.json` says; the chat template has a file of its own."""
    vocabulary = content.vocabulary
    named = {
        f"{role}_token": vocabulary.pieces[token]
        for role, token in vocabulary.roles.items()
        if role in ("bos", "eos", "unk", "pad", "sep", "cls", "mask")
    }
    flags = {"add_bos_token": vocabulary.adds_bos, "add_eos_token": vocabulary.adds_eos}
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        # They would go before what tokenizer.json says of [CLS] and [SEP].
        **({} if content.kind == "wordpiece" else flags),
        "clean_up_tokenization_spaces": False,
        "model_max_length": context,
        **named,
    }


# --------------------------------------------------------------------------------------------
# SentencePiece's and llama2.c's files


def sentencepiece_model(vocabulary: Vocabulary) -> bytes:
    """A `tokenizer.model`: the fields of `sentencepiece_model.proto` that matter."""
    out = bytearray()
    scores = vocabulary.scores or [0.0] * len(vocabulary.pieces)
    for piece, score, kind in zip(vocabulary.pieces, scores, vocabulary.kinds, strict=True):
        entry = _field(1, piece.encode()) + _tag(2, 5) + struct.pack("<f", score) + _field(3, int(kind))
        out += _field(1, entry)
    roles = vocabulary.roles
    trainer = _field(3, 2) + _field(4, len(vocabulary.pieces))  # of the kind BPE
    trainer += _field(35, int(bool(vocabulary.of_kind(Kind.BYTE))))
    for number, role in enumerate(("unk", "bos", "eos", "pad"), start=40):
        trainer += _field(number, roles.get(role, -1))
    normalizer = _field(1, b"identity") + _field(3, int(vocabulary.space_prefix))
    normalizer += _field(4, int(vocabulary.squeezes_spaces)) + _field(5, 1)
    return bytes(out + _field(2, trainer) + _field(3, normalizer))


def _field(number: int, value: int | bytes) -> bytes:
    """One field of a protocol-buffer message."""
    if isinstance(value, int):
        return _tag(number, 0) + _varint(value)
    return _tag(number, 2) + _varint(len(value)) + value


def _tag(number: int, wire: int) -> bytes:
    return _varint(number << 3 | wire)


def _varint(value: int) -> bytes:
    value &= (1 << 64) - 1
    out = bytearray()
    while value >= 128:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


def llama2c_tokenizer(content: Content, rows: int) -> bytes:
    """A llama2.c `tokenizer.bin`: scores and pieces, and nothing else.

    Raises:
        UnsupportedError: a vocabulary that its programs would misread; the message says why.
    """
    vocabulary = content.vocabulary
    where = vocabulary.path
    if content.kind != "spm":
        raise UnsupportedError(
            where, "has a byte-level BPE vocabulary; llama2.c's tokenizer.bin has scores only"
        )
    if len(vocabulary.pieces) != rows:
        raise UnsupportedError(
            where,
            f"has {len(vocabulary.pieces):,} pieces for {rows:,} rows of embeddings; llama2.c reads as many",
        )
    if {role: vocabulary.roles.get(role) for role in ("unk", "bos", "eos")} != {"unk": 0, "bos": 1, "eos": 2}:
        raise UnsupportedError(
            where, "has other ids than 0, 1 and 2 for unknown, BOS and EOS, which llama2.c has built in"
        )
    bytes_at = vocabulary.of_kind(Kind.BYTE)
    if bytes_at and bytes_at != list(range(3, 259)):
        raise UnsupportedError(
            where, "has its 256 byte pieces elsewhere than at 3, where llama2.c looks for them"
        )
    if not vocabulary.space_prefix or vocabulary.adds_eos or not vocabulary.adds_bos:
        raise UnsupportedError(where, "doesn't begin a text with BOS and a space, as llama2.c always does")
    raw = [_llama2c_piece(piece, token) for token, piece in enumerate(vocabulary.pieces)]
    scores = vocabulary.scores or [0.0] * len(raw)
    out = struct.pack("<i", max(map(len, raw)))
    return out + b"".join(
        struct.pack("<fi", score, len(piece)) + piece for piece, score in zip(raw, scores, strict=True)
    )


def _llama2c_piece(piece: str, token: int) -> bytes:
    """As its exporter writes it: BOS and EOS between line ends, spaces as they are."""
    if token in (1, 2):
        return f"\n{piece}\n".encode()
    return piece.replace(SPACE, " ").encode()


def templates_by_file(vocabulary: Vocabulary) -> Mapping[str, str]:
    """Chat templates as folders hold them: file -> Jinja source.

    Raises:
        UnsupportedError: a template whose name is no plain word.
    """
    template = vocabulary.chat_template
    if template is None:
        return {}
    named = {"default": template} if isinstance(template, str) else template
    # A name from a file becomes the name of a file.
    if strange := [name for name in named if not re.fullmatch(r"[A-Za-z0-9_-]{1,64}", name)]:
        raise UnsupportedError(
            vocabulary.path, f"has a chat template called {strange[0]!r:.60}, which can't be a file's name"
        )
    return {
        "chat_template.jinja" if name == "default" else f"additional_chat_templates/{name}.jinja": text
        for name, text in named.items()
    }
