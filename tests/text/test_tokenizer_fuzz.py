"""Damaged tokenizer files end in an error that names them, soon, and take little memory."""

from __future__ import annotations

import json
import os
import random
import time
import tracemalloc
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from glassgear.errors import GlassgearError
from glassgear.text.base import Tokenizer
from glassgear.text.sources import tokenizer_from_file, tokenizer_from_metadata

from .json_tokenizers import byte_fallback, byte_level, unigram, wordpiece
from .vocabularies import BYTES, HEAD, NORMAL, byte_level_metadata, sentencepiece_model, small_llama2c_bin

# Raise it to try more.
TRIES = int(os.environ.get("GLASSGEAR_FUZZ", "2000"))

SECONDS, BYTES_OF_MEMORY = 1.0, 300 << 20

SAMPLE = "he llo\n wörld 12 </s> 你好 🦙 ▁ <|eot_id|>"

NUMBERS = (b"\xff\xff\xff\xff", b"\xff\xff\xff\x7f", b"\0\0\0\x80", b"\0\0\0\0", b"\x01\0\0\0", b"\xff" * 10)
WORDS = (
    b"null", b"true", b"-1", b"1e999", b"99999999999999999999", b"4294967295", b"4294967296", b'""',
    b"[]", b"{}", b'"a"', b'"\\ud800"', b"[[[[", b"(?", b"a{99999}", b"(a+)+$", b"\\\\p{Zz",
    b'"Sequence"', b'"Fixed"',
)  # fmt: skip


def mutated(rng: random.Random, data: bytes, words: tuple[bytes, ...]) -> bytes:
    """The bytes after one to four changes: bits, numbers, copies, cuts."""
    out = bytearray(data)
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(out) + 1)
        match rng.randrange(6):
            case 0 if out:
                out[at - 1] ^= 1 << rng.randrange(8)
            case 1:
                word = rng.choice(words)
                out[at : at + rng.choice((0, len(word)))] = word
            case 2:
                del out[at:]
            case 3:
                del out[at : at + rng.randint(1, 30)]
            case 4:
                start = rng.randrange(len(out) + 1)
                out[at:at] = out[start : start + rng.randint(1, 50)]
            case _ if out:
                out[at - 1] = rng.randrange(256)
    return bytes(out)


def mutated_json(rng: random.Random, data: bytes) -> bytes:
    """JSON with some values replaced, which stays JSON; or bytes changed."""
    if rng.random() < 0.5:
        return mutated(rng, data, WORDS)
    description = json.loads(data)
    for _ in range(rng.randint(1, 3)):
        _replace_one(rng, description)
    return json.dumps(description).encode()


def _replace_one(rng: random.Random, value: object) -> None:
    """Go down a random path and put something else at its end."""
    other = rng.choice(
        (
            None,
            True,
            -1,
            0,
            1,
            2**31,
            2**32,
            1e300,
            "",
            "a",
            "[UNK]",
            "(a+)+$",
            "\\s+",
            " ",
            [],
            {},
            [[]],
            ["a", "b"],
        )
    )
    while True:
        if not isinstance(value, dict | list) or not value:
            return
        key = rng.choice(list(value)) if isinstance(value, dict) else rng.randrange(len(value))
        below = value[key]
        if isinstance(below, dict | list) and below and rng.random() < 0.8:
            value = below
            continue
        if rng.random() < 0.2:
            del value[key]
        else:
            value[key] = other
        return


SEEDS: dict[str, tuple[str, bytes]] = {
    "llama2.c": ("tokenizer.bin", small_llama2c_bin()),
    "SentencePiece": ("tokenizer.model", sentencepiece_model([*HEAD, *BYTES[:40], ("▁a", -1.0, NORMAL)])),
    "byte-level": ("tokenizer.json", json.dumps(byte_level(), ensure_ascii=False).encode()),
    "byte-fallback": ("tokenizer.json", json.dumps(byte_fallback()).encode()),
    "space at the start": ("tokenizer.json", json.dumps(byte_fallback(first_only=True)).encode()),
    "WordPiece": ("tokenizer.json", json.dumps(wordpiece()).encode()),
    "Unigram": ("tokenizer.json", json.dumps(unigram()).encode()),
}
SHARES = {"llama2.c": 1.0, "SentencePiece": 1.0}  # of the tries; the kinds of tokenizer.json share the rest


def use(load: Callable[[], Tokenizer | None], named: str) -> bool:
    """Load and try it; whether loading was refused."""
    try:
        tokenizer = load()
    except GlassgearError as error:
        assert named in str(error)
        return True
    if tokenizer is not None:
        with suppress(GlassgearError):
            tokenizer.decode(tokenizer.encode(SAMPLE, add_special=True, parse_special=True))
        with suppress(GlassgearError):
            tokenizer.decode(tokenizer.encode(SAMPLE))
    return False


@pytest.mark.parametrize("name", SEEDS)
def test_damaged_files_end_in_an_error_that_names_them(
    name: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file, data = SEEDS[name]
    rng = random.Random(f"damage {name}")
    path = tmp_path / file
    path.write_bytes(data)
    assert not use(lambda: tokenizer_from_file(path), str(path))
    refused = 0
    for _ in range(int(TRIES * SHARES.get(name, 0.2))):
        words = NUMBERS if name in SHARES else WORDS
        damaged = mutated_json(rng, data) if name not in SHARES else mutated(rng, data, words)
        path.write_bytes(damaged)
        start = time.process_time()
        refused += use(lambda: tokenizer_from_file(path), str(path))
        assert time.process_time() - start < SECONDS, damaged
    assert refused > TRIES * SHARES.get(name, 0.2) / 10
    capfd.readouterr()  # what the library wrote about its failures


def test_damaged_metadata_end_in_an_error() -> None:
    rng = random.Random("metadata")
    others = (None, True, -1, 2**40, 1.5, "", "gpt-2", [], ["a"], [1], [["a", "b"]], {}, b"x", float("nan"))
    for _ in range(TRIES // 4):
        metadata = byte_level_metadata(bos_token_id=1, eos_token_id=2, add_bos_token=True)
        metadata |= {"tokenizer.ggml.scores": [0.0] * 263, "tokenizer.chat_template": "x"}
        metadata["tokenizer.ggml.model"] = rng.choice(("gpt2", "llama", "bert", "gpt2"))
        for _ in range(rng.randint(1, 3)):
            key = rng.choice(list(metadata))
            if isinstance(metadata[key], list) and metadata[key] and rng.random() < 0.6:
                metadata[key][rng.randrange(len(metadata[key]))] = rng.choice(others)
            else:
                metadata[key] = rng.choice(others)
        use(lambda: tokenizer_from_metadata(metadata, "model.gguf"), "model.gguf")  # noqa: B023


@pytest.mark.parametrize("name", ["llama2.c", "SentencePiece"])
def test_a_small_file_takes_little_memory(name: str, tmp_path: Path) -> None:
    file, data = SEEDS[name]
    path = tmp_path / file
    rng = random.Random(f"memory {name}")
    tracemalloc.start()
    try:
        for _ in range(200):
            path.write_bytes(mutated(rng, data, NUMBERS))
            tracemalloc.reset_peak()
            use(lambda: tokenizer_from_file(path), str(path))
            assert tracemalloc.get_traced_memory()[1] < BYTES_OF_MEMORY
    finally:
        tracemalloc.stop()
