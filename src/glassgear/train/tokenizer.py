"""A tokenizer of one's own: BPE over characters with bytes to fall back on, as Llama 2's is.

The form is SentencePiece's (a space is `▁`, one is put in front), so that llama2.c, llama.cpp and
transformers can all have it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

from glassgear.errors import FormatError, SettingError
from glassgear.weights.atomic import replacing

__all__ = [
    "BOS",
    "EOS",
    "UNKNOWN",
    "check_size",
    "entries",
    "entries_of",
    "read_tokenizer",
    "train_tokenizer",
]

UNKNOWN, BOS, EOS = "<unk>", "<s>", "</s>"
BYTES = tuple(f"<0x{i:02X}>" for i in range(256))
FIRST = (UNKNOWN, BOS, EOS, *BYTES)
LEAST, MOST = len(FIRST) + 8, 1 << 24  # entries: a few of them are characters; more fit into no table
CONFIG = {
    "unk_token": UNKNOWN, "bos_token": BOS, "eos_token": EOS, "add_bos_token": True, "add_eos_token": False,
}  # fmt: skip


def read_tokenizer(path: Path, name: str = "") -> Any:
    """A `tokenizers.Tokenizer` from its tokenizer.json.

    Args:
        path: the file.
        name: what it is called in an error, if not by its path.

    Raises:
        FormatError: it is none.
    """
    from tokenizers import Tokenizer

    try:
        return Tokenizer.from_file(str(path))
    except Exception as trouble:  # the library raises nothing more particular
        raise FormatError(name or path, f"is no tokenizer.json: {trouble}") from trouble


def entries(tokenizer: Any) -> int:
    """How many rows a table needs for every id of a tokenizer: one more than the largest."""
    return max(tokenizer.get_vocab().values(), default=-1) + 1


def entries_of(path: Path) -> int:
    """The same of a file, which is read once however often it is asked about.

    Raises:
        FormatError: it is no tokenizer.json.
    """
    about = path.stat()
    return _entries_of(path, about.st_size, about.st_mtime_ns)


@lru_cache(maxsize=4)
def _entries_of(path: Path, size: int, changed: int) -> int:
    return entries(read_tokenizer(path))


def check_size(size: int) -> None:
    """Whether a tokenizer of our own can have so many entries.

    Raises:
        SettingError: too few for bytes and characters, or more than anybody needs.
    """
    if size < LEAST:
        raise SettingError(
            f"a tokenizer of {size:,} entries is too small: at least {LEAST} are needed, of which "
            f"{len(FIRST)} are control tokens and bytes"
        )
    if size > MOST:
        raise SettingError(f"a tokenizer of {size:,} entries is too large: the most are {MOST:,}")


def train_tokenizer(texts: Iterator[str], size: int, path: Path) -> None:
    """Train on texts, and write a tokenizer.json of exactly `size` entries, and its config beside it.

    Ids are in SentencePiece's order: the control tokens, 256 bytes, then what was merged, the
    commonest first, and single characters.

    Raises:
        SettingError: a size that `check_size` refuses, or more than the text can fill.
    """
    from tokenizers import Tokenizer, decoders, models, normalizers, processors, trainers

    check_size(size)
    tokenizer = Tokenizer(models.BPE(unk_token=UNKNOWN, fuse_unk=True, byte_fallback=True))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.pre_tokenizer = _words()
    trainer = trainers.BpeTrainer(
        vocab_size=size, special_tokens=list(FIRST), show_progress=False, limit_alphabet=size - len(FIRST) - 1
    )
    tokenizer.train_from_iterator(texts, trainer)
    found = tokenizer.get_vocab_size()
    if found < size:
        raise SettingError(
            f"the text fills {found:,} entries of the {size:,} that the tokenizer should have: "
            "give more text, or ask for fewer"
        )
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    begin = tokenizer.token_to_id(BOS)
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{BOS} $A", pair=f"{BOS} $A {BOS} $B", special_tokens=[(BOS, begin)]
    )
    with replacing(path) as file:
        file.write(json.dumps(_as_llama(json.loads(tokenizer.to_str())), ensure_ascii=False).encode())
    with replacing(path.with_name("tokenizer_config.json")) as file:
        file.write(json.dumps(CONFIG, indent=1).encode())


def _as_llama(made: dict[str, Any]) -> dict[str, Any]:
    """Bytes are ordinary entries: the text `<0x41>` isn't the byte 0x41."""
    made["added_tokens"] = [
        entry for entry in made["added_tokens"] if entry["content"] in (UNKNOWN, BOS, EOS)
    ]
    return made


def _words() -> Any:
    """Merges stay within letters, digits or other signs, and the spaces before them.

    So `time,` is two tokens, and a model that has seen it knows `time` and `,` as well. A kind of character
    never changes within an entry: whoever merges without these borders comes to the same tokens.
    """
    from tokenizers import Regex, pre_tokenizers

    letters, digits = r"\p{L}\p{M}'’", r"\p{N}"
    return pre_tokenizers.Split(Regex(f"▁*(?:[{letters}]+|{digits}+|[^▁{letters}{digits}]+)|▁+"), "isolated")
