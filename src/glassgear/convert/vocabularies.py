"""The tokenizer of a model, in the one form from which every target's files can be written.

In: GGUF metadata, a folder, or a file. Out: `Content`: pieces, and what makes ids of text. Byte-level
BPE has merges and a rule for words, SentencePiece BPE has scores, WordPiece has its pieces. Other kinds
are left to targets of the same kind as the source, which get the files as they are.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from glassgear.errors import UnsupportedError
from glassgear.text.base import Tokenizer
from glassgear.text.files import read_bytes, read_json
from glassgear.text.gguf_vocabulary import merges_of, read_vocabulary
from glassgear.text.json_settings import Settings, read_settings
from glassgear.text.pretokenizers import (
    BYTES,
    DIGITS,
    GPT2_WORDS,
    ONE_DIGIT,
    PUNCTUATION,
    RULES,
)
from glassgear.text.sources import tokenizer_from_file, tokenizer_from_metadata
from glassgear.text.spm import SPACE
from glassgear.text.spm_files import (
    looks_like_sentencepiece,
    read_llama2c,
    read_sentencepiece,
    with_settings,
)
from glassgear.text.vocabulary import Kind, Vocabulary
from glassgear.text.wordpiece import GOES_ON

__all__ = ["Content", "check_same_ids", "read_content"]

Merge = tuple[str, str]

_MOST_SPARE = 4096  # ids without a piece; a piece is written for each of them


@dataclass(frozen=True)
class Content:
    """See the module.

    Attributes:
        kind: `bpe` (byte-level), `spm` (scores) or `wordpiece`.
        vocabulary: pieces, kinds, roles, settings, chat template. Spaces of `spm` are U+2581, which in
            `wordpiece` begins a word.
        tokenizer: the source's own, which says what ids texts have.
        merges: of `bpe`.
        rule: of `bpe`: how text becomes words, by its name in `pretokenizers.RULES`.
        lowercase: of `wordpiece`: text is lower-cased and loses its accents.
    """

    kind: str
    vocabulary: Vocabulary
    tokenizer: Tokenizer
    merges: Sequence[Merge] = field(default=())
    rule: str = ""
    lowercase: bool = False


def read_content(source: Mapping[str, Any] | Path, path: str) -> Content | None:
    """The tokenizer in GGUF metadata, a folder or a file; None if there is none.

    Raises:
        UnsupportedError: a kind that can't be written anew; the message says which.
    """
    if isinstance(source, Mapping):
        return _of_metadata(source, path)
    tokenizer = tokenizer_from_file(source)
    if tokenizer is None:
        return None
    folder = source if source.is_dir() else source.parent
    if not source.is_dir():
        return _of_file(source, tokenizer)
    model = folder / "tokenizer.model"
    if model.is_file() and looks_like_sentencepiece(read_bytes(model)) and tokenizer.kind in ("spm", "bpe"):
        return _of_file(model, tokenizer)  # it has the scores that a tokenizer.json lacks
    return _of_file(folder / "tokenizer.json" if tokenizer.kind != "spm" else model, tokenizer)


def _of_metadata(metadata: Mapping[str, Any], path: str) -> Content | None:
    tokenizer = tokenizer_from_metadata(metadata, path)
    if tokenizer is None:
        return None
    kind = metadata["tokenizer.ggml.model"]
    if kind == "llama":
        return Content("spm", read_vocabulary(metadata, path, adds_bos=True), tokenizer)
    if kind == "bert":
        lowercase = metadata.get("tokenizer.ggml.normalizer.lowercase", True)
        return Content("wordpiece", read_vocabulary(metadata, path), tokenizer, lowercase=bool(lowercase))
    if kind != "gpt2":
        raise UnsupportedError(path, f"has a tokenizer of the kind {kind!r}, which can't be written anew")
    rule = metadata.get("tokenizer.ggml.pre")
    if rule not in RULES:
        raise UnsupportedError(
            path,
            f"doesn't say in a way known here how text is cut into words (`tokenizer.ggml.pre` {rule!r})",
        )
    adds_bos = RULES[rule].adds_bos
    vocabulary = read_vocabulary(metadata, path, adds_bos=adds_bos)
    return Content("bpe", vocabulary, tokenizer, merges_of(metadata, path), rule)


def _of_file(path: Path, tokenizer: Tokenizer) -> Content:
    data = read_bytes(path)
    if path.suffix == ".json" or data.lstrip()[:1] == b"{":
        return _of_json(path, tokenizer)
    if looks_like_sentencepiece(data):
        found = with_settings(read_sentencepiece(path, data), read_settings(path))
        return Content("spm", replace(found, adds_bos=tokenizer.adds_bos), tokenizer)
    found = read_llama2c(path, data)
    pieces = [
        piece.replace(" ", SPACE) if kind == Kind.NORMAL else piece
        for piece, kind in zip(found.pieces, found.kinds, strict=True)
    ]
    return Content("spm", replace(found, pieces=pieces), tokenizer)


# --------------------------------------------------------------------------------------------
# tokenizer.json


def _of_json(path: Path, tokenizer: Tokenizer) -> Content:
    description = read_json(path)
    model = description["model"]
    if model.get("type") == "WordPiece":
        return _of_wordpiece(path, description, tokenizer)
    if model.get("type", "BPE") != "BPE":
        raise UnsupportedError(
            path, f"is a tokenizer of the kind {model['type']}; which can't be written anew"
        )
    settings = read_settings(path)
    merges = merges_of({"tokenizer.ggml.merges": model["merges"]}, str(path))
    is_spm = model.get("byte_fallback") is True
    vocabulary = _vocabulary(path, description, settings, tokenizer, is_spm)
    if is_spm:
        scores = _scores(path, vocabulary, merges)
        return Content("spm", replace(vocabulary, scores=scores), tokenizer)
    rule = _rule_name(description)
    if rule is None:
        raise UnsupportedError(
            path, "cuts text into words by a rule that GGUF files have no name for (its `pre_tokenizer`)"
        )
    return Content("bpe", vocabulary, tokenizer, merges, rule)


def _of_wordpiece(path: Path, description: Mapping[str, Any], tokenizer: Tokenizer) -> Content:
    normalizer = description.get("normalizer") or {}
    lowercase = normalizer.get("lowercase") is True
    usual = (
        normalizer.get("type") == "BertNormalizer"
        and normalizer.get("strip_accents") in (None, lowercase)
        and normalizer.get("handle_chinese_chars") is not False
        and normalizer.get("clean_text") is not False
    )
    if not usual:
        raise UnsupportedError(path, "cleans text in a way that can't be written anew (its `normalizer`)")
    found = _vocabulary(path, description, read_settings(path), tokenizer, is_spm=False)
    pieces = [
        _begins_or_goes_on(piece) if kind == Kind.NORMAL else piece
        for piece, kind in zip(found.pieces, found.kinds, strict=True)
    ]
    return Content("wordpiece", replace(found, pieces=pieces), tokenizer, lowercase=lowercase)


def _begins_or_goes_on(piece: str) -> str:
    """As GGUF spells it: what begins a word is marked, where vocab.txt marks what goes on."""
    return piece.removeprefix(GOES_ON) if piece.startswith(GOES_ON) else SPACE + piece


def _vocabulary(
    path: Path, description: Mapping[str, Any], settings: Settings, tokenizer: Tokenizer, is_spm: bool
) -> Vocabulary:
    model = description["model"]
    by_id = {token: piece for piece, token in model["vocab"].items()}
    added = [*settings.added, *(description.get("added_tokens") or ())]
    special = set(tokenizer.special)
    extra = {entry["content"]: entry["id"] for entry in added if isinstance(entry.get("id"), int)}
    by_id |= {token: text for text, token in extra.items() if token not in by_id}
    count = max(by_id) + 1
    if count > 4 * len(by_id) + _MOST_SPARE:
        raise UnsupportedError(
            path, f"has the id {count - 1:,} among {len(by_id):,} pieces: ids must be close"
        )
    pieces = [by_id.get(token, f"[PAD{token}]") for token in range(count)]

    def kind(token: int, piece: str) -> int:
        if token not in by_id:
            return Kind.UNUSED
        if is_spm and piece == model.get("unk_token"):
            return Kind.UNKNOWN
        if piece in special:
            return Kind.CONTROL
        if piece in extra:
            return Kind.USER_DEFINED
        is_byte = is_spm and len(piece) == 6 and piece.startswith("<0x") and piece.endswith(">")
        return Kind.BYTE if is_byte else Kind.NORMAL

    roles = {
        name.removesuffix("_token"): pieces.index(text)
        for name, text in tokenizer.special_tokens.items()
        if text in by_id.values()
    }
    ends = {"bos": tokenizer.bos_id, "eos": tokenizer.eos_id}
    roles |= {role: token for role, token in ends.items() if token is not None}
    words = json.dumps([description.get("normalizer"), description.get("pre_tokenizer")])
    never = '"prepend_scheme": "never"' in words
    return Vocabulary(
        str(path),
        pieces,
        [kind(token, piece) for token, piece in enumerate(pieces)],
        roles=roles,
        adds_bos=tokenizer.adds_bos,
        adds_eos=tokenizer.adds_eos,
        space_prefix=is_spm and ('"Prepend"' in words or '"Metaspace"' in words) and not never,
        chat_template=tokenizer.chat_template,
    )


def _scores(path: Path, vocabulary: Vocabulary, merges: Sequence[Merge]) -> list[float]:
    """Scores under which SentencePiece merges as the list does: the place of the first merge of a piece.

    That holds where a piece may be put together from any two pieces, as converters list them; the
    comparison of ids finds other lists.
    """
    ranks: dict[str, int] = {}
    for rank, (left, right) in enumerate(merges):
        ranks.setdefault(left + right, rank)
    known = set(vocabulary.pieces)
    if lost := [piece for piece in ranks if piece not in known]:
        raise UnsupportedError(path, f"merges into {lost[0]!r}, which is no piece of its vocabulary")
    # Single characters are never merged into; converters give them the scores after all merges.
    return [-float(ranks[p]) if p in ranks else -float(len(merges)) for p in vocabulary.pieces]


# What published files write, where this package's rule is written so that it takes linear time.
_ALIKE = {r"\s+$": r"(?<!\s)\s+$"}


def _rule_name(description: Mapping[str, Any]) -> str | None:
    """The name of the rule that a tokenizer.json spells out, or None."""
    steps = [_step(one) for one in _flat(description.get("pre_tokenizer"), "pretokenizers")]
    normalizers = [one.get("type") for one in _flat(description.get("normalizer"), "normalizers")]
    if None in steps or normalizers not in ([], ["NFC"]):
        return None
    whole_words = description["model"].get("ignore_merges") is True
    for name, rule in RULES.items():
        wanted = (rule.steps, rule.composes, rule.whole_words)
        if wanted == (tuple(steps), bool(normalizers), whole_words):
            return name
    return None


def _flat(step: Any, inside: str) -> Iterable[Mapping[str, Any]]:
    if not isinstance(step, Mapping):
        return
    if step.get("type") == "Sequence":
        for one in step.get(inside) or ():
            yield from _flat(one, inside)
    else:
        yield step


def _step(step: Mapping[str, Any]) -> str | None:
    kind = step.get("type")
    if kind == "ByteLevel" and not step.get("add_prefix_space"):
        return GPT2_WORDS if step.get("use_regex", True) else BYTES
    if kind == "Digits":
        return ONE_DIGIT if step.get("individual_digits") else DIGITS
    if kind == "Punctuation" and step.get("behavior") == "Contiguous":
        return PUNCTUATION
    if kind == "Split":
        pattern = step.get("pattern") or {}
        every = step.get("behavior") == "Isolated" and not step.get("invert")
        matches = step.get("behavior") == "Removed" and step.get("invert") is True
        text = pattern.get("Regex", pattern.get("String"))
        if isinstance(text, str) and (every or matches):
            return _ALIKE.get(text, text)
    return None


# --------------------------------------------------------------------------------------------
# The check

_PROBES = (
    "Once upon a time, there was a little girl named Lily.",
    "Hello, World! It's 2024-05-17; 1234567 items cost $3.50 (or 99%).",
    "  two  spaces,\ttabs\tand\n\nnew lines \n",
    "Ein Café in Zürich: 3 Äpfel, naïve façade, œuvre",
    "Привет, мир! 今日は世界。 안녕하세요 שלום مرحبا",
    "def f(x):\n    return {'a': [x ** 2 for x in range(10)]}  # comment\n",
    "e\u0301 and \u00e9, emoji 😀👩‍👩‍👧",
    "THE QUICK brown fox's they'll we've I'm don't",
    "a",
    " ",
    "http://example.com/path?query=1&more=%20two",
)


def check_same_ids(ours: Tokenizer, theirs: Tokenizer, what: str) -> None:
    """Refuse a target whose tokenizer gives other ids than the source's.

    Args:
        ours: the source's tokenizer.
        theirs: the tokenizer that a reader makes of what is to be written.
        what: the target, for the message.

    Raises:
        UnsupportedError: a text of several scripts and kinds has other ids.
    """
    for text in _PROBES:
        for special in (False, True):
            if _ids(ours, text, special) != _ids(theirs, text, special):
                raise UnsupportedError(
                    what,
                    f"its tokenizer would give other ids for {text!r:.50} there, so it isn't written",
                )


def _ids(tokenizer: Tokenizer, text: str, special: bool) -> list[int] | str:
    from glassgear.errors import TokenizerError

    try:
        return tokenizer.encode(text, add_special=special)
    except TokenizerError:
        return "not encodable"
